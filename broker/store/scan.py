"""Walks the log from a position on, frame by frame, and distinguishes a torn tail from damage.

The watermark rule decides about a bad place: if a good frame behind it was written when the bad place was already
durable, the bad place is damage (*rot*); it is reported and skipped up to the next good frame. Otherwise the bytes
there were never acknowledged, and the log ends: a *torn tail*. Nothing here changes a file.

Bytes that the disk cannot read count as bad, but never as a torn tail: they are not cut. A good frame of a newer format
is neither: the log is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.store.alike import good_alike, looks_alike
from broker.store.frames import (
    FAMILY,
    FORMAT,
    FRAME_BYTES_MIN,
    MAGIC_BYTES,
    blank_length,
    frame_length,
    good_within,
    newer_length,
    read_head,
)
from broker.store.label import newer
from broker.store.segment import Segment
from penstock.errors import DataFolderUnusable
from penstock.protocol.message import FRAME_HEAD_BYTES

WINDOW_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4096
RUN_FRAMES_MAX: Final = 1024


class Window:
    """Reads one segment in large pieces. Pages that the disk cannot read are zeros; ``unreadable`` says that there
    were some."""

    def __init__(self, segment: Segment) -> None:
        self._file = segment.file
        self._data = b""
        self._at = 0
        self.size = min(segment.file.size(), segment.size)
        self.unreadable = False

    def locate(self, at: int, size: int) -> tuple[bytes, int]:
        """Bytes that hold ``at`` to ``at + size`` as far as the file goes, and where in them ``at`` is."""
        within = at - self._at
        if within < 0 or within + size > len(self._data):
            self._data = self._read(at, max(size, WINDOW_BYTES))
            self._at, within = at, 0
        return self._data, within

    def get(self, at: int, size: int) -> bytes:
        """The bytes from ``at`` on, fewer at the file's end."""
        data, within = self.locate(at, size)
        return data[within : within + size]

    def _read(self, at: int, size: int) -> bytes:
        size = min(size, self.size - at)
        if size <= 0:
            return b""
        try:
            return self._file.pread(size, at)
        except OSError:
            pages = [
                self._page(place, min(PAGE_BYTES, at + size - place)) for place in range(at, at + size, PAGE_BYTES)
            ]
            return b"".join(pages)

    def _page(self, at: int, size: int) -> bytes:
        try:
            return self._file.pread(size, at)
        except OSError:
            self.unreadable = True
            return bytes(size)


