"""The message and its one byte layout: the same bytes on the wire, in the log and to the reader.

A *record* is RocketMQ's 17-field message (version 2: two-byte topic length), big-endian. The sender writes it once;
the broker fills in the four fields that only it knows (queue offset, position, store time, store host) in place.
A *frame* is a record behind the log's own 24-byte header. docs/formats/log.md shows both with a worked example.

This module decides nothing about queues and never waits. Decoding is total: any bytes give a value or
``InvalidMessage``.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from penstock.errors import InvalidMessage, InvalidProperty, TooLarge
from penstock.protocol.answers import packed_answer
from penstock.protocol.compression import BODY_BYTES_MAX as BODY_BYTES_MAX
from penstock.protocol.properties import KEYS as KEYS
from penstock.protocol.properties import KEYS_BASE64 as KEYS_BASE64
from penstock.protocol.properties import MQTT_PROPERTIES as MQTT_PROPERTIES
from penstock.protocol.properties import MQTT_TOPIC as MQTT_TOPIC
from penstock.protocol.properties import SHARDING_KEY as SHARDING_KEY
from penstock.protocol.properties import TAGS as TAGS
from penstock.protocol.properties import UNIQUE_KEY as UNIQUE_KEY
from penstock.protocol.properties import decode_properties as decode_properties
from penstock.protocol.properties import read_key as read_key
from penstock.protocol.received import MessageQueue, ReceivedMessage

IS_COMPILED: Final = not __file__.endswith(".py")
"""Whether this module, and so the other hot ones, runs compiled."""
RECORD_MAGIC: Final = 0xDAA320AB
"""Version 2 of RocketMQ's message: the topic length has two bytes."""
FRAME_MAGIC: Final = 0x50454E31  # "PEN1"
BLANK_MAGIC: Final = 0x50454E42  # "PENB"
ANY_QUEUE: Final = 0xFFFFFFFF
"""Queue id of a record whose sender leaves the choice to the broker (key hash, else round robin)."""

PROPERTIES_BYTES_MAX: Final = 256 * 1024
"""Room for a topic name, a response topic and correlation data of 65,535 bytes each, the latter two in base64."""
LENGTH_IS_REST: Final = 0xFFFF
"""Stands in place of the length of properties with this many bytes or more: they end with the record."""
TOPIC_BYTES_MAX: Final = 255

# size, magic, body crc, queue id, flag | queue offset, position | sys flag, born time, born host |
# store time, store host | reconsume times, prepared transaction offset, body length
RECORD_HEAD: Final = struct.Struct(">IIIIIQQIQ8sQ8sIQI")
QUEUE_ID_AT: Final = 12
OFFSETS_AT: Final = 20
OFFSETS: Final = struct.Struct(">QQ")
BORN_AT: Final = 40
STORED_AT: Final = 56
STORED: Final = struct.Struct(">Q8s")
ATTEMPTS_AT: Final = 72
"""RocketMQ's reconsume times: how often the message was tried before."""
BODY_AT: Final = RECORD_HEAD.size
RECORD_BYTES_MIN: Final = RECORD_HEAD.size + 4

# crc-32c of all that follows, magic, length of the whole frame, epoch, durable watermark at the time of the append
FRAME_HEAD: Final = struct.Struct(">IIIIQ")
FRAME_HEAD_BYTES: Final = FRAME_HEAD.size
RECORD_BYTES_MAX: Final = RECORD_BYTES_MIN + BODY_BYTES_MAX + TOPIC_BYTES_MAX + PROPERTIES_BYTES_MAX
FRAME_BYTES_MAX: Final = FRAME_HEAD_BYTES + RECORD_BYTES_MAX

# One entry of a pulled batch: queue offset, log position, frame size, tag hash. The frames follow in the same order.
ENTRY: Final = struct.Struct(">QQIq")

