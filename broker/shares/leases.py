"""Leases of a shared subscription's messages. Not durable: after a restart takers report their messages.

A message is *leased* to a taker (a gateway) until it is settled, given back, or the taker's lease has passed. What was
given back is *owed* and goes out first. In an ordered share the messages of one key are leased to one taker at a time,
in order: as long as some are on their way no other taker gets any, and messages that others passed over come first too.

Invariant: an offset below ``next`` that is not settled is either leased to exactly one taker or owed. Pure: messages
are read through an argument.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from broker.shares.fold import END, Settled

RUN_MAX: Final = 1024


class Row(NamedTuple):
    """One message as it is handed out: its offset, the hash of its key in an ordered share, its entry and its frame."""

    offset: int
    key: int
    entry: bytes
    frame: bytes | memoryview


Read = Callable[[int, int, int], "tuple[list[Row], int]"]
"""Messages from an offset on, up to a number and a number of bytes (but one at least), and the offset to read next: the
same if there is nothing. What is missing in between is lost."""


ReadKeys = Callable[[int, int], dict[int, int]]
"""The keys of the messages that there are from an offset on and before another, in their order."""


class Given(NamedTuple):
    """Messages for a taker, and ranges of offsets at which there is nothing any more."""

    rows: list[Row]
    gone: list[tuple[int, int]]


class ShareLeases:
    """The leases of one share.

    Attributes:
        next: the first offset that was never leased.
        redelivered: how many messages went out again.
    """

    def __init__(self, is_ordered: bool, first: int) -> None:
        self.next = first
        self.redelivered = 0
        self._is_ordered = is_ordered
        self._leased: dict[int, str] = {}
        self._of: dict[str, dict[int, None]] = {}
        self._owed: list[int] = []
        self._keys: dict[int, int] = {}  # of what is leased or owed, in an ordered share
        self._takers: dict[int, tuple[str, int]] = {}  # key -> the taker of its messages, and their number

    @property
    def unsettled(self) -> int:
        """The number of messages that are leased or owed."""
        return len(self._leased) + len(self._owed)

    @property
    def owed(self) -> int:
        """The number of messages that wait for a taker, of those that were given out or passed over before."""
        return len(self._owed)

    def leased_to(self, taker: str) -> list[int]:
        """The messages leased to a taker."""
        return list(self._of.get(taker, ()))

    # ------------------------------------------------------------ giving

    def take(
        self, taker: str, settled: Settled, read: Read, count_max: int, bytes_max: int, unsettled_max: int
    ) -> Given:
        """Leases messages to a taker: first those that came back, then new ones."""
        taking = _Taking(self, taker, count_max, bytes_max)
        for first, end in list(_runs(self._wanted(taking))):
            if taking.is_full:
                return taking.given
            self._retake(taking, read, first, end)
        while not taking.is_full and self.unsettled < unsettled_max:
            first, end = settled.open_from(self.next)
            count = min(end - first, RUN_MAX if self._is_ordered else taking.count_left, unsettled_max - self.unsettled)
            rows, following = read(first, count, taking.bytes_left)
            if following <= first:
                break
            self._take_new(taking, first, following, rows)
        return taking.given

    def _wanted(self, taking: _Taking) -> Iterator[int]:
        """Messages that came back and may go to this taker, as far as is known without reading them."""
        for offset in self._owed:
            key = self._keys.get(offset)
            if key is None or taking.may_have(key):
                yield offset

    def _retake(self, taking: _Taking, read: Read, first: int, end: int) -> None:
        while first < end and not taking.is_full:
            rows, following = read(first, min(end - first, taking.count_left), taking.bytes_left)
            if following <= first:
                return
            following = min(following, end)
            for row in rows:
                if row.offset < following and taking.offer(row):
                    self._unowe(row.offset)
                    self.redelivered += 1
            self._lose(taking, first, following, rows)
            first = following

    def _take_new(self, taking: _Taking, first: int, following: int, rows: list[Row]) -> None:
        for row in rows:
            if row.offset in self._leased:  # its taker had it before this broker began
                continue
            if taking.is_full:
                following = row.offset
                break
            if not taking.offer(row):
                insort(self._owed, row.offset)
                self._keys[row.offset] = row.key
        self.next = following
        self._lose(taking, first, following, rows)

    def _lose(self, taking: _Taking, first: int, following: int, rows: list[Row]) -> None:
        """Notes messages that retention or damage has taken."""
        present = [row.offset for row in rows if row.offset < following]
        if len(present) == following - first:
            return
        at = first
        for offset in [*present, following]:
            if at < offset:
                taking.given.gone.append((at, offset))
                self.settle(at, offset)
            at = offset + 1

    def lease(self, taker: str, row_offset: int, key: int) -> None:
        """One message is on its way to a taker."""
        self._leased[row_offset] = taker
        self._of.setdefault(taker, {})[row_offset] = None
        if self._is_ordered:
            self._keys[row_offset] = key
            self._takers[key] = (taker, self._takers.get(key, (taker, 0))[1] + 1)

    def taker_of(self, key: int) -> str | None:
        """The taker with messages of a key on their way, if order matters here."""
        return self._takers[key][0] if self._is_ordered and key in self._takers else None

    # ------------------------------------------------------------ taking back

    def settle(self, first: int, end: int) -> None:
        """Messages are settled: no taker gets them any more, and none has them."""
        if end - first < len(self._leased):
            for offset in range(first, end):
                if offset in self._leased:
                    self._unlease(offset)
        else:
            for offset in [offset for offset in self._leased if first <= offset < end]:
                self._unlease(offset)
        low, high = bisect_left(self._owed, first), bisect_left(self._owed, end)
        for offset in self._owed[low:high]:
            self._keys.pop(offset, None)
        del self._owed[low:high]

    def give_back(self, taker: str, offsets: Iterable[int]) -> int:
        """A taker does not want these; what is not its own stays. How many were."""
        held = self._of.get(taker, {})
        mine = [offset for offset in offsets if offset in held]
        for offset in mine:
            key = self._unlease(offset)
            if offset >= self.next:  # had before this broker began; no taker has come to it since
                continue
            insort(self._owed, offset)
            if key is not None:
                self._keys[offset] = key
        return len(mine)

    def resume(
        self, taker: str, held: Iterable[int], settled: Settled, read_keys: ReadKeys, since: int = 0, before: int = END
    ) -> None:
        """A taker says all that it has from an offset on and before another, after it lost its link or this broker its
        memory."""
        has = frozenset(held)
        mine = self.leased_to(taker)
        self.give_back(taker, [offset for offset in mine if since <= offset < before and offset not in has])
        unknown = [offset for offset in sorted(has) if offset not in self._leased and offset not in settled]
        for first, end in list(_runs(unknown)):
            for offset, key in read_keys(first, end).items():
                if self.taker_of(key) in (None, taker):
                    self._unowe(offset)
                    self.lease(taker, offset, key)

    def _unlease(self, offset: int) -> int | None:
        taker = self._leased.pop(offset)
        held = self._of[taker]
        del held[offset]
        if not held:
            del self._of[taker]
        key = self._keys.pop(offset, None)
        if key is not None:
            count = self._takers[key][1] - 1
            if count:
                self._takers[key] = (taker, count)
            else:
                del self._takers[key]
        return key

    def _unowe(self, offset: int) -> None:
        at = bisect_left(self._owed, offset)
        if at < len(self._owed) and self._owed[at] == offset:
            del self._owed[at]


class _Taking:
    """One taker's turn: the messages that it got so far, and the number that it may still get."""

    def __init__(self, leases: ShareLeases, taker: str, count_left: int, bytes_left: int) -> None:
        self.given = Given([], [])
        self.count_left = count_left
        self.bytes_left = bytes_left
        self._leases = leases
        self._taker = taker
        self._passed: set[int] = set()

    @property
    def is_full(self) -> bool:
        return self.count_left <= 0 or self.bytes_left <= 0

    def may_have(self, key: int) -> bool:
        """Whether no other taker has messages of a key and none was passed over in this turn."""
        return key not in self._passed and self._leases.taker_of(key) in (None, self._taker)

    def offer(self, row: Row) -> bool:
        """Leases a message if it may be; once one is passed over, the later ones of its key are too."""
        if not self.may_have(row.key):
            self._passed.add(row.key)
            return False
        self._leases.lease(self._taker, row.offset, row.key)
        self.given.rows.append(row)
        self.count_left -= 1
        self.bytes_left -= len(row.frame)
        return True


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Neighbours together: the first of them and the one after the last."""
    first = end = -1
    for offset in offsets:
        if offset != end:
            if end > first:
                yield first, end
            first = offset
        end = offset + 1
    if end > first:
        yield first, end
