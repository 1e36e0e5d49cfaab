"""What a program receives: a stored message, and the queue that it is stored in. Pure values.

A ``ReceivedMessage`` is made for every message that is read, so it is plain slots; its ``MessageQueue`` is made once
for all messages of a pull.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from topicmap.queues import parse_topic_queue, topic_queue


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


class ReceivedMessage:
    """A message as it is stored. What a program sends is a ``Message``.

    Attributes:
        queue, offset: where it is stored.
        body: payload.
        key: its key, a ``str`` where that is UTF-8, else bytes; empty where it was sent without one.
        tag: the word that consumers can filter by; empty for none.
        properties: user properties.
        mqtt_topic: the MQTT topic name under which devices see it; empty means: the name is ``topic``.
        qos: 0, 1 or 2, the MQTT quality of service with which it was published.
        retain: whether it also became the retained message of its MQTT topic.
        position: its place in the broker's log, in bytes.
        born_ms, stored_ms: wall-clock milliseconds since 1970 at the sender and at the broker.
        id: the unique id that its producer gave it; empty for messages of devices.
    """

    __slots__ = (
        "body",
        "born_ms",
        "id",
        "key",
        "mqtt_topic",
        "offset",
        "position",
        "properties",
        "qos",
        "queue",
        "retain",
        "stored_ms",
        "tag",
    )

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        body: bytes,
        key: str | bytes,
        tag: str,
        properties: Mapping[str, str],
        mqtt_topic: str,
        qos: int,
        retain: bool,
        position: int,
        born_ms: int,
        stored_ms: int,
        id: str,
    ) -> None:
        self.queue = queue
        self.offset = offset
        self.body = body
        self.key = key
        self.tag = tag
        self.properties = properties
        self.mqtt_topic = mqtt_topic
        self.qos = qos
        self.retain = retain
        self.position = position
        self.born_ms = born_ms
        self.stored_ms = stored_ms
        self.id = id

    @property
    def topic(self) -> str:
        """The topic that it is stored in."""
        return self.queue.topic

    @property
    def name(self) -> str:
        """The MQTT topic name under which devices see this message."""
        return self.mqtt_topic or self.queue.topic

    @property
    def key_bytes(self) -> bytes:
        """The key as bytes, as Kafka's clients have it."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.queue}, offset {self.offset}, key {self.key!r}, {len(self.body)} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        """For ``pickle`` and ``copy``: pools of processes are handed messages."""
        return (
            ReceivedMessage,
            (
                self.queue,
                self.offset,
                self.body,
                self.key,
                self.tag,
                dict(self.properties),
                self.mqtt_topic,
                self.qos,
                self.retain,
                self.position,
                self.born_ms,
                self.stored_ms,
                self.id,
            ),
        )
