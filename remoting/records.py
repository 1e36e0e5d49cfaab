"""Messages of RocketMQ's clients as Penstock's records, and the other way round. Pure.

A record in the log is RocketMQ's own layout with a topic length of two bytes (version 2). Clients of 4.x read one byte
(version 1), those from 5.0.0 on both. The number that a client gives as its version does not tell the two apart: 4.9.8
says 409, more than 5.0.0 did. So all are given version 1. The field ``flag`` is Penstock's in the log and the program's
at the client: it travels as a property.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.errors import InvalidMessage
from penstock.protocol.message import (
    ANY_QUEUE,
    ENTRY,
    FRAME_HEAD_BYTES,
    LENGTH_IS_REST,
    RECORD_BYTES_MIN,
    RECORD_HEAD,
    RECORD_MAGIC,
    UNIQUE_KEY,
    decode_properties,
)
from penstock.protocol.properties import ORIGIN_TOPIC
from penstock.protocol.requests.messages import Pulled
from remoting.codes import V5
from topicmap.queues import RETRY_PREFIX

FLAG: Final = "RMQ_FLAG"
"""The property that holds the program's ``flag``."""
GROUP: Final = "PGROUP"
RETRY_TOPIC: Final = "RETRY_TOPIC"
TRANSACTIONAL: Final = "TRAN_MSG"
RESERVED: Final = "MQTT_"
"""Properties whose names begin so are Penstock's."""
_MAGIC_V1: Final = 0xDAA320A7
_V1_TOPIC_BYTES_MAX: Final = 127
_COMPRESSED: Final = 0x701
"""The bits of a record's system flag that say whether and how its body is compressed."""
_FLAG_AT: Final = 16
_SIZE_MAGIC: Final = struct.Struct(">II")
_STORE_HOST_AT: Final = 64
_BATCH_ITEM: Final = struct.Struct(">IIIII")
_PLACE: Final = struct.Struct(">IIQQ")  # queue id, flag, queue offset, position: at byte 12 of a record


class Sent(NamedTuple):
    """A message as a client sends it: body and property text as they came."""

    body: bytes
    properties: dict[str, str]
    flag: int


def properties_of(text: str) -> dict[str, str]:
    """The properties in a client's text, of which some end with a separator too many.

    Raises:
        InvalidMessage: a name is Penstock's, or the text is none.
    """
    found = decode_properties(text.rstrip("\x02").encode()) if text.rstrip("\x02") else {}
    for name in found:
        if name.startswith(RESERVED):
            raise InvalidMessage(f"the property {name} is Penstock's: names that begin with {RESERVED} are reserved")
    return found


def encode_record(
    topic: str, sent: Sent, queue_id: int, born_ms: int, system_flag: int, born_host: bytes, attempts: int = 0
) -> bytes:
    """The record of a message, which the broker completes. ``queue_id``: negative for any."""
    properties = dict(sent.properties)
    if sent.flag:
        properties[FLAG] = str(sent.flag)
    packed = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()]).encode()
    name, body = topic.encode(), sent.body
    length = min(len(packed), LENGTH_IS_REST)
    head = RECORD_HEAD.pack(
        RECORD_BYTES_MIN + len(body) + len(name) + len(packed),
        RECORD_MAGIC,
        zlib.crc32(body) & 0x7FFF_FFFF,
        ANY_QUEUE if queue_id < 0 else queue_id,
        0,
        0,
        0,
        system_flag & _COMPRESSED,
        max(born_ms, 0),
        born_host,
        0,
        bytes(8),
        attempts,
        0,
        len(body),
    )
    return b"".join((head, body, len(name).to_bytes(2, "big"), name, length.to_bytes(2, "big"), packed))


def batch_of(data: bytes) -> list[Sent]:
    """The messages in the body of a batch.

    Raises:
        InvalidMessage: the body is not whole.
    """
    found, at = [], 0
    try:
        while at < len(data):
            total, _magic, _crc, flag, size = _BATCH_ITEM.unpack_from(data, at)
            start = at + _BATCH_ITEM.size
            (properties_size,) = struct.unpack_from(">H", data, start + size)
            end = start + size + 2 + properties_size
            if end > len(data) or end - at != total:
                raise InvalidMessage("a batch whose messages are not whole")
            text = data[start + size + 2 : end].decode()
            found.append(Sent(data[start : start + size], properties_of(text), flag))
            at = end
    except (struct.error, UnicodeDecodeError):
        raise InvalidMessage("a batch whose messages are not whole") from None
    if not found:
        raise InvalidMessage("a batch without messages")
    return found


