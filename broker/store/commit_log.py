"""The one log of everything: segments that only grow at the end.

Positions count bytes over all segments. A frame never spans two segments: the rest of one is a blank frame. An append
is one write call. Room is reserved before it is written, so a full disk refuses an append whole; after a failed write
the partial bytes are cut, so that a refused append never turns up later. After a failed sync, or a failed cut, nothing
is ever written again (``failed``).

A copy of a log that another node leads receives that node's bytes (``receive``), segment ends included. Uncommitted
bytes may be cut (``cut``).

Invariants: ``durable <= end`` and ``committed <= end``; only ``mark_durable`` moves the durable mark, to a point taken
before the sync that covers it, and only ``mark_committed`` the committed one.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from broker.store.disk import Disk, File
from broker.store.frames import BLANK_BYTES_MIN, blank_frame, read_head
from broker.store.fresh import Fresh
from broker.store.segment import FOLDER, SUFFIX, Segment, segment_path, storage_error
from broker.store.settings import StoreSettings
from broker.store.stretches import Stretches
from penstock.errors import Damaged, PenstockError, StorageFailed, StorageFull

RESERVE_FILE: Final = "reserve"
PREPARE_BYTES: Final = 1 << 20
"""Bytes of room prepared at a time: a millisecond or two of a disk's."""
BAD_PLACES_MAX: Final = 64
"""Maximum number of bad places that are remembered for repair."""
_log = logging.getLogger(__name__)
__all__ = ["FOLDER", "RESERVE_FILE", "SUFFIX", "CommitLog", "Segment", "segment_path"]


def witness_at(segments: Sequence[Segment], position: int) -> int:
    """The four bytes at a position of the log, as a number; 0 where there are none or the disk cannot read them."""
    for segment in segments:
        if segment.base <= position < segment.end:
            with contextlib.suppress(OSError):
                return int.from_bytes(segment.file.pread(4, position - segment.base), "big")
    return 0


