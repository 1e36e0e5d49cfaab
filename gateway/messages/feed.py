"""The live end of one light queue: its newest messages, decoded once, and the cursors of the sessions that read along.

``head`` is the offset after the newest message that was pulled. A cursor with ``next == head`` is *at the head*;
one with less is *lagging*. The window holds messages just before the head, only while a connected session still needs
them, up to a number of bytes: a cursor that falls out of it reads from the log by a pull of its own. The queue is read
on only while some connected cursor is at the head, so that one slow reader does not have its backlog read twice and a
queue without readers costs nothing.

This module keeps the books; ``gateway/delivery/downstream.py`` pulls and sends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

from gateway.brokers import Broker
from gateway.messages.compact_set import CompactSet
from gateway.messages.envelope import Arrival, Origin
from penstock.protocol.requests.given import GivenPull
from penstock.protocol.requests.request import Result

_OFFSET: Final = attrgetter("offset")
_ARRIVAL_BYTES: Final = 600  # what an Arrival costs besides its payload, roughly


class Attachable:
    """Reader of a feed, whatever else it is (``gateway.sessions.session.Cursor``).

    Attributes:
        is_attached: whether it does (``Feed.attach``).
    """

    __slots__ = ("is_attached",)

    def __init__(self) -> None:
        self.is_attached = False


Reader = TypeVar("Reader", bound=Attachable)


class Feed(Origin, Generic[Reader]):
    """One filter's light queue at one broker.

    Attributes:
        members: all its readers, of connected sessions or not. Without one the filter is closed.
        reading: how many of them are attached: their sessions are connected, and they are past the beginning.
        lagging: how many of those are behind the head or held.
        is_pulling: a pull is under way, or waits to be tried again.
        is_closed: the filter was closed; late replies are ignored.
        window_bytes: what the window holds in memory, roughly.
    """

    __slots__ = (
        "_alias_numbers",
        "head",
        "is_closed",
        "is_pulling",
        "lagging",
        "members",
        "reading",
        "window",
        "window_bytes",
    )

    def __init__(self, broker: Broker, filter: str) -> None:
        super().__init__(broker, filter)
        self.head = -1
        self.window: list[Arrival] | None = None
        self.window_bytes = 0
        self.members: CompactSet[Reader] = CompactSet()
        self.reading = 0
        self.lagging = 0
        self.is_pulling = False
        self.is_closed = False
        self._alias_numbers: dict[bytes, int] | None = None

    def pull(self, bytes_max: int, count_max: int, wait_s: float, tell: Callable[[Feed[Reader], Result], None]) -> None:
        """Asks for messages after the head. ``tell`` gets the answer and the feed."""
        self.is_pulling = True
        self.broker.submit(GivenPull(self.queue, self.head, bytes_max, count_max, wait_s), Answer(tell, self))

    def attach(self, reader: Reader) -> None:
        """A member reads along from now on."""
        assert reader in self.members, "only members of a feed read it"
        self.reading += not reader.is_attached
        reader.is_attached = True

    def detach(self, reader: Reader) -> bool:
        """It does not any more; whether it did."""
        was = reader.is_attached
        self.reading -= was
        reader.is_attached = False
        return was

    def readers(self) -> list[Reader]:
        """Those that read along, as a list of its own."""
        return [member for member in self.members.all() if member.is_attached]

    def sole_reader(self) -> Reader | None:
        """The only one that reads along, if there are no others."""
        return self.readers()[0] if self.reading == 1 else None

    @property
    def alias_numbers(self) -> dict[bytes, int]:
        """The topic aliases in the shared packets of this queue."""
        if self._alias_numbers is None:
            self._alias_numbers = {}
        return self._alias_numbers

    def begin_at(self, offset: int) -> None:
        """Sets the head of a feed without readers; readers have their own place."""
        if not self.reading and not self.is_pulling:
            self.head = offset
            self.clear()

    def wants_pull(self) -> bool:
        """Whether a cursor waits for messages after the head."""
        return not self.is_pulling and not self.is_closed and self.head >= 0 and self.reading > self.lagging

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
        """Drops messages without readers, and the oldest of the others beyond the limit."""
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
        """Drops its window, needed or not."""
        self.window = None
        self.window_bytes = 0


@mypyc_attr(acyclic=True)
class Answer:
    """Tells of the answer to a feed's pull. Every idle subscriber waits for one, and a partial weighs three times as
    much. (A feed that could be called itself would need none; compiled, such a class must not be derived.) The garbage
    collector does not look at it, compiled, for which it must have no type parameter: ``tell`` takes a feed."""

    __slots__ = ("_feed", "_tell")

    def __init__(self, tell: Callable[[Any, Result], None], feed: object) -> None:
        self._tell = tell
        self._feed = feed

    def __call__(self, result: Result) -> None:
        self._tell(self._feed, result)
