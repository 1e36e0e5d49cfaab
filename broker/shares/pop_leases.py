"""Leases of a popped queue's messages, as ranges of offsets. Not durable: after a restart all unsettled messages go out
again.

Messages given together are one *lease*: its taker has it until it is settled, or its time is over. Then it is *owed*,
and goes out before new messages, with one delivery more. A part that is settled splits a lease. Messages that the
group's filter leaves out are *passed over*, and settled later.

Invariant: an offset below ``next`` that is not settled is in exactly one lease, owed, or passed over. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from typing import NamedTuple


class Lease:
    """Messages that a taker has. ``deliveries``: how often they were given out before. A lease whose ``first`` is its
    ``end`` is over."""

    __slots__ = ("deadline", "deliveries", "end", "first", "taker")

    def __init__(self, first: int, end: int, taker: str, deadline: float, deliveries: int) -> None:
        self.first = first
        self.end = end
        self.taker = taker
        self.deadline = deadline
        self.deliveries = deliveries


class Owed(NamedTuple):
    """Messages that go out again."""

    first: int
    end: int
    deliveries: int


class PopLeases:
    """The leases of one popped queue.

    Attributes:
        next: the first offset that was not given to a taker yet.
        leased, owed: how many messages are with takers, and how many wait to go out again.
        redelivered: how many went out again.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        self.leased = 0
        self.owed = 0
        self.redelivered = 0
        self._leases: list[Lease] = []  # in order
        self._firsts: list[int] = []  # of the leases
        self._owed: list[Owed] = []  # in order
        self._passed: list[tuple[int, int]] = []
        self._deadlines: list[tuple[float, int, Lease]] = []
        self._count = 0  # of deadlines, so that no two are compared further

    @property
    def deadline(self) -> float | None:
        """The earliest end of a lease."""
        return self._deadlines[0][0] if self._deadlines else None

    @property
    def takers(self) -> set[str]:
        """Takers that have messages."""
        return {lease.taker for lease in self._leases}

    # -- giving

    def lease(self, first: int, end: int, taker: str, deadline: float, deliveries: int = 0) -> None:
        """Gives a taker messages that no other taker has."""
        at = bisect_right(self._firsts, first)
        self._put(at, Lease(first, end, taker, deadline, deliveries))
        self.leased += end - first
        self.next = max(self.next, end)
        if deliveries:
            self.redelivered += end - first

    def pass_over(self, first: int, end: int) -> None:
        """Passes over messages that the filter leaves out, to be settled later."""
        if self._passed and self._passed[-1][1] == first:
            first = self._passed.pop()[0]
        self._passed.append((first, end))
        self.next = max(self.next, end)

    @property
    def has_passed(self) -> bool:
        """Whether messages were passed over and are not settled yet."""
        return bool(self._passed)

    def take_passed(self, count_max: int) -> list[tuple[int, int]]:
        """Ranges that are to be settled, in order."""
        taken, self._passed = self._passed[:count_max], self._passed[count_max:]
        return sorted(taken)

    def first_owed(self) -> Owed | None:
        """The messages that go out first."""
        return self._owed[0] if self._owed else None

    def take_owed(self, owed: Owed, end: int) -> None:
        """The messages that go out first are leased, up to an offset."""
        assert self._owed[0] == owed
        self.owed -= end - owed.first
        self._owed[:1] = [owed._replace(first=end)] if end < owed.end else []

    # -- taking back

    def settle(self, first: int, end: int) -> None:
        """Marks messages as done, whichever taker has them."""
        at = self._at(first)
        while at < len(self._leases) and self._leases[at].first < end:
            at = self._cut(at, first, end)
        kept: list[Owed] = []
        for one in self._owed:
            if one.end <= first or one.first >= end:
                kept.append(one)
                continue
            self.owed -= min(one.end, end) - max(one.first, first)
            if one.first < first:
                kept.append(one._replace(end=first))
            if one.end > end:
                kept.append(one._replace(first=end))
        self._owed = kept

    def extend(self, taker: str, first: int, end: int, deadline: float) -> int:
        """A taker keeps its messages of these until then; how many these are."""
        count, at = 0, self._at(first)
        while at < len(self._leases) and self._leases[at].first < end:
            lease = self._leases[at]
            if lease.taker == taker:
                low, high = max(lease.first, first), min(lease.end, end)
                self._cut(at, low, high)
                at = bisect_right(self._firsts, low)
                self._put(at, Lease(low, high, taker, deadline, lease.deliveries))
                self.leased += high - low
                count += high - low
            at += 1
        return count

    def give_back(self, taker: str, first: int, end: int) -> int:
        """A taker does not want these, and did not try them; how many it had."""
        count, at = 0, self._at(first)
        while at < len(self._leases) and self._leases[at].first < end:
            lease = self._leases[at]
            if lease.taker != taker:
                at += 1
                continue
            low, high = max(lease.first, first), min(lease.end, end)
            at = self._cut(at, low, high)
            self._owe(Owed(low, high, lease.deliveries))
            count += high - low
        return count

    def expire(self, now: float) -> bool:
        """Leases whose time is over are owed, with one delivery more; whether there were any."""
        found = False
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _count, lease = heappop(self._deadlines)
            if lease.first == lease.end or lease.deadline != deadline:
                continue  # it was settled, or extended
            first, end = lease.first, lease.end
            self._cut(self._at(first), first, end)
            self._owe(Owed(first, end, lease.deliveries + 1))
            found = True
        return found

    def of(self, offset: int) -> Lease | None:
        """The taker that has a message."""
        at = self._at(offset)
        lease = self._leases[at] if at < len(self._leases) else None
        return lease if lease is not None and lease.first <= offset < lease.end else None

    # -- ranges

    def _at(self, offset: int) -> int:
        """The place of the first lease that ends behind an offset."""
        at = bisect_right(self._firsts, offset) - 1
        return at if at >= 0 and self._leases[at].end > offset else at + 1

    def _put(self, at: int, lease: Lease) -> None:
        self._leases.insert(at, lease)
        self._firsts.insert(at, lease.first)
        self._note(lease)

    def _note(self, lease: Lease) -> None:
        self._count += 1
        heappush(self._deadlines, (lease.deadline, self._count, lease))
        if len(self._deadlines) > 64 + 4 * len(self._leases):  # most of them are of what is over
            self._deadlines = [(one.deadline, number, one) for number, one in enumerate(self._leases, self._count + 1)]
            self._count += len(self._leases)
            self._deadlines.sort()

    def _cut(self, at: int, first: int, end: int) -> int:
        """Takes a range out of a lease; the place of the lease behind it."""
        lease = self._leases[at]
        low, high = max(lease.first, first), min(lease.end, end)
        self.leased -= high - low
        if high < lease.end:
            self._put(at + 1, Lease(high, lease.end, lease.taker, lease.deadline, lease.deliveries))
        if lease.first < low:
            lease.end = low
            return at + 1
        lease.end = lease.first
        del self._leases[at], self._firsts[at]
        return at

    def _owe(self, owed: Owed) -> None:
        self.owed += owed.end - owed.first
        at = bisect_right(self._owed, owed)
        if at < len(self._owed) and self._owed[at].first == owed.end and self._owed[at].deliveries == owed.deliveries:
            owed = owed._replace(end=self._owed.pop(at).end)
        if at and self._owed[at - 1].end == owed.first and self._owed[at - 1].deliveries == owed.deliveries:
            at -= 1
            owed = owed._replace(first=self._owed.pop(at).first)
        self._owed.insert(at, owed)
