"""Tells brokers how far a stream has read, under the name of a consumer group: so lag shows, and retention waits.

The offsets are Spark's, in its checkpoint; the group's are a copy for people and for retention, and no query reads by
them. They are sent when Spark asks how far the next batch may go, for then all before is finished, at most once a
second. A query whose group has members from the start ends with an error. A later failure is a warning: no query ends
because of a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.errors import InvalidConfig, PenstockError
from penstock.protocol.requests.groups import CommitOffsets, QueueOffset
from penstock.spark.offsets import Extents, Places
from penstock.world import Clock, RealClock
from topicmap.queues import topic_queue

EVERY_S = 1.0
Tell = Callable[[str, CommitOffsets], object]
"""Sends a request to the broker at an address."""

_log = logging.getLogger(__name__)


class GroupPosition:
    """The position of a query's group.

    Args:
        tell: sends it. May raise ``PenstockError``.
    """

    def __init__(self, group: str, tell: Tell, clock: Clock | None = None) -> None:
        self._group = group
        self._tell = tell
        self._clock = clock or RealClock()
        self._told: Places = {}
        self._told_at = -EVERY_S
        self._has_told = False
        self._failed = ""

    def reached(self, places: Places, extents: Extents) -> None:
        """All before ``places`` is finished. Raises ``InvalidConfig`` where the first word is refused."""
        due = {key: at for key, at in places.items() if key in extents and self._told.get(key) != at}
        now = self._clock.monotonic()
        caught_up = all(places[key] >= extents[key].end for key in due)
        if not due or (now < self._told_at + EVERY_S and not caught_up):
            return
        self._told_at = now
        for address in sorted({extents[key].address for key in due}):
            here = {key: at for key, at in due.items() if extents[key].address == address}
            rows = [QueueOffset(topic_queue(key.topic, key.queue), at) for key, at in sorted(here.items())]
            try:
                self._tell(address, CommitOffsets(self._group, "", 0, tuple(rows)))
            except PenstockError as error:
                self._missed(error)
            else:
                self._told |= here
                self._has_told = True

    def _missed(self, error: PenstockError) -> None:
        if not self._has_told and not error.retryable:
            hint = "give the query a group of its own"
            raise InvalidConfig(f"group {self._group!r} takes no position of a query: {error.message}", hint=hint)
        if error.message != self._failed:
            self._failed = error.message
            _log.warning("the position of group %s is not reported: %s", self._group, error.message)
