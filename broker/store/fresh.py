"""The newest appends, as they were written: who reads at a queue's end mostly wants what was just stored, and gets it
without a read of the file and without another look at its checksums.

Bounded by a number of appends and of bytes. Whatever is not wholly here is read from the log.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.store.queue_index import ENTRY20
from penstock.message import ENTRY

APPENDS_MAX: Final = 16


class Fresh:
    """What was appended last, of one log."""

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: so much is kept, 0 for nothing."""
        self._appends: deque[tuple[int, bytes]] = deque()
        self._bytes_max = bytes_max
        self._bytes = 0

    def written(self, position: int, frames: bytes) -> None:
        """Whole frames were appended at this position."""
        appends = self._appends
        appends.append((position, frames))
        self._bytes += len(frames)
        while appends and (self._bytes > self._bytes_max or len(appends) > APPENDS_MAX):
            self._bytes -= len(appends.popleft()[1])

    def between(self, start: int, end: int) -> bytes | None:
        """The bytes of the log between two positions; ``None`` unless all of them are here."""
        parts: list[bytes] = []
        for position, frames in reversed(self._appends):
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
