"""Fold of retained messages: the last one of each MQTT topic name, whole, as its log frame.

A record with the retain flag decides the value in the same append that stores it; one with an empty body removes it.
Frames are kept in memory, so that they outlive retention; the service limits their number and bytes before the append.

One whose expiry interval is over is no retained message any more (MQTT-3.3.2-5): it goes with the next record that has
the retain flag, by that record's time, so that the log alone decides it. Until then readers pass over it, and limits do
not count it (``expired_by``).

Names are kept in order (``sortedcontainers``, decision 96), so that a search goes past whole subtrees in which nothing
can match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sortedcontainers import SortedList

from broker.kernel.deadlines import Deadlines
from broker.kernel.frozen import Table
from broker.store.frames import POSITION_AT, born_ms_of, stored_ms_of, unpack_frame
from broker.store.records import NO_CHANGE, Change, Stored
from broker.topics.fold import RetainedGone, TopicGone
from penstock.protocol.message import (
    BODY_AT,
    FLAG_RETAIN,
    FRAME_HEAD_BYTES,
    MQTT_PROPERTIES,
    NEVER,
    expiry_of,
    lasts_from_ms,
    mqtt_name,
    property_of,
    record_topic,
)
from topicmap.names import first_match

_BODY_LENGTH_AT: Final = FRAME_HEAD_BYTES + BODY_AT - 4
_MQTT_PROPERTIES: Final = MQTT_PROPERTIES.encode()


class Retained:
    """The retained message of each name.

    Attributes:
        bytes: size of all frames.
        changed_at: log position behind the last record that changed anything; 0 if none did since the start.
    """

    KEY: Final = "retained"
    TOPICS: Final = ()
    FLAGS: Final = FLAG_RETAIN

    def __init__(self) -> None:
        self._frames: Table[bytes] = Table()
        self._names: SortedList[str] = SortedList()
        self._expires: Deadlines[str] = Deadlines()  # by store time
        self._in_topics: dict[bytes, int] = {}  # topic -> how many of the messages are its
        self.bytes = 0
        self.changed_at = 0

    def __len__(self) -> int:
        return len(self._frames)

    def size_of(self, name: str) -> int:
        """Bytes of the frame retained under a name, 0 if there is none."""
        return len(self._frames.get(name, b""))

    def position_of(self, name: str) -> int:
        """Log position of the message retained under a name, 0 if there is none."""
        frame = self._frames.get(name)
        return 0 if frame is None else int.from_bytes(frame[POSITION_AT : POSITION_AT + 8], "big")

    def apply(self, record: Stored) -> Change:
        """Takes in a message with the retain flag, and removes values that have expired by its time."""
        name, end = mqtt_name(record.topic.encode(), record.properties), record.position + record.size
        from_ms = lasts_from_ms(born_ms_of(record.frame), record.stored_ms)
        self.expire(from_ms, end)
        if any(record.frame[_BODY_LENGTH_AT : _BODY_LENGTH_AT + 4]):
            self.put(name, bytes(record.frame), end, expires_ms(record.properties, from_ms))
        else:
            self.remove(name, end)
        return NO_CHANGE

    def follow(self, change: Change) -> Change:
        """The retained messages of a topic go with it, or with a purge."""
        for event in change.events:
            if isinstance(event, TopicGone | RetainedGone) and self.holds(event.topic):
                topic = event.topic.encode()
                for name in [name for name, frame in self._frames.items() if _topic_of(frame) == topic]:
                    self.remove(name, event.position)
        return NO_CHANGE

    def holds(self, topic: str) -> bool:
        """Whether a message of a topic is retained."""
        return self.count_of(topic) > 0

    def count_of(self, topic: str) -> int:
        """Number of retained messages of a topic."""
        return self._in_topics.get(topic.encode(), 0)

    def _count(self, frame: bytes, more: int) -> None:
        topic = _topic_of(frame)
        left = self._in_topics.get(topic, 0) + more
        if left:
            self._in_topics[topic] = left
        else:
            del self._in_topics[topic]

    def put(self, name: str, frame: bytes, position: int, expires_ms: int = NEVER) -> None:
        """The frame of the record before ``position`` is the retained message of that name now, until that time."""
        if name not in self._frames:
            self._names.add(name)
        before = self._frames.get(name, b"")
        self.bytes += len(frame) - len(before)
        self._frames[name] = frame
        self._count(frame, 1)
        if before:
            self._count(before, -1)
        self.changed_at = position
        if expires_ms != NEVER:
            self._expires.set(name, expires_ms)
        else:
            self._expires.cancel(name)

    def expire(self, now_ms: int, position: int) -> None:
        """The record before ``position`` has that time: expired values go."""
        for name in self._expires.due(now_ms):
            self.remove(name, position)

    def expired_by(self, now_ms: int) -> dict[str, int]:
        """The values that have expired by then and are still here: their names, and the bytes of their frames."""
        return {name: self.size_of(name) for name in self._expires.passed(now_ms)}

    def remove(self, name: str, position: int) -> None:
        """Removes the retained message of a name, by the record before ``position``."""
        frame = self._frames.pop(name, None)
        if frame is None:
            return
        self._expires.cancel(name)
        self._count(frame, -1)
        self.bytes -= len(frame)
        self.changed_at = position
        self._names.remove(name)

    def matching(self, filter: str, after: str, looked_at_max: int) -> Iterator[tuple[str, bytes | None]]:
        """Name and frame of what matches, in order of names after ``after``; ends with (name, None) where it stopped
        for its bound."""
        if "+" not in filter and not filter.endswith("#"):
            if filter > after and filter in self._frames:
                yield filter, self._frames[filter]
            return
        names = self._names.irange(after, inclusive=(False, True))
        last = ""
        for _ in range(looked_at_max):
            name = next(names, None)
            if name is None or (first := first_match(filter, name)) is None:
                return
            if first != name:
                names = self._names.irange(first)
            else:
                yield name, self._frames[name]
            last = name
        if next(names, None) is not None:
            yield last, None

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._frames.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        return self._frames.freeze(_row)

    def restore(self, snapshot: list[Any] | None) -> None:
        self._frames = Table((name, frame) for name, frame in snapshot or ())
        self._names = SortedList(self._frames)
        self._expires, self._in_topics = Deadlines(), {}
        for name, frame in self._frames.items():
            self._count(frame, 1)
            expires_ms = _expires_ms(frame) if _MQTT_PROPERTIES in frame else NEVER
            if expires_ms != NEVER:
                self._expires.set(name, expires_ms)
        self.bytes = sum(map(len, self._frames.values()))
        self.changed_at = 0


def expires_ms(properties: bytes, from_ms: int) -> int:
    """The time after which a message that lasts from then on (``lasts_from_ms``) is not delivered
    (``gateway/messages/envelope.py``), ``NEVER`` if it always is."""
    expiry_s = expiry_of(property_of(properties, _MQTT_PROPERTIES))
    return NEVER if expiry_s == NEVER else from_ms + expiry_s * 1000


def _expires_ms(frame: bytes) -> int:
    properties = unpack_frame(frame)[-1]
    return expires_ms(properties, lasts_from_ms(born_ms_of(frame), stored_ms_of(frame)))


def _topic_of(frame: bytes) -> bytes:
    return record_topic(memoryview(frame)[FRAME_HEAD_BYTES:])


def _row(name: str, frame: bytes) -> list[Any]:
    return [name, frame]
