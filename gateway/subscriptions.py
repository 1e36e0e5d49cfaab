"""What a session has subscribed to, and which of its overlapping subscriptions delivers a message.

Every subscription reads the light queue of its filter; a message that matches several filters of a session is in
several of these queues. It is delivered once, by the *primary*: the oldest subscription that matches it and that
began before the message was stored. The others pass over it. Because age decides, a later subscription never
changes who delivers a message, and all messages of one topic come through one queue, in order (MQTT-4.6.0-6). The
copy carries the highest granted QoS and the identifiers of all matching subscriptions (MQTT-3.3.4-2, -3).

A ``Cursor`` is a session's place in one such queue. Queues are read independently, so a cursor may pass over a
message that its primary has not come to yet. It remembers the first such message per primary (``skipped``): if the
primary is unsubscribed before it gets there, the cursor goes back and delivers what was left to it, and nothing
else (``Redo``). This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.delivery import Variant
from gateway.envelope import Arrival
from topicmap.names import matches

if TYPE_CHECKING:
    from gateway.feed import Feed
    from gateway.session import Session

_NAMES_REMEMBERED: Final = 256


class Subscription:
    """A filter with its options. ``identifier`` is 0 where there is none; ``qos`` is the granted one; ``shows_place``:
    each message says where it is stored; ``name``: of the position that is kept for it, if one is; ``is_plain``:
    neither of these."""

    __slots__ = (
        "as_published",
        "filter",
        "identifier",
        "is_plain",
        "name",
        "no_local",
        "qos",
        "retain_handling",
        "shows_place",
    )

    def __init__(
        self,
        filter: str,
        qos: int,
        *,
        no_local: bool = False,
        as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
        shows_place: bool = False,
        name: str = "",
    ) -> None:
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.as_published = as_published
        self.retain_handling = retain_handling
        self.identifier = identifier
        self.shows_place = shows_place
        self.name = name
        self.is_plain = not shows_place and not name


class Redo(NamedTuple):
    """A stretch of a queue that is gone over again: below ``until``, only what ``filter`` matches and what was
    stored after ``after``, the last message that the ended subscription came to."""

    until: int
    after: int
    filter: str


class Cursor:
    """A session's place in the light queue of one of its filters at one broker.

    Attributes:
        next: offset of the next message to look at; -1 while the queue is being opened.
        start: log position from which the subscription counts; messages stored before it do not.
        held: waits for retained messages to go first.
        backlog: messages of its own pull, for a session that has fallen behind the shared window.
        pulling: its own pull is under way.
        seen: log position of the last message that it came to.
        skipped: primary -> offset and position of the first message left to it that it has not come to.
        redos: stretches to go over again.
    """

    __slots__ = (
        "backlog",
        "feed",
        "held",
        "next",
        "pulling",
        "redos",
        "seen",
        "session",
        "skipped",
        "start",
        "subscription",
    )

    def __init__(self, session: Session, subscription: Subscription, feed: Feed) -> None:
        self.session = session
        self.subscription = subscription
        self.feed = feed
        self.next = -1
        self.start = 0
        self.held = False
        self.pulling = False
        self.backlog: list[Arrival] | None = None
        self.seen = -1
        self.skipped: dict[Cursor, tuple[int, int]] | None = None
        self.redos: list[Redo] | None = None

    def leave_to(self, primary: Cursor, arrival: Arrival) -> None:
        """Passes over a message that another cursor delivers."""
        if arrival.position <= primary.seen:
            return
        if self.skipped is None:
            self.skipped = {}
        first = self.skipped.get(primary)
        if first is None or first[1] <= primary.seen:
            self.skipped[primary] = (arrival.offset, arrival.position)

    def take_back(self, ended: Cursor) -> bool:
        """A primary's subscription has ended. True if this cursor goes back for what was left to it."""
        first = self.skipped.pop(ended, None) if self.skipped else None
        if first is None or first[1] <= ended.seen:
            return False
        self.redos = [*(self.redos or ()), Redo(self.next, ended.seen, ended.subscription.filter)]
        self.next = first[0]
        self.backlog = None
        return True

    def is_due(self, arrival: Arrival) -> bool:
        """Whether a message is to be looked at; within a stretch that is gone over again, only what was left out."""
        redos = [redo for redo in self.redos or () if arrival.offset < redo.until]
        self.redos = redos or None
        return not redos or any(redo.after < arrival.position and matches(redo.filter, arrival.name) for redo in redos)


class Overlap:
    """The cursors of one session, oldest first, and which of them match a name."""

    __slots__ = ("_matching", "cursors")

    def __init__(self) -> None:
        self.cursors: list[Cursor] = []
        self._matching: dict[str, tuple[Cursor, ...]] | None = None

    def add(self, cursor: Cursor) -> None:
        self.cursors.append(cursor)
        self._matching = None

    def remove(self, cursor: Cursor) -> None:
        self.cursors.remove(cursor)
        self._matching = None

    def _candidates(self, name: str) -> tuple[Cursor, ...]:
        if self._matching is None:
            self._matching = {}
        found = self._matching.get(name)
        if found is None:
            if len(self._matching) >= _NAMES_REMEMBERED:
                self._matching.clear()
            found = tuple([cursor for cursor in self.cursors if matches(cursor.subscription.filter, name)])
            self._matching[name] = found
        return found

    def matching(self, cursor: Cursor, arrival: Arrival) -> Sequence[Cursor]:
        """The session's cursors that this message of ``cursor``'s queue counts for, oldest first."""
        if len(self.cursors) == 1:
            return self.cursors if arrival.position >= cursor.start else ()
        broker, position = cursor.feed.broker, arrival.position
        return [
            other
            for other in self._candidates(arrival.name)
            if other.feed.broker is broker and other.next >= 0 and position >= other.start
        ]


def variant_for(matching: Sequence[Cursor], arrival: Arrival, client_id: bytes, is_v5: bool) -> Variant | None:
    """In which form a session gets a live message that counts for these cursors; ``None``: not at all.

    A *no local* subscription does not count for the client's own messages (MQTT-3.8.3-3).
    """
    if arrival.sender == client_id:
        matching = [cursor for cursor in matching if not cursor.subscription.no_local]
        if not matching:
            return None
    if len(matching) == 1:
        one = matching[0].subscription
        identifiers = (one.identifier,) if one.identifier else ()
        retain = one.as_published and arrival.retain
        return Variant(is_v5, min(one.qos, arrival.qos), retain, identifiers, one.shows_place)
    chosen = [cursor.subscription for cursor in matching]
    return Variant(
        is_v5,
        min(max(one.qos for one in chosen), arrival.qos),
        arrival.retain and any(one.as_published for one in chosen),
        tuple([one.identifier for one in chosen if one.identifier]),
        any([one.shows_place for one in chosen]),
    )
