"""Rows to write as runs of messages: Arrow in, the bytes of requests out. Pure.

Rows are cut into blocks that depend on the rows alone, not on the batches in which Spark hands them over. In a block
all rows with the same topic, key, name, tag, properties and flags are one *kind*; the common part of a kind is computed
once. A run is rows of one kind and size, and its bodies are one slice of an Arrow buffer: no Python runs per row but
for ``properties``. Rows of one key keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.client.preparation import ID_BYTES, Common, Preparation
from penstock.errors import InvalidMessage, TooLarge
from penstock.protocol.message import ANY_QUEUE, BODY_AT, BODY_BYTES_MAX, RESERVED_PROPERTIES, Message, encode_record
from penstock.protocol.runs import COUNTS, RUN_HEAD
from penstock.spark.sink.numbers import Numbers
from topicmap.queues import TopicMap

BLOCK_ROWS: Final = 4096
BLOCK_BYTES: Final = 1024 * 1024
KINDS_MAX: Final = 16_384
"""Kinds that are remembered from block to block."""
_Numbers = npt.NDArray[np.int64]
_HEADERS: Final = ("key", "topic", "mqtt_topic", "tags", "properties", "qos", "retain", "queue", "partition")
_QUEUE_MAX: Final = 1 << 31
_QOS_MAX: Final = 2


class Kind(NamedTuple):
    """The common part of rows. ``queue``: the one that they name, ``ANY_QUEUE`` if the broker chooses."""

    common: Common
    queue: int


class Place(NamedTuple):
    """Where rows of a kind go: a broker's name, and the names of all brokers of the topic."""

    broker: str
    layout: str


class Packed(NamedTuple):
    """Rows for one broker: a request's body. ``is_runs``: of runs, else of whole records."""

    broker: str
    topic: str
    messages: int
    is_runs: bool
    body: bytes


