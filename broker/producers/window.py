"""The window of one producer: the numbers in the log, exactly for the last ``WINDOW`` of them, and for all earlier ones
without a gap.

It is a function of the numbers in the order of the log, noted one by one or as runs. Pure.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

WINDOW: Final = 4096
_ALL: Final = (1 << WINDOW) - 1


class Numbers(NamedTuple):
    """Numbers of a producer that follow each other."""

    producer: bytes
    first: int
    messages: int

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.first + self.messages

    def covers(self, other: Numbers) -> bool:
        """Whether these are among them."""
        return self.producer == other.producer and self.first <= other.first and other.end <= self.end


class NumbersUsed(NamedTuple):
    """Numbers of the messages in a fact, with its position and store time: from its fold to that of producers."""

    numbers: tuple[Numbers, ...]
    stored_ms: int
    position: int


class Window:
    """Numbers of one producer.

    Attributes:
        since: of what is before it nothing is known any more.
        highest: the highest number that is in the log.
        bits: bit ``i`` says whether ``highest - i`` is in the log. Those behind ``since`` that have no bit are.
        stored_ms: when the latest of its messages was stored.
        moment: the snapshot for which it was made; a later one makes another before it is changed.
    """

    __slots__ = ("bits", "highest", "moment", "since", "stored_ms")

    def __init__(self, since: int, highest: int, bits: int, stored_ms: int, moment: int) -> None:
        self.since = since
        self.highest = highest
        self.bits = bits
        self.stored_ms = stored_ms
        self.moment = moment

    def copy(self, moment: int) -> Window:
        """The same for another moment."""
        return Window(self.since, self.highest, self.bits, self.stored_ms, moment)

    def note(self, first: int, count: int) -> None:
        """``count`` numbers from ``first`` on are in the log."""
        last = first + count - 1
        if first == self.highest + 1 and self.bits is _ALL:
            self.highest = last
            return
        if first <= self.highest:  # these first: later ones may push them out of the bits
            self._add(first, min(last, self.highest))
            first = self.highest + 1
        if first <= last:
            self._advance(first, last)
            self._add(first, last)

    def _add(self, first: int, last: int) -> None:
        behind = self.highest - last
        if behind < WINDOW:
            bits = (self.bits | ((1 << min(last - first + 1, WINDOW)) - 1) << behind) & _ALL
            self.bits = _ALL if bits == _ALL else bits

    def _advance(self, first: int, last: int) -> None:
        """Makes ``last`` the highest number; those from ``first`` on are about to be added. What is before a number
        that leaves the bits unstored is not known any more."""
        leaving = last - WINDOW
        if leaving > self.highest and first > self.highest + 1:
            self.since = min(leaving, first - 1) + 1
        else:
            behind = max(0, self.highest - leaving)
            there = _low_ones(self.bits >> behind)
            if behind + there < WINDOW:
                self.since = max(self.since, self.highest - behind - there + 1)
        more = last - self.highest
        self.bits = self.bits << more & _ALL if more < WINDOW else 0
        self.highest = last

    def holds(self, number: int) -> bool | None:
        """Whether a number is in the log; ``None`` if that is not known any more."""
        behind = self.highest - number
        if behind < 0:
            return False
        if behind < WINDOW:
            return bool(self.bits >> behind & 1)
        return True if number >= self.since else None

    def row(self) -> list[Any]:
        """The window as a row of snapshots: bits that are all set below one place are their number."""
        there = _low_ones(self.bits)
        bits = there if self.bits >> there == 0 else self.bits.to_bytes(WINDOW // 8, "big")
        return [self.since, self.highest, self.stored_ms, bits]


def window_before(first: int, moment: int = 0) -> Window:
    """The window of an unknown producer whose first number this is."""
    return Window(first - WINDOW, first - 1, 0, 0, moment)


def window_of(row: list[Any]) -> Window:
    """The window from a row of a snapshot."""
    since, highest, stored_ms, packed = row
    bits = (1 << packed) - 1 if isinstance(packed, int) else int.from_bytes(packed, "big")
    return Window(since, highest, _ALL if bits == _ALL else bits, stored_ms, 0)


def _low_ones(bits: int) -> int:
    """How many of the lowest bits are set without a gap."""
    return (bits ^ (bits + 1)).bit_length() - 1
