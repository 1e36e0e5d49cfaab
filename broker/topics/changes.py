"""Changes of existing topics: their configuration, purges, retention, and the broker's permissions.

A queue that a topic is to lose takes no more messages at once. It is removed when every group that reads the topic has
read it, or it is empty. A topic with a retention of its own loses older messages, but none that a consumer group still
needs (``broker/groups/readers.py``). The beginnings of its queues are facts, as their ends are. Both are checked every
few seconds.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Final

from broker.groups.members import Groups
from broker.groups.readers import Readers
from broker.kernel.fold import fact_record
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from broker.topics import fold as topics
from broker.topics.requests import TopicRequests, check_configuration, check_not_ours
from penstock.errors import Damaged
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.topics import (
    UNCHANGED,
    AllowBroker,
    BrokerAllows,
    ChangeTopic,
    PurgeTopic,
    QueryAllowed,
    TopicInfo,
)
from topicmap.queues import topic_queue

EVERY_S: Final = 5.0
"""Seconds between two looks at the topics."""
STEPS: Final = 100
"""A topic's messages are removed in steps of its retention divided by this."""


class TopicChanges:
    """Changes of the topics of one broker."""

    def __init__(
        self,
        state: BrokerState,
        store: MessageStore,
        requests: TopicRequests,
        groups: Groups,
        readers: Readers,
        settings: BrokerSettings,
    ) -> None:
        self._state = state
        self._topics = state.topics
        self._store = store
        self._requests = requests
        self._groups = groups
        self._readers = readers
        self._settings = settings
        self._begins = -math.inf
        self._trimmed: dict[str, float] = {}  # when topics last lost what was over their retention

    @handles(ChangeTopic)
    def change(self, request: ChangeTopic, now: float, now_ms: int) -> Outcome:
        """Changes a topic's configuration."""
        check_not_ours(request.topic, "configured")
        known = self._requests.get(request.topic)
        wanted = known._replace(
            level=request.level or known.level,
            retention_s=known.retention_s if request.retention_s == UNCHANGED else request.retention_s,
            access=request.access or known.access,
            trace=known.trace if request.trace == UNCHANGED else request.trace,
        )
        if request.queues:
            queues = max(request.queues, known.queues)
            wanted = wanted._replace(queues=queues, draining=queues - request.queues)
        check_configuration(wanted, self._settings)
        if wanted != known or self._topics.is_by_message(known.topic):
            self._requests.configure(wanted, now_ms)
        return AfterQuorum(self._requests.detail(wanted), self._store.written)

    @handles(PurgeTopic)
    def purge(self, request: PurgeTopic, now: float, now_ms: int) -> Outcome:
        """Removes all messages of a topic, and its retained messages if they are named."""
        check_not_ours(request.topic, "purged")
        known = self._requests.get(request.topic)
        was = self._requests.detail(known)
        self._begin_at(known, self._requests.ends(known), now_ms, unretained=request.retained)
        return AfterQuorum(was, self._store.written)

    @handles(AllowBroker)
    def allow(self, request: AllowBroker, now: float, now_ms: int) -> Outcome:
        """Gives, or takes away, the permission to read and to write."""
        if (request.read, request.write) != (self._topics.may_read, self._topics.may_write):
            fact = self._topics.allowing(read=request.read, write=request.write)
            self._store.append([fact_record(topics.ACCESS, fact)], now_ms)
            self._requests.all_changed()
        return AfterQuorum(Done(), self._store.written)

    @handles(QueryAllowed)
    def allowed(self, request: QueryAllowed, now: float, now_ms: int) -> Outcome:
        """The permission of clients."""
        return Now(BrokerAllows(self._topics.may_read, self._topics.may_write))

    def _begin_at(self, topic: TopicInfo, begins: Sequence[int], now_ms: int, *, unretained: bool = False) -> None:
        """Queues begin at these offsets from now on. ``unretained``: the topic's retained messages go too."""
        beyond = self._topics.begins(topic.topic)[len(begins) :]
        by_message = self._topics.is_by_message(topic.topic)
        fact = self._topics.making(topic, by_message=by_message, begins=[*begins, *beyond], unretained=unretained)
        self._store.append([fact_record(topics.TOPIC, fact)], now_ms)

    # ------------------------------------------------------------ time

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Takes out queues that are drained, and messages over the retention of their topics. Raises
        ``StorageFull``."""
        if now < self._begins:
            return
        self._begins = now + EVERY_S
        for topic in [one for one in self._topics if one.draining or one.retention_s]:
            if topic.draining:
                self._drain(topic, now_ms)
            elif now >= self._trimmed.get(topic.topic, -math.inf) + topic.retention_s / STEPS:
                with contextlib.suppress(Damaged):  # of what cannot be read the time is not known
                    self._trim(topic, now, now_ms, age_ms)

    def _drain(self, topic: TopicInfo, now_ms: int) -> None:
        """The last queues go, as many as are drained."""
        left = topic.queues
        while left > topic.writing and self._is_drained(topic, topic_queue(topic.topic, left - 1)):
            left -= 1
        if left < topic.queues:
            begins = [*self._begins_of(topic)[:left], *self._requests.ends(topic)[left:]]
            fewer = topic._replace(queues=left, draining=left - topic.writing)
            self._requests.configure(fewer, now_ms, begins)

    def _begins_of(self, topic: TopicInfo) -> list[int]:
        known = self._topics.begins(topic.topic)
        return [known[number] if number < len(known) else 0 for number in range(topic.queues)]

    def _is_drained(self, topic: TopicInfo, queue: str) -> bool:
        """Whether nothing is in a queue, or every group that reads the topic has read it."""
        end = self._store.next_offset(queue)
        if self._store.bounds(queue).min >= end:
            return True
        queues = [topic_queue(topic.topic, number) for number in range(topic.queues)]
        offsets = self._state.offsets
        readers = {one for one in offsets.groups if any([queue in offsets.of(one) for queue in queues])}
        readers.update(self._groups.reading(topic.topic))
        return bool(readers) and all([offsets.of(one).get(queue, 0) >= end for one in readers])

    def _trim(self, topic: TopicInfo, now: float, now_ms: int, age_ms: int) -> None:
        """The topic loses what is over its retention and what no group needs."""
        begins = [self._kept_from(topic, number, age_ms) for number in range(topic.queues)]
        if begins > self._begins_of(topic):
            self._trimmed[topic.topic] = now
            self._begin_at(topic, begins, now_ms)

    def _kept_from(self, topic: TopicInfo, number: int, age_ms: int) -> int:
        queue, needed_from = topic_queue(topic.topic, number), self._readers.needed_from
        kept = self._store.seek_time(queue, age_ms - topic.retention_s * 1000)
        if needed_from is not None:
            kept = min(kept, self._store.offset_at(queue, needed_from))
        begins = self._topics.begins(topic.topic)
        before = begins[number] if number < len(begins) else 0
        return max(kept, before) if kept > self._store.bounds(queue).min else before
