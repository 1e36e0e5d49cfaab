"""Messages of RocketMQ's clients as Penstock's records, and the other way round. Pure.

A record in the log is RocketMQ's own layout with a topic length of two bytes (version 2). Clients of 4.x read one byte
(version 1), those from 5.0.0 on both. The number that a client gives as its version does not tell the two apart: 4.9.8
says 409, more than 5.0.0 did. So all are given version 1. The field ``flag`` is Penstock's in the log and the program's
at the client: it travels as a property.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from penstock.errors import InvalidMessage
from penstock.protocol import message
from penstock.protocol.message import (
    ANY_QUEUE,
    BODY_AT,
    ENTRY,
    FRAME_HEAD_BYTES,
    LENGTH_IS_REST,
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
_NO_FLAG: Final = bytes(4)
_FLAG_DIGITS_MAX: Final = 10
_LEAD_V1: Final = struct.Struct(">II")
_FLAG: Final = FLAG.encode()
_ORIGIN: Final = ORIGIN_TOPIC.encode()
_STORE_HOST_AT: Final = 64
_BATCH_ITEM: Final = struct.Struct(">IIIII")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
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
    if not unique_id or _may_be_special(text):
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


def _may_be_special(text: str) -> bool:
    """Whether one of the names of a special message is there; it may be a part of another name, or of a value."""
    return "DELAY" in text or "TIMER_" in text or TRANSACTIONAL in text or CORRELATION in text or RESERVED in text


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


def encode_records(
    topic: bytes,
    batch: Sequence[Sent],
    queue_id: int,
    born_ms: int,
    system_flag: int,
    born_host: bytes,
    attempts: int = 0,
) -> list[bytes]:
    """The records of messages, which the broker completes. ``queue_id``: negative for any."""
    queue_id, born_ms = ANY_QUEUE if queue_id < 0 else queue_id, max(born_ms, 0)
    system_flag &= _COMPRESSED
    return [
        message.encode_record(
            topic,
            one.body,
            one.packed,
            queue_id=queue_id,
            born_ms=born_ms,
            system_flag=system_flag,
            born_host=born_host,
            attempts=attempts,
        )
        for one in batch
    ]


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


def offset_ids(host: bytes, positions: Iterable[int]) -> str:
    """RocketMQ's ids of stored messages, a comma between two: where each is. ``host``: address and port, eight
    bytes."""
    at = host.hex().upper()
    return ",".join([f"{at}{position:016X}" for position in positions])


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
    flag = _NO_FLAG
    if _FLAG in record:
        flag = _flag_of(property_of(record, FLAG))
    if _ORIGIN in record and topic_of(record).startswith(RETRY_PREFIX):
        record = _with_property(record, RETRY_TOPIC, property_of(record, ORIGIN_TOPIC))
    topic_at = _topic_at(record)
    made = bytearray(record)
    if record[topic_at] or record[topic_at + 1] > _V1_TOPIC_BYTES_MAX:
        if version < V5:
            return None
    else:
        _LEAD_V1.pack_into(made, 0, len(record) - 1, _MAGIC_V1)
        del made[topic_at]  # of two bytes of the length the upper one, which is 0
    made[_FLAG_AT : _FLAG_AT + 4] = flag
    made[_STORE_HOST_AT : _STORE_HOST_AT + 8] = host
    return bytes(made)


def _flag_of(text: str) -> bytes:
    """The program's flag as a record has it; 0 where the property, which any client can set, is no number."""
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _FLAG_DIGITS_MAX
    return (int(text) & 0xFFFF_FFFF).to_bytes(4, "big") if is_number else _NO_FLAG


def _with_property(record: bytes, name: str, value: str) -> bytes:
    """A record with one property more."""
    at = _properties_at(record)
    properties = record[at:] + f"\x02{name}\x01{value}".encode()
    length = min(len(properties), LENGTH_IS_REST).to_bytes(2, "big")
    return b"".join(((at + len(properties)).to_bytes(4, "big"), record[4 : at - 2], length, properties))


def _topic_at(record: bytes | memoryview) -> int:
    (body_bytes,) = _U32.unpack_from(record, BODY_AT - 4)
    return BODY_AT + int(body_bytes)


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
    """The place of a record: topic, queue and offset."""

    topic: str
    queue_id: int
    offset: int


def place_of(frame: memoryview) -> Place:
    """The place of the record in a frame."""
    record = frame[FRAME_HEAD_BYTES:]
    queue_id, _flag, offset, _position = _PLACE.unpack_from(record, 12)
    return Place(topic_of(record), queue_id, offset)