def unique_id_of(properties: dict[str, str]) -> str:
    """The id that the client gave the message."""
    return properties.get(UNIQUE_KEY, "")


def offset_id(host: bytes, position: int) -> str:
    """RocketMQ's id of a stored message: where it is. ``host``: address and port, eight bytes."""
    return (host + position.to_bytes(8, "big")).hex().upper()


def frames_of(pulled: Pulled) -> Iterator[memoryview]:
    """The log frames of a reply."""
    view = memoryview(pulled.body)
    at = pulled.count * ENTRY.size
    for number in range(pulled.count):
        size = ENTRY.unpack_from(view, number * ENTRY.size)[2]
        yield view[at : at + size]
        at += size


def for_client(frames: Iterator[memoryview], version: int, host: bytes) -> bytes:
    """Records as a client of this version reads them. One whose topic is too long for 4.x clients is left out."""
    made = [as_client_reads(bytes(frame[FRAME_HEAD_BYTES:]), version, host) for frame in frames]
    return b"".join([one for one in made if one is not None])


def as_client_reads(record: bytes, version: int, host: bytes) -> bytes | None:
    """One record in version 1, which clients of all versions read. Where the topic is too long for that: as it is for
    clients from 5.0.0 on, ``None`` for others."""
    record = _plain(record, host)
    return to_v1(record) or (record if version >= V5 else None)


def _plain(record: bytes, host: bytes) -> bytes:
    """The record with the program's flag in place of Penstock's, stored at the front's address; of a retry, with its
    first topic in the property in which RocketMQ's clients look for it."""
    flag = 0
    if FLAG.encode() in record:
        text = property_of(record, FLAG)
        flag = int(text) & 0xFFFF_FFFF if text.lstrip("-").isdigit() else 0
    if ORIGIN_TOPIC.encode() in record and topic_of(record).startswith(RETRY_PREFIX):
        record = _with_property(record, RETRY_TOPIC, property_of(record, ORIGIN_TOPIC))
    return b"".join(
        (record[:_FLAG_AT], flag.to_bytes(4, "big"), record[20:_STORE_HOST_AT], host, record[_STORE_HOST_AT + 8 :])
    )


def _with_property(record: bytes, name: str, value: str) -> bytes:
    """A record with one property more."""
    at = _properties_at(record)
    properties = record[at:] + f"\x02{name}\x01{value}".encode()
    length = min(len(properties), LENGTH_IS_REST).to_bytes(2, "big")
    return b"".join(((at + len(properties)).to_bytes(4, "big"), record[4 : at - 2], length, properties))


def _topic_at(record: bytes | memoryview) -> int:
    return RECORD_HEAD.size + int.from_bytes(record[RECORD_HEAD.size - 4 : RECORD_HEAD.size], "big")


def _properties_at(record: bytes) -> int:
    at = _topic_at(record)
    return at + 4 + int.from_bytes(record[at : at + 2], "big")


def topic_of(record: bytes | memoryview) -> str:
    """The topic of a record."""
    at = _topic_at(record)
    return bytes(record[at + 2 : at + 2 + int.from_bytes(record[at : at + 2], "big")]).decode()


def to_v1(record: bytes) -> bytes | None:
    """A record with a topic length of one byte; ``None`` where the topic is too long for it."""
    topic_at = _topic_at(record)
    size = int.from_bytes(record[topic_at : topic_at + 2], "big")
    if size > _V1_TOPIC_BYTES_MAX:
        return None
    return b"".join(
        (_SIZE_MAGIC.pack(len(record) - 1, _MAGIC_V1), record[8:topic_at], bytes((size,)), record[topic_at + 2 :])
    )


def property_of(record: bytes, name: str) -> str:
    """A property of a record, empty where it has none."""
    try:
        return decode_properties(record[_properties_at(record) :]).get(name, "")
    except InvalidMessage:
        return ""


class Place(NamedTuple):
    """Where a record is: topic, queue and offset."""

    topic: str
    queue_id: int
    offset: int


def place_of(frame: memoryview) -> Place:
    """Where the record in a frame is."""
    record = frame[FRAME_HEAD_BYTES:]
    queue_id, _flag, offset, _position = _PLACE.unpack_from(record, 12)
    return Place(topic_of(record), queue_id, offset)