# Names of the properties that mean something to Penstock (RocketMQ's names where it has one).
CLIENT_ID: Final = "MQTT_CLIENT"
MQTT_ID: Final = "MQTT_ID"
MQTT_USER: Final = "MQTT_USER"
IF_RETAINED: Final = "IF_RETAINED"
"""The position of the retained message that this one replaces, 0 for none: it is refused where another one stands."""
TIMER: Final = "TIMER"
HALF: Final = "HALF"
RESERVED_PROPERTIES: Final = frozenset(
    {MQTT_TOPIC, KEYS, KEYS_BASE64, TAGS, UNIQUE_KEY, MQTT_PROPERTIES, CLIENT_ID, MQTT_ID, MQTT_USER, IF_RETAINED}
)

# The application flag of a message that carries MQTT_TOPIC.
FLAG_QOS: Final = 0b011
FLAG_RETAIN: Final = 0b100
FLAG_ONCE: Final = 0b1000
"""The message belongs to an exchange of QoS 2 (``MQTT_ID``: generation and epoch of the session and packet id, with
colons); the broker stores it once however often it comes."""
FLAG_SEQUENCED: Final = 0b10000
"""The end of the message's unique id is a number that counts, what is before it is its producer: the broker stores it
once however often it comes."""
FLAG_WOKEN: Final = 0b100000
"""The message slept in the broker. Its property ``TIMER`` says which delayed message it was (due time in milliseconds
and id, with a colon), or ``HALF`` which half of a transaction (its id). Only a broker sets it."""
FLAG_GIVEN_BACK: Final = 0b1000000
"""The message is the retry or the dead letter of one that a consumer group's member gave back, which its property
``GIVEN_BACK`` names. Only a broker sets it."""

NEVER: Final = -1
LATE_MS: Final = 600_000
"""If a store time is this much later than the birth time, it is wrong or the message has waited elsewhere."""
EXPIRY_S_MAX: Final = 0xFFFF_FFFF
"""Of a message (MQTT 5, 3.3.2.3.3)."""
ANY_TAG: Final = "*"
"""The tag of no message: RocketMQ's readers name all tags so."""
_EXPIRY_DIGITS_MAX: Final = 10
_NO_HOST: Final = bytes(8)
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
_MQTT_TOPIC_PREFIX: Final = MQTT_TOPIC.encode() + b"\x01"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. A received message is a ``ReceivedMessage``.

    Attributes:
        topic: any first level of MQTT names: no ``/ + #`` and no control characters. A name with other characters than
            ``A-Z a-z 0-9 % | - _`` or more than 255 of them is stored in the topic that MQTT names with this first
            level have, and that is the ``topic`` of the message as it is received; its ``name`` is the sent one. May
            be empty when ``mqtt_topic`` is given: the topic map then decides.
        body: payload, up to 4 MiB.
        key: messages of one key keep their order (same queue); also the key of the key index. Empty: any queue. A key
            is bytes; a ``str`` stands for its UTF-8.
        tag: one word that consumers can filter by; empty for none.
        properties: user properties; neither names nor values may hold U+0001 or U+0002.
        mqtt_topic: the MQTT topic name under which devices see the message; empty means: the name is ``topic``.
        qos: 0, 1 or 2, the MQTT quality of service with which it was published.
        retain: whether it also becomes the retained message of its MQTT topic.
        born_ms: when it came into being, in wall-clock milliseconds since 1970; 0: as it is sent.
        id: a unique id of your own; empty: the producer makes one.
        reply_to: the MQTT name under which an answer is wanted: MQTT 5's response topic.
        correlation: what the answer has to carry then; of an answer, what its request carried: MQTT 5's correlation
            data.
        content_type: what the payload is, for devices: MQTT 5's content type.
    """

    topic: str = ""
    body: bytes = b""
    key: str | bytes = ""
    tag: str = ""
    properties: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    mqtt_topic: str = ""
    qos: int = 1
    retain: bool = False
    born_ms: int = 0
    id: str = ""
    reply_to: str = ""
    correlation: bytes = b""
    content_type: str = ""

    @property
    def key_bytes(self) -> bytes:
        """The key as bytes, as Kafka's clients have it."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    @property
    def name(self) -> str:
        """The MQTT topic name under which devices see this message."""
        return self.mqtt_topic or self.topic