class Rows(NamedTuple):
    """Rows that go out together. ``codes``: the kind of each; ``sizes``: of its body; ``born_ms``: -1 for now."""

    kinds: list[Kind]
    codes: _Numbers
    bodies: pa.Array
    sizes: _Numbers
    born_ms: _Numbers


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows in the order of their contents; they must fit into memory."""
    held = list(batches)
    if held:
        table = pa.Table.from_batches(held)
        yield from table.take(pa.array(content_order(table))).to_batches()


def blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of all batches, ``BLOCK_ROWS`` at a time."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += len(batch)
        if count >= BLOCK_ROWS:
            table = pa.Table.from_batches(held)
            whole = count - count % BLOCK_ROWS
            for start in range(0, whole, BLOCK_ROWS):
                yield table.slice(start, BLOCK_ROWS)
            held, count = table.slice(whole).to_batches(), count - whole
    if count:
        yield pa.Table.from_batches(held)


class Packing:
    """Makes requests of blocks.

    Args:
        topic: of all rows; empty: their column says it.
        numbers: the numbers that identify their messages.
        place: says where messages of a kind go, in the given block.
        is_runs: whether they go as runs wherever the broker chooses the queue; else as whole records.
    """

    def __init__(
        self, topic: str, numbers: Numbers, place: Callable[[Common, int], Place], *, is_runs: bool = True
    ) -> None:
        self._topic = topic
        self._is_runs = is_runs
        self._numbers = numbers
        self._place = place
        self._preparation = Preparation(0, TopicMap())
        self._kinds: dict[tuple[Any, ...], Kind] = {}
        self._block = 0

    def requests(self, block: pa.Table, now_ms: int, *, by_content: bool = False) -> Iterator[Packed]:
        """The requests that store a block, in order. Raises the error of a refused row. ``by_content``: numbers follow
        from the rows' contents, not from their order; only for the one block of a task."""
        rows = self._rows(block)
        self._block += 1
        ways = self._ways(rows.kinds)
        numbers = self._by_content(block, rows, ways) if by_content else None
        start = 0
        for stop in _cuts(rows):
            yield from self._packed(rows, ways, slice(start, stop), numbers, now_ms)
            start = stop

    def _ways(self, kinds: list[Kind]) -> _Ways:
        """The ways that rows of these kinds go, and which one each kind goes."""
        ways: dict[_Way, int] = {}
        of_kinds: list[int] = []
        for kind in kinds:
            way = _Way(
                self._place(kind.common, self._block), kind.common.topic, self._is_runs and kind.queue == ANY_QUEUE
            )
            of_kinds.append(ways.setdefault(way, len(ways)))
        return _Ways(list(ways), np.array(of_kinds, np.int64))

    def _by_content(self, block: pa.Table, rows: Rows, ways: _Ways) -> _Numbers:
        """The number of each row: its place among all that go the same way, in the order of their contents."""
        order = content_order(block)
        sorted_ways = ways.of_kinds[rows.codes[order]]
        numbers = np.zeros(len(order), np.int64)
        for way, at in sorted((way, at) for at, way in enumerate(ways.all)):
            mine = order[sorted_ways == at]
            if len(mine):
                numbers[mine] = self._take(way, len(mine))[1] + np.arange(len(mine))
        return numbers

    def _take(self, way: _Way, count: int) -> tuple[bytes, int]:
        return self._numbers.take(way.topic, way.place.broker, way.place.layout, count)

    def _rows(self, block: pa.Table) -> Rows:
        bodies = _bytes_column(block, "value")
        sizes = _sizes(bodies)
        if len(sizes) and sizes.max() > BODY_BYTES_MAX:
            raise TooLarge(f"a value has at most {BODY_BYTES_MAX} bytes, not {sizes.max()}")
        columns = {name: _header(block, name) for name in _HEADERS if name in block.column_names}
        if self._topic:
            columns.pop("topic", None)
        codes, firsts = _codes(len(block), columns)
        values = zip(*[column.of(firsts) for column in columns.values()], strict=True) if columns else [()]
        kinds = [self._kind(tuple(columns), one) for one in values] if len(block) else []
        return Rows(kinds, codes, bodies, sizes, _born(block))

    def _kind(self, names: Sequence[str], values: tuple[Any, ...]) -> Kind:
        known = self._kinds.get(values)
        if known is None:
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            known = self._kinds[values] = self._made(dict(zip(names, values, strict=True)))
        return known

    def _made(self, given: dict[str, Any]) -> Kind:
        topic, name = self._topic or given.get("topic") or "", given.get("mqtt_topic") or ""
        if not topic and not name:
            raise InvalidMessage("a row has neither a topic nor an mqtt_topic", hint='option("topic", ...) is for all')
        properties = given.get("properties") or ()
        qos, queue = given.get("qos"), given.get("queue", given.get("partition"))
        if qos is not None and not 0 <= qos <= _QOS_MAX:
            raise InvalidMessage(f"qos is 0, 1 or 2, not {qos}")
        if queue is not None and not 0 <= queue < _QUEUE_MAX:
            raise InvalidMessage(f"a queue is a number from 0 on, not {queue}")
        message = Message(
            topic,
            b"",
            given.get("key") or b"",
            given.get("tags") or "",
            {one: value or "" for one, value in properties if one not in RESERVED_PROPERTIES},
            name,
            1 if qos is None else qos,
            bool(given.get("retain")),
        )
        return Kind(self._preparation.common(message), ANY_QUEUE if queue is None else queue)

    def _packed(self, rows: Rows, ways: _Ways, part: slice, numbers: _Numbers | None, now_ms: int) -> Iterator[Packed]:
        """Requests of a part of the rows: one for each way."""
        keyed = np.array([bool(kind.common.key) for kind in rows.kinds])
        codes, sizes, born = rows.codes[part], rows.sizes[part], rows.born_ms[part]
        own = np.zeros(len(codes), np.int64) if numbers is None else numbers[part]
        free = ~keyed[codes]  # rows without a key have no order: they become long runs
        order = np.lexsort((own * free, sizes * free, codes, ways.of_kinds[codes]))
        bodies = rows.bodies.slice(part.start, len(codes)).take(pa.array(order))
        codes, sizes, born, own = codes[order], sizes[order], born[order], own[order]
        ends = np.searchsorted(ways.of_kinds[codes], np.arange(len(ways.all)), side="right").tolist()
        begin = 0
        for way, end in zip(ways.all, ends, strict=True):
            if end > begin:
                prefix, first = self._take(way, end - begin if numbers is None else 0)
                if numbers is None:
                    own[begin:end] = first + np.arange(end - begin)
                which = slice(begin, end)
                runs = _Runs(codes[which], sizes[which], born[which], own[which], bodies.slice(begin, end - begin))
                encode = _encoded if way.is_runs else _records
                yield Packed(
                    way.place.broker, way.topic, end - begin, way.is_runs, encode(rows.kinds, runs, prefix, now_ms)
                )
            begin = end


