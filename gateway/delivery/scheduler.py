"""Decides which feeds are read on in a round, and which lagging sessions are sent more.

A feed whose readers all get the same is cheap and goes on at once. A session with several filters, or one that lags,
needs a *look* at each message, and one client can cause very many: with 500 overlapping filters 500 for each message.
So the looks of one flush are bounded, and sessions have turns (``gateway/fairness.py``). A feed with lagging readers is
read on after those readers, so that they can catch up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.fairness import FairQueue
from gateway.messages.envelope import Arrival
from gateway.messages.feed import Feed
from gateway.sessions.session import Cursor, Session

LOOKS_MAX: Final = 512
"""Number of looks that begin in one flush. A round has up to eight of these, which takes some 10 ms; in plain Python
four times as much."""
LOOKS_PER_TURN: Final = 64
"""After this many looks a session's turn ends, as soon as the messages of one pull, which cannot be divided, are
done."""
_LOOKS_KEPT: Final = LOOKS_MAX // 2
"""For sessions that wait for a turn, whatever the feeds cost that go on at once."""
LOOK_BYTES: Final = 16 * 1024
"""Number of bytes whose sending takes as long as a look at a message."""
_PASSES_MAX: Final = 16  # of one flush, however little there is to look at

Waiter = Session | Feed[Cursor]


class DeliveryScheduler:
    """The deliveries of one gateway that a round's end carries out."""

    def __init__(
        self, pump: Callable[[Session], None], pull: Callable[[Feed[Cursor]], None], wake: Callable[[], None]
    ) -> None:
        """``pump`` sends a session the messages for its lagging cursors, while there are looks; ``pull`` asks for
        messages after a feed's head, and the answer may be there when it returns."""
        self._pump = pump
        self._pull = pull
        self._wake = wake
        self._at_once: dict[Feed[Cursor], None] = {}
        self._in_turn: FairQueue[Waiter, Waiter] = FairQueue(LOOKS_PER_TURN, LOOKS_MAX)
        self._queued: set[Waiter] = set()  # there: sessions that lag, feeds that lag or that one session reads

    @property
    def has_looks(self) -> bool:
        """Whether this flush may look at more messages; if not, others have their turn."""
        return self._in_turn.room > 0

    def look(self, session: Session) -> None:
        """Begins a look for a session."""
        self._in_turn.charge(session, 1)

    def looked_at(self, session: Session, messages: Sequence[Arrival], count: int) -> None:
        """The first ``count`` of these were looked at, and sent: a large one costs as much as several."""
        cost = count
        for arrival in messages[:count]:
            cost += len(arrival.payload) // LOOK_BYTES
        self._in_turn.charge(session, cost)

    def __bool__(self) -> bool:
        return bool(self._at_once or self._in_turn)

    def add(self, session: Session) -> None:
        """Notes that there may be messages for it, and room."""
        self._queue(session, session)

    def _queue(self, key: Waiter, one: Waiter) -> None:
        if one not in self._queued:
            self._queued.add(one)
            self._in_turn.add(key, one)
        self._wake()

    def forget(self, session: Session) -> None:
        """It has no connection any more."""
        self._queued.difference_update(self._in_turn.drop(session))

    def add_feed(self, feed: Feed[Cursor]) -> None:
        """A cursor waits for messages after the feed's head."""
        alone = self._who_looks(feed)
        if alone is not None:
            self._queue(alone, feed)
        elif feed.lagging:
            self._queue(feed, feed)
        else:
            self._at_once[feed] = None
            self._wake()

    def must_wait(self, feed: Feed[Cursor]) -> bool:
        """Whether what it has been answered is to be asked for anew, when it is the turn of its only reader."""
        return not self.has_looks and self._who_looks(feed) is not None

    @staticmethod
    def _who_looks(feed: Feed[Cursor]) -> Session | None:
        """The session that alone reads a feed, and has other filters too."""
        cursor = feed.sole_reader()
        return cursor.session if cursor is not None and len(cursor.session.overlap.cursors) > 1 else None

    def take(self) -> None:
        """Does what is due, within the bounds of one flush. What is left is due in the next."""
        self._in_turn.begin(LOOKS_MAX)
        if self._at_once:
            self._go_on_at_once()
            self._in_turn.begin(max(self._in_turn.room, _LOOKS_KEPT))
        for _ in range(_PASSES_MAX):
            if self._in_turn and self.has_looks:
                self._take_turns()
            elif not self._at_once:
                break
            if self._at_once:
                self._go_on_at_once()

    def _go_on_at_once(self) -> None:
        at_once, self._at_once = self._at_once, {}
        for feed in at_once:
            self._go_on(feed)

    def _take_turns(self) -> None:
        """Does all due work, as far as the looks go; later work is left to the next pass."""
        for _ in range(len(self._in_turn)):
            taken = self._in_turn.take()
            if taken is None:
                return
            key, one = taken
            self._queued.discard(one)
            if isinstance(one, Session):
                self._pump(one)
            else:
                self._in_turn.charge(key, 1)
                self._go_on(one)

    def _go_on(self, feed: Feed[Cursor]) -> None:
        if feed.wants_pull():
            self._pull(feed)