@lru_cache(maxsize=4096)
def tag_hash(tag: str) -> int:
    """Java's ``String.hashCode`` of a tag as a signed 32-bit integer, 0 for no tag (RocketMQ's queue index)."""
    value = 0
    for unit in struct.iter_unpack(">H", tag.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit[0]) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """RocketMQ's property string: name, 0x01, value, 0x02 between pairs. Raises ``InvalidProperty`` on 0x01 or 0x02."""
    for name, value in properties.items():
        if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise InvalidProperty(f"property {name!r} holds the separator U+0001 or U+0002")
    try:
        return "\x02".join(["\x01".join(pair) for pair in properties.items()]).encode()
    except UnicodeEncodeError as error:
        raise InvalidProperty(f"properties are not valid Unicode: {error}") from None


def encode_record(
    topic: bytes,
    body: bytes | memoryview,
    properties: bytes,
    *,
    queue_id: int = ANY_QUEUE,
    flag: int = 0,
    born_ms: int = 0,
    system_flag: int = 0,
    born_host: bytes = _NO_HOST,
    attempts: int = 0,
) -> bytes:
    """One record with the broker's four fields left zero. The caller has checked the limits (see
    ``encode_message``). ``born_host``: address and port of the sender, eight bytes; ``attempts``: earlier deliveries of
    the message; ``system_flag``: how the body is compressed."""
    body_bytes = len(body)
    head = RECORD_HEAD.pack(
        RECORD_BYTES_MIN + body_bytes + len(topic) + len(properties),
        RECORD_MAGIC,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        0,
        0,
        system_flag,
        born_ms,
        born_host,
        0,
        _NO_HOST,
        attempts,
        0,
        body_bytes,
    )
    return b"".join((head, body, len(topic).to_bytes(2, "big"), topic, _length_of(properties), properties))


def record_tail(topic: bytes, properties: bytes) -> bytes:
    """The bytes behind a record's body: topic and properties, each with its length. The caller has checked the
    limits."""
    return b"".join((len(topic).to_bytes(2, "big"), topic, _length_of(properties), properties))


def topic_of_tail(tail: bytes) -> str:
    """The topic in such a tail."""
    return tail[2 : 2 + int.from_bytes(tail[:2], "big")].decode()


def encode_message(message: Message, *, queue_id: int = ANY_QUEUE, born_ms: int = 0) -> bytes:
    """The record of a message to send.

    Raises:
        TooLarge: body over 4 MiB or properties over 262,144 bytes.
        InvalidProperty: a reserved property name, a separator in a property.
        InvalidMessage: no topic, a topic over 255 bytes, a bad QoS.
    """
    topic = message.topic.encode()
    if not topic or len(topic) > TOPIC_BYTES_MAX:
        raise InvalidMessage(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes, not {len(topic)}")
    if len(message.body) > BODY_BYTES_MAX:
        raise TooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, not {len(message.body)}")
    if message.qos not in (0, 1, 2):
        raise InvalidMessage(f"qos is 0, 1 or 2, not {message.qos!r}")
    if not RESERVED_PROPERTIES.isdisjoint(message.properties):
        reserved = ", ".join(sorted(RESERVED_PROPERTIES.intersection(message.properties)))
        raise InvalidProperty(f"these property names are reserved: {reserved}", hint="choose other names")
    named = _own_properties(message) | dict(message.properties)
    if message.id:
        named[UNIQUE_KEY] = message.id  # always last: ids that count are looked for there
    properties = encode_properties(named)
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise TooLarge(f"properties have at most {PROPERTIES_BYTES_MAX} bytes, not {len(properties)}")
    flag = message.qos | (FLAG_RETAIN if message.retain else 0)
    return encode_record(topic, message.body, properties, queue_id=queue_id, flag=flag, born_ms=born_ms)


def _own_properties(message: Message) -> dict[str, str]:
    own: dict[str, str] = {}
    if message.mqtt_topic:
        own[MQTT_TOPIC] = message.mqtt_topic  # always first: ``mqtt_name`` looks for it there
    if message.key:
        name, value = stored_key(message.key)
        own[name] = value
    if message.tag:
        own[TAGS] = message.tag
    if message.reply_to or message.correlation or message.content_type:
        own[MQTT_PROPERTIES] = packed_answer(message.reply_to, message.correlation, message.content_type)
    return own


def _length_of(properties: bytes) -> bytes:
    """The bytes before properties."""
    return min(len(properties), LENGTH_IS_REST).to_bytes(2, "big")


def stored_key(key: str | bytes) -> tuple[str, str]:
    """Name and value of the property that holds a key: its text, or base64 where it is no UTF-8 or has a separator.
    Raises ``InvalidMessage`` for surrogates."""
    try:
        text = key if isinstance(key, str) else key.decode()
        if "\x01" not in text and "\x02" not in text:
            return KEYS, text
        return KEYS_BASE64, b64encode(text.encode()).decode()
    except UnicodeDecodeError:
        assert isinstance(key, bytes)
        return KEYS_BASE64, b64encode(key).decode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"the key is not valid Unicode: {error}") from None


