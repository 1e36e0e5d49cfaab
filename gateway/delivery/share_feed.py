"""A shared subscription at one broker: its members here, the messages leased to this gateway, and their receivers.

Each message goes to the member with room that has waited longest. A message that no member has room for goes back to
the broker after a while. In an ordered share the messages of a key go to one member as long as some are on their way to
it; if that member cannot take one or loses it, the broker gets it back with all that waits behind it.

Invariant: a leased message is in exactly one of ``waiting``, ``sent``, ``to_settle`` (or being settled) and
``to_return`` (or being returned), also if the broker leases it a second time. ``gateway/delivery/shared.py`` asks and
sends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gateway.brokers import Broker
from gateway.messages.envelope import Arrival
from gateway.messages.feed import Feed
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from topicmap.names import parse_share, plain_filter
from topicmap.queues import filter_queue

PER_MEMBER_MAX: Final = 32
"""Number of messages that are requested at a time for each member, so that no gateway takes messages that others could
deliver."""

WAITING_MAX: Final = 1024
ASIDE_MAX: Final = 64
"""Number of messages of an ordered share that may wait for their members while others go on."""

SENT: Final = 0  # it is on its way
DONE: Final = 1  # no acknowledgement will come
NO_ROOM: Final = 2
TOO_LARGE: Final = 3  # for this member

Send = Callable[[Cursor, Arrival], int]


class Leased(NamedTuple):
    """A message that the broker has leased to this gateway, and its key (0 where nothing is ordered)."""

    arrival: Arrival
    key: int


class ShareFeed:
    """One share at one broker.

    Attributes:
        origin: what its messages name as the feed that brought them.
        members: the sessions that are subscribed, with the cursors that stand for them.
        free: those that may have room.
        sent: offset -> the member that has it, and its key.
        is_open: the broker knows of our interest.
        is_taking: a request for messages is under way, or waits to be tried again.
        must_resume: the next one says all that we have. is_unsure: the broker may have leased us what we never saw.
        settling, returning: what the broker was told and has not answered.
    """

    __slots__ = (
        "_keys",
        "aside",
        "broker",
        "free",
        "is_open",
        "is_ordered",
        "is_taking",
        "is_unsure",
        "members",
        "must_resume",
        "origin",
        "returning",
        "sent",
        "settling",
        "share",
        "to_return",
        "to_settle",
        "waiting",
    )

    def __init__(self, broker: Broker, share: str) -> None:
        parsed = parse_share(share)
        self.broker = broker
        self.share = share
        self.is_ordered = parsed is not None and parsed.is_ordered
        self.origin: Feed[Cursor] = Feed(broker, share)
        self.origin.queue = filter_queue(plain_filter(share))
        self.members: dict[Session, Cursor] = {}
        self.free: dict[Cursor, None] = {}
        self.waiting: deque[Leased] = deque()
        self.aside: deque[Leased] = deque()  # too large for the members with room; no message waits behind them
        self.sent: dict[int, tuple[Cursor, int]] = {}
        self._keys: dict[int, tuple[Cursor, int]] = {}  # key -> the member that has messages of it, and how many
        self.to_settle: dict[int, None] = {}
        self.to_return: dict[int, int] = {}  # offset -> key
        self.settling: dict[int, None] = {}
        self.returning: dict[int, int] = {}
        self.is_open = False
        self.is_taking = False
        self.must_resume = True
        self.is_unsure = False

    # ------------------------------------------------------------ members

    def join(self, session: Session, subscription: Subscription) -> None:
        """A session is a member, or has other options now."""
        cursor = self.members.get(session)
        if cursor is None:
            cursor = self.members[session] = Cursor(session, subscription, self.origin)
        cursor.subscription = subscription
        self.free[cursor] = None

    def leave(self, session: Session) -> None:
        """A session is no member any more; what is on its way to it may arrive."""
        cursor = self.members.pop(session, None)
        if cursor is not None:
            self.free.pop(cursor, None)

    def stir(self, session: Session) -> None:
        """A member may have room again."""
        cursor = self.members.get(session)
        if cursor is not None:
            self.free[cursor] = None

    # ------------------------------------------------------------ messages

    def wanted(self, count_max: int) -> int:
        """The number of messages to ask for now."""
        if not self.is_open or self.is_taking or len(self.waiting) > (WAITING_MAX if self.is_ordered else 0):
            return 0
        count = 0
        for cursor in list(self.free):
            room = _room(cursor)
            if not room:
                del self.free[cursor]
            count += min(room, PER_MEMBER_MAX)
            if count >= count_max:
                return count_max
        return count

    def arrive(self, leased: Iterable[Leased]) -> None:
        """Messages have come. One that is here already stays as it is; one that is being returned is returned again,
        for which of the two the broker did first is not known. In an ordered share one whose earlier ones are just on
        their way back follows them: the broker sent it before it had those."""
        unsure = {*self.to_return.values(), *self.returning.values()} if self.is_ordered else frozenset()
        waiting = {one.arrival.offset for one in (*self.waiting, *self.aside)}
        for one in leased:
            offset = one.arrival.offset
            if offset in self.sent or offset in waiting or offset in self.to_settle or offset in self.settling:
                continue
            if one.key in unsure or offset in self.to_return or offset in self.returning:
                self.to_return[offset] = one.key
            else:
                self.waiting.append(one)

    def deliver(self, send: Send) -> int:
        """Hands out waiting messages, as far as there is room; returns how many messages are too large for all
        members."""
        kept: deque[Leased] = deque()
        too_large = 0
        blocked: set[int] = set()
        waiting, self.waiting = self.waiting, kept
        if self.free and self.aside:
            waiting.extendleft(reversed(self.aside))
            self.aside.clear()
        while waiting:
            one = waiting.popleft()
            if one.key in blocked:
                kept.append(one)
                continue
            outcome = self._give(one, send)
            too_large += outcome == TOO_LARGE
            if outcome != NO_ROOM:
                continue
            if not self.is_ordered and self.free and len(self.aside) < ASIDE_MAX:
                self.aside.append(one)
                continue
            kept.append(one)
            if self.is_ordered:
                blocked.add(one.key)
            elif not self.free:
                kept.extend(waiting)
                break
        return too_large

    def _give(self, one: Leased, send: Send) -> int:
        bound = self._keys.get(one.key) if self.is_ordered else None
        if bound is not None:
            outcome = send(bound[0], one.arrival) if bound[0].session in self.members else NO_ROOM
            if outcome == SENT:
                self._note(one, bound[0])
            elif outcome == TOO_LARGE and len(self.members) > 1:
                outcome = NO_ROOM  # for others when nothing of its key is on its way any more
        else:
            outcome = self._give_anyone(one, send)
        if outcome in (DONE, TOO_LARGE):  # too large for every member (MQTT-3.1.2-25)
            self.to_settle[one.arrival.offset] = None
        return outcome

    def _give_anyone(self, one: Leased, send: Send) -> int:
        """The member that has waited longest gets it, and then stands behind the others."""
        passed: list[Cursor] = []
        outcome = NO_ROOM
        while self.free and outcome == NO_ROOM:
            cursor = next(iter(self.free))
            del self.free[cursor]
            tried = send(cursor, one.arrival)
            if tried == TOO_LARGE:
                passed.append(cursor)
            elif tried != NO_ROOM:
                outcome = tried
                self.free[cursor] = None
                if tried == SENT:
                    self._note(one, cursor)
        self.free.update(dict.fromkeys(passed))
        return TOO_LARGE if passed and len(passed) == len(self.members) else outcome

    def _note(self, one: Leased, cursor: Cursor) -> None:
        self.sent[one.arrival.offset] = (cursor, one.key)
        if self.is_ordered:
            self._keys[one.key] = (cursor, self._keys.get(one.key, (cursor, 0))[1] + 1)

    def settle(self, offset: int) -> None:
        """A sent message is settled. It does no harm to say so twice."""
        if self._forget(offset) is not None:
            self.to_settle[offset] = None

    def give_back(self, offsets: Iterable[int]) -> None:
        """Sent messages go to others, and those that wait behind them too."""
        keys = set()
        for offset in offsets:
            key = self._forget(offset)
            if key is not None:
                self.to_return[offset] = key
                keys.add(key)
        if self.is_ordered and keys:
            behind = [one for one in self.waiting if one.key in keys]
            self.to_return.update({one.arrival.offset: one.key for one in behind})
            self.waiting = deque(one for one in self.waiting if one.key not in keys)

    def give_up_waiting(self) -> None:
        """No member here has had room for these."""
        if not self.members:
            self.waiting.extend(self.aside)
            self.aside.clear()
        self.to_return.update({one.arrival.offset: one.key for one in self.waiting})
        self.waiting.clear()

    def _forget(self, offset: int) -> int | None:
        found = self.sent.pop(offset, None)
        if found is None:
            return None
        key = found[1]
        if self.is_ordered:
            cursor, count = self._keys[key]
            if count > 1:
                self._keys[key] = (cursor, count - 1)
            else:
                del self._keys[key]
        return key

    # ------------------------------------------------------------ the broker

    def resume(self) -> tuple[int, ...]:
        """All messages that this gateway believes to have, for the broker, which corrects its leases by it."""
        self.must_resume = self.is_unsure = False
        self.to_return.clear()
        waiting = [one.arrival.offset for one in (*self.waiting, *self.aside)]
        return (*self.sent, *waiting, *self.to_settle, *self.settling)

    def lost(self) -> None:
        """The share has ended at the broker: its messages here are dropped."""
        self.is_open = self.is_unsure = False
        self.must_resume = True
        for table in (self.sent, self._keys, self.to_settle, self.to_return):
            table.clear()
        self.waiting.clear()
        self.aside.clear()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do and nothing to wait for."""
        has_some = self.sent or self.waiting or self.aside or self.to_settle or self.settling
        is_returning = self.to_return or self.returning
        return not (self.members or self.is_taking or self.is_open or self.is_unsure or has_some or is_returning)


def _room(cursor: Cursor) -> int:
    session = cursor.session
    if session.is_full:
        return 0
    return max(0, session.room()) if cursor.subscription.qos else PER_MEMBER_MAX