def content_order(block: pa.Table) -> _Numbers:
    """The rows sorted by their contents, so the same in whatever order they come."""
    import pyarrow.compute as pc

    columns = {name: block.column(name) for name in sorted(block.column_names) if name != "properties"}
    if "properties" in block.column_names:
        texts = [repr(one) for one in block.column("properties").to_pylist()]
        columns["properties"] = pa.array(texts, pa.string())
    values = columns.pop("value")
    together = pa.table({**columns, "size": pc.binary_length(values), "value": values})
    keys = [(name, "ascending") for name in together.column_names]
    order: _Numbers = pc.sort_indices(together, sort_keys=keys).to_numpy().astype(np.int64)
    return order


def _encoded(kinds: list[Kind], runs: _Runs, prefix: bytes, now_ms: int) -> bytes:
    """Runs end to end, as ``runs.encode_runs`` has them."""
    pack = RUN_HEAD.pack
    parts: list[Any] = []
    for code, size, born_ms, number, count, bodies in runs.all():
        common = kinds[code].common
        tail_bytes = len(common.tail) + ID_BYTES
        parts.append(pack(tail_bytes | COUNTS, common.flag, now_ms if born_ms < 0 else born_ms, count, size))
        parts += (common.tail, prefix, b"%012x" % number, bodies)
    return b"".join(parts)


def _records(kinds: list[Kind], runs: _Runs, prefix: bytes, now_ms: int) -> bytes:
    """Whole records: they say which queue they go to."""
    records: list[bytes] = []
    for code, size, born_ms, number, count, bodies in runs.all():
        common, queue = kinds[code]
        topic_end = 2 + int.from_bytes(common.tail[:2], "big")
        topic, properties = common.tail[2:topic_end], common.tail[topic_end + 2 :]
        for at in range(count):
            own = b"".join((properties, prefix, b"%012x" % (number + at)))
            body = bodies[at * size : (at + 1) * size]
            born = now_ms if born_ms < 0 else born_ms
            records.append(encode_record(topic, body, own, queue_id=queue, flag=common.flag, born_ms=born))
    return b"".join(records)


class _Way(NamedTuple):
    """Where rows go, and how. ``is_runs``: their broker chooses the queue."""

    place: Place
    topic: str
    is_runs: bool


class _Ways(NamedTuple):
    """All ways of a block's rows. ``of_kinds``: that of each kind."""

    all: list[_Way]
    of_kinds: _Numbers