class Scan:
    """Iterates the good frames from a position on: (position, frame).

    Attributes, known afterwards:
        end: where the log ends.
        frames_end: where the last good frame ends: before a blank behind which nothing stands.
        damage: stretches before that are rotten or missing (from, to).
        missing: those of them that are in no file.
        watermark: up to where a sync is known to have gone well.
    """

    def __init__(self, segments: Sequence[Segment], position: int, durable: int = 0) -> None:
        """``durable``: everything before it is known to have been synced, so what is bad there is rot."""
        self._segments = [segment for segment in segments if segment.end > position]
        self._durable = durable
        self.end = self.frames_end = self.watermark = position
        self.damage: list[tuple[int, int]] = []
        self.missing: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Raises ``DataFolderUnusable`` where the log would end at bytes that cannot be read, and for a frame of a
        newer format."""
        for position, frames in self.runs():
            for frame in frames:
                yield position, frame
                position += len(frame)

    def leave_blank(self) -> None:
        """A blank at the end does not count."""
        self.end = self.frames_end

    def runs(self) -> Iterator[tuple[int, Sequence[bytes]]]:
        """The good frames many at a time, each run one behind the other in one segment: first position, frames."""
        number = 0
        while number < len(self._segments):
            segment = self._segments[number]
            window = Window(segment)
            yield from self._good_runs(segment, window)
            at = self.end - segment.base
            blank = blank_length(window.get(at, FRAME_HEAD_BYTES)) if at < segment.size else 0
            if at + blank < segment.size:
                is_last = number + 1 == len(self._segments)
                if blank and not is_last:  # its own segment ended there
                    self.end += blank
                following = segment.end if blank and not is_last else self._after_damage(number, at)
                if following is None:
                    return
                if following > self.end:  # else a running broker has just finished writing there
                    self.damage.append((self.end, following))
                    if not is_last and (blank or at >= window.size):
                        self.missing.append((self.end, min(segment.end, following)))
                self.end = following
            else:
                self.end = segment.end
            while number < len(self._segments) and self._segments[number].end <= self.end:
                number += 1

    def _good_runs(self, segment: Segment, window: Window) -> Iterator[tuple[int, Sequence[bytes]]]:
        """Good frames one behind the other, until the first place that holds none. Many of one size are ``Alike``."""
        base, size = segment.base, segment.size
        at = max(self.end, base) - base
        while at < size:
            data, within = window.locate(at, FRAME_BYTES_MIN)
            if len(data) - within < FRAME_BYTES_MIN:
                return
            length = frame_length(data, within, size - at)
            if not length:
                return
            if within + length > len(data):
                data, within = window.locate(at, length)
            start = at
            alike = good_alike(data, within, length, base + at, RUN_FRAMES_MAX)
            if alike is not None:
                at += len(alike) * length
                self.end = self.frames_end = base + at
                self.watermark = max(self.watermark, read_head(alike[-1]).watermark)
                yield base + start, alike
                continue
            frames: list[bytes] = []
            while length and good_within(data, within, length, base + at):
                frames.append(data[within : within + length])
                at += length
                within += length
                if len(frames) == RUN_FRAMES_MAX or within + FRAME_BYTES_MIN > len(data):
                    break
                length = frame_length(data, within, size - at)
                if length != len(frames[-1]) and looks_alike(data, within, length):
                    break
            if not frames:
                return
            self.end = self.frames_end = base + at
            self.watermark = max(self.watermark, read_head(frames[-1]).watermark)  # later ones carry no lower one
            yield base + start, frames

    def _after_damage(self, number: int, at: int) -> int | None:
        """Position of the next good frame behind a bad place that had been synced; None for a torn tail."""
        bad = self._segments[number].base + at
        first_good: int | None = None
        unreadable = False
        for segment in self._segments[number:]:
            window = Window(segment)
            for position, watermark in self._scattered(segment, window, max(bad + 1 - segment.base, 0)):
                if first_good is None:
                    first_good = position
                if bad < self._durable:
                    return min(first_good, self._durable)
                if bad < watermark <= position:
                    return first_good
            unreadable = unreadable or window.unreadable
        if bad < self._durable:
            return self._durable
        if unreadable:
            raise DataFolderUnusable(
                f"the disk cannot read the end of the log, from position {bad} on",
                hint="copy the log to a sound disk, or cut it there if its end may be lost",
            )
        return None

    @staticmethod
    def _scattered(segment: Segment, window: Window, at: int) -> Iterator[tuple[int, int]]:
        """Position and watermark of every good frame from a place on, found by its magic."""
        while at < window.size:
            data = window.get(at, WINDOW_BYTES)
            found = data.find(FAMILY)
            if found < 0:
                at += max(len(data) - len(MAGIC_BYTES) + 1, 1)
                continue
            place = at + found - 4  # the magic stands behind the checksum
            at += found + 1
            if place < 0:
                continue
            head = window.get(place, FRAME_HEAD_BYTES)
            if len(head) < FRAME_HEAD_BYTES:
                continue
            known = frame_length(head, 0, segment.size - place)
            length = known or newer_length(head, segment.size - place)
            frame, position = window.get(place, length) if length else b"", segment.base + place
            if not length or not good_within(frame, 0, length, position):
                continue
            if not known:
                raise newer(f"the log has a frame of format {head[7] - 0x30} at position {position}", FORMAT)
            yield position, read_head(frame).watermark
            at = place + length
