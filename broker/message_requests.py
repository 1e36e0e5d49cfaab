"""Requests that store and read messages: append, pull, bounds, time, key.

An append is many records end to end. Each is checked; a bad one is refused by its place in the batch, all others are
stored with one append of the store. The reply waits for the highest level that a stored record's topic asks for.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from broker.figures import Figures
from broker.folds.retained import Retained
from broker.outcomes import AfterSync, Now, Outcome, Parked
from broker.settings import BrokerSettings
from broker.store.message_store import MessageStore
from broker.store.records import Incoming
from broker.topic_requests import TopicRequests
from penstock.errors import Busy, InvalidMessage, InvalidRequest, PenstockError
from penstock.message import (
    ANY_QUEUE,
    BODY_AT,
    FLAG_RETAIN,
    RECORD_HEAD,
    check_record,
    mqtt_name,
    property_of,
    tag_hash,
)
from penstock.requests import (
    Append,
    Appended,
    BoundsReply,
    FindByKey,
    OffsetReply,
    Placed,
    Pull,
    Pulled,
    QueryBounds,
    Refused,
    Result,
    SeekTime,
    TopicInfo,
)
from topicmap.queues import queue_for_key

COUNT_MAX: Final = 65_536
WAIT_S_MAX: Final = 60.0
_NOT_STORED: Final = Placed(0, 0, 0)
_KEYS: Final = b"KEYS"


class MessageRequests:
    """Messages of one broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicRequests,
        retained: Retained,
        settings: BrokerSettings,
        figures: Figures,
    ) -> None:
        self._store = store
        self._topics = topics
        self._retained = retained
        self._settings = settings
        self._figures = figures
        self._round_robin = count()

    def append(self, request: Append, now_ms: int) -> Outcome:
        """Stores the good records of a batch; the bad ones are ``refused`` one by one."""
        batch: list[Incoming] = []
        refused: list[Refused] = []
        levels: dict[str, None] = {}
        known: dict[bytes, tuple[str, TopicInfo]] = {}
        view, at = memoryview(request.body), 0
        for number in range(request.count):
            record = view[at : at + _record_size(view, at)]
            at += len(record)
            try:
                incoming, level = self._accept(record, known, now_ms)
            except PenstockError as error:
                refused.append(Refused(number, error.code, error.message))
                continue
            batch.append(incoming)
            levels[level] = None
        if at != len(view):
            raise InvalidRequest(f"{len(view) - at} bytes behind the last of {request.count} records")
        placed = self._store.append(batch, now_ms) if batch else []
        self._figures.appended(len(batch), at, len(refused))
        reply = Appended(
            "disk" if "disk" in levels else "cache",
            _with_gaps(placed, refused) if request.detail else (),
            tuple(refused),
        )
        return AfterSync(reply, self._store.written) if "disk" in levels else Now(reply)

    def _accept(
        self, record: memoryview, known: dict[bytes, tuple[str, TopicInfo]], now_ms: int
    ) -> tuple[Incoming, str]:
        """Checks one record and finds its queue; topics seen before in the batch come from ``known``."""
        check_record(record)
        head = RECORD_HEAD.unpack_from(record)
        topic_at = BODY_AT + head[14]
        properties_at = topic_at + 2 + int.from_bytes(record[topic_at : topic_at + 2], "big")
        raw_topic = bytes(record[topic_at + 2 : properties_at])
        found = known.get(raw_topic)
        if found is None:
            found = known[raw_topic] = self._resolve(raw_topic, now_ms)
        topic, config = found
        properties = bytes(record[properties_at + 2 :])
        queue_id = head[3]
        if queue_id == ANY_QUEUE:
            key = property_of(properties, _KEYS)
            queue_id = (
                queue_for_key(key.decode("utf-8", "replace"), config.queues)
                if key
                else next(self._round_robin) % config.queues
            )
        elif queue_id >= config.queues:
            raise InvalidRequest(f"topic {topic} has {config.queues} queues, no queue {queue_id}")
        if head[4] & FLAG_RETAIN and head[14]:
            self._check_retained(raw_topic, properties, len(record))
        return Incoming(record, topic, queue_id, head[4], properties, config.level == "cache"), config.level

    def _resolve(self, raw_topic: bytes, now_ms: int) -> tuple[str, TopicInfo]:
        try:
            topic = raw_topic.decode()
        except UnicodeDecodeError:
            raise InvalidMessage("the topic is not UTF-8") from None
        return topic, self._topics.for_append(topic, now_ms)

    def _check_retained(self, topic: bytes, properties: bytes, size: int) -> None:
        """Raises ``Busy`` where one more retained message would pass the limits."""
        settings, retained = self._settings, self._retained
        full = len(retained) >= settings.retained_max or retained.bytes + size > settings.retained_bytes_max
        if full and mqtt_name(topic, properties) not in retained:
            raise Busy(f"{len(retained)} retained messages with {retained.bytes} bytes: the limit is reached")

    def pull(self, request: Pull, now: float) -> Outcome:
        """Messages of a queue; parked while there is none and the caller wants to wait."""
        if request.count_max < 1 or request.bytes_max < 1 or request.wait_s < 0:
            raise InvalidRequest("count_max and bytes_max are at least 1, wait_s at least 0")
        tags = frozenset(tag_hash(tag) for tag in request.tags)
        pulled = self._read(request, tags)
        if pulled.count or pulled.next != request.offset or not request.wait_s:
            return Now(pulled)

        def again(last: bool) -> Result | None:
            try:
                found = self._read(request, tags)
            except PenstockError as error:
                return error  # the queue was closed meanwhile
            return found if found.count or last or found.next != request.offset else None

        return Parked((request.queue,), now + min(request.wait_s, WAIT_S_MAX), again)

    def _read(self, request: Pull, tags: frozenset[int]) -> Pulled:
        count_max, bytes_max = min(request.count_max, COUNT_MAX), min(request.bytes_max, self._settings.pull_bytes_max)
        pulled = self._store.read(request.queue, request.offset, count_max, bytes_max, tags)
        self._figures.pulled(pulled.count, len(pulled.body))
        return pulled

    def bounds(self, request: QueryBounds, now: float) -> Outcome:
        """Bounds of several queues."""
        return Now(BoundsReply(tuple(self._store.bounds(queue) for queue in request.queues)))

    def seek_time(self, request: SeekTime, now: float) -> Outcome:
        """The first offset at or after a time."""
        return Now(OffsetReply(self._store.seek_time(request.queue, request.stored_ms)))

    def find(self, request: FindByKey, now: float) -> Outcome:
        """Messages by key or unique id."""
        self._topics.get(request.topic)
        found = self._store.find(
            request.topic, request.key, request.since_ms, request.until_ms, min(request.count_max, COUNT_MAX)
        )
        return Now(found)


def _record_size(view: memoryview, at: int) -> int:
    """Size of the record at ``at``. Raises ``InvalidRequest`` where the batch cannot be cut there."""
    size = int.from_bytes(view[at : at + 4], "big")
    if size < RECORD_HEAD.size or at + size > len(view):
        raise InvalidRequest(f"a record of {size} bytes at byte {at} of a batch of {len(view)}; nothing was stored")
    return size


def _with_gaps(placed: list[Placed], refused: list[Refused]) -> tuple[Placed, ...]:
    """One entry per record of the batch: refused ones have none of their own."""
    for one in refused:
        placed.insert(one.at, _NOT_STORED)
    return tuple(placed)