class _Runs(NamedTuple):
    """Rows in the order in which they go out. ``numbers``: the number that identifies each."""

    codes: _Numbers
    sizes: _Numbers
    born_ms: _Numbers
    numbers: _Numbers
    bodies: pa.Array

    def all(self) -> Iterator[tuple[int, int, int, int, int, memoryview]]:
        """Kind, size of a body, birth, first number, number of rows and all bodies of each run."""
        goes_on = np.diff(self.numbers) == 1
        for column in (self.codes, self.sizes, self.born_ms):
            goes_on &= np.diff(column) == 0
        firsts = np.concatenate(([0], np.flatnonzero(~goes_on) + 1))
        counts = np.diff(firsts, append=len(self.codes)).tolist()
        data = self.bodies.buffers()[2]
        view = memoryview(data) if data is not None else memoryview(b"")
        offsets = _offsets(self.bodies)
        starts, stops = offsets[firsts].tolist(), offsets[np.append(firsts[1:], len(self.codes))].tolist()
        columns = [column[firsts].tolist() for column in (self.codes, self.sizes, self.born_ms, self.numbers)]
        for code, size, born_ms, number, count, start, stop in zip(*columns, counts, starts, stops, strict=True):
            yield code, size, born_ms, number, count, view[start:stop]


def _cuts(rows: Rows) -> list[int]:
    """Where requests end: each has at most about ``BLOCK_BYTES`` of records, or one row."""
    tails = np.array([len(kind.common.tail) for kind in rows.kinds], np.int64)
    ends = np.cumsum(rows.sizes + tails[rows.codes] + (BODY_AT + ID_BYTES))
    cuts: list[int] = []
    at, before = 0, 0
    while at < len(ends):
        at = max(at + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, side="right")))
        cuts.append(at)
        before = int(ends[at - 1])
    return cuts


# ---------------------------------------------------------------- columns


class _Header(NamedTuple):
    """A column with few distinct values. ``codes``: the value's number for each row, -1 for null."""

    codes: _Numbers
    values: Sequence[Any]

    def of(self, rows: _Numbers) -> list[Any]:
        """The values of some rows."""
        return [None if code < 0 else self.values[code] for code in self.codes[rows].tolist()]


def _header(block: pa.Table, name: str) -> _Header:
    if name == "properties":
        return _maps(block.column(name).to_pylist())
    found = _bytes_column(block, name) if name == "key" else block.column(name).combine_chunks()
    coded = found.dictionary_encode()
    return _Header(coded.indices.fill_null(-1).to_numpy().astype(np.int64), coded.dictionary.to_pylist())


def _maps(maps: list[list[tuple[str, str]] | None]) -> _Header:
    known: dict[tuple[tuple[str, str], ...], int] = {}
    codes = [-1 if one is None else known.setdefault(tuple(one), len(known)) for one in maps]
    return _Header(np.array(codes, np.int64), list(known))


def _codes(count: int, columns: dict[str, _Header]) -> tuple[_Numbers, _Numbers]:
    """Which kind each row is, and the first row of each kind."""
    together = np.zeros(count, np.int64)
    for column in columns.values():
        paired = together * (len(column.values) + 1) + column.codes + 1
        together = np.unique(paired, return_inverse=True)[1]
    _, firsts, codes = np.unique(together, return_index=True, return_inverse=True)
    return codes.astype(np.int64), firsts.astype(np.int64)


def _bytes_column(block: pa.Table, name: str) -> pa.Array:
    """A column of bytes or text as bytes; null is empty."""
    found = block.column(name).combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = found.chunk(0) if found.num_chunks else pa.array([], found.type)
    return found.cast(pa.binary()).fill_null(b"")


def _offsets(bodies: pa.Array) -> npt.NDArray[np.int32]:
    found: npt.NDArray[np.int32] = np.frombuffer(bodies.buffers()[1], np.int32)
    return found[bodies.offset : bodies.offset + len(bodies) + 1]


def _sizes(bodies: pa.Array) -> _Numbers:
    return np.diff(_offsets(bodies)).astype(np.int64) if len(bodies) else np.zeros(0, np.int64)


def _born(block: pa.Table) -> _Numbers:
    if "born_timestamp" not in block.column_names:
        return np.full(len(block), -1, np.int64)
    times = block.column("born_timestamp").combine_chunks().cast(pa.timestamp("us", tz="UTC"))
    numbers: _Numbers = times.cast(pa.int64()).fill_null(-1000).to_numpy() // 1000
    return np.maximum(numbers, -1)
