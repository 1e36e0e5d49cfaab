"""The tail cache: the newest appends as they were written, for readers at the ends of queues.

They need no read of the file and no check of checksums. Messages that came in runs are here as runs too, for readers in
the same process. It is bounded by a number of appends and of bytes of frames; the runs keep the bodies once more. The
excess is dropped when no request waits (``trim``), beyond twice the bounds at once. A range that is not wholly here is
read from the log.
"""

from __future__ import annotations

from typing import Final

from broker.store.queue_index import ENTRY20, ENTRY_BYTES, Queue
from penstock.protocol.message import ENTRY
from penstock.protocol.runs import Run

APPENDS_MAX: Final = 16


class Written:
    """Whole frames as they were appended. ``runs``: all of them by position, if they are of runs that a reader may ask
    for."""

    __slots__ = ("frames", "position", "runs")

    def __init__(self, position: int, frames: bytes) -> None:
        self.position = position
        self.frames = frames
        self.runs: dict[int, Run] = {}


class Fresh:
    """The latest appends of one log."""

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: maximum bytes kept, 0 for none."""
        self._appends: list[Written] = []  # the oldest first
        self._bytes_max = bytes_max
        self._bytes = 0

    def written(self, position: int, frames: bytes) -> None:
        """Whole frames were appended at this position."""
        appends = self._appends
        appends.append(Written(position, frames))
        self._bytes += len(frames)
        if self._bytes > 2 * self._bytes_max or len(appends) > 2 * APPENDS_MAX:
            self.trim()

    def keep(self, runs: list[Run]) -> None:
        """The frames that were written last are all of these runs."""
        if self._appends and self._appends[-1].position == runs[0].position:
            self._appends[-1].runs = {run.position: run for run in runs}

    def trim(self) -> None:
        """Drops the oldest, down to the bounds."""
        appends = self._appends
        while appends and (self._bytes > self._bytes_max or len(appends) > APPENDS_MAX):
            self._bytes -= len(appends.pop(0).frames)

    def forget_from(self, position: int) -> None:
        """The log ends at a position now."""
        appends = self._appends
        while appends and appends[-1].position + len(appends[-1].frames) > position:
            self._bytes -= len(appends.pop().frames)

    def _run_at(self, position: int) -> Run | None:
        for one in reversed(self._appends):
            if one.position <= position:
                return one.runs.get(position)
        return None

    def runs(self, queue: Queue, offset: int, count_max: int, bytes_max: int) -> tuple[int, list[Run]]:
        """The runs that the readable entries in a queue's tail from ``offset`` on are of, and how many messages these
        are: whole runs as long as each is here and all fit. None at all if it is not so of the first one."""
        tail = queue.tail
        found: list[Run] = []
        start = at = (offset - queue.tail_base) * ENTRY_BYTES
        end = (queue.readable - queue.tail_base) * ENTRY_BYTES
        while at < end:
            position, size, _ = ENTRY20.unpack_from(tail, at)
            run = self._run_at(position)
            if run is None or run.step != size:  # a hole has the position of the next entry
                break
            count = len(run.bodies)
            behind = at + count * ENTRY_BYTES
            count_max -= count
            bytes_max -= count * size
            if behind > end or count_max < 0 or bytes_max < 0:
                break
            if count > 1 and ENTRY20.unpack_from(tail, behind - ENTRY_BYTES)[0] != position + (count - 1) * size:
                break  # the queue has not all of it
            found.append(run)
            at = behind
        return (at - start) // ENTRY_BYTES, found

    def between(self, start: int, end: int) -> bytes | None:
        """The bytes of the log between two positions; ``None`` unless all of them are here."""
        parts: list[bytes] = []
        if not self._appends or start < self._appends[0].position:
            return None
        for one in reversed(self._appends):
            position, frames = one.position, one.frames
            if position < end:
                if position + len(frames) < end:
                    return None
                if position <= start:
                    parts.append(frames[start - position : end - position])
                    parts.reverse()
                    return b"".join(parts)
                parts.append(frames[: end - position])
                end = position
        return None

    def batch(self, entries: bytes, offset: int, bytes_max: int) -> tuple[int, bytes] | None:
        """The rows and frames of a pulled batch for the entries of a queue from ``offset`` on, and how many these are:
        as many as ``bytes_max`` bytes hold, at least one. ``None`` unless all of them are here."""
        rows: list[bytes] = []
        parts: list[bytes] = []
        pack, start, stop = ENTRY.pack, -1, -1  # neighbours go out as one piece
        for position, size, tag in ENTRY20.iter_unpack(entries):
            if not size:
                return None  # a hole
            bytes_max -= size
            if bytes_max < 0 and rows:
                break
            if position != stop:
                piece = self.between(start, stop) if rows else b""
                if piece is None:
                    return None
                parts.append(piece)
                start = position
            stop = position + size
            rows.append(pack(offset, position, size, tag))
            offset += 1
        last = self.between(start, stop)
        return None if last is None else (len(rows), b"".join(rows + parts) + last)
