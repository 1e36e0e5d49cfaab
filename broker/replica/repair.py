"""Repair of damaged places in this copy of the log, from another copy.

A start, a read or a slow scan of the log (``scrub``) finds damage. The copy asks others for the stretch that begins at
the first damaged place. It takes only committed frames, because only these are the same everywhere; checks each frame,
writes and syncs them, and checks that its own log continues behind them. It never skips damage: requests that need the
stretch wait for it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.replica.log_face import Stretch
from broker.store.message_store import MessageStore
from broker.store.raw import BadPlace, Part, checked_parts, parts_of, read_stretch, split
from penstock.errors import ProtocolError

SCRUB_BYTES: Final = 1 << 20


class Wanted(NamedTuple):
    """A stretch to ask another copy for: from ``position`` on, at most up to ``until``."""

    position: int
    until: int


class Repair:
    """The bad places of one copy.

    Attributes:
        store: of the copy.
        repaired: how many parts of stretches were written again.
    """

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self._log = store.log
        self._ranges: list[tuple[int, int]] = sorted(store.damage)
        self._scrubbed = store.log.start
        self.repaired = 0

    @property
    def ranges(self) -> Sequence[tuple[int, int]]:
        """Bad stretches (from, to): each begins at a frame, and ends where the log may be good again."""
        self._hear_of_reads()
        return self._ranges

    @property
    def is_sound(self) -> bool:
        """Whether nothing bad is known: only then this node may be elected."""
        return not self.ranges

    def note(self, position: int) -> None:
        """The frame that begins there is bad."""
        if not any([first <= position < last for first, last in self._ranges]):
            insort(self._ranges, (position, position + 1))

    def _hear_of_reads(self) -> None:
        while self._log.bad_places:
            self.note(self._log.bad_places.pop())
        self._ranges = [one for one in self._ranges if one[1] > self._log.start]  # what is removed needs no repair

    def scrub(self, bytes_max: int = SCRUB_BYTES) -> None:
        """Checks the next piece of the committed log; at its end it begins again."""
        log = self._log
        until = log.settled
        at = max(self._scrubbed, log.start)
        if at >= until:
            self._scrubbed = log.start
            return
        try:
            data = read_stretch(log, at, bytes_max, until, from_disk=True)
        except BadPlace as bad:
            self.note(bad.position)
            self._scrubbed = log.segment_end(bad.position)  # the log behind it is checked after the repair
            return
        self._scrubbed = max([part.behind for part in parts_of(data, at)], default=until)

    def wanted(self) -> Wanted | None:
        """The next part to request; committed parts only, as far as this node knows."""
        ranges = self.ranges
        if not ranges or ranges[0][0] >= self._log.committed:
            return None
        return Wanted(ranges[0][0], self._log.committed)

    def take(self, stretch: Stretch, epoch: int) -> int:
        """Writes what another copy has of the first bad stretch; it is on the medium on return. ``epoch``: of the frame
        that ends where it begins, in this copy. Returns up to where the log is good again; the position itself if
        nothing of it was of use.

        Raises ``ProtocolError`` for what is no such stretch, and ``StorageFailed``.
        """
        position = stretch.position
        if not self.ranges or position != self._ranges[0][0]:
            return position
        end = self._ranges[0][1]
        parts = self._checked(stretch, epoch)
        for part in parts:
            self._write(part, stretch.data[part.start : part.stop])
            position = part.behind
        if position > stretch.position:
            self._clear(position, end)
        return position

    def _checked(self, stretch: Stretch, epoch: int) -> list[Part]:
        """The parts of a stretch, as far as they are committed."""
        if stretch.before != epoch:
            raise ProtocolError(f"the received part of the log at position {stretch.position} is of another epoch")
        found: list[Part] = []
        for part in checked_parts(stretch.data, stretch.position, epoch):
            if part.behind > self._log.committed:
                if part.frames and part.position < self._log.committed:
                    found.append(split(part, self._log.committed - part.position)[0])
                break
            found.append(part)
        return found

    def _write(self, part: Part, data: bytes) -> None:
        log = self._log
        if any([part.position == first for first, _ in self.store.missing]):
            log.insert_segment(part.position)
        log.write_over(part.position, data)
        if not part.frames and part.behind < log.end:
            log.insert_segment(part.behind)
        self.repaired += 1

    def _clear(self, position: int, end: int) -> None:
        """Clears the first range, which ends at ``end``, up to a position."""
        self._ranges = [one for one in self._ranges if one[1] > position and one[0] >= position]
        if position < end:
            insort(self._ranges, (position, end))
        elif not self._is_good(position):
            self.note(position)
        for found in (self.store.damage, self.store.missing):
            found[:] = [one for one in found if one[1] > position]

    def _is_good(self, position: int) -> bool:
        """Whether this copy has a good frame there, or nothing that is committed."""
        try:
            return position >= self._log.committed or bool(
                read_stretch(self._log, position, 1, self._log.end, from_disk=True)
            )
        except BadPlace:
            return False
