"""Requests about topics: create, describe, list, count, delete. One function per request; policy for topics that do not
exist yet."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.kernel.fold import fact_record
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, AfterRound, Now, Outcome
from broker.sessions.fold import homes_of
from broker.settings import LEVELS, RETENTION_S_MAX, BrokerSettings
from broker.state import BrokerState
from broker.store.level import Level
from broker.store.message_store import MessageStore
from broker.store.queue_index import LIGHT
from broker.topics import fold as topics
from broker.topics.quota import TopicQuota as TopicQuota
from penstock.errors import Busy, InvalidRequest, InvalidTopic, NoRoute, NotAllowed, TopicExists, TopicNotFound
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS, HOME_TOPIC
from penstock.protocol.requests.topics import (
    ACCESSES,
    UNCHANGED,
    Bounds,
    CountTopics,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    TopicCount,
    TopicCounts,
    TopicDetail,
    TopicInfo,
    TopicList,
)
from penstock.service.metrics import with_label
from topicmap.names import InvalidName
from topicmap.queues import check_topic, is_own_topic, is_system, topic_queue

LABELLED_MAX: Final = 200
"""Maximum number of topics that have a figure of their own."""
COUNTED_MAX: Final = 500
"""Maximum number of topics that one request counts."""
TRACE_MAX: Final = 1_000_000_000
_MAINTENANCE: Final = (
    "an operator has taken the permission away for a while: `penstock topic list`, `penstock broker list`"
)


def check_not_ours(topic: str, what: str) -> None:
    """Raises ``InvalidTopic`` for a topic of the system's, to which ``what`` does not happen."""
    if is_system(topic) or topic in GATEWAYS_TOPICS:
        raise InvalidTopic(f"topic {topic} is the system's own: it is not {what}")


def check_configuration(topic: TopicInfo, settings: BrokerSettings) -> None:
    """Raises ``InvalidRequest`` where a topic may not be so."""
    if not 1 <= topic.writing <= topic.queues <= settings.queues_max:
        raise InvalidRequest(f"a topic has 1 to {settings.queues_max} queues, not {topic.writing}")
    if topic.level not in settings.levels:
        raise InvalidRequest(
            f"a topic's level is one of {', '.join(settings.levels)}, not {topic.level!r}",
            hint="this broker's log has no copies: take level disk" if topic.level in LEVELS else "",
        )
    if topic.access not in ACCESSES:
        raise InvalidRequest(f"a topic's access is one of {', '.join(ACCESSES)}, not {topic.access!r}")
    if not 0 <= topic.trace <= TRACE_MAX:
        raise InvalidRequest(f"every so-many-th message is traced, from 0 (none) to {TRACE_MAX}, not {topic.trace}")
    if not 0 <= topic.retention_s <= RETENTION_S_MAX:
        raise InvalidRequest(f"a topic's retention is 0 to {RETENTION_S_MAX} s, not {topic.retention_s}")
    if 0 < settings.retention_s < topic.retention_s:
        raise InvalidRequest(
            f"this broker keeps messages for {settings.retention_s:g} s: a topic's retention is not longer",
            hint="raise the broker's retention_s, and give other topics a shorter one",
        )


