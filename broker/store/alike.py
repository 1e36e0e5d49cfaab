"""Frames of one size in a row, as columns: the reading of long runs at a start.

They are checked and split many at a time; each costs only its checksum. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

import numpy as np

from broker.store.frames import FLAG_AT, LENGTH_AT, POSITION_AT, crc32c
from penstock.protocol.message import (
    BODY_AT,
    FRAME_HEAD_BYTES,
    OFFSETS_AT,
    QUEUE_ID_AT,
    STORED_AT,
)
from penstock.protocol.runs import DIGITS, HEXADECIMAL

Column = np.ndarray[Any, Any]
FEW: Final = 8
"""For fewer frames it is not worth it."""
_MAGIC_AT: Final = LENGTH_AT - 4
_CRC_BYTES: Final = 4
_ENTRY: Final = np.dtype([("position", ">u8"), ("size", ">u4"), ("tag", ">i8")])
_NO_DIGIT: Final = 255
_DIGIT: Final = np.array([int(chr(byte), 16) if byte in HEXADECIMAL else _NO_DIGIT for byte in range(256)], "u1")
_WEIGHTS: Final = 16 ** np.arange(DIGITS - 1, -1, -1, dtype="u8")


class Alike(Sequence[bytes]):
    """``rows`` frames of ``step`` bytes each, the first at ``at`` of ``data``; as a sequence, the frames."""

    def __init__(self, data: bytes, at: int, step: int, rows: int) -> None:
        self.data = data
        self.at = at
        self.step = step
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, number: int) -> bytes: ...

    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...

    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(self.rows))]
        if not -self.rows <= number < self.rows:
            raise IndexError(number)
        start = self.at + (number % self.rows) * self.step
        return self.data[start : start + self.step]

    def __iter__(self) -> Iterator[bytes]:
        for start in range(self.at, self.at + self.rows * self.step, self.step):
            yield self.data[start : start + self.step]

    def column(self, at: int, kind: str) -> Column:
        """The field of a kind that stands at ``at`` of each frame."""
        return np.ndarray((self.rows,), kind, self.data, self.at + at, (self.step,))

    def bytes_from(self, at: int) -> Column:
        """The bytes of each frame from ``at`` on: a row for each."""
        return np.ndarray((self.rows, self.step - at), "u1", self.data, self.at + at, (self.step, 1))


def looks_alike(data: bytes, at: int, step: int) -> bool:
    """Whether the head that stands at ``at`` stands again where the last of a few frames of ``step`` bytes would be."""
    last = at + (FEW - 1) * step
    return (
        last + step <= len(data)
        and data[last + _MAGIC_AT : last + _MAGIC_AT + 8] == data[at + _MAGIC_AT : at + _MAGIC_AT + 8]
    )


def good_alike(data: bytes, at: int, step: int, position: int, most: int) -> Alike | None:
    """The good frames of ``step`` bytes from ``at`` on, where such a head stands at ``position`` of the log, up to the
    first other one; ``None`` if they are few."""
    if not looks_alike(data, at, step):
        return None
    most = min(most, (len(data) - at) // step)
    found = Alike(data, at, step, most)
    heads = found.column(_MAGIC_AT, ">u8")
    places = np.arange(position, position + most * step, step, dtype="u8")
    found.rows = _true(np.logical_and(heads == heads[0], found.column(POSITION_AT, ">u8") == places))
    end = at + found.rows * step
    sums = np.array([crc32c(data[one + _CRC_BYTES : one + step]) for one in range(at, end, step)], "u4")
    found.rows = _true(found.column(0, ">u4") == sums)
    return found if found.rows >= FEW else None


def _true(good: Column) -> int:
    """How many are true before the first that is not."""
    first = int(good.argmin()) if len(good) else 0
    return len(good) if len(good) and good[first] else first


class Groups:
    """Frames that are alike, cut where neighbours are not of one run: differ in queue, flag or store time, in the size
    of the body or in the tail, or are not one behind the other in their queue.

    Attributes:
        queue_ids, flags, offsets, stored_ms: of each frame.
    """

    def __init__(self, frames: Alike) -> None:
        self.frames = frames
        self.queue_ids = frames.column(FRAME_HEAD_BYTES + QUEUE_ID_AT, ">u4")
        self.flags = frames.column(FRAME_HEAD_BYTES + FLAG_AT, ">u4")
        self.offsets = frames.column(FRAME_HEAD_BYTES + OFFSETS_AT, ">u8")
        self.stored_ms = frames.column(FRAME_HEAD_BYTES + STORED_AT, ">u8")
        self._sizes = frames.column(FRAME_HEAD_BYTES + BODY_AT - 4, ">u4")
        self._end = 0  # of a stretch whose bodies have one size
        self._entries: Column | None = None
        self._breaks: list[int] = []
        self._count_breaks: list[int] = []

    def tail(self, number: int) -> bytes:
        """The tail of a frame."""
        start = self.frames.at + number * self.frames.step
        return self.frames.data[
            start + FRAME_HEAD_BYTES + BODY_AT + int(self._sizes[number]) : start + self.frames.step
        ]

    def end(self, number: int, counts: bool) -> int:
        """The end of the run that frame ``number`` begins. ``counts``: its id counts."""
        if number >= self._end:
            self._look_at(number)
        breaks = self._count_breaks if counts else self._breaks
        following = bisect_right(breaks, number)
        return breaks[following] if following < len(breaks) else self._end

    def entries(self, begin: int, end: int, position: int, tag: int) -> bytes:
        """A queue's entries for some of the frames, of which the very first one stands at ``position``."""
        if self._entries is None:
            step = self.frames.step
            self._entries = np.zeros(self.frames.rows, _ENTRY)
            self._entries["position"] = np.arange(position, position + self.frames.rows * step, step)
            self._entries["size"] = step
        self._entries["tag"][begin:end] = tag
        found: bytes = self._entries[begin:end].tobytes()
        return found

    def _look_at(self, begin: int) -> None:
        """Finds the breaks from a frame on, as far as bodies have its size."""
        frames, size = self.frames, self._sizes[begin]
        self._end = begin + _true(self._sizes[begin:] == size)
        part = slice(begin, self._end)
        queue_ids, flags, offsets = self.queue_ids[part], self.flags[part], self.offsets[part]
        stored_ms = self.stored_ms[part]
        alike = (queue_ids[1:] == queue_ids[:-1]) & (flags[1:] == flags[:-1]) & (offsets[1:] == offsets[:-1] + 1)
        alike &= stored_ms[1:] == stored_ms[:-1]
        tails = frames.bytes_from(FRAME_HEAD_BYTES + BODY_AT + int(size))[part]
        counted = np.zeros(len(alike), bool)
        if tails.shape[1] >= DIGITS:
            alike &= (tails[1:, :-DIGITS] == tails[:-1, :-DIGITS]).all(axis=1)
            digits = _DIGIT[tails[:, -DIGITS:]]
            numbers = digits.astype("u8") @ _WEIGHTS
            are_digits = (digits != _NO_DIGIT).all(axis=1)
            counted = alike & (numbers[1:] == numbers[:-1] + 1) & are_digits[1:] & are_digits[:-1]
            alike &= (tails[1:, -DIGITS:] == tails[:-1, -DIGITS:]).all(axis=1)
        else:
            alike &= (tails[1:] == tails[:-1]).all(axis=1)
        self._breaks = (np.flatnonzero(~alike) + (begin + 1)).tolist()
        self._count_breaks = (np.flatnonzero(~counted) + (begin + 1)).tolist()