def check_tail(tail: bytes) -> int:
    """Raises ``InvalidMessage`` unless ``tail`` is a record's bytes behind its body; gives where its properties
    begin."""
    topic_bytes = int.from_bytes(tail[:2], "big")
    properties_at = topic_bytes + 4
    if not 0 < topic_bytes <= TOPIC_BYTES_MAX or properties_at > len(tail):
        raise InvalidMessage(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes, not {topic_bytes}")
    properties_bytes = len(tail) - properties_at
    said = int.from_bytes(tail[topic_bytes + 2 : properties_at], "big")
    if said != min(properties_bytes, LENGTH_IS_REST) or properties_bytes > PROPERTIES_BYTES_MAX:
        raise InvalidMessage("the lengths of topic and properties do not add up")
    return properties_at


def check_record(data: bytes | memoryview) -> None:
    """Raises ``InvalidMessage`` unless ``data`` is exactly one well-formed record (lengths, magic, body checksum)."""
    _layout(data)


def _layout(data: bytes | memoryview) -> tuple[tuple[Any, ...], int, int]:
    """Head fields of a record, and where its topic length and its properties length are. Raises as ``check_record``."""
    if len(data) < RECORD_BYTES_MIN:
        raise InvalidMessage(f"a record has at least {RECORD_BYTES_MIN} bytes, not {len(data)}")
    head = RECORD_HEAD.unpack_from(data)
    if head[0] != len(data) or head[1] != RECORD_MAGIC:
        raise InvalidMessage(f"no record of {len(data)} bytes: size {head[0]}, magic {head[1]:#x}")
    topic_at = BODY_AT + head[14]
    if topic_at + 4 > len(data):
        raise InvalidMessage("the body is longer than the record")
    topic_bytes = data[topic_at] << 8 | data[topic_at + 1]
    properties_at = topic_at + 2 + topic_bytes
    if not 0 < topic_bytes <= TOPIC_BYTES_MAX or properties_at + 2 > len(data):
        raise InvalidMessage(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes, not {topic_bytes}")
    properties_bytes = len(data) - properties_at - 2
    said = data[properties_at] << 8 | data[properties_at + 1]
    if said != min(properties_bytes, LENGTH_IS_REST) or properties_bytes > PROPERTIES_BYTES_MAX:
        raise InvalidMessage("the lengths of topic, body and properties do not add up to the record's size")
    if zlib.crc32(data[BODY_AT:topic_at]) & 0x7FFFFFFF != head[2]:
        raise InvalidMessage("the body does not match its checksum")
    return head, topic_at, properties_at


def record_topic(record: bytes | memoryview) -> bytes:
    """Topic of a checked record."""
    at = BODY_AT + int.from_bytes(record[BODY_AT - 4 : BODY_AT], "big")
    return bytes(record[at + 2 : at + 2 + int.from_bytes(record[at : at + 2], "big")])


def record_properties(record: bytes | memoryview) -> bytes:
    """Property string of a checked record, undecoded."""
    at = BODY_AT + int.from_bytes(record[BODY_AT - 4 : BODY_AT], "big")
    at += 2 + int.from_bytes(record[at : at + 2], "big")
    return bytes(record[at + 2 :])


def record_body(record: bytes | memoryview) -> bytes:
    """Body of a checked record."""
    return bytes(record[BODY_AT : BODY_AT + int.from_bytes(record[BODY_AT - 4 : BODY_AT], "big")])


def property_of(properties: bytes, name: bytes) -> bytes:
    """Value of one property of an undecoded property string, ``b""`` when it is missing."""
    at = 0 if properties.startswith(name + b"\x01") else properties.find(b"\x02" + name + b"\x01") + 1
    if at == 0 and not properties.startswith(name + b"\x01"):
        return b""
    start = at + len(name) + 1
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def expiry_of(mqtt_properties: bytes) -> int:
    """The message expiry interval, in seconds, that a value of ``MQTT_PROPS`` begins with; ``NEVER`` if there is none,
    or one that MQTT does not have."""
    digits = mqtt_properties.partition(b":")[0]
    if not digits.isdigit() or len(digits) > _EXPIRY_DIGITS_MAX:
        return NEVER
    expiry_s = int(digits)
    return expiry_s if expiry_s <= EXPIRY_S_MAX else NEVER


def lasts_from_ms(born_ms: int, stored_ms: int) -> int:
    """The start of a message's expiry interval: its store time, unless that is far behind its birth. So a message
    does not last longer in a log whose store times are ahead (``broker/store_clock.py``)."""
    return born_ms if 0 < born_ms < stored_ms - LATE_MS else stored_ms


def mqtt_name(topic: bytes, properties: bytes) -> str:
    """The MQTT topic name of a record: its first property if that is MQTT_TOPIC, else its topic."""
    if not properties.startswith(_MQTT_TOPIC_PREFIX):
        return topic.decode("utf-8", "replace")
    end = properties.find(b"\x02")
    raw = properties[len(_MQTT_TOPIC_PREFIX) :] if end < 0 else properties[len(_MQTT_TOPIC_PREFIX) : end]
    return raw.decode("utf-8", "replace")


def decode_message(record: bytes | memoryview, queue: MessageQueue | None = None) -> ReceivedMessage:
    """The message of one record (not of a frame). Raises ``InvalidMessage``.

    Args:
        record: its bytes.
        queue: the queue that it was read from; if left out it is the record's own, of a broker without a name.
    """
    data = bytes(record)
    head, topic_at, properties_at = _layout(data)
    message_queue = queue or _own_queue(data, topic_at, properties_at)
    return ReceivedMessage(message_queue, head[5], data[BODY_AT:topic_at], data[:BODY_AT], data[topic_at:])


def _own_queue(record: bytes, topic_at: int, properties_at: int) -> MessageQueue:
    try:
        topic = str(record[topic_at + 2 : properties_at], "utf-8")
    except UnicodeDecodeError:
        raise InvalidMessage("the topic is not UTF-8") from None
    return MessageQueue("", topic, int.from_bytes(record[QUEUE_ID_AT : QUEUE_ID_AT + 4], "big"))


def decode_batch(
    count: int, batch: bytes | memoryview, queue: MessageQueue | None = None
) -> Iterator[tuple[int, ReceivedMessage]]:
    """Queue offset and message of each entry of a pulled batch (``requests.messages.Pulled``): ``count`` entries, then
    their frames.

    Args:
        count: how many there are.
        batch: their bytes.
        queue: the topic's queue that was pulled. If left out each message has its own: of a light queue, where the
            offset of an entry differs from ``message.offset``, or in an answer from several queues.
    """
    view = memoryview(batch)
    frame_at = count * ENTRY.size
    if frame_at > len(view):
        raise InvalidMessage("a pulled batch is shorter than its entries")
    for offset, _position, size, _tag in ENTRY.iter_unpack(view[:frame_at]):
        if frame_at + size > len(view):
            raise InvalidMessage("a pulled batch is shorter than its frames")
        yield offset, decode_message(view[frame_at + FRAME_HEAD_BYTES : frame_at + size], queue)
        frame_at += size