class CommitLog:
    """Appends to and reads from the segments. Opened by ``recovery``, which knows where the log ends."""

    def __init__(
        self, disk: Disk, settings: StoreSettings, segments: list[Segment], end: int, folder: str = FOLDER
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self._segments = segments
        self._bases = [segment.base for segment in segments]
        self.end = end
        self.durable = self.committed = end
        self.last_ms = 0
        """Store time of the last record; store times never go back, whatever the wall clock does."""
        self.failed: PenstockError | None = None
        self.held_back: PenstockError | None = None  # why no request may append just now
        self.is_full = False
        self.stretches = Stretches()
        self.fresh = Fresh(settings.fresh_bytes)
        self.bad_places: list[int] = []  # where reads have found bad frames; repair takes them
        self._emergency_room = False
        self.segment_bytes = settings.segment_bytes
        self._rolled_at = end
        self._prepares = True
        self._unsynced: list[Segment] = [segments[-1]]
        self._syncing: list[Segment] = []

    def hold_back(self, error: PenstockError | None) -> None:
        """Appends of requests raise this from now on; None: they are stored again."""
        self.held_back = error

    def size_segments(self, size: int) -> None:
        """Segments have this size from now on, the active one too: that of the log's group, whatever this node's own
        setting is."""
        self.segment_bytes = size
        self.active.end_at(max(size, self.end - self.active.base + BLANK_BYTES_MIN))

    def count_as_full(self) -> None:
        """The disk was full when this log was closed: it is, until more room was found."""
        self.is_full = True

    def begin_at(self, end: int, durable: int) -> None:
        """Recovery has found where the log ends; what lies behind ``durable`` counts as unsynced."""
        self.end = self._rolled_at = end
        self.durable = self.committed = durable
        self._bases = [segment.base for segment in self._segments]
        self._unsynced = [segment for segment in self._segments if segment.end > durable]

    @property
    def start(self) -> int:
        """The first position that is still there."""
        return self._bases[0]

    @property
    def segments(self) -> list[Segment]:
        """All segments, in order."""
        return self._segments

    @property
    def active(self) -> Segment:
        """The segment that appends go to."""
        return self._segments[-1]

    @property
    def bases(self) -> Sequence[int]:
        """First positions of all segments, in order."""
        return self._bases

    @property
    def frames_end(self) -> int:
        """Position behind the last frame. A full disk may stop an append behind the blank that ends a segment: it does
        not count before a frame stands behind it."""
        return self._rolled_at if self._rolled_at < self.end == self.active.base else self.end

    def room(self) -> int:
        """Bytes that an append may have before the active segment is full; the blank frame's head always fits behind
        them."""
        return self.active.end - self.end - BLANK_BYTES_MIN

    @property
    def fresh_room(self) -> int:
        """``room`` of a segment that nothing was written to."""
        return self.segment_bytes - BLANK_BYTES_MIN

    # ------------------------------------------------------------ room on the disk

    def reserve(self, size: int, *, urgent: bool = False) -> None:
        """Makes sure that ``size`` bytes more fit on the disk. Raises ``StorageFull`` or ``StorageFailed``.

        ``urgent`` appends (offset commits, deletes) may use the emergency reserve.
        """
        if self.failed is not None:
            raise self.failed
        segment = self.active
        wanted = self.end - segment.base + size
        if wanted <= segment.reserved:
            return
        try:
            self._grow(segment, self._in_steps(wanted))
        except StorageFull:
            if not urgent:
                raise
            self._give_up_emergency_room()
            self._grow(segment, min(wanted, segment.size))
        else:
            if self.is_full:
                self.is_full = False
                _log.warning("the disk has room again: messages are stored")

    def _in_steps(self, wanted: int) -> int:
        """How much of the active segment is reserved so that it has ``wanted`` bytes."""
        step = self._settings.reserve_step_bytes
        return min(-(-wanted // step) * step, self.active.size)

    def _grow(self, segment: Segment, target: int) -> None:
        try:
            segment.reserve(target)
        except OSError as error:
            raise self._latched(storage_error(error)) from None

    def _latched(self, error: StorageFull | StorageFailed) -> PenstockError:
        if isinstance(error, StorageFailed):
            self.failed = error
        elif not self.is_full:
            self.is_full = True
            step = self._settings.reserve_step_bytes
            _log.error(
                "%s: messages are refused until %d KiB are free; stored messages can be read", error.message, step >> 10
            )
        return error

    def _give_up_emergency_room(self) -> None:
        try:
            self._disk.remove(RESERVE_FILE)
        except OSError as error:
            raise self._latched(storage_error(error)) from None
        self._emergency_room = False

    def keep_emergency_room(self) -> None:
        """Makes the emergency reserve if it is missing and the disk has room again. Never raises for a full disk."""
        if self._emergency_room or not self._settings.emergency_bytes:
            return
        with contextlib.suppress(OSError):
            file = self._reserve_file()
            try:
                file.reserve(self._settings.emergency_bytes)
                self._emergency_room = True
            except OSError:
                self._disk.remove(RESERVE_FILE)
            finally:
                file.close()

    def _reserve_file(self) -> File:
        """The emergency reserve as it is, or a new one where it is missing or no file of ours. Raises ``OSError``."""
        if RESERVE_FILE in self._disk.names("."):
            with contextlib.suppress(OSError):
                return self._disk.open(RESERVE_FILE)
            self._disk.remove(RESERVE_FILE)
        return self._disk.open(RESERVE_FILE, create=True)

    def prepare(self) -> None:
        """Fills, in an idle store, a little more of the room behind the end with zeros, up to ``ahead_bytes`` of
        it and to the segment's end, so that later syncs cost less. An error of the disk here is raised by the append
        that needs the room."""
        segment, ahead = self.active, self._settings.ahead_bytes
        at = self.end - segment.base
        start = max(at, segment.written)
        stop = min(start + min(PREPARE_BYTES, ahead // 2), segment.size)
        if not self._prepares or self.is_full or stop > at + ahead or stop <= start:
            return
        try:
            segment.reserve(self._in_steps(stop))
            segment.fill(start, stop)
        except OSError:
            self._prepares = False

    # ------------------------------------------------------------ writing

    def append(self, frames: bytes) -> int:
        """Writes whole frames at the end, as one write, and returns their position. Room was reserved; they fit the
        segment."""
        position, segment = self.end, self.active
        assert len(frames) <= self.room() + BLANK_BYTES_MIN, "frames that do not fit the segment"
        try:
            segment.write(frames, position - segment.base)
        except OSError as error:
            raise self._cut_away(segment, position, error) from None
        self.end = position + len(frames)
        self.stretches.written(position, frames)
        self.fresh.written(position, frames)
        return position

    def _cut_away(self, segment: Segment, position: int, error: OSError) -> PenstockError:
        """A write failed half way: whole frames of it may stand in the file. They must never be found again."""
        reason = storage_error(error)
        try:
            segment.cut(position)
        except OSError as second:
            reason = StorageFailed(f"the disk failed: {error.strerror}, then {second.strerror}")
        return self._latched(reason)

    def roll(self, epoch: int, *, urgent: bool = False) -> None:
        """Fills the active segment with a blank frame and begins the next one."""
        self._roll(blank_frame(self.active.end - self.end, epoch, self.committed), urgent=urgent)

    def _roll(self, blank: bytes, *, urgent: bool = False) -> None:
        self.reserve(BLANK_BYTES_MIN, urgent=urgent)
        old = self.active
        try:
            fresh = self._fresh_segment(old.end)
        except OSError as error:
            raise self._latched(storage_error(error)) from None
        try:
            if old.end > self.end:
                old.file.pwrite(blank, self.end - old.base)
                old.close_at_end()
        except OSError as error:
            fresh.file.close()
            raise self._cut_away(old, self.end, error) from None
        self._segments.append(fresh)
        self._bases.append(fresh.base)
        self._unsynced.append(fresh)
        self._prepares = True
        self.stretches.close()
        self._rolled_at = self.end
        self.end = fresh.base

    # ------------------------------------------------------------ a copy's bytes

    def receive(self, frames: bytes) -> int:
        """``append`` of whole frames that another node has laid out: the segment is as long as they ask for. Raises as
        ``reserve`` and ``append``."""
        if self.end == self.active.end:
            self._roll(b"")
        self.active.widen(self.end - self.active.base + len(frames) + BLANK_BYTES_MIN)
        self.reserve(len(frames))
        return self.append(frames)

    def receive_blank(self, blank: bytes) -> None:
        """The head of the blank frame that ends the segment there, and the next one begins. Raises as ``receive``."""
        self.active.end_at(self.end - self.active.base + read_head(blank).length)
        self._roll(blank)

    def cut(self, position: int) -> None:
        """Cuts the log at ``position``, durably: a frame begins there, or the log ended. Not while a
        sync runs. Raises ``StorageFailed``, and then for ever."""
        assert self.committed <= position <= self.end, "a cut of what is committed"
        try:
            while self.active.base > position:
                gone = self._segments.pop()
                self._bases.pop()
                gone.file.close()
                self._disk.remove(segment_path(gone.base, self._folder))
            last = self.active
            last.cut(position)
        except OSError as error:
            raise self._latched(StorageFailed(f"the disk failed: {error.strerror}")) from None
        last.end_at(max(self.segment_bytes, position - last.base + BLANK_BYTES_MIN))
        self.end = self._rolled_at = position
        self.durable = min(self.durable, position)
        self._unsynced = [one for one in self._unsynced if one.base < position] or [last]
        self._syncing = [one for one in self._syncing if one.base < position]
        self._prepares = True
        self.stretches.forget_from(position)
        self.fresh.forget_from(position)

    def _fresh_segment(self, base: int) -> Segment:
        path = segment_path(base, self._folder)
        try:
            file = self._disk.open(path, create=True)
        except FileExistsError:
            file = self._disk.open(path)  # left by a roll that failed half way
        try:
            file.truncate(0)
            return Segment(base, file, self.segment_bytes)
        except OSError:
            file.close()
            raise

    # ------------------------------------------------------------ durability

    def sync_point(self) -> int:
        """The position up to which the next ``sync`` makes the log durable; to be taken before it, in the loop's
        thread."""
        self._syncing += [segment for segment in self._unsynced if segment not in self._syncing]
        self._unsynced = [self.active]
        return self.end

    def sync(self) -> None:
        """Blocks until everything before the last sync point is on the medium. Raises ``StorageFailed``, and then
        for ever."""
        if self.failed is not None:
            raise self.failed
        try:
            for segment in self._syncing:
                segment.file.sync()
            self._syncing = []
        except OSError as error:
            self.failed = StorageFailed(f"fsync failed, nothing since the last one is safe: {error.strerror}")
            raise self.failed from None

    def mark_durable(self, point: int) -> None:
        """Everything before ``point`` is durable: a sync that began after ``point`` was taken has returned."""
        assert point <= self.end, "durable beyond the end"
        self.durable = max(self.durable, point)

    def mark_committed(self, point: int) -> None:
        """Everything before ``point`` is on as many disks as it has to be on."""
        assert point <= self.end, "committed beyond the end"
        self.committed = max(self.committed, point)

    @property
    def settled(self) -> int:
        """Up to here this disk has what is committed: derived files may say it."""
        return min(self.durable, self.committed)

    def tidy(self) -> None:
        """Does the work that an append leaves for after its answers."""
        self.stretches.catch_up()
        self.fresh.trim()

    # ------------------------------------------------------------ reading and removing

    def _segment_at(self, position: int) -> Segment:
        return self._segments[bisect_right(self._bases, position) - 1]

    def read(self, position: int, size: int) -> bytes:
        """The bytes of a stretch within one segment. Raises ``Damaged`` where the disk cannot read it."""
        if not self.start <= position or position + size > self.end:
            raise Damaged(f"the log has no {size} bytes at {position}")
        segment = self._segment_at(position)
        try:
            data = segment.file.pread(size, position - segment.base)
        except OSError as error:
            raise Damaged(f"the log cannot be read at {position}: {error.strerror}") from None
        if len(data) != size:
            raise Damaged(f"the log ends within the {size} bytes at {position}")
        return data

    def read_some(self, position: int, size: int) -> bytes:
        """Reads up to ``size`` bytes at a position, within its segment. Raises ``Damaged``."""
        segment = self._segment_at(position)
        return self.read(position, min(size, self.end - position, segment.base + segment.file.size() - position))

    def read_across(self, position: int, size: int) -> bytes:
        """``read`` over the borders of segments, with what blanks fill."""
        found = []
        while size > 0:
            piece = self.read(position, min(size, self.segment_end(position) - position))
            found.append(piece)
            position += len(piece)
            size -= len(piece)
        return b"".join(found)

    def note_bad_place(self, position: int) -> None:
        """A read has found a bad frame there. The latest ``BAD_PLACES_MAX`` are kept."""
        self.bad_places.append(position)
        del self.bad_places[:-BAD_PLACES_MAX]

    def write_over(self, position: int, data: bytes) -> None:
        """Writes a stretch of one segment again, as another copy has it; on the medium on return. Raises
        ``StorageFailed``, and then for ever."""
        segment = self._segment_at(position)
        assert position + len(data) <= min(self.end, segment.end), "beyond the segment"
        try:
            segment.file.pwrite(data, position - segment.base)
            segment.file.sync()
        except OSError as error:
            raise self._latched(StorageFailed(f"the disk failed: {error.strerror}")) from None

    def insert_segment(self, base: int) -> None:
        """A segment begins there, if none does: its file was missing. Raises ``StorageFailed``, and then for ever."""
        number = bisect_right(self._bases, base)
        before = self._segments[number - 1]
        if before.base == base:
            return
        try:
            file = self._disk.open(segment_path(base, self._folder), create=True)
            made = Segment(base, file, before.end - base)
            made.close_at_end()
            before.end_at(base - before.base)
            before.close_at_end()
        except OSError as error:
            raise self._latched(StorageFailed(f"the disk failed: {error.strerror}")) from None
        self._segments.insert(number, made)
        self._bases.insert(number, base)

    def witness(self, position: int) -> int:
        """The four bytes at a position, by which an index chunk knows its log; 0 where they cannot be read."""
        return witness_at(self._segments, position)

    def segment_end(self, position: int) -> int:
        """Position after the segment that holds ``position``."""
        return self._segment_at(position).end

    def drop_before(self, base: int) -> list[int]:
        """Removes the segments before the one that begins at ``base``; returns their first positions. Raises
        ``OSError``; what was removed until then is gone."""
        dropped: list[int] = []
        while self._bases[0] < base:
            segment = self._segments[0]
            self._disk.remove(segment_path(segment.base, self._folder))
            segment.file.close()
            dropped.append(segment.base)
            del self._segments[0], self._bases[0]
        self.stretches.forget_before(self.start)
        return dropped

    def close(self) -> None:
        """Closes the files."""
        for segment in self._segments:
            segment.file.close()
