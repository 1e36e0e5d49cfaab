"""What a program receives: a stored message, and the queue that it is stored in. Pure values.

A ``ReceivedMessage`` is made for every message that is read: it is its body and the bytes around it, from which the
rest is read when a program asks for it. Its ``MessageQueue`` is made once for all messages of a pull.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from penstock.protocol.answers import answer_in
from penstock.protocol.compression import COMPRESSED, decompress
from penstock.protocol.properties import (
    KEYS,
    KEYS_BASE64,
    MQTT_PROPERTIES,
    MQTT_TOPIC,
    ORIGIN_NAME,
    ORIGIN_TOPIC,
    TAGS,
    UNIQUE_KEY,
    decode_properties,
    read_key,
)
from topicmap.queues import RETRY_PREFIX, parse_topic_queue, topic_queue


class MessageQueue(NamedTuple):
    """A queue of a topic at one broker: ``orders:0`` of one broker is another queue than ``orders:0`` of the next.

    Attributes:
        broker: the broker's name.
        topic: the topic, as it is stored.
        number: counts from 0 in each topic of a broker.
    """

    broker: str
    topic: str
    number: int

    @property
    def name(self) -> str:
        """The queue's name at its broker, ``orders:0``."""
        return topic_queue(self.topic, self.number)

    def __str__(self) -> str:
        """For people: ``orders:0@broker-1``."""
        return f"{self.topic}:{self.number}@{self.broker}"


def queue_named(broker: str, name: str) -> MessageQueue:
    """The queue that has this name at a broker. Raises ``InvalidName`` for what is no topic's queue."""
    topic, number = parse_topic_queue(name)
    return MessageQueue(broker, topic, number)


class _Read(NamedTuple):
    """Penstock's own properties, and the others. ``topic``: of a retry, the one that it was in first."""

    topic: str
    mqtt_topic: str
    key: str | bytes
    tag: str
    id: str
    properties: Mapping[str, str]


_FLAG_END: Final = 20
"""In a record, as are the other places here: docs/formats/log.md."""


@mypyc_attr(acyclic=True)
class ReceivedMessage:
    """A message as it is stored. What a program sends is a ``Message``.

    Attributes:
        queue, offset: where it is stored.
        topic: the topic that it is stored in; of a message that was given back, the one that it came from.
        attempts: how often it was tried before and given back.
        body: payload. Of one that was sent compressed it is undone here, and what cannot be undone raises
            ``InvalidMessage``.
        key: its key, a ``str`` where that is UTF-8, else bytes; empty where it was sent without one.
        tag: the word that consumers can filter by; empty for none.
        properties: user properties.
        mqtt_topic: the MQTT topic name under which devices see it; empty means: the name is ``topic``.
        qos: 0, 1 or 2, the MQTT quality of service with which it was published.
        retain: whether it also became the retained message of its MQTT topic.
        position: its place in the broker's log, in bytes.
        born_ms, stored_ms: wall-clock milliseconds since 1970 at the sender and at the broker.
        id: the unique id that its producer gave it; empty for messages of devices.
        reply_to: the MQTT name under which an answer is wanted, empty where none is; ``Producer.reply`` answers.
        correlation: what the answer carries then; of an answer, what its request carried.
    """

    __slots__ = ("_body", "_head", "_plain", "_read", "_tail", "offset", "queue")

    def __init__(self, queue: MessageQueue, offset: int, body: bytes, head: bytes, tail: bytes) -> None:
        """``head``: the bytes before the body in a checked record; ``tail``: those behind it."""
        self.queue = queue
        self.offset = offset
        self._body = body
        self._plain: bytes | None = None
        self._head = head
        self._tail = tail
        self._read: _Read | None = None

    def _own(self) -> _Read:
        """Its own properties. Raises ``InvalidMessage``."""
        if self._read is not None:
            return self._read
        tail = self._tail
        properties = decode_properties(tail[4 + int.from_bytes(tail[:2], "big") :])
        take = properties.pop
        topic, mqtt_topic, key, packed = self.queue.topic, take(MQTT_TOPIC, ""), take(KEYS, ""), ""
        if topic.startswith(RETRY_PREFIX):
            topic, mqtt_topic = take(ORIGIN_TOPIC, topic), take(ORIGIN_NAME, "")
        if not key and KEYS_BASE64 in properties:
            packed = take(KEYS_BASE64)
        tag, unique_id, full_key = take(TAGS, ""), take(UNIQUE_KEY, ""), read_key(packed) if packed else key
        self._read = _Read(topic, mqtt_topic, full_key, tag, unique_id, MappingProxyType(properties))
        return self._read

    @property
    def body(self) -> bytes:
        if self._head[39] & COMPRESSED:
            if self._plain is None:
                self._plain = decompress(self._body, int.from_bytes(self._head[36:40], "big"))
            return self._plain
        return self._body

    @property
    def stored_bytes(self) -> int:
        """The number of bytes of the stored body."""
        return len(self._body)

    @property
    def topic(self) -> str:
        topic = self.queue.topic
        return self._own().topic if topic.startswith(RETRY_PREFIX) else topic

    @property
    def name(self) -> str:
        """The MQTT topic name under which devices see this message."""
        return self._own().mqtt_topic or self.topic

    @property
    def mqtt_topic(self) -> str:
        return self._own().mqtt_topic

    @property
    def key(self) -> str | bytes:
        return self._own().key

    @property
    def key_bytes(self) -> bytes:
        """The key as bytes, as Kafka's clients have it."""
        key = self._own().key
        return key.encode() if isinstance(key, str) else key

    @property
    def tag(self) -> str:
        return self._own().tag

    @property
    def id(self) -> str:
        return self._own().id

    @property
    def properties(self) -> Mapping[str, str]:
        return self._own().properties

    @property
    def reply_to(self) -> str:
        return answer_in(self._own().properties.get(MQTT_PROPERTIES, "")).to

    @property
    def correlation(self) -> bytes:
        return answer_in(self._own().properties.get(MQTT_PROPERTIES, "")).correlation

    @property
    def qos(self) -> int:
        return min(self._head[_FLAG_END - 1] & 0b11, 2)

    @property
    def retain(self) -> bool:
        return bool(self._head[_FLAG_END - 1] & 0b100)

    @property
    def attempts(self) -> int:
        return int.from_bytes(self._head[72:76], "big")

    def delivered(self, times: int) -> ReceivedMessage:
        """The same message with further attempts, which its record does not know of."""
        head = self._head[:72] + (self.attempts + times).to_bytes(4, "big") + self._head[76:]
        return ReceivedMessage(self.queue, self.offset, self._body, head, self._tail)

    @property
    def position(self) -> int:
        return int.from_bytes(self._head[28:36], "big")

    @property
    def born_ms(self) -> int:
        return int.from_bytes(self._head[40:48], "big")

    @property
    def stored_ms(self) -> int:
        return int.from_bytes(self._head[56:64], "big")

    def __eq__(self, other: object) -> bool:
        """Whether it is the same message, read from the same place."""
        if not isinstance(other, ReceivedMessage):
            return NotImplemented
        where, there = (self.queue, self.offset, self._body), (other.queue, other.offset, other._body)
        return where == there and self._head == other._head and self._tail == other._tail

    def __hash__(self) -> int:
        return hash((self.queue, self.offset))

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.queue}, offset {self.offset}, key {self.key!r}, {len(self._body)} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        """For ``pickle`` and ``copy``: pools of processes are handed messages."""
        return ReceivedMessage, (self.queue, self.offset, self._body, self._head, self._tail)
