"""What the driver asks the servers: which queues a query reads, where they begin and end, which offset a time has.

It keeps one connection per server and waits on plain sockets; what the answers mean is decided in ``offsets`` and
``planning``. A server that does not answer is asked again for a while, so that a broker may restart under a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.blocking.routes import Routes
from penstock.errors import InvalidConfig, NoRoute, PenstockError, TopicNotFound
from penstock.requests.messages import OffsetReply, SeekTime
from penstock.requests.routes import BrokerRoute
from penstock.requests.topics import DescribeTopic, TopicDetail
from penstock.spark.offsets import Extent, Extents, Places, QueueKey, named, settle
from penstock.spark.options import Bound, SourceOptions
from penstock.world import pause
from topicmap.queues import is_system, parse_topic_queue, topic_queue

_T = TypeVar("_T")


class Cluster:
    """The servers as one query sees them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._routes = Routes(options.servers, options.timeout_s)
        self._pattern = re.compile(options.pattern) if options.pattern else None

    def close(self) -> None:
        """Ends the connections."""
        self._routes.close()

    def extents(self, *, missing_ok: bool = False) -> dict[QueueKey, Extent]:
        """The queues that the query reads, each with its bounds and its broker's address.

        Raises ``NoRoute`` where nobody has a topic that is subscribed by name, unless ``missing_ok``.
        """
        return self._patiently(lambda: self._extents(missing_ok))

    def places(self, bound: Bound, extents: Extents) -> Places:
        """Where a bound lies in each queue."""
        if bound.by == "time":
            return self._at_times(bound, extents)
        asked = named(bound.each, extents, bound.option) if bound.each else dict.fromkeys(extents, bound.everywhere)
        return settle(asked, extents)

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

    def _extents(self, missing_ok: bool) -> dict[QueueKey, Extent]:
        found: dict[QueueKey, Extent] = {}
        for topic in self._topics():
            try:
                brokers = self._routes.topic(topic)
            except NoRoute:
                if missing_ok:
                    continue
                raise
            for broker in brokers:
                found |= self._of_broker(topic, broker)
        return self._assigned(found) if self._options.assigned else found

    def _topics(self) -> tuple[str, ...]:
        if self._pattern is not None:
            return tuple(one for one in self._routes.topics() if self._pattern.fullmatch(one) and not is_system(one))
        return self._options.topics or tuple(self._options.assigned)

    def _of_broker(self, topic: str, broker: BrokerRoute) -> dict[QueueKey, Extent]:
        try:
            detail = self._routes.link(broker.address).ask(DescribeTopic(topic), TopicDetail)
        except TopicNotFound:
            return {}  # the name server has not heard yet
        return {
            QueueKey(topic, broker.broker, parse_topic_queue(one.queue).queue_id): Extent(
                broker.address, one.min, one.end
            )
            for one in detail.bounds
        }

    def _assigned(self, found: Extents) -> dict[QueueKey, Extent]:
        chosen: dict[QueueKey, Extent] = {}
        for topic, names in self._options.assigned.items():
            for name in names:
                same = [key for key in found if key.topic == topic and name in (key.name, str(key.queue))]
                if len(same) != 1:
                    raise InvalidConfig(f"assign: topic {topic!r} has {len(same)} queues {name}", hint="broker:number")
                chosen[same[0]] = found[same[0]]
        return chosen

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """Asks again while the servers are away."""
        for _ in range(self._options.retries):
            try:
                return ask()
            except PenstockError as error:
                if not error.retryable or isinstance(error, NoRoute):
                    raise
            pause(self._options.retry_pause_s)
        return ask()
