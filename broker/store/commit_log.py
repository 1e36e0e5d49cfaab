"""The one log of everything: segment files that only ever grow at the end.

Positions count bytes over all segments; a segment's file is named by its first position. A frame never spans two
segments: what is left of one is a blank frame. An append is one write call. Room is reserved on the disk before it
is written, so a full disk refuses an append whole. After a failed write the end has not moved, and the next append
overwrites whatever part was written; after a failed sync nothing is ever written again (``failed``).

Invariants: ``durable <= end``; only ``mark_durable`` moves the durable mark, to a point taken before the sync that
covers it.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from broker.store.disk import Disk, File
from broker.store.frames import BLANK_BYTES_MIN, blank_frame
from broker.store.settings import StoreSettings
from penstock.errors import Damaged, PenstockError, StorageFailed, StorageFull

FOLDER: Final = "log"
SUFFIX: Final = ".log"
RESERVE_FILE: Final = "reserve"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def segment_path(base: int) -> str:
    """Path of the segment that begins at position ``base``."""
    return f"{FOLDER}/{base:020d}{SUFFIX}"


class Segment:
    """One file of the log: positions ``base`` to ``base + size`` at most; ``reserved`` bytes of it have room on the
    disk."""

    __slots__ = ("base", "file", "reserved", "size")

    def __init__(self, base: int, file: File, size: int) -> None:
        self.base = base
        self.file = file
        self.size = size
        self.reserved = file.size()


class CommitLog:
    """Appends to and reads from the segments. Opened by ``recovery``, which knows where the log ends."""

    def __init__(self, disk: Disk, settings: StoreSettings, segments: list[Segment], end: int) -> None:
        self._disk = disk
        self._settings = settings
        self._segments = segments
        self._bases = [segment.base for segment in segments]
        self.end = end
        self.durable = end
        self.failed: PenstockError | None = None
        self._unsynced: list[Segment] = [segments[-1]]
        self._syncing: list[Segment] = []

    def begin_at(self, end: int) -> None:
        """Recovery has found where the log ends; all of it counts as unsynced."""
        self.end = self.durable = end
        self._bases = [segment.base for segment in self._segments]
        self._unsynced = list(self._segments)

    @property
    def start(self) -> int:
        """The first position that is still there."""
        return self._bases[0]

    @property
    def active(self) -> Segment:
        """The segment that appends go to."""
        return self._segments[-1]

    @property
    def bases(self) -> Sequence[int]:
        """First positions of all segments, in order."""
        return self._bases

    def room(self) -> int:
        """Bytes that an append may have before the active segment is full; the blank frame's head always fits behind
        them."""
        return self.active.base + self.active.size - self.end - BLANK_BYTES_MIN

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
        step = self._settings.reserve_step_bytes
        target = min(-(-wanted // step) * step, segment.size)
        try:
            self._grow(segment, target)
        except StorageFull:
            if not urgent:
                raise
            self._disk.remove(RESERVE_FILE)
            self._grow(segment, wanted)

    def _grow(self, segment: Segment, target: int) -> None:
        try:
            segment.file.reserve(target)
        except OSError as error:
            raise self._storage_error(error) from None
        segment.reserved = target

    def keep_emergency_room(self) -> None:
        """Makes the emergency reserve if it is missing and the disk has room again. Never raises for a full disk."""
        size = self._settings.emergency_bytes
        if not size or RESERVE_FILE in self._disk.names("."):
            return
        try:
            file = self._disk.open(RESERVE_FILE, create=True)
        except OSError:
            return
        try:
            file.reserve(size)
        except OSError:
            self._disk.remove(RESERVE_FILE)
        finally:
            file.close()

    def append(self, frames: bytes | bytearray) -> int:
        """Writes whole frames at the end, as one write, and returns their position. Room was reserved; they fit the
        segment."""
        position, segment = self.end, self.active
        assert len(frames) <= self.room() + BLANK_BYTES_MIN, "frames that do not fit the segment"
        try:
            segment.file.pwrite(frames, position - segment.base)
        except OSError as error:
            raise self._storage_error(error) from None
        self.end = position + len(frames)
        return position

    def roll(self, epoch: int) -> None:
        """Fills the active segment with a blank frame and begins the next one."""
        old = self.active
        room = old.base + old.size - self.end
        base = old.base + old.size
        self.reserve(BLANK_BYTES_MIN)
        try:
            file = self._disk.open(segment_path(base), create=True)
        except FileExistsError:
            file = self._disk.open(segment_path(base))  # left by a roll that failed half way
        except OSError as error:
            raise self._storage_error(error) from None
        fresh = Segment(base, file, self._settings.segment_bytes)
        try:
            self._grow(fresh, min(self._settings.reserve_step_bytes, fresh.size))
            old.file.pwrite(blank_frame(room, epoch, self.durable), self.end - old.base)
        except (OSError, PenstockError) as error:
            file.close()
            raise error if isinstance(error, PenstockError) else self._storage_error(error) from None
        self._segments.append(fresh)
        self._bases.append(base)
        self._unsynced.append(fresh)
        self.end = base

    def _storage_error(self, error: OSError) -> PenstockError:
        if error.errno in _FULL:
            return StorageFull(f"the disk is full: {error.strerror}", hint="make room; writing resumes by itself")
        self.failed = StorageFailed(f"the disk failed: {error.strerror}")
        return self.failed

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
        self.durable = max(self.durable, point)

    def read(self, position: int, size: int) -> bytes:
        """The bytes of a stretch within one segment. Raises ``Damaged`` where the disk cannot read it."""
        segment = self._segments[bisect_right(self._bases, position) - 1]
        try:
            data = segment.file.pread(size, position - segment.base)
        except OSError as error:
            raise Damaged(f"the log cannot be read at {position}: {error.strerror}") from None
        if len(data) != size:
            raise Damaged(f"the log ends within the {size} bytes at {position}")
        return data

    def segment_of(self, position: int) -> int:
        """First position of the segment that holds ``position``."""
        return self._bases[bisect_right(self._bases, position) - 1]

    def drop_before(self, base: int) -> list[int]:
        """Removes the segments before the one that begins at ``base``; returns their first positions."""
        dropped: list[int] = []
        while self._bases[0] < base:
            segment = self._segments[0]
            segment.file.close()
            self._disk.remove(segment_path(segment.base))
            dropped.append(segment.base)
            del self._segments[0], self._bases[0]
        return dropped

    def close(self) -> None:
        """Closes the files."""
        for segment in self._segments:
            segment.file.close()
