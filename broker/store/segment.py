"""One file of the log, and how much room it has on the disk.

A segment covers the positions ``base`` to ``base + size``; its file is named by ``base``. ``reserved`` bytes of it have
room on the disk: behind what was written they read as zeros. The segment knows nothing of frames.
"""

from __future__ import annotations

import errno
from typing import Final

from broker.store.disk import File
from penstock.errors import StorageFailed, StorageFull

FOLDER: Final = "log"
SUFFIX: Final = ".log"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def segment_path(base: int) -> str:
    """Path of the segment that begins at position ``base``."""
    return f"{FOLDER}/{base:020d}{SUFFIX}"


def storage_error(error: OSError) -> StorageFull | StorageFailed:
    """What an error of the disk means to the store."""
    if error.errno in _FULL:
        return StorageFull(f"the disk is full: {error.strerror}", hint="make room; writing resumes by itself")
    return StorageFailed(f"the disk failed: {error.strerror}")


class Segment:
    """One file of the log."""

    __slots__ = ("base", "file", "reserved", "size")

    def __init__(self, base: int, file: File, size: int) -> None:
        self.base = base
        self.file = file
        self.size = size
        self.reserved = file.size()

    @property
    def end(self) -> int:
        """Position after the segment's last byte."""
        return self.base + self.size

    def reserve(self, target: int) -> None:
        """Gives the file room for ``target`` bytes. Raises ``OSError``."""
        if target > self.reserved:
            self.file.reserve(target)
            self.reserved = target

    def cut(self, position: int) -> None:
        """Takes away everything from a position on, durably. Raises ``OSError``."""
        self.file.truncate(position - self.base)
        self.reserved = position - self.base
        self.file.sync()
