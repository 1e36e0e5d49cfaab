"""All folds of a broker as one: what the store feeds with records, snapshots and restores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgpack

from broker.folds import filters, offsets, topics
from broker.folds.filters import Filters
from broker.folds.offsets import Offsets
from broker.folds.retained import Retained
from broker.folds.topics import Topics
from broker.store.records import NO_CHANGE, SYSTEM_PREFIX, Change, Incoming, Stored
from penstock.message import BODY_AT, FRAME_HEAD_BYTES, encode_record, mqtt_name, record_body


def fact_record(topic: str, body: list[Any]) -> Incoming:
    """The system record of a durable fact, ready to append."""
    record = encode_record(topic.encode(), cast(bytes, msgpack.packb(body)), b"")
    return Incoming(record, topic, 0, 0, b"")


class BrokerState:
    """Topics, filters, offsets and retained messages (satisfies ``store.records.Folds``)."""

    def __init__(self) -> None:
        self.topics = Topics()
        self.filters = Filters()
        self.offsets = Offsets()
        self.retained = Retained()

    def apply(self, record: Stored) -> Change:
        """Takes in a system record, or one that decides a retained message."""
        if not record.topic.startswith(SYSTEM_PREFIX):
            self._retain(record)
            return NO_CHANGE
        body = msgpack.unpackb(record_body(memoryview(record.frame)[FRAME_HEAD_BYTES:]))
        if record.topic == topics.TOPIC:
            self.topics.apply(body)
        elif record.topic == offsets.TOPIC:
            self.offsets.apply(body)
        elif record.topic == filters.TOPIC:
            return self.filters.apply(body)
        return NO_CHANGE

    def _retain(self, record: Stored) -> None:
        name = mqtt_name(record.topic.encode(), record.properties)
        body_length_at = FRAME_HEAD_BYTES + BODY_AT - 4
        if any(record.frame[body_length_at : body_length_at + 4]):
            self.retained.put(name, bytes(record.frame))
        else:
            self.retained.remove(name)

    def queues_of(self, topic: str, properties: bytes) -> Sequence[str]:
        """Light queues of a user's record."""
        if not len(self.filters):
            return ()
        return self.filters.queues_of(mqtt_name(topic.encode(), properties))

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        parts = [
            self.topics.snapshot(),
            self.filters.snapshot(),
            self.offsets.snapshot(),
            self.retained.snapshot(),
        ]
        return cast(bytes, msgpack.packb(parts))

    def restore(self, snapshot: bytes) -> None:
        """Takes the state of a snapshot; ``b""`` is the state before the first record."""
        if not snapshot:
            self.__init__()  # type: ignore[misc]
            return
        parts = msgpack.unpackb(snapshot)
        folds: tuple[Any, ...] = (self.topics, self.filters, self.offsets, self.retained)
        for fold, part in zip(folds, parts, strict=True):
            fold.restore(part)