class TopicRequests:
    """Topics of one broker. ``on_change`` is called with the name of each topic that is created, changed or deleted.
    ``quota`` bounds those that messages make."""

    def __init__(
        self,
        state: BrokerState,
        store: MessageStore,
        settings: BrokerSettings,
        on_change: Callable[[str], None],
        quota: TopicQuota | None = None,
    ) -> None:
        self._state = state
        self._topics = state.topics
        self._store = store
        self._settings = settings
        self._on_change = on_change
        self._quota = quota
        self._asked: set[str] = set()  # topics that their first message made, since they were last taken
        for topic in self._topics:
            self._ensure_queues(topic)

    @handles(CreateTopic)
    def create(self, request: CreateTopic, now: float, now_ms: int) -> Outcome:
        """Creates a topic; again with the same configuration is fine, and one that its first message has made is then
        one that was made by hand."""
        wanted = TopicInfo(
            request.topic,
            request.queues or self._settings.default_queues,
            request.level or self._settings.level_of_new,
            max(0, request.retention_s),
            request.access or "rw",
            trace=max(0, request.trace),
        )
        known = self._topics.get(request.topic)
        if known is not None:
            same = (not request.queues or request.queues == known.writing) and request.level in ("", known.level)
            same = same and request.retention_s in (UNCHANGED, known.retention_s)
            same = same and request.trace in (UNCHANGED, known.trace)
            if not same or request.access not in ("", known.access):
                kept = f", a retention of {known.retention_s} s" if known.retention_s else ""
                raise TopicExists(
                    f"topic {request.topic} has {known.writing} queues at level {known.level}{kept} and access "
                    f"{known.access}",
                    hint="`penstock topic change` changes it",
                )
            if self._topics.is_by_message(request.topic):
                self._store.append([fact_record(topics.TOPIC, self._topics.making(known))], now_ms)
            return AfterQuorum(self.detail(known), self._store.written)  # who made it may still be waiting, too
        self._create(wanted, now_ms)
        return AfterQuorum(self.detail(wanted), self._store.written)

    def _detail_of(self, topic: str, ended: tuple[Bounds, ...]) -> TopicDetail:
        return self.detail(self.get(topic), ended)

    @handles(DescribeTopic)
    def describe(self, request: DescribeTopic, now: float, now_ms: int) -> Outcome:
        """Configuration and bounds; with ``create``, policy may create the topic."""
        known = self._topics.get(request.topic)
        ended = self._ended(request.topic) if request.gone else ()
        if known is not None:
            self.note_asked(request.topic)
            return AfterRound(self.detail(known, ended), again=partial(self._detail_of, request.topic, ended))
        if ended:
            return Now(TopicDetail(request.topic, 0, "", ended, self._state.identity.log_id))
        if not request.create:
            raise TopicNotFound(f"there is no topic {request.topic}", hint="penstock topic create makes one")
        self.auto_create(request.topic, now_ms, is_anonymous=request.is_anonymous)
        return AfterQuorum(self.detail(self.get(request.topic)), self._store.written)

    @handles(DeleteTopic)
    def delete(self, request: DeleteTopic, now: float, now_ms: int) -> Outcome:
        """Deletes a topic with all that is in it."""
        check_not_ours(request.topic, "deleted")
        was = self.detail(self.get(request.topic))
        self.remove(request.topic, now_ms)
        return AfterQuorum(was, self._store.written)

    def remove(self, name: str, now_ms: int) -> None:
        """Deletes a topic. Raises ``StorageFull``."""
        fact = self._topics.deleting(name, self.ends(self.get(name)))
        self._store.append([fact_record(topics.TOPIC, fact)], now_ms)
        self._on_change(name)

    def configure(self, topic: TopicInfo, now_ms: int, begins: Sequence[int] = ()) -> None:
        """Gives a topic that is there this configuration; it was made by hand then. ``begins``: where its queues begin
        from now on. Raises ``StorageFull``."""
        fact = self._topics.making(topic, begins=begins)
        self._store.append([fact_record(topics.TOPIC, fact)], now_ms)
        self._on_change(topic.topic)

    def all_changed(self) -> None:
        """Notes that the permission for all topics has changed."""
        self._on_change("")

    def ends(self, topic: TopicInfo) -> list[int]:
        """The next offset of each queue."""
        return [self._store.next_offset(topic_queue(topic.topic, number)) for number in range(topic.queues)]

    def note_asked(self, topic: str) -> None:
        """Notes that a topic is used: a request named it."""
        if self._topics.is_by_message(topic):
            self._asked.add(topic)

    def is_asked(self, topic: str) -> bool:
        """Whether a topic was asked for since ``take_asked``."""
        return topic in self._asked

    def take_asked(self) -> set[str]:
        """The topics that were asked for since the last call."""
        asked, self._asked = self._asked, set()
        return asked

    def is_empty(self, topic: TopicInfo) -> bool:
        """Whether no message of a topic is left."""
        for number in range(topic.queues):
            queue = topic_queue(topic.topic, number)
            if self._store.bounds(queue).min < self._store.next_offset(queue):
                return False
        return True

    @handles(ListTopics)
    def list_all(self, request: ListTopics, now: float, now_ms: int) -> Outcome:
        """All topics, sorted."""
        return Now(TopicList(tuple(sorted(self._topics))))

    @handles(CountTopics)
    def count(self, request: CountTopics, now: float, now_ms: int) -> Outcome:
        """The contents of a page of topics in numbers."""
        part = request.contains
        later = [one.topic for one in self._topics if one.topic > request.after and part in one.topic]
        names = heapq.nsmallest(max(1, min(request.count_max, COUNTED_MAX)), later)
        after = names[-1] if len(names) < len(later) else ""
        return Now(TopicCounts(tuple([self._count_of(self.get(name), request.sizes) for name in names]), after))

    def figures(self) -> dict[str, float]:
        """The number of topics, the messages ever stored in each of the first by name, and the number without a
        figure."""
        names = [one.topic for one in self._topics if one.topic not in GATEWAYS_TOPICS]
        shown = heapq.nsmallest(LABELLED_MAX, names)
        found: dict[str, float] = {"penstock_topics": len(names)}
        found[with_label("penstock_unlabelled", "kind", "topics")] = len(names) - len(shown)
        for one in shown:
            found[with_label("penstock_topic_messages_total", "topic", one)] = self._count_of(self.get(one)).stored
        return found

    def _count_of(self, topic: TopicInfo, wants_size: bool = False) -> TopicCount:
        queues = [topic_queue(topic.topic, number) for number in range(topic.queues)]
        bounds = [self._store.bounds(queue) for queue in queues]
        stored = sum([bound.end for bound in bounds])
        size = sum([self._store.size_of(queue) for queue in queues]) if wants_size else 0
        return TopicCount(topic.topic, stored, stored - sum([bound.min for bound in bounds]), size)

    def get(self, topic: str) -> TopicInfo:
        """Configuration of a topic. Raises ``TopicNotFound``."""
        known = self._topics.get(topic)
        if known is None:
            raise TopicNotFound(f"there is no topic {topic}", hint="penstock topic create makes one")
        return known

    def queue_count(self, topic: str) -> int:
        """Number of queues, 0 while the topic does not exist."""
        known = self._topics.get(topic)
        return known.queues if known else 0

    def for_append(self, topic: str, now_ms: int) -> TopicInfo:
        """Configuration of the topic that a message goes to; created by policy. Raises ``TopicNotFound``,
        ``InvalidTopic``."""
        known = self._topics.get(topic)
        if known is None:
            self.auto_create(topic, now_ms)
            known = self.get(topic)
        return known

    def auto_create(self, topic: str, now_ms: int, *, is_anonymous: bool = False) -> None:
        """Creates a topic with the defaults, if policy allows it; what gateways need for themselves is not asked."""
        if not self._settings.auto_create_topics and topic not in GATEWAYS_TOPICS:
            raise TopicNotFound(f"there is no topic {topic}", hint="this broker does not create topics by itself")
        if topic == HOME_TOPIC:
            self._check_home()
        made = TopicInfo(topic, self._settings.default_queues, self._settings.level_of_new)
        self._check_new(made)
        if self._quota is not None and self._quota.take(now_ms):
            is_anonymous = True
        self._create(made, now_ms, is_anonymous=is_anonymous, by_message=topic not in GATEWAYS_TOPICS)

    def ensure_own(self, topic: str, now_ms: int, level: str = "", kept_s: int = 0) -> None:
        """Makes a topic that the broker itself stores messages in, with one queue, unless it is there. No policy and no
        limit of topics stands against it. ``kept_s``: its retention, where the broker's is longer."""
        if self._topics.get(topic) is None:
            longest_s = self._settings.retention_s
            kept_s = 0 if 0 < longest_s <= kept_s else kept_s
            self._make(TopicInfo(topic, 1, level or self._settings.level_of_new, kept_s), now_ms)

    def level_of(self, topic: str) -> Level:
        """The level of a topic. Raises ``TopicNotFound``."""
        return Level.of(self.get(topic).level)

    def _check_home(self) -> None:
        """Sessions have one home. Raises ``NoRoute`` where what they hold here says that it is another broker."""
        homes = homes_of(self._state.filters.owners) - {self._settings.name}
        if homes:
            raise NoRoute(f"MQTT sessions are at home at {', '.join(sorted(homes))}, which is away")

    def _create(self, topic: TopicInfo, now_ms: int, *, is_anonymous: bool = False, by_message: bool = False) -> None:
        self._check_new(topic)
        self._check_room(is_anonymous)
        self._make(topic, now_ms, by_message=by_message)

    def _check_new(self, topic: TopicInfo) -> None:
        try:
            check_topic(topic.topic)
        except InvalidName as error:
            raise InvalidTopic(str(error)) from None
        if is_own_topic(topic.topic):
            raise InvalidTopic(f"the broker makes {topic.topic!r} by itself when there is a message for it")
        check_configuration(topic, self._settings)

    def _make(self, topic: TopicInfo, now_ms: int, *, by_message: bool = False) -> None:
        self._store.append([fact_record(topics.TOPIC, self._topics.making(topic, by_message=by_message))], now_ms)
        self._on_change(topic.topic)

    def _check_room(self, is_anonymous: bool) -> None:
        """Raises ``Busy`` where there may be no more topics, or none that clients without a user name make."""
        count, most = len(self._topics), self._settings.topics_max
        if count >= most:
            raise Busy(
                f"this broker has {count} topics: the limit topics_max is reached; `penstock topic delete` makes room"
            )
        if is_anonymous and count >= math.ceil(most * self._settings.topics_anonymous_share):
            raise Busy(
                f"this broker has {count} topics: clients without a user name may make no more "
                f"(topics_max, topics_anonymous_share)"
            )

    def _ensure_queues(self, topic: TopicInfo) -> None:
        for number in range(topic.queues):
            self._store.ensure_queue(topic.topic, number)

    def check_readable(self, queue: str) -> None:
        """Raises ``NotAllowed`` where clients may not read a queue just now. Those of filters are read by access rules
        of their own."""
        if (self._topics.may_read and not self._topics.unreadable) or queue.startswith(LIGHT):
            return
        topic = queue.rpartition(":")[0]
        if topic in GATEWAYS_TOPICS:
            return
        if not self._topics.may_read:
            raise NotAllowed(f"broker {self._settings.name} is not read just now", hint=_MAINTENANCE)
        if topic in self._topics.unreadable:
            raise NotAllowed(f"topic {topic} is not read just now", hint=_MAINTENANCE)

    def detail(self, topic: TopicInfo, ended: tuple[Bounds, ...] = ()) -> TopicDetail:
        """Configuration and bounds of a topic."""
        bounds = tuple(self._store.bounds(topic_queue(topic.topic, number)) for number in range(topic.queues))
        log_id, more = self._state.identity.log_id, topic[3:]
        kept = self._state.retained.count_of(topic.topic)
        return TopicDetail(topic.topic, topic.queues, topic.level, bounds + ended, log_id, *more, kept)

    def _ended(self, topic: str) -> tuple[Bounds, ...]:
        """Queues that were deleted: each is empty, and where it ended."""
        ended = self._topics.ended(topic).items()
        return tuple([Bounds(topic_queue(topic, number), end, end, end) for number, end in ended])
