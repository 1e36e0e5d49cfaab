"""One file of the log, and its reserved room on the disk.

A segment covers the positions ``base`` to ``base + size``; ``base`` is its file's name. ``reserved`` bytes have room on
the disk. Behind the log's end they read as zeros: up to ``written`` because zeros were written, beyond because nothing
was. A sync of blocks that were never written costs a change of the file system's metadata. So zeros are written first:
while the store is idle (``fill``), or else with the write. The segment knows nothing of frames.
"""

from __future__ import annotations

import errno
from typing import Final

from broker.store.disk import File
from penstock.errors import StorageFailed, StorageFull

ZEROS_BYTES: Final = 256 * 1024
"""Where a write comes to what was never written, zeros go ahead up to a multiple of this."""
_ZEROS: Final = memoryview(bytes(ZEROS_BYTES))
FOLDER: Final = "log"
SUFFIX: Final = ".log"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def segment_path(base: int, folder: str = FOLDER) -> str:
    """Path of the segment that begins at position ``base``."""
    return f"{folder}/{base:020d}{SUFFIX}"


def storage_error(error: OSError) -> StorageFull | StorageFailed:
    """The store's error for an error of the disk."""
    if error.errno in _FULL:
        return StorageFull(f"the disk is full: {error.strerror}", hint="make room; writing resumes by itself")
    return StorageFailed(f"the disk failed: {error.strerror}")


class Segment:
    """One file of the log."""

    __slots__ = ("base", "file", "reserved", "size", "written")

    def __init__(self, base: int, file: File, size: int) -> None:
        self.base = base
        self.file = file
        self.size = size
        self.reserved = file.size()
        self.written = 0

    @property
    def end(self) -> int:
        """Position after the segment's last byte."""
        return self.base + self.size

    def widen(self, size: int) -> None:
        """The segment holds ``size`` bytes at least."""
        self.size = max(self.size, size)

    def end_at(self, size: int) -> None:
        """The segment holds ``size`` bytes, as who writes it says."""
        self.size = size

    def reserve(self, target: int) -> None:
        """Gives the file room for ``target`` bytes. Raises ``OSError``."""
        if target > self.reserved:
            self.file.reserve(target)
            self.reserved = target

    def write(self, data: bytes, at: int) -> None:
        """Writes within what is reserved, with zeros behind it where it comes to blocks that were never written. Raises
        ``OSError``."""
        stop = at + len(data)
        if stop > self.written:
            ahead = min((stop // ZEROS_BYTES + 1) * ZEROS_BYTES, self.reserved)
            if ahead > stop:
                self.file.pwrite(_ZEROS[: ahead - stop], stop)
            self.written = ahead
        self.file.pwrite(data, at)

    def fill(self, start: int, stop: int) -> None:
        """Writes zeros there, within what is reserved and behind all that was written, and has them brought to the
        medium meanwhile. Raises ``OSError``."""
        for at in range(start, stop, ZEROS_BYTES):
            self.file.pwrite(_ZEROS[: stop - at], at)
        self.file.write_back(stop - start, start)
        self.written = stop

    def close_at_end(self) -> None:
        """Ends the segment: the file is as long as it, in all copies. Raises ``OSError``."""
        if self.file.size() != self.size:
            self.file.truncate(self.size)

    def cut(self, position: int) -> None:
        """Takes away everything from a position on, durably. Raises ``OSError``."""
        self.file.truncate(position - self.base)
        self.reserved = self.written = position - self.base
        self.file.sync()
