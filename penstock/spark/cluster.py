"""What the driver asks the servers: which queues a query reads, where they begin and end, which offset a time has.

It keeps one connection per server and waits on plain sockets; what the answers mean is decided in ``offsets`` and
``planning``. A server that does not answer is asked again for a while, so that a broker may restart under a query.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import TypeVar

from penstock.blocking.routes import Routes
from penstock.client.completeness import Holders, check_whole
from penstock.errors import BrokerAway, InvalidConfig, NoRoute, TopicNotFound
from penstock.protocol.requests.groups import CommitOffsets
from penstock.protocol.requests.messages import OffsetReply, SeekTime
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail
from penstock.spark.offsets import Extent, Extents, Places, QueueKey, named, settle
from penstock.spark.options import SourceOptions
from penstock.spark.patience import Patience
from penstock.spark.planning import in_these_logs
from penstock.spark.values import Bound
from topicmap.queues import RETRY_PREFIX, is_system, parse_topic_queue, topic_queue

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Cluster:
    """The servers as one query sees them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._routes = Routes(options.servers, options.timeout_s, options.login.credentials())
        self._pattern = re.compile(options.pattern) if options.pattern else None
        self._chooses = bool(options.selector or options.where.of_messages)
        self._has_reached = False  # a name server
        self._awaited: set[str] = set()

    def close(self) -> None:
        """Ends the connections."""
        self._routes.close()

    def tell(self, address: str, request: CommitOffsets) -> None:
        """Sends a group's position to the broker at an address. Raises ``PenstockError``."""
        self._routes.link(address).ask(request, Done)

    def extents(self, *, missing_ok: bool = False, needed: Iterable[QueueKey] = ()) -> dict[QueueKey, Extent]:
        """The queues that the query reads, each with its bounds, its broker's address and log.

        A broker that is away is waited for, as long as the options' patience is, where it may have some of a topic or
        has a queue that is ``needed``. A queue that is needed and missing in the answer is gone: its broker says so.

        Raises:
            NoRoute: no broker has a topic that is subscribed by name, unless ``missing_ok``.
            BrokerAway: a broker stayed away.
            Unavailable, TimedOut: a server did not answer.
        """
        wanted = tuple(needed)
        return self._patiently(lambda: self._extents(missing_ok, wanted))

    def reads(self, key: QueueKey) -> bool:
        """Whether a queue is one of those that the query reads."""
        return self._subscribes(key) and self._options.where.reads(key)

    def _subscribes(self, key: QueueKey) -> bool:
        options = self._options
        if self._pattern is not None:
            return self._matches(key.topic)
        if options.assigned:
            return bool({key.name, str(key.queue)} & set(options.assigned.get(key.topic, ())))
        return key.topic in options.topics

    def places(self, bound: Bound, extents: Extents) -> Places:
        """Where a bound lies in each queue."""
        if bound.by == "time":
            return self._at_times(bound, extents)
        asked = named(bound.each, extents, bound.option) if bound.each else dict.fromkeys(extents, bound.everywhere)
        places = settle(asked, extents)
        return in_these_logs(places, bound.logs or {}, extents, fail_on_data_loss=self._options.fail_on_data_loss)

    def starts(self, extents: Extents) -> Places:
        """Where the query begins. Raises ``InvalidConfig`` where a queue has nothing at or after the starting time
        and the options call that an error."""
        places = self.places(self._options.starting, extents)
        if self._options.starting.by == "time" and self._options.late_start == "error":
            for key, offset in places.items():
                if offset >= extents[key].end:
                    raise InvalidConfig(
                        f"queue {key.name} of topic {key.topic!r} has no message at or after the starting time",
                        hint="option startingOffsetsByTimestampStrategy=latest begins such queues at their end",
                    )
        return places

    def _at_times(self, bound: Bound, extents: Extents) -> Places:
        times = named(bound.each, extents, bound.option) if bound.each else dict.fromkeys(extents, bound.everywhere)
        found: Places = {}
        for key, extent in extents.items():
            offset = self._patiently(partial(self._seek, key, extent, times[key]))
            found[key] = min(offset, extent.end)  # what came after the ends were asked for does not count
        return found

    def _seek(self, key: QueueKey, extent: Extent, stored_ms: int) -> int:
        request = SeekTime(topic_queue(key.topic, key.queue), stored_ms)
        return self._routes.link(extent.address).ask(request, OffsetReply).offset

    def _extents(self, missing_ok: bool, needed: Sequence[QueueKey]) -> dict[QueueKey, Extent]:
        found: dict[QueueKey, Extent] = {}
        for topic in self._topics():
            try:
                holders = self._holders(topic)
            except NoRoute as error:
                if not (missing_ok or self._options.is_implied):
                    raise
                if topic not in self._awaited and not self._options.is_implied:
                    self._awaited.add(topic)
                    _log.warning("%s; the stream waits for it", error.message)
                continue
            for broker in holders.brokers if self._options.allow_incomplete else holders.whole(f"topic {topic!r}"):
                found |= self._of_broker(topic, broker)
        missing = [key for key in needed if key not in found]
        found |= self._of_absent(missing) if missing else {}
        if self._options.assigned:
            found = self._assigned(found, {key.topic for key in needed})
        return {key: extent for key, extent in found.items() if self._options.where.reads(key)}

    def _holders(self, topic: str) -> Holders:
        """Raises ``NoRoute``, ``BrokerAway``, ``Unavailable``."""
        try:
            found = self._routes.holders(topic)
        except BrokerAway:
            self._has_reached = True
            raise
        self._has_reached = True
        return found

    def _of_absent(self, missing: Sequence[QueueKey]) -> dict[QueueKey, Extent]:
        """Asks the brokers themselves for queues of which the name servers know nothing: they may not have told yet, or
        were deleted."""
        try:
            live = {route.broker: route for route in self._routes.holders().brokers}
        except NoRoute:  # a name server that has just begun
            live = {}
        away = tuple(sorted({key.broker for key in missing} - live.keys()))
        check_whole(away, f"topic {missing[0].topic!r}")
        found: dict[QueueKey, Extent] = {}
        for topic, broker in sorted({(key.topic, key.broker) for key in missing}):
            found |= self._of_broker(topic, live[broker], gone=True)
        return {key: found[key] for key in missing if key in found}

    def _topics(self) -> tuple[str, ...]:
        if self._pattern is None:
            return self._options.topics or tuple(self._options.assigned)
        names = self._routes.topic_names()
        topics = names.topics if self._options.allow_incomplete else (*names.topics, *names.absent)
        chosen = tuple(one for one in topics if self._matches(one))
        if not chosen and not self._options.allow_incomplete:
            check_whole(names.away, f"topics that match {self._pattern.pattern!r}")
        return chosen

    def _matches(self, topic: str) -> bool:
        """Whether the pattern means a topic; brokers do not choose among messages that a group tries again."""
        assert self._pattern is not None
        if is_system(topic) or (topic.startswith(RETRY_PREFIX) and self._chooses):
            return False
        return self._pattern.fullmatch(topic) is not None

    def _of_broker(self, topic: str, broker: BrokerRoute, *, gone: bool = False) -> dict[QueueKey, Extent]:
        """``gone``: also of queues that were deleted, where they ended."""
        try:
            detail = self._routes.link(broker.address).ask(DescribeTopic(topic, gone=gone), TopicDetail)
        except TopicNotFound:
            return {}  # the name server has not heard yet
        copies = tuple(one for one in broker.readers if one != broker.address) if self._options.reads_copies else ()
        return {
            QueueKey(topic, broker.broker, parse_topic_queue(one.queue).queue_id): Extent(
                broker.address, one.min, one.end, detail.log_id, one.first, detail.is_copy, copies
            )
            for one in detail.bounds
        }

    def _assigned(self, found: Extents, known: Container[str]) -> dict[QueueKey, Extent]:
        """The queues of the assignment; of a topic that is ``known`` one may be gone."""
        chosen: dict[QueueKey, Extent] = {}
        for topic, names in self._options.assigned.items():
            for name in names:
                same = [key for key in found if key.topic == topic and name in (key.name, str(key.queue))]
                if not same and topic in known:
                    continue
                if not same:
                    known_names = ", ".join(sorted(key.name for key in found if key.topic == topic)) or "none"
                    raise InvalidConfig(f"assign: topic {topic!r} has no queue {name}", hint=f"it has {known_names}")
                if len(same) > 1:
                    several = ", ".join(sorted(key.name for key in same))
                    raise InvalidConfig(f"assign: topic {topic!r} has several queues {name}", hint=f"name {several}")
                chosen[same[0]] = found[same[0]]
        return chosen

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """Asks again while servers are away. A batch that has reached none yet fails soon: the address may be wrong."""
        # NoRoute: a name server is there, and says that there is no such thing
        return Patience(self._options, self._patience_s).ask(ask, final=(NoRoute,))

    def _patience_s(self) -> float:
        return self._options.patience_s if self._options.is_stream or self._has_reached else 0.0
