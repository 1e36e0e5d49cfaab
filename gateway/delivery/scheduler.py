"""What is to be read and sent in a round: which feeds go on, and which sessions that lag may be sent more.

A feed that everybody reads alike costs little, however many they are, and goes on at once. Where messages are looked at
one by one, for a session with several filters or one that has fallen behind, it is the number of these *looks* that
costs, and one client can ask for very many: with 500 overlapping filters each of its messages is looked at 500 times.
So of these there are only so many in one flush. Who asks for them comes in turn, each with about as many, and what is
left has its turn in the next round, after other work. A feed with readers that lag waits behind those that it has left
behind: else it would run away from them, and each of them would have to read on by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from gateway.messages.envelope import Arrival
from gateway.messages.feed import Feed
from gateway.sessions.session import Cursor, Session

LOOKS_MAX: Final = 512
"""So many looks are begun in one flush. A round has up to eight of these, which takes some 10 ms; in plain Python four
times as much."""
LOOKS_PER_TURN: Final = 64
"""With so many a session's turn is over, as soon as it has done what cannot be divided: the messages of one pull."""
LOOK_BYTES: Final = 16 * 1024
"""To send so many bytes takes as long as to look at a message."""
_PASSES_MAX: Final = 16  # of one flush, however little there is to look at

Feeds = dict[Feed[Cursor], None]


class DeliveryScheduler:
    """The deliveries of one gateway that a round's end carries out.

    Attributes:
        looks: so many are left until others have their turn; whoever looks at a message takes one off.
    """

    def __init__(
        self, pump: Callable[[Session], None], pull: Callable[[Feed[Cursor]], None], wake: Callable[[], None]
    ) -> None:
        """``pump`` sends a session what there is for those of its cursors that lag, while there are looks; ``pull``
        asks for what comes after a feed's head, and the answer may be there when it returns."""
        self._pump = pump
        self._pull = pull
        self._wake = wake
        self._at_once: Feeds = {}
        self._in_turn: dict[Session | Feed[Cursor], Feeds | None] = {}  # sessions with the feeds that they alone read
        self._to_pump: set[Session] = set()  # of these the ones that were added themselves; only ever looked up
        self.looks = LOOKS_MAX

    def looked_at(self, messages: Sequence[Arrival], count: int) -> None:
        """The first ``count`` of these were looked at, and sent: a large one costs as much as several."""
        self.looks -= count
        for arrival in messages[:count]:
            self.looks -= len(arrival.payload) // LOOK_BYTES

    def __bool__(self) -> bool:
        return bool(self._at_once or self._in_turn)

    def add(self, session: Session) -> None:
        """There may be something for it, and room."""
        self._to_pump.add(session)
        if session not in self._in_turn:
            self._in_turn[session] = None
        self._wake()

    def forget(self, session: Session) -> None:
        """It has no connection any more."""
        self._in_turn.pop(session, None)
        self._to_pump.discard(session)

    def add_feed(self, feed: Feed[Cursor]) -> None:
        """Somebody waits for what comes after its head."""
        alone = self._who_looks(feed)
        if alone is not None:
            feeds = self._in_turn.get(alone)
            if feeds is None:
                self._in_turn[alone] = {feed: None}
            else:
                feeds[feed] = None
        elif feed.lagging:
            self._in_turn[feed] = None
        else:
            self._at_once[feed] = None
        self._wake()

    def must_wait(self, feed: Feed[Cursor]) -> bool:
        """Whether what it has been answered is to be asked for anew, when it is the turn of its only reader."""
        return self.looks <= 0 and self._who_looks(feed) is not None

    @staticmethod
    def _who_looks(feed: Feed[Cursor]) -> Session | None:
        """The session that alone reads a feed, and has other filters too."""
        cursor = feed.sole_reader()
        return cursor.session if cursor is not None and len(cursor.session.overlap.cursors) > 1 else None

    def take(self) -> None:
        """Does what is due, within the bounds of one flush. What is left is due in the next."""
        self.looks = LOOKS_MAX
        if self._at_once:
            self._go_on_at_once()
            self.looks = max(self.looks, LOOKS_MAX // 2)  # who waits for a turn has one, whatever these have cost
        for _ in range(_PASSES_MAX):
            if self._in_turn and self.looks > 0:
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
        """One turn for each, as far as the looks go. Who has not had one comes first the next time."""
        due, self._in_turn = self._in_turn, {}
        for at, (one, feeds) in enumerate(due.items()):
            if self.looks <= 0:
                came, self._in_turn = self._in_turn, dict(islice(due.items(), at, None))
                for other, more in came.items():
                    self._put_back(other, more)
                return
            if not isinstance(one, Session):
                self._go_on(one)
                continue
            if one in self._to_pump:  # else all its filters that lag would be gone through for each that does not
                self._to_pump.discard(one)
                self._pump(one)
            if feeds is not None:
                self._pull_for(one, feeds)

    def _pull_for(self, session: Session, feeds: Feeds) -> None:
        until = self.looks - LOOKS_PER_TURN
        for at, feed in enumerate(feeds):
            if self.looks <= until or self.looks <= 0:
                self._put_back(session, dict(islice(feeds.items(), at, None)))
                return
            self.looks -= 1
            self._go_on(feed)

    def _put_back(self, one: Session | Feed[Cursor], feeds: Feeds | None) -> None:
        """It is due again, behind all that are, with these feeds before those that have come meanwhile."""
        more = self._in_turn.get(one)
        self._in_turn[one] = feeds if not more else more if not feeds else feeds | more

    def _go_on(self, feed: Feed[Cursor]) -> None:
        if feed.wants_pull():
            self._pull(feed)
