"""The columns that a row of ``format("penstock")`` can have, and how each is cut out of a pulled batch.

Pure: bytes in, Arrow out. A pulled batch is entries of fixed width and then untouched log frames (``message.ENTRY``,
``message.RECORD_HEAD``). numpy finds all borders at once; a column of bytes is one Arrow array laid over the batch
with a border before and behind each value, of which every second element is taken. No Python runs per record, except
for ``properties`` and for text that is no UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidMessage
from penstock.protocol import message
from penstock.protocol.compression import COMPRESSED, SYSTEM_FLAG_AT, decompress
from penstock.protocol.trace_context import TRACEPARENT

_Numbers = npt.NDArray[np.int64]

ENTRY_TYPE: Final = np.dtype([("offset", ">i8"), ("position", ">i8"), ("size", ">u4"), ("tag", ">i8")])
assert ENTRY_TYPE.itemsize == message.ENTRY.size

_FLAG_AT: Final = message.QUEUE_ID_AT + 4
_BORN_AT: Final = 40
_BODY_SIZE_AT: Final = message.BODY_AT - 4
_MILLISECONDS_MAX: Final = 253_402_300_799_999  # the end of year 9999, Spark's last
LOG_APPEND_TIME: Final = 1
"""Kafka's number for times that the broker gives."""
_TIME: Final = pa.timestamp("us", tz="UTC")


class Borders(NamedTuple):
    """Where the fields of each record of a pulled batch are, in bytes from its begin."""

    data: npt.NDArray[np.uint8]
    offsets: _Numbers
    positions: _Numbers
    records: _Numbers
    bodies: _Numbers
    body_ends: _Numbers
    properties: _Numbers
    property_ends: _Numbers

    def __len__(self) -> int:
        return len(self.offsets)


class Origin(NamedTuple):
    """What all rows of a batch share."""

    topic: str
    broker: str
    queue: int


def find_borders(count: int, batch: bytes | memoryview, end: int) -> Borders:
    """Borders of the records before offset ``end`` of a batch of ``count``. Raises ``InvalidMessage``."""
    data: npt.NDArray[np.uint8] = np.frombuffer(batch, np.uint8)
    if count * ENTRY_TYPE.itemsize > len(data):
        raise InvalidMessage("a pulled batch is shorter than its entries")
    entries = np.frombuffer(batch, ENTRY_TYPE, count)
    offsets = entries["offset"].astype(np.int64)
    keep = int(np.searchsorted(offsets, end))
    sizes = entries["size"][:keep].astype(np.int64)
    ends = count * ENTRY_TYPE.itemsize + np.cumsum(sizes)
    records = ends - sizes + message.FRAME_HEAD_BYTES
    if keep and (ends[-1] > len(data) or sizes.min() < message.FRAME_HEAD_BYTES + message.RECORD_BYTES_MIN):
        raise InvalidMessage("a pulled batch is shorter than its frames")
    bodies = records + message.BODY_AT
    body_ends = _within(bodies + _u32(data, records + _BODY_SIZE_AT), ends - 4)
    properties = _within(body_ends + 2 + _u16(data, body_ends), ends - 2) + 2
    lengths = _u16(data, properties - 2)
    property_ends = np.where(lengths == message.LENGTH_IS_REST, ends, properties + lengths)
    if not np.array_equal(property_ends, ends):
        raise InvalidMessage("a frame of a pulled batch is damaged: its lengths do not add up")
    positions = entries["position"][:keep].astype(np.int64)
    return Borders(data, offsets[:keep], positions, records, bodies, body_ends, properties, property_ends)


