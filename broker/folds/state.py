"""All folds of a broker as one: what the store feeds with records, snapshots and restores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgpack

from broker.folds import exchanges, filters, lives, offsets, retained, sessions, shares, topics
from broker.folds.exchanges import Exchanges, exchange_of
from broker.folds.filters import Filters
from broker.folds.lives import Lives
from broker.folds.offsets import Offsets
from broker.folds.retained import Retained
from broker.folds.sessions import Sessions
from broker.folds.shares import Shares
from broker.folds.topics import Topics
from broker.store.records import NO_CHANGE, Change, Incoming, Stored
from penstock.errors import TooLarge
from penstock.message import (
    BODY_AT,
    BODY_BYTES_MAX,
    CLIENT_ID,
    FLAG_ONCE,
    FLAG_RETAIN,
    FRAME_HEAD_BYTES,
    MQTT_ID,
    encode_record,
    mqtt_name,
    property_of,
    record_body,
)
from topicmap.queues import SYSTEM_PREFIX

_CLIENT_ID: Final = CLIENT_ID.encode()
_MQTT_ID: Final = MQTT_ID.encode()
_BODY_LENGTH_AT: Final = FRAME_HEAD_BYTES + BODY_AT - 4


def fact_record(topic: str, body: list[Any]) -> Incoming:
    """The system record of a durable fact, ready to append. Raises ``TooLarge``."""
    packed = cast(bytes, msgpack.packb(body))
    if len(packed) > BODY_BYTES_MAX:
        raise TooLarge(f"a record of facts has at most {BODY_BYTES_MAX} bytes, not {len(packed)}", hint="ask for less")
    return Incoming(encode_record(topic.encode(), packed, b""), topic, 0, 0, b"")


class BrokerState:
    """Topics, filters, shares, offsets, retained messages, sessions, exchanges, lives (satisfies
    ``store.records.Folds``)."""

    def __init__(self) -> None:
        self.topics = Topics()
        self.shares = Shares()
        self.filters = Filters(self.shares.end)
        self.offsets = Offsets()
        self.retained = Retained()
        self.sessions = Sessions()
        self.exchanges = Exchanges()
        self.lives = Lives()
        self.changes = 0  # of the open light queues

    def apply(self, record: Stored) -> Change:
        """Takes in a system record, or one that decides a retained message or begins an exchange."""
        if not record.topic.startswith(SYSTEM_PREFIX):
            if record.flag & FLAG_RETAIN:
                self._retain(record)
            if record.flag & FLAG_ONCE:
                self._begin_exchange(record.properties)
            return NO_CHANGE
        if record.topic == topics.TOPIC:
            self.topics.apply(_body_of(record))
        elif record.topic == offsets.TOPIC:
            self.offsets.apply(_body_of(record), record.stored_ms)
        elif record.topic == filters.TOPIC:
            return self._changed(self.filters.apply(_body_of(record), record.position))
        elif record.topic == sessions.TOPIC:
            ended = self.sessions.apply(_body_of(record), record.position, record.stored_ms)
            if ended is not None:
                self.exchanges.apply(Exchanges.fact(*ended, ()))
                return self._changed(self.filters.release(sessions.holder(ended[1])))
        elif record.topic == shares.TOPIC:
            self.shares.apply(_body_of(record), record.position)
        elif record.topic == exchanges.TOPIC:
            self.exchanges.apply(_body_of(record))
        elif record.topic == lives.TOPIC:
            self.lives.apply(_body_of(record), record.position)
        return NO_CHANGE

    def _changed(self, change: Change) -> Change:
        """Light queues have begun or ended; the offsets in those that have ended are of no use any more."""
        if change.opened or change.ended:
            self.changes += 1
        for queue in change.ended:
            self.offsets.forget(queue)
        return change

    def _retain(self, record: Stored) -> None:
        name = mqtt_name(record.topic.encode(), record.properties)
        end = record.position + record.size
        self.retained.expire(record.stored_ms, end)
        if any(record.frame[_BODY_LENGTH_AT : _BODY_LENGTH_AT + 4]):
            expires = retained.expires_ms(record.properties, record.stored_ms)
            self.retained.put(name, bytes(record.frame), end, expires)
        else:
            self.retained.remove(name, end)

    def _begin_exchange(self, properties: bytes) -> None:
        exchange = exchange_of(property_of(properties, _MQTT_ID).decode("utf-8", "replace"))
        if exchange is not None:
            incarnation, _, packet_id = exchange
            client = property_of(properties, _CLIENT_ID).decode("utf-8", "replace")
            self.exchanges.stored(client, incarnation, packet_id)

    def is_fenced(self, client: str, incarnation: int, epoch: int) -> bool:
        """Whether a QoS 2 message comes from a gateway that has lost its session since."""
        session = self.sessions.get(client)
        if session is not None:
            return (incarnation, epoch) < (session.incarnation, session.epoch)
        return self.exchanges.is_fenced(client, incarnation, epoch)

    def queues_of(self, topic: str, properties: bytes) -> Sequence[str]:
        """Light queues of a user's record."""
        if not len(self.filters):
            return ()
        return self.filters.queues_of(mqtt_name(topic.encode(), properties))

    def topic_queues(self) -> Iterator[tuple[str, int]]:
        """The queues of all topics."""
        return ((topic.topic, number) for topic in self.topics for number in range(topic.queues))

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        return b"".join(self.freeze())

    def freeze(self) -> Iterator[bytes]:
        """The state as it is now, in the pieces of ``snapshot``; they are made later. A fold whose state may be large
        has a ``freeze`` of its own."""
        folds = self._folds()
        pieces = [_frozen(fold) for _, fold in folds]

        def joined() -> Iterator[bytes]:
            yield cast(bytes, msgpack.Packer().pack_map_header(len(folds)))
            for (key, _), some in zip(folds, pieces, strict=True):
                yield cast(bytes, msgpack.packb(key))
                yield from some

        return joined()

    def restore(self, snapshot: bytes) -> None:
        """Takes the state of a snapshot; ``b""`` is the state before the first record.

        A fold that an older broker did not have begins empty; one that only a newer broker has is passed over.
        """
        changes = self.changes
        self.__init__()  # type: ignore[misc]
        self.changes = changes + 1
        parts = msgpack.unpackb(snapshot) if snapshot else {}
        for key, fold in self._folds():
            if key in parts:
                fold.restore(parts[key])

    def _folds(self) -> tuple[tuple[str, Any], ...]:
        return (
            (topics.KEY, self.topics),
            (filters.KEY, self.filters),
            (shares.KEY, self.shares),
            (offsets.KEY, self.offsets),
            (sessions.KEY, self.sessions),
            (exchanges.KEY, self.exchanges),
            (lives.KEY, self.lives),
            (retained.KEY, self.retained),
        )


def _frozen(fold: Any) -> Iterator[bytes]:
    if hasattr(fold, "freeze"):
        return cast("Iterator[bytes]", fold.freeze())
    return iter((cast(bytes, msgpack.packb(fold.snapshot())),))


def _body_of(record: Stored) -> list[Any]:
    return cast("list[Any]", msgpack.unpackb(record_body(memoryview(record.frame)[FRAME_HEAD_BYTES:])))
