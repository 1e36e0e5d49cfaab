"""Messages of RocketMQ's clients as Penstock's records, and the other way round. Pure.

A record in the log is RocketMQ's own layout with a topic length of two bytes (version 2). Clients of 4.x read one byte
(version 1), those from 5.0.0 on both. The number that a client gives as its version does not tell the two apart: 4.9.8
says 409, more than 5.0.0 did. So all are given version 1. The field ``flag`` is Penstock's in the log and the program's
at the client: it travels as a property.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.errors import InvalidMessage
from penstock.protocol import message
from penstock.protocol.message import (
    ANY_QUEUE,
    ENTRY,
    FRAME_HEAD_BYTES,
    LENGTH_IS_REST,
    RECORD_HEAD,
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
CORRELATION: Final = "CORRELATION_ID"
CLUSTER_PROPERTY: Final = "CLUSTER"
CLUSTER: Final = "DefaultCluster"
RESERVED: Final = "MQTT_"
"""Properties whose names begin so are Penstock's."""
_MAGIC_V1: Final = 0xDAA320A7
_V1_TOPIC_BYTES_MAX: Final = 127
_COMPRESSED: Final = 0x701
"""The bits of a record's system flag that say whether and how its body is compressed."""
_FLAG_AT: Final = 16
_LEAD_V1: Final = struct.Struct(">II")
_FLAG: Final = FLAG.encode()
_ORIGIN: Final = ORIGIN_TOPIC.encode()
_STORE_HOST_AT: Final = 64
_BATCH_ITEM: Final = struct.Struct(">IIIII")
_U16: Final = struct.Struct(">H")
_UNIQUE: Final = f"{UNIQUE_KEY}\x01"
_FURTHER_UNIQUE: Final = f"\x02{UNIQUE_KEY}\x01"
_PLACE: Final = struct.Struct(">IIQQ")  # queue id, flag, queue offset, position: at byte 12 of a record


class Sent(NamedTuple):
    """A message as a client sends it.

    Attributes:
        body: as it came.
        packed: the properties as the record has them.
        unique_id: the client's, or the one that the front has made.
        special: the properties by name, of a message that is more than stored: delayed, a half, a question.
    """

    body: bytes
    packed: bytes
    unique_id: str
    special: dict[str, str]


_NOTHING: Final[dict[str, str]] = {}
_NAMES_OF_SPECIAL: Final = ("DELAY", "TIMER_", TRANSACTIONAL, CORRELATION, RESERVED)
"""One of these is in the text of a special message's properties; it may be in others too."""


def sent_of(body: bytes, text: str, flag: int, new_id: Callable[[], str]) -> Sent:
    """The message with these properties, whose text some clients end with a separator too many.

    Args:
        new_id: makes a unique id for a message that has none.

    Raises:
        InvalidMessage: the name of a property is Penstock's, or the text of a special message is damaged. Of other
            messages the broker finds that.
    """
    text = text.rstrip("\x02")
    unique_id, special = _unique_id_of(text), _NOTHING
    if not unique_id or any([name in text for name in _NAMES_OF_SPECIAL]):
        special = properties_of(text)
        if not special.get(UNIQUE_KEY):
            special[UNIQUE_KEY] = new_id()
        if CORRELATION in special:
            special.setdefault(CLUSTER_PROPERTY, CLUSTER)
        unique_id = special[UNIQUE_KEY]
        text = "\x02".join([f"{name}\x01{value}" for name, value in special.items()])
    if flag:
        text = f"{text}\x02{FLAG}\x01{flag}"
    return Sent(body, text.encode(), unique_id, special)


def _unique_id_of(text: str) -> str:
    """The unique id in the text of properties, empty for none."""
    if text.startswith(_UNIQUE):
        at = len(_UNIQUE)
    elif (before := text.find(_FURTHER_UNIQUE)) >= 0:
        at = before + len(_FURTHER_UNIQUE)
    else:
        return ""
    end = text.find("\x02", at)
    return text[at:] if end < 0 else text[at:end]


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
    topic: bytes, sent: Sent, queue_id: int, born_ms: int, system_flag: int, born_host: bytes, attempts: int = 0
) -> bytes:
    """The record of a message, which the broker completes. ``queue_id``: negative for any."""
    return message.encode_record(
        topic,
        sent.body,
        sent.packed,
        queue_id=ANY_QUEUE if queue_id < 0 else queue_id,
        born_ms=max(born_ms, 0),
        system_flag=system_flag & _COMPRESSED,
        born_host=born_host,
        attempts=attempts,
    )


def batch_of(data: bytes, new_id: Callable[[], str]) -> list[Sent]:
    """The messages in the body of a batch. ``new_id``: as ``sent_of`` has it.

    Raises:
        InvalidMessage: the body is not whole.
    """
    found, at = [], 0
    try:
        while at < len(data):
            total, _magic, _crc, flag, size = _BATCH_ITEM.unpack_from(data, at)
            start = at + _BATCH_ITEM.size
            (properties_size,) = _U16.unpack_from(data, start + size)
            end = start + size + 2 + properties_size
            if end > len(data) or end - at != total:
                raise InvalidMessage("a batch whose messages are not whole")
            text = data[start + size + 2 : end].decode()
            found.append(sent_of(data[start : start + size], text, flag, new_id))
            at = end
    except (struct.error, UnicodeDecodeError):
        raise InvalidMessage("a batch whose messages are not whole") from None
    if not found:
        raise InvalidMessage("a batch without messages")
    return found


def offset_id(host: bytes, position: int) -> str:
    """RocketMQ's id of a stored message: where it is. ``host``: address and port, eight bytes."""
    return f"{host.hex().upper()}{position:016X}"


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
    """One record in version 1, which clients of all versions read, with the program's flag in place of Penstock's and
    stored at the front's address; of a retry, with its first topic in the property in which RocketMQ's clients look for
    it. Where the topic is too long for version 1: as it is for clients from 5.0.0 on, ``None`` for others."""
    flag = 0
    if _FLAG in record:
        text = property_of(record, FLAG)
        flag = int(text) & 0xFFFF_FFFF if text.lstrip("-").isdigit() else 0
    topic_at = _topic_at(record)
    topic_bytes = int.from_bytes(record[topic_at : topic_at + 2], "big")
    if _ORIGIN in record and topic_of(record).startswith(RETRY_PREFIX):
        record = _with_property(record, RETRY_TOPIC, property_of(record, ORIGIN_TOPIC))
    if topic_bytes > _V1_TOPIC_BYTES_MAX:
        if version < V5:
            return None
        lead, rest = record[:_FLAG_AT], record[topic_at:]
    else:
        lead = _LEAD_V1.pack(len(record) - 1, _MAGIC_V1) + record[8:_FLAG_AT]
        rest = record[topic_at + 1 :]  # of two bytes of the length the lower one, as the other is 0
    after_host = _STORE_HOST_AT + 8
    return b"".join((lead, flag.to_bytes(4, "big"), record[20:_STORE_HOST_AT], host, record[after_host:topic_at], rest))


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