def to_record_batch(borders: Borders, origin: Origin, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Rows of the records within ``borders``."""
    arrays = [COLUMNS[name].build(borders, origin) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The exact Arrow types that Spark expects of these columns."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in columns])


# ---------------------------------------------------------------- numbers and slices out of bytes


def _u32(data: npt.NDArray[np.uint8], at: _Numbers) -> _Numbers:
    return _number(data, at, ">u4")


def _u16(data: npt.NDArray[np.uint8], at: _Numbers) -> _Numbers:
    return _number(data, at, ">u2")


def _number(data: npt.NDArray[np.uint8], at: _Numbers, kind: str) -> _Numbers:
    """The big-endian numbers at these places. They are picked out of an array that has a number at each byte."""
    count = len(data) + 1 - np.dtype(kind).itemsize
    if not len(at) or count <= 0:
        return np.zeros(len(at), np.int64)
    numbers: _Numbers = np.ndarray((count,), kind, data, strides=(1,))[at].astype(np.int64)
    return numbers


def _within(places: _Numbers, limits: _Numbers) -> _Numbers:
    if np.any(places > limits):
        raise InvalidMessage("a frame of a pulled batch is damaged: a field is longer than the frame")
    return places


def _slices(data: npt.NDArray[np.uint8], starts: _Numbers, ends: _Numbers) -> pa.Array:
    """Bytes from each start to its end: one array over all of ``data``, of which the gaps are not taken."""
    if not len(starts):
        return pa.array([], pa.binary())
    borders = np.empty(2 * len(starts), np.int32)
    borders[0::2] = starts
    borders[1::2] = ends
    laid = pa.Array.from_buffers(pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)])
    return laid.take(_numbers(np.arange(0, len(borders) - 1, 2)))


def _numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Numbers as Arrow has them. ``pa.array`` of numpy's would load pandas first, where that is installed."""
    kind, held = pa.from_numpy_dtype(values.dtype), pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, held])


def _same(text: str, count: int) -> pa.Array:
    """One text in each row."""
    data = text.encode()
    ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(data)))
    return pa.Array.from_buffers(pa.string(), count, [None, ends, pa.py_buffer(data * count)])


def _times(milliseconds: _Numbers) -> pa.Array:
    return _numbers(np.clip(milliseconds, 0, _MILLISECONDS_MAX) * 1000).view(_TIME)


def _property(borders: Borders, name: str) -> pa.Array:
    """Raw value of one property of each record, null where it has none."""
    return _named(_slices(borders.data, borders.properties, borders.property_ends), name)


def _named(texts: pa.Array, name: str) -> pa.Array:
    """The same out of the records' properties. Where no record has it, one search through all of their bytes says so
    in a sixth of the time."""
    held = texts.buffers()[2]
    if held is None or re.search(name.encode() + b"\x01", memoryview(held)) is None:
        return pa.nulls(len(texts), pa.binary())
    import pyarrow.compute as pc  # when it is needed: a process that plans queries starts sooner

    return pc.struct_field(pc.extract_regex(texts, f"(?s)(?:^|\\x02){name}\\x01(?P<value>[^\\x02]*)"), "value")


