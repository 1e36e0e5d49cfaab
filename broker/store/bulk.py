"""Long reads of neighbours: entries that stand one behind the other in the log go out as the bytes between them.

Work per frame is numpy's. What was just appended comes out of memory (``fresh.py``). Whether other frames are good is
asked of the stretches (``stretches.py``), 64 KiB at a time; what is in no stretch is checked frame by frame, once, and
is a stretch then. Where anything is not as it should be this gives up, and the careful way (``reading.py``) finds out
what.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from broker.store.commit_log import CommitLog
from broker.store.frames import crc32c, good_frames
from broker.store.queue_index import ENTRY20, ENTRY_BYTES
from penstock.errors import Damaged

BULK_FROM: Final = 32
"""Fewer neighbours are not worth it."""
BULK_BYTES_MAX: Final = 4 << 20
BULK_SHARE: Final = 4
"""A stretch of which less than this fraction is wanted is not read whole."""
ENTRY_DTYPE: Final = np.dtype([("position", ">u8"), ("size", ">u4"), ("tag", ">i8")])
_ROW_DTYPE: Final = np.dtype([("offset", ">u8"), ("entry", f"V{ENTRY_BYTES}")])

Entries = np.ndarray[Any, Any]


def neighbours(raw: bytes, bytes_max: int) -> int:
    """How many of these entries, from the first on, stand one behind the other in the log, are no holes and have at
    most ``bytes_max`` bytes together (but one, if there is one)."""
    entries = np.frombuffer(raw, ENTRY_DTYPE)
    sizes = entries["size"].astype("i8")
    ends = sizes.cumsum()
    first, _, _ = ENTRY20.unpack_from(raw)
    last, last_size, _ = ENTRY20.unpack_from(raw, len(raw) - ENTRY_BYTES)
    count = len(sizes)
    if last + last_size - first != ends[-1] or not sizes.all():
        apart = np.flatnonzero((entries["position"][1:] - np.uint64(first) != ends[:-1]) | (sizes[1:] == 0))
        count = int(apart[0]) + 1 if len(apart) else count
        if not sizes[0]:
            return 0
    return max(1, int(ends[:count].searchsorted(bytes_max, "right")))


def aligned(log: CommitLog, raw: bytes) -> int:
    """How many of these neighbours end where a stretch ends, so that it is read whole and once; all of them where that
    would be few."""
    last, size, _ = ENTRY20.unpack_from(raw, len(raw) - ENTRY_BYTES)
    end, total = last + size, len(raw) // ENTRY_BYTES
    stretch = log.stretches.at(end - 1)
    if stretch is None or stretch.end == end:
        return total
    count = int(np.searchsorted(np.frombuffer(raw, ENTRY_DTYPE)["position"], stretch.start))
    return count if count >= max(BULK_FROM, total // 2) else total


def rows(raw: bytes, offset: int) -> bytes:
    """The rows of a pulled batch for entries that begin at a queue's ``offset``."""
    count = len(raw) // ENTRY_BYTES
    made = np.empty(count, _ROW_DTYPE)
    made["offset"] = np.arange(offset, offset + count)
    made["entry"] = np.frombuffer(raw, _ROW_DTYPE["entry"])
    return made.tobytes()


def fresh_frames(log: CommitLog, raw: bytes) -> list[bytes | memoryview] | None:
    """The frames of neighbours if all of them are among the newest appends."""
    last, size, _ = ENTRY20.unpack_from(raw, len(raw) - ENTRY_BYTES)
    found = log.fresh.between(ENTRY20.unpack_from(raw)[0], last + size)
    return None if found is None else [found]


def frames(log: CommitLog, raw: bytes) -> list[bytes | memoryview] | None:
    """The frames of neighbours, in pieces; None if they are not all good, or not in one segment."""
    at, (last, size, _) = ENTRY20.unpack_from(raw)[0], ENTRY20.unpack_from(raw, len(raw) - ENTRY_BYTES)
    end = last + size
    if end > log.segment_end(at):
        return None
    pieces: list[bytes | memoryview] = []
    try:
        while at < end:
            stretch = log.stretches.at(at)
            if stretch is None or (min(stretch.end, end) - at) * BULK_SHARE < stretch.end - stretch.start:
                stop = log.stretches.next_start(at, end) if stretch is None else min(stretch.end, end)
                data = _checked(log, np.frombuffer(raw, ENTRY_DTYPE), at, stop)
                if data is None:
                    return None
                pieces.append(data)
                at = stop
                continue
            data = log.read(stretch.start, stretch.end - stretch.start)
            if crc32c(data) != stretch.crc:
                return None
            stop = min(stretch.end, end)
            whole = (at, stop) == (stretch.start, stretch.end)
            pieces.append(data if whole else memoryview(data)[at - stretch.start : stop - stretch.start])
            at = stop
    except Damaged:
        return None
    return pieces


def _checked(log: CommitLog, entries: Entries, start: int, end: int) -> bytes | None:
    """The bytes between two frames' begins if each frame there is good."""
    positions = entries["position"]
    some = entries[np.searchsorted(positions, start) : np.searchsorted(positions, end)]
    data = log.read(start, end - start)
    places = [(0, *place) for place in some.tolist()]
    if len(good_frames(data, start, places)) != len(places):
        return None
    log.stretches.learn(start, data)
    return data
