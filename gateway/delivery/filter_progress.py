"""The progress of subscriptions past messages that their filters do not match, which no acknowledgement reports.

The ends of the topic's queues are looked up and, after that, the end of the filter's light queue. A matching message
before the first ends is in the light queue before the second. So a subscription that has reached the second has passed
the first ones, however much was stored since. This takes a few requests per lease and nothing per message. The position
still stays before messages that were sent and not acknowledged, and before those that another subscription of the
session has yet to deliver (``gateway/delivery/named_positions.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from gateway.sessions.session import Cursor
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail


class Mark:
    """A place in a light queue (-1 until it is known) behind which the ``ends`` of the topic's queues have been passed.
    ``start``: where the cursor began; in a queue that was opened anew the place means nothing."""

    __slots__ = ("ends", "place", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.ends: dict[str, int] = {}
        self.place = -1


class FilterProgress:
    """The marks of one gateway's subscriptions. ``topic_of`` gives the topic of a filter; ``found`` gets the topic's
    queues, ``passed`` the offsets that a cursor has passed."""

    def __init__(
        self,
        topic_of: Callable[[str], str | None],
        found: Callable[[Cursor, Iterable[str]], None],
        passed: Callable[[Cursor, Mapping[str, int]], None],
    ) -> None:
        self._topic_of = topic_of
        self._found = found
        self._passed = passed
        self._marks: dict[Cursor, Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def look(self, cursor: Cursor) -> None:
        """Sees whether a cursor has come to its mark; where it has none it gets one."""
        mark = self._marks.get(cursor)
        if mark is not None:
            self._try(cursor, mark)
            return
        topic = self._topic_of(cursor.subscription.filter)
        if topic is not None and cursor.next >= 0 and cursor.feed.queue:
            mark = self._marks[cursor] = Mark(cursor.start)
            cursor.feed.broker.submit(DescribeTopic(topic), partial(self._described, cursor, mark))

    def stop(self, cursor: Cursor) -> None:
        """Stops counting the cursor's progress."""
        self._marks.pop(cursor, None)

    def _described(self, cursor: Cursor, mark: Mark, result: Result) -> None:
        if self._marks.get(cursor) is not mark:
            return
        if not isinstance(result, TopicDetail):
            self.stop(cursor)
            return
        mark.ends = {bounds.queue: bounds.end for bounds in result.bounds}
        self._found(cursor, mark.ends)
        cursor.feed.broker.submit(QueryBounds((cursor.feed.queue,)), partial(self._bounded, cursor, mark))

    def _bounded(self, cursor: Cursor, mark: Mark, result: Result) -> None:
        if self._marks.get(cursor) is not mark:
            return
        if not isinstance(result, BoundsReply):
            self.stop(cursor)
            return
        mark.place = result.bounds[0].end
        self._try(cursor, mark)

    def _try(self, cursor: Cursor, mark: Mark) -> None:
        if cursor.start != mark.start:
            self.stop(cursor)
        elif mark.place >= 0 and cursor.past is None and cursor.next >= mark.place:
            self.stop(cursor)
            self._passed(cursor, mark.ends)
