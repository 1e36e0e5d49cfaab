"""A disk as one process sees it: when the process is dead, nothing that it still tries reaches the disk.

A simulated process is a few tasks; they need a moment to end, and their ``finally`` blocks run. Real ones are gone at
once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable

from tests.simulation.disk import SimDisk, SimFile

Bytes = bytes | bytearray | memoryview


class MortalDisk:
    """The disk of one life."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.dead = False

    def die(self, *, power_lost: bool) -> None:
        """The process dies, and with it, if the power was lost, what was not synced."""
        self.dead = True
        if power_lost:
            self._disk.lose_power()
        else:
            self._disk.kill()

    def alive(self) -> SimDisk:
        if self.dead:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._disk

    def lock(self, *folders: str) -> None:
        self.alive().lock(*folders)

    @property
    def lost(self) -> str:
        return self._disk.lost

    def unlock(self) -> None:
        if not self.dead:
            self._disk.unlock()

    def make_folder(self, folder: str) -> None:
        self.alive().make_folder(folder)

    def names(self, folder: str) -> list[str]:
        return self.alive().names(folder)

    def sync_names(self, folder: str) -> None:
        self.alive().sync_names(folder)

    def open(self, path: str, *, create: bool = False, is_read_only: bool = False) -> MortalFile:
        return MortalFile(self, self.alive().open(path, create=create, is_read_only=is_read_only))

    def read(self, path: str) -> bytes:
        return self.alive().read(path)

    def replace(
        self, path: str, pieces: Iterable[bytes], head: Callable[[], bytes] | None = None
    ) -> Generator[None, None, None]:
        for _ in self.alive().replace(path, pieces, head):
            yield
            self.alive()

    def remove(self, path: str) -> None:
        self.alive().remove(path)

    def move(self, path: str, other: str) -> None:
        self.alive().move(path, other)

    def discard(self, path: str) -> None:
        self.alive().discard(path)

    def set_aside(self, path: str) -> None:
        self.alive().set_aside(path)

    @property
    def leaves(self) -> bool:
        return self._disk.leaves

    def give_back(self) -> None:
        self.alive().give_back()


class MortalFile:
    """An open file of one life."""

    def __init__(self, disk: MortalDisk, file: SimFile) -> None:
        self._disk = disk
        self._file = file

    def pwrite(self, data: Bytes, at: int) -> None:
        self._disk.alive()
        self._file.pwrite(data, at)

    def pread(self, size: int, at: int) -> bytes:
        self._disk.alive()
        return self._file.pread(size, at)

    def sync(self) -> None:
        self._disk.alive()
        self._file.sync()

    def write_back(self, size: int, at: int) -> None:
        self._disk.alive()
        self._file.write_back(size, at)

    def reserve(self, size: int) -> None:
        self._disk.alive()
        self._file.reserve(size)

    def truncate(self, size: int) -> None:
        self._disk.alive()
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