def _text(raw: pa.Array) -> pa.Array:
    """Bytes as text; what is no UTF-8 gets replacement characters rather than failing the query."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if one is None else one.decode("utf-8", "replace") for one in raw.to_pylist()])


def _text_property(name: str) -> Callable[[Borders, Origin], pa.Array]:
    return lambda borders, origin: _text(_property(borders, name))


# ---------------------------------------------------------------- the columns


def _key(borders: Borders, origin: Origin) -> pa.Array:
    texts = _slices(borders.data, borders.properties, borders.property_ends)
    keys = _named(texts, message.KEYS)
    if not keys.null_count:
        return keys
    packed = _named(texts, message.KEYS_BASE64).to_pylist()
    if not any(packed):
        return keys
    pairs = zip(keys.to_pylist(), packed, strict=True)
    return pa.array([_unpacked(value) if key is None and value else key for key, value in pairs], pa.binary())


def _unpacked(value: bytes) -> bytes | None:
    key = message.read_key(value)
    return (key.encode() if isinstance(key, str) else key) or None


def _value(borders: Borders, origin: Origin) -> pa.Array:
    values = _slices(borders.data, borders.bodies, borders.body_ends)
    flags = _u32(borders.data, borders.records + SYSTEM_FLAG_AT)
    compressed = np.flatnonzero(flags & COMPRESSED)
    if not len(compressed):
        return values
    bodies = values.to_pylist()
    for row in compressed.tolist():
        bodies[row] = _undone(bodies[row], int(flags[row]))
    return pa.array(bodies, pa.binary())


def _undone(body: bytes, system_flag: int) -> bytes | None:
    """A body that was compressed; null for one that cannot be undone, rather than failing the query."""
    try:
        return decompress(body, system_flag)
    except InvalidMessage:
        return None


def _topic(borders: Borders, origin: Origin) -> pa.Array:
    return _same(origin.topic, len(borders))


def _queue(borders: Borders, origin: Origin) -> pa.Array:
    return _numbers(np.full(len(borders), origin.queue, np.int32))


def _offset(borders: Borders, origin: Origin) -> pa.Array:
    return _numbers(borders.offsets)


def _timestamp(borders: Borders, origin: Origin) -> pa.Array:
    return _times(_number(borders.data, borders.records + message.STORED_AT, ">i8"))


def _timestamp_type(borders: Borders, origin: Origin) -> pa.Array:
    return pa.array(np.full(len(borders), LOG_APPEND_TIME, np.int32))


def _born(borders: Borders, origin: Origin) -> pa.Array:
    return _times(_number(borders.data, borders.records + _BORN_AT, ">i8"))


def _mqtt_topic(borders: Borders, origin: Origin) -> pa.Array:
    import pyarrow.compute as pc

    return pc.fill_null(_text(_property(borders, message.MQTT_TOPIC)), origin.topic)


def _qos(borders: Borders, origin: Origin) -> pa.Array:
    flags = _u32(borders.data, borders.records + _FLAG_AT)
    return _numbers(np.minimum(flags & message.FLAG_QOS, 2).astype(np.int8))


def _retain(borders: Borders, origin: Origin) -> pa.Array:
    return pa.array(_u32(borders.data, borders.records + _FLAG_AT) & message.FLAG_RETAIN != 0)


def _properties(borders: Borders, origin: Origin) -> pa.Array:
    texts = _slices(borders.data, borders.properties, borders.property_ends).to_pylist()
    return pa.array([list(_pairs(raw).items()) for raw in texts], COLUMNS["properties"].arrow)


def _pairs(raw: bytes) -> dict[str, str]:
    try:
        return message.decode_properties(raw)
    except InvalidMessage:
        return {}  # one damaged string must not end the query


def _broker(borders: Borders, origin: Origin) -> pa.Array:
    return _same(origin.broker, len(borders))


def _position(borders: Borders, origin: Origin) -> pa.Array:
    return _numbers(borders.positions)


class Column(NamedTuple):
    """A column: its type in Arrow, and what makes it of a batch."""

    arrow: Any
    build: Callable[[Borders, Origin], Any]


COLUMNS: Final[Mapping[str, Column]] = {
    "key": Column(pa.binary(), _key),
    "value": Column(pa.binary(), _value),
    "topic": Column(pa.string(), _topic),
    "queue": Column(pa.int32(), _queue),
    "partition": Column(pa.int32(), _queue),
    "offset": Column(pa.int64(), _offset),
    "timestamp": Column(_TIME, _timestamp),
    "timestampType": Column(pa.int32(), _timestamp_type),
    "born_timestamp": Column(_TIME, _born),
    "mqtt_topic": Column(pa.string(), _mqtt_topic),
    "client_id": Column(pa.string(), _text_property(message.CLIENT_ID)),
    "qos": Column(pa.int8(), _qos),
    "retain": Column(pa.bool_(), _retain),
    "tags": Column(pa.string(), _text_property(message.TAGS)),
    "msg_id": Column(pa.string(), _text_property(message.UNIQUE_KEY)),
    "traceparent": Column(pa.string(), _text_property(TRACEPARENT)),
    "properties": Column(pa.map_(pa.string(), pa.string()), _properties),
    "broker": Column(pa.string(), _broker),
    "position": Column(pa.int64(), _position),
}
BASE: Final = ("key", "value", "topic", "queue", "offset", "timestamp")
