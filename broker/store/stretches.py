"""Verified ranges of the log, each with one checksum, so that a long read checks 64 KiB with one call.

A range enters the table when it is written here, or when all of its frames were found good by their own checksums
(``learn``). A later reader compares the checksum of the bytes that the disk gives: if it is the same, every frame is
good. Otherwise, and outside of verified ranges, the frames' own checksums decide. The table is in memory only, bounded,
and may forget anything at any time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from broker.store.frames import extend

STRETCH_BYTES: Final = 64 * 1024
STRETCH_BYTES_MAX: Final = 4 * STRETCH_BYTES
ALONE_FROM_BYTES: Final = 16 * 1024
"""Writes of this size are summed one by one (``catch_up``): to put them together first would cost more."""
STRETCHES_MAX: Final = 1 << 18
"""About 16 GiB of log, in 5 MiB of memory."""


class Stretch(NamedTuple):
    """Positions ``start`` to ``end`` hold whole frames whose bytes have this CRC-32C."""

    start: int
    end: int
    crc: int


class Stretches:
    """The verified parts of the log, by position. Stretches do not overlap, nor reach over a segment's border."""

    def __init__(self) -> None:
        self._starts = array("Q")
        self._ends = array("Q")
        self._crcs = array("I")
        self._start = self._end = self._crc = 0  # of the one that is being written
        self._unsummed: list[bytes] = []  # its end, which ``_crc`` does not cover yet

    def __len__(self) -> int:
        return len(self._starts)

    def written(self, position: int, frames: bytes) -> None:
        """Notes whole frames that were written at the log's end."""
        if position != self._end:
            self._begin(position)
        if len(frames) > STRETCH_BYTES_MAX:  # a reader of a little of it must not read all of it
            self._begin(position + len(frames))
            return
        self._unsummed.append(frames)
        self._end += len(frames)
        if self._end - self._start >= STRETCH_BYTES:
            self.close()

    def catch_up(self) -> None:
        """Sums a large write up, while no request waits."""
        if self._unsummed and len(self._unsummed[-1]) >= ALONE_FROM_BYTES:
            self._summed()

    def close(self) -> None:
        """The next bytes begin a new stretch: another segment, for instance."""
        self._begin(self._end)

    def _begin(self, position: int) -> None:
        if self._end > self._start:
            self._insert(len(self._starts), self._start, self._end, self._summed())
        self._start = self._end = position
        self._crc = 0

    def _summed(self) -> int:
        """The checksum of the stretch that is being written, over all its pieces at once."""
        if self._unsummed:
            self._crc = extend(b"".join(self._unsummed), self._crc)  # joining one copies nothing
            self._unsummed.clear()
        return self._crc

    def learn(self, start: int, data: bytes) -> None:
        """The frames in these bytes were found good one by one."""
        end = start + len(data)
        place = bisect_right(self._starts, start)
        free = (not place or self._ends[place - 1] <= start) and (
            place == len(self._starts) or end <= self._starts[place]
        )
        if free and len(data) >= STRETCH_BYTES and (self._start == self._end or end <= self._start):
            self._insert(place, start, end, extend(data, 0))

    def _insert(self, place: int, start: int, end: int, crc: int) -> None:
        self._starts.insert(place, start)
        self._ends.insert(place, end)
        self._crcs.insert(place, crc)
        if len(self._starts) > STRETCHES_MAX:
            self._drop(STRETCHES_MAX // 16)

    def _drop(self, count: int) -> None:
        del self._starts[:count], self._ends[:count], self._crcs[:count]

    def at(self, position: int) -> Stretch | None:
        """The stretch that holds a position, None if none does."""
        if self._start <= position < self._end:
            return Stretch(self._start, self._end, self._summed())
        place = bisect_right(self._starts, position) - 1
        if place < 0 or position >= self._ends[place]:
            return None
        return Stretch(self._starts[place], self._ends[place], self._crcs[place])

    def within(self, start: int, end: int) -> list[Stretch]:
        """The stretches that lie wholly between two positions, in order."""
        place = bisect_left(self._starts, start)
        following = bisect_right(self._ends, end)
        found = [Stretch(self._starts[at], self._ends[at], self._crcs[at]) for at in range(place, following)]
        if start <= self._start < self._end <= end:
            found.append(Stretch(self._start, self._end, self._summed()))
        return found

    def forget_before(self, position: int) -> None:
        """The log begins at a position now."""
        self._drop(bisect_right(self._ends, position))

    def forget_from(self, position: int) -> None:
        """The log ends at a position now."""
        if self._end > position:
            self._start = self._end = position
            self._crc = 0
            self._unsummed.clear()
        kept = bisect_right(self._ends, position)
        del self._starts[kept:], self._ends[kept:], self._crcs[kept:]
