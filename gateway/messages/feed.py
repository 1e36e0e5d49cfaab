"""The live end of one light queue: its newest messages, decoded once, and the cursors of the sessions that read along.

``head`` is the offset after the newest message that was pulled. A cursor with ``next == head`` is *at the head*;
one with less is *lagging*. The window holds messages just before the head, only while a connected session still
needs them, and only so many bytes of them: who falls out of it reads from the log by a pull of its own. The queue
is read on only while some connected cursor is at the head, so that one slow reader does not have its backlog read
twice and a queue that nobody reads costs nothing.

This module keeps the books; ``gateway/downstream.py`` pulls and sends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, Generic, TypeVar

from gateway.brokers import Broker
from gateway.messages.envelope import Arrival, Origin
from gateway.messages.few import Few
from penstock.requests.request import Result

_OFFSET: Final = attrgetter("offset")
_ARRIVAL_BYTES: Final = 600  # what an Arrival costs besides its payload, roughly


Reader = TypeVar("Reader")
"""Whoever reads along; who that is does not matter here (``gateway.sessions.session.Cursor``)."""


class Feed(Origin, Generic[Reader]):
    """One filter's light queue at one broker.

    Attributes:
        members: all its readers, of connected sessions or not. Without one the filter is closed.
        attached: readers of connected sessions, in the order in which they came.
        lagging: how many of those are behind the head or held.
        is_pulling: a pull is under way, or waits to be tried again.
        is_closed: the filter was closed; late replies are ignored.
        window_bytes: what the window holds in memory, roughly.
    """

    __slots__ = (
        "_alias_numbers",
        "attached",
        "head",
        "is_closed",
        "is_pulling",
        "lagging",
        "members",
        "window",
        "window_bytes",
    )

    def __init__(self, broker: Broker, filter: str) -> None:
        super().__init__(broker, filter)
        self.head = -1
        self.window: list[Arrival] | None = None
        self.window_bytes = 0
        self.members: Few[Reader] = Few()
        self.attached: Few[Reader] = Few()
        self.lagging = 0
        self.is_pulling = False
        self.is_closed = False
        self._alias_numbers: dict[bytes, int] | None = None

    @property
    def alias_numbers(self) -> dict[bytes, int]:
        """The topic aliases in the shared packets of this queue."""
        if self._alias_numbers is None:
            self._alias_numbers = {}
        return self._alias_numbers

    def begin_at(self, offset: int) -> None:
        """Sets the head where nobody is reading; elsewhere the readers have their own place."""
        if not self.attached and not self.is_pulling:
            self.head = offset
            self.clear()

    def wants_pull(self) -> bool:
        """Whether somebody waits for what comes after the head."""
        return not self.is_pulling and not self.is_closed and self.head >= 0 and len(self.attached) > self.lagging

    def extend(self, batch: Sequence[Arrival], head: int) -> None:
        """Takes a pulled batch; ``head`` is the offset to pull next."""
        if self.window is None:
            self.window = list(batch)
        else:
            self.window += batch
        self.window_bytes += sum([len(arrival.payload) + _ARRIVAL_BYTES for arrival in batch])
        self.head = head

    def since(self, offset: int) -> Sequence[Arrival] | None:
        """The messages from an offset to the head; ``None`` if the window does not reach back so far."""
        window = self.window
        if not window or window[0].offset > offset:
            return None
        at = bisect_left(window, offset, key=_OFFSET)
        return window[at:] if at else window

    def trim(self, window_bytes_max: int) -> None:
        """Lets go what nobody needs, and of the rest the oldest beyond the limit."""
        window = self.window
        if not self.lagging:
            self.clear()
        elif self.window_bytes > window_bytes_max and window is not None:
            dropped = 0
            while self.window_bytes > window_bytes_max // 2 and dropped < len(window):
                self.window_bytes -= len(window[dropped].payload) + _ARRIVAL_BYTES
                dropped += 1
            del window[:dropped]

    def clear(self) -> None:
        """Lets go of its window, whatever anybody needs."""
        self.window = None
        self.window_bytes = 0


class Answer(Generic[Reader]):
    """Tells of the answer to a feed's pull. Every idle subscriber waits for one, and a partial weighs three times as
    much."""

    __slots__ = ("_feed", "_tell")

    def __init__(self, tell: Callable[[Feed[Reader], Result], None], feed: Feed[Reader]) -> None:
        self._tell = tell
        self._feed = feed

    def __call__(self, result: Result) -> None:
        self._tell(self._feed, result)
