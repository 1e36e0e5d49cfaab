"""Long reads: the frames of many entries of a queue, however far apart, with next to no work per message.

Frames near each other come out of one *span*: one read, from which numpy leaves out the frames of other queues. The
newest appends come from memory (``fresh.py``). Verified ranges (``stretches.py``) are checked with one checksum over
all that is read. Other ranges are checked frame by frame, wholly if many frames are wanted, and become verified then.
Damaged frames are reported and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from broker.store.commit_log import CommitLog
from broker.store.frames import FRAME_BYTES_MIN, LENGTH_AT, POSITION_AT, Place, crc32c, frame_length, good_frames
from broker.store.queue_index import ENTRY_BYTES
from broker.store.stretches import STRETCH_BYTES
from penstock.errors import Damaged
from penstock.protocol.message import FRAME_HEAD_BYTES

BULK_FROM: Final = 32
"""Fewer entries are not worth it."""
SPAN_BYTES_MAX: Final = 1 << 20
"""Bytes that are read at once: a larger block is slower to get from the allocator than from the page cache."""
BATCH_BYTES_MAX: Final = 3 << 19
"""Maximum bytes of frames that go out together, for the same reason."""
WORK_BYTES_MAX: Final = 4 << 20
"""Bytes read for one pull, a millisecond or two: others wait meanwhile."""
GAP_BYTES_MAX: Final = 8 * 1024
"""A gap that is longer takes more time to read than the next frame by itself."""
READ_BYTES_WORTH: Final = 8 * 1024
"""One more read takes as long as this number of bytes of a longer one."""
CHECK_BYTES_WORTH: Final = 2 * 1024
"""And so does looking at one frame by itself."""
BAD: Final = "a frame does not match its checksum"
FEW: Final = 16
"""Frames of a span that are gone through one by one."""
WALK_SHARE: Final = 8
"""The wanted fraction from which on an unverified range is checked as a whole."""
SLICES_FROM_BYTES: Final = 4096
"""Frames that are as long on average are cut out one by one."""
ALIKE_FROM: Final = 32
"""Frames of one size that are worth a call of their own."""

KINDS_MAX: Final = 1 << 16
"""Frames whose sizes differ by more are cut out one by one too."""

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Entries = np.ndarray[Any, Any]
Buffer = Any

ENTRY_DTYPE: Final = np.dtype([("position", ">u8"), ("size", ">u4"), ("tag", ">i8")])
_ROW_DTYPE: Final = np.dtype([("offset", ">u8"), ("entry", f"V{ENTRY_BYTES}")])
_RAW: Final = np.dtype(f"V{ENTRY_BYTES}")


def choose(entries: Entries, tags: frozenset[int], count_max: int, bytes_max: int) -> tuple[Numbers, int]:
    """Places of the entries that are no holes and have one of the tags, if there are any: ``count_max`` of them at
    most, whose frames have ``bytes_max`` bytes together at most (but one, if there is one); and how many entries were
    looked at for that."""
    sizes = entries["size"].astype(np.int64)
    wanted = sizes != 0
    if tags:
        wanted &= np.isin(entries["tag"], list(tags))
    places = np.flatnonzero(wanted)
    fit = int(sizes[places].cumsum().searchsorted(bytes_max, "right"))
    most = min(count_max, max(1, fit))
    return (places[:most], int(places[most])) if most < len(places) else (places, len(entries))


def rows(entries: Entries, offsets: Numbers) -> bytes:
    """The rows of a pulled batch."""
    made = np.empty(len(entries), _ROW_DTYPE)
    made["offset"] = offsets
    made["entry"] = entries.view(_RAW)
    return made.tobytes()


class Gathered(NamedTuple):
    """The frames of one pull. ``done``: number of entries looked at. ``good``: which of them have a good frame, None
    for all. ``frames``: these, end to end, in pieces."""

    done: int
    good: Flags | None
    frames: list[Buffer]


class _Span(NamedTuple):
    """Bytes of the log from ``base`` on, and the parts of them that are known to be good."""

    base: int
    data: bytes
    good: list[tuple[int, int]]


class LongReads:
    """Gathers frames. ``report`` is called with the position of each that is not good, and what is wrong."""

    def __init__(self, log: CommitLog, report: Callable[[int, str], None]) -> None:
        self._log = log
        self._report = report

    def gather(self, entries: Entries) -> Gathered:
        """The frames of entries in the order of their positions, none of them a hole: of the first ones, as many as one
        pull may take time for."""
        positions, sizes = entries["position"].astype(np.int64), entries["size"].astype(np.int64)
        ends = positions + sizes
        gaps = (positions[1:] - ends[:-1]).view(np.uint64)  # a negative one, of a damaged index, is very long
        apart: list[int] = [*(np.flatnonzero(gaps > GAP_BYTES_MAX) + 1).tolist(), len(entries)]
        frames: list[Buffer] = []
        bad: list[int] = []
        places: list[Place] = []
        at = work = 0
        for border in apart:
            while at < border and work < WORK_BYTES_MAX:
                if border - at < FEW:
                    places = places or _places(positions, sizes)
                    stop = border
                    bad += _left_out(places[at:stop], self.take_few(places[at:stop], frames))
                else:
                    stop = self._span_end(positions, ends, at, border)
                    bad += [at + place for place in self._take(positions[at:stop], sizes[at:stop], frames)]
                work += int(ends[stop - 1] - positions[at]) + READ_BYTES_WORTH
                at = stop
        if not bad:
            return Gathered(at, None, frames)
        good = np.ones(at, np.bool_)
        good[bad] = False
        return Gathered(at, good, frames)

    def take_few(self, places: list[Place], frames: list[Buffer]) -> list[Place]:
        """The places among some near each other that hold a good frame; adds these frames to the others."""
        base, end = places[0][1], places[-1][1] + places[-1][2]
        size = sum([place[2] for place in places])
        if len(places) > 1 and not size <= end - base <= size + len(places) * GAP_BYTES_MAX:
            return self._take_alone(places, frames)
        data = self._log.fresh.between(base, end)
        if data is None:
            try:
                data = self._log.read(base, end - base)
            except Damaged as error:  # for all in two segments too
                if len(places) > 1:
                    return self._take_alone(places, frames)
                self._report(base, str(error))
                return []
        good = good_frames(data, base, places)
        if len(good) == len(places) and size == end - base:
            frames.append(data)  # neighbours without a gap go out as they are
            return good
        frames += [data[place[1] - base : place[1] - base + place[2]] for place in good]
        if len(good) < len(places):
            served = {place[1] for place in good}
            for place in places:
                if place[1] not in served:
                    self._report(place[1], BAD)
        return good

    def _take_alone(self, places: list[Place], frames: list[Buffer]) -> list[Place]:
        return [one for place in places for one in self.take_few([place], frames)]

    def _span_end(self, positions: Numbers, ends: Numbers, at: int, stop: int) -> int:
        """The first entry from ``at`` on that is not read with it: a read stays in one segment and within a span, and
        ends with a stretch if that is near."""
        start = int(positions[at])
        limit = min(start + SPAN_BYTES_MAX, self._log.segment_end(start))
        if int(ends[stop - 1]) > limit:
            stretch = self._log.stretches.at(limit - 1)
            if stretch is not None and stretch.end > limit and stretch.start - start > SPAN_BYTES_MAX // 2:
                limit = stretch.start
            stop = max(at + 1, at + int(ends[at:stop].searchsorted(limit, "right")))
        return stop

    def _take(self, positions: Numbers, sizes: Numbers, frames: list[Buffer]) -> list[int]:
        """Adds the good frames of one span to the others; places of those that are not good."""
        start, end = int(positions[0]), int(positions[-1] + sizes[-1])
        try:
            span = self._span(start, end, len(positions))
        except Damaged:  # all of it cannot be read: some may
            places = _places(positions, sizes)
            return _left_out(places, self._take_alone(places, frames))
        good = self._good(span, positions, sizes, start, end)
        at = positions - span.base
        if good is None:
            frames += cut(span.data, at, sizes)
            return []
        bad: list[int] = np.flatnonzero(~good).tolist()
        for place in bad:
            self._report(int(positions[place]), BAD)
        if len(bad) < len(good):
            frames += cut(span.data, at[good], sizes[good])
        return bad

    def _span(self, start: int, end: int, count: int) -> _Span:
        """The bytes between two positions, with the rest of the stretches that these are in, if that is less work than
        to look at the frames there one by one. Raises ``Damaged``."""
        fresh = self._log.fresh.between(start, end)
        if fresh is not None:
            return _Span(start, fresh, [(start, end)])
        stretches, low, high, per_byte = self._log.stretches, start, end, count / (end - start)
        first, last = stretches.at(start), stretches.at(end - 1)
        if first is not None and start - first.start <= (first.end - start) * per_byte * CHECK_BYTES_WORTH:
            low = first.start
        if last is not None and last.end - end <= (end - last.start) * per_byte * CHECK_BYTES_WORTH:
            high = last.end
        data = self._log.read(low, high - low)
        good: list[tuple[int, int]] = []
        view = memoryview(data)
        for stretch in stretches.within(low, high):
            if crc32c(view[stretch.start - low : stretch.end - low]) == stretch.crc:
                begin = good.pop()[0] if good and good[-1][1] == stretch.start else stretch.start
                good.append((begin, stretch.end))
        return _Span(low, data, good)

    def _good(self, span: _Span, positions: Numbers, sizes: Numbers, start: int, end: int) -> Flags | None:
        """The good frames in a span; None for all."""
        good = self._stand_there(span, positions, sizes)
        at, place = start, 0
        for first, last in [*span.good, (end, end)]:
            if first > at:
                following = int(positions.searchsorted(first))
                if not self._walked(span, at, min(first, end), sizes[place:following]):
                    good[place:following] = self._one_by_one(span, positions[place:following], sizes[place:following])
            at = max(at, last)
            place = int(positions.searchsorted(at))
        return None if good.all() else good

    def _stand_there(self, span: _Span, positions: Numbers, sizes: Numbers) -> Flags:
        """The frames that agree with the index."""
        if int(sizes.min()) < FRAME_BYTES_MIN:
            return np.zeros(len(sizes), np.bool_)
        at = positions - span.base
        lengths = _numbers(span.data, ">u4")[at + LENGTH_AT]
        stated = _numbers(span.data, ">u8")[at + POSITION_AT]
        flags: Flags = (lengths == sizes) & (stated == positions)
        return flags

    def _one_by_one(self, span: _Span, positions: Numbers, sizes: Numbers) -> list[bool]:
        places = _places(positions, sizes)
        served = {place[0] for place in good_frames(span.data, span.base, places)}
        return [place[0] in served for place in places]

    def _walked(self, span: _Span, start: int, end: int, sizes: Numbers) -> bool:
        """Whether all frames between two borders of frames were gone through and are good: a stretch, from now on."""
        if end - start < STRETCH_BYTES or int(sizes.sum()) * WALK_SHARE < end - start:
            return False
        places: list[Place] = []
        at, base, data = start, span.base, span.data
        while at < end:
            size = frame_length(data, at - base, end - at) if end - at >= FRAME_HEAD_BYTES else 0
            if not size:
                return False
            places.append((0, at, size, 0))
            at += size
        if len(good_frames(data, base, places)) != len(places):
            return False
        for place in places:
            at = place[1]
            if at - start >= STRETCH_BYTES and end - at >= STRETCH_BYTES:
                self._log.stretches.learn(start, data[start - base : at - base])
                start = at
        self._log.stretches.learn(start, data[start - base : end - base])
        return True


def _places(positions: Numbers, sizes: Numbers) -> list[Place]:
    """These places, each with its number."""
    count = len(positions)
    return list(zip(range(count), positions.tolist(), sizes.tolist(), [0] * count, strict=True))


def _left_out(places: list[Place], good: list[Place]) -> list[int]:
    """The numbers of those that are not good."""
    if len(good) == len(places):
        return []
    served = {place[0] for place in good}
    return [place[0] for place in places if place[0] not in served]


def _numbers(data: bytes, kind: str) -> np.ndarray[Any, Any]:
    """The big-endian number at each byte."""
    return np.ndarray((len(data) - int(kind[2]) + 1,), kind, data, strides=(1,))


def cut(data: bytes, at: Numbers, sizes: Numbers) -> list[Buffer]:
    """The bytes at these places, in their order, in pieces: neighbours as one, those of one size with one call."""
    ends = at + sizes
    apart = np.flatnonzero(at[1:] != ends[:-1]) + 1
    total = int(sizes.sum())
    if (len(apart) + 1) * 4 <= len(at) or total >= len(at) * SLICES_FROM_BYTES:
        return _slices(memoryview(data), at[np.append(0, apart)], ends[np.append(apart - 1, len(at) - 1)])
    least = int(sizes.min())
    if int(sizes.max()) - least > KINDS_MAX:
        return _slices(data, at, ends)
    kinds = np.flatnonzero(np.bincount(sizes - least)) + least
    if len(kinds) == 1:
        return [_windows(data, least)[at]]
    if len(kinds) * ALIKE_FROM > len(at):
        return _slices(data, at, ends)
    out, places = np.empty(total, np.uint8), sizes.cumsum() - sizes
    for kind in kinds.tolist():
        of_this_size = np.flatnonzero(sizes == kind)
        _windows(out, kind)[places[of_this_size]] = _windows(data, kind)[at[of_this_size]]
    return [out]


def _slices(data: Buffer, starts: Numbers, stops: Numbers) -> list[Buffer]:
    return [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def _windows(data: Buffer, size: int) -> np.ndarray[Any, Any]:
    """The ``size`` bytes from each byte on."""
    return np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
