"""Deletes topics that their first message made, when they have been empty and unused for a while.

A topic is in use if a group reads its queues, an open filter names it by its first level, it has a retained message, a
pull waits for it, or a client asked for it by name. Topics that were created by hand stay. Each tick looks at a slice
of them and deletes a few. A restart begins the times again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from broker.groups.members import Groups
from broker.state import BrokerState
from broker.topics.requests import TopicRequests
from topicmap.queues import encode_level, topic_queue

EVERY_S: Final = 10.0
"""Seconds between two searches, at most."""
SLICE: Final = 200
"""Topics that a tick looks at,"""
FILTERS_SLICE: Final = 2_000
"""or filters."""
GOES_MAX: Final = 20
"""Topics that a tick removes."""
_DONE: Final = object()
_log = logging.getLogger(__name__)


class EmptyTopics:
    """Removes the topics of a broker that are empty and not used any more.

    Args:
        empty_s: seconds after which an empty topic is removed; 0: never.

    Attributes:
        removed: how many have gone.
    """

    def __init__(
        self,
        state: BrokerState,
        topics: TopicRequests,
        groups: Groups,
        empty_s: float,
        is_awaited: Callable[[str], bool],
    ) -> None:
        """``is_awaited``: whether a pull waits for a queue."""
        self._state = state
        self._topics = topics
        self._groups = groups
        self._empty_s = empty_s
        self._is_awaited = is_awaited
        self._begins = 0.0
        self._now_ms = 0
        self._since: dict[str, float] = {}  # empty topics, and since when
        self._work: Iterator[None] | None = None
        self.removed = 0

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """A slice of the work, if it is time. Raises ``StorageFull``; it is tried again then."""
        if self._work is None:
            if not self._empty_s or now < self._begins:
                return
            self._begins = now + min(EVERY_S, self._empty_s)
            self._work = self._look(now)
        self._now_ms = now_ms
        work, self._work = self._work, None
        if next(work, _DONE) is not _DONE:
            self._work = work

    def figures(self) -> dict[str, float]:
        """How many have gone."""
        return {"penstock_empty_topics_deleted_total": self.removed}

    def _look(self, now: float) -> Iterator[None]:
        """Yields between slices."""
        asked = self._topics.take_asked()
        empty: dict[str, float] = {}
        for number, topic in enumerate(self._state.topics.by_message, 1):
            if topic not in asked and self._is_unused(topic):
                empty[topic] = self._since.get(topic, now)
            if number % SLICE == 0:
                yield
        self._since = empty
        due = {topic for topic, since in empty.items() if now - since >= self._empty_s}
        if not due:
            return
        due -= self._groups.topics
        for number, filter in enumerate(self._state.filters.open, 1):
            first = filter.partition("/")[0]
            if first not in ("+", "#"):
                due.discard(encode_level(first))
            if number % FILTERS_SLICE == 0:
                yield
        going = sorted(due)
        for at in range(0, len(going), GOES_MAX):
            yield
            self._remove(going[at : at + GOES_MAX])

    def _is_unused(self, topic: str) -> bool:
        """Whether a topic is there, has no message, and is of no use as far as that is known at once."""
        known = self._state.topics.get(topic)
        if known is None or not self._state.topics.is_by_message(topic) or self._topics.is_asked(topic):
            return False
        if self._state.offsets.reads(topic) or self._state.retained.holds(topic):
            return False
        if any([self._is_awaited(topic_queue(topic, number)) for number in range(known.queues)]):
            return False
        return self._topics.is_empty(known)

    def _remove(self, topics: list[str]) -> None:
        going = [topic for topic in topics if self._is_unused(topic)]
        if not going:
            return
        for topic in going:
            self._topics.remove(topic, self._now_ms)
            self.removed += 1
            del self._since[topic]
        _log.info("%d topics had been empty for %.0f s and are gone: %s, ...", len(going), self._empty_s, going[0])
