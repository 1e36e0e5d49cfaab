"""A disk that forgets: the second implementation of the store's ``Disk`` seam.

What was written but not synced may, at a power loss, be there, be gone, or be torn by sectors of 512 bytes, each write
on its own; room that a lost write had made reads as zeros. A file whose content was replaced without a sync may be the
old one, the new one or anything torn between. Calls can be made to fail, a write can stop half way, bits can flip,
pages can become unreadable, and the disk can be small.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

from penstock.errors import DataFolderLocked

SECTOR = 512
PAGE = 4096
Change = tuple[str, int, bytes]  # "write" at with data, or "size" to


class PowerCut(BaseException):
    """The machine died within a call; ``SimDisk.lose_power`` then decides what is left."""


@dataclass
class Content:
    """A file's bytes: as the system shows them, as they are on the medium, and what lies between the two."""

    shown: bytearray = field(default_factory=bytearray)
    medium: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)
    bad_pages: set[int] = field(default_factory=set)

    def change(self, change: Change) -> None:
        _apply(self.shown, change)
        self.unsynced.append(change)

    def synced(self) -> None:
        for change in self.unsynced:
            _apply(self.medium, change)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random) -> None:
        for change in self.unsynced:
            fate = rng.random()
            if fate < 0.4:
                _apply(self.medium, change)
            elif fate < 0.7 and change[0] == "write":
                for part in _sectors(change):
                    if rng.random() < 0.5:
                        _apply(self.medium, part)
        self.unsynced.clear()
        self.shown = bytearray(self.medium)


def _apply(data: bytearray, change: Change) -> None:
    kind, at, written = change
    if kind == "size":
        if len(data) > at:
            del data[at:]
        else:
            data.extend(bytes(at - len(data)))
        return
    if len(data) < at:
        data.extend(bytes(at - len(data)))
    data[at : at + len(written)] = written


def _sectors(change: Change) -> list[Change]:
    _, at, data = change
    parts: list[Change] = []
    done = 0
    while done < len(data):
        size = SECTOR - (at + done) % SECTOR
        parts.append(("write", at + done, data[done : done + size]))
        done += size
    return parts


class SimFile:
    """An open file of a ``SimDisk``."""

    def __init__(self, disk: SimDisk, content: Content) -> None:
        self._disk = disk
        self._content = content
        self.closed = False

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        self._check()
        raw = bytes(data)
        try:
            self._disk.call("pwrite")
            self._disk.take_room(max(0, at + len(raw) - len(self._content.shown)))
        except OSError:
            self._content.change(("write", at, raw[: int(len(raw) * self._disk.half_written)]))
            raise
        self._content.change(("write", at, raw))

    def pread(self, size: int, at: int) -> bytes:
        self._check()
        self._disk.call("pread")
        pages = range(at // PAGE, (at + size + PAGE - 1) // PAGE)
        if self._content.bad_pages and not self._content.bad_pages.isdisjoint(pages):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data = bytes(self._content.shown[at : at + size])
        self._disk.bytes_read += len(data)
        return data

    def sync(self) -> None:
        self._check()
        try:
            self._disk.call("sync")
        except OSError:
            self._content.unsynced.clear()  # as Linux does: dropped, and the next sync will not say so
            raise
        if not self._disk.sync_lies:
            self._content.synced()

    def write_back(self, size: int, at: int) -> None:
        self._check()
        self._disk.call("write_back")

    def reserve(self, size: int) -> None:
        self._check()
        self._disk.call("reserve")
        if size > len(self._content.shown):
            self._disk.take_room(size - len(self._content.shown))
            self._content.change(("size", size, b""))

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.call("truncate")
        self._content.change(("size", size, b""))

    def size(self) -> int:
        return len(self._content.shown)

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        assert not self.closed, "a closed file was used"


class SimDisk:
    """A data folder in memory.

    Attributes:
        capacity: bytes that all files together may have; None for no limit.
        half_written: the share of a failing write that lands all the same.
        draft_bytes: what files have that are being replaced and are not whole yet; in no list of paths.
        calls: how often each kind of call was made since the start.
        bytes_read: by all calls of ``pread`` and ``read``.
        on_call: is told of the kind of every call.
        lost: what was removed or replaced of the folder, as somebody else has done it.
        odd: what is no file or folder, and stands where one should.
        read_only: folders in which nothing can be changed.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.capacity: int | None = None
        self.half_written = 0.0
        self.sync_lies = False
        self.draft_bytes = 0
        self.lost = ""
        self.odd: set[str] = set()
        self.calls: dict[str, int] = {}
        self.bytes_read = 0
        self.on_call: Callable[[str], None] = lambda kind: None
        self.read_only: set[str] = set()
        self._files: dict[str, Content] = {}
        self._durable_names: dict[str, Content] = {}
        self._folders: set[str] = set()
        self._locked = False
        self._failures: dict[tuple[str, int], int] = {}
        self._cuts: set[tuple[str, int]] = set()

    # ------------------------------------------------------------ faults

    def fail(self, kind: str, error: int, after: int = 0) -> None:
        """The call of this kind after ``after`` more good ones fails, once. Kind "any" counts all changing calls,
        "open" files that are there already."""
        self._failures[kind, self.calls.get(kind, 0) + after + 1] = error

    def cut_power(self, kind: str, after: int = 0) -> None:
        """The machine dies as the call of this kind after ``after`` more good ones begins."""
        self._cuts.add((kind, self.calls.get(kind, 0) + after + 1))

    def call(self, kind: str) -> None:
        """Counts a call and fails it if that was asked for."""
        self.on_call(kind)
        for one in (kind,) if kind in ("pread", "open") else (kind, "any"):
            self.calls[one] = self.calls.get(one, 0) + 1
            if (one, self.calls[one]) in self._cuts:
                raise PowerCut
            error = self._failures.pop((one, self.calls[one]), None)
            if error is not None:
                raise OSError(error, os.strerror(error))

    def check_writable(self, path: str) -> None:
        """Raises EROFS in a folder that is not."""
        if path.partition("/")[0] in self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def take_room(self, size: int) -> None:
        """Raises ENOSPC if the disk has no room for ``size`` bytes more."""
        if size and self.capacity is not None and self.used() + size > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def used(self) -> int:
        return self.draft_bytes + sum(len(content.shown) for content in self._files.values())

    def kill(self) -> None:
        """The process dies; the system keeps what it was given."""
        self._locked = False
        self._failures.clear()
        self._cuts.clear()

    def write_back(self, folder: str) -> None:
        """The system writes a folder's files to the medium by itself, as it does after half a minute."""
        for path in self.paths(folder):
            self._files[path].synced()
            self._durable_names[path] = self._files[path]

    def lose_power(self) -> None:
        """The machine dies."""
        self.kill()
        for path in sorted(set(self._files) | set(self._durable_names)):
            shown, durable = self._files.get(path), self._durable_names.get(path)
            if shown is not durable and self.rng.random() < 0.5:
                shown = durable
            if shown is None:
                self._files.pop(path, None)
            else:
                self._files[path] = shown
        for content in self._files.values():
            content.lose_power(self.rng)
        self._durable_names = dict(self._files)

    def flip(self, path: str, at: int, bit: int = 0) -> None:
        """One bit of a file rots."""
        content = self._files[path]
        content.shown[at] ^= 1 << bit
        if at < len(content.medium):
            content.medium[at] ^= 1 << bit

    def spoil_page(self, path: str, at: int) -> None:
        """A page of a file cannot be read any more."""
        self._files[path].bad_pages.add(at // PAGE)

    def paths(self, folder: str = "") -> list[str]:
        return sorted(path for path in self._files if path.startswith(folder))

    def put(self, path: str, data: bytes) -> None:
        """Overwrites a file behind the store's back."""
        self._files[path] = self._durable_names[path] = Content(bytearray(data), bytearray(data))

    def delete(self, path: str) -> None:
        """Deletes a file behind the store's back."""
        del self._files[path]
        self._durable_names.pop(path, None)

    def obstruct(self, path: str) -> None:
        """A folder stands where a file should, or something else where a folder should."""
        self.odd.add(path)
        self._files.pop(path, None)
        self._durable_names.pop(path, None)

    def _check_file(self, path: str) -> None:
        self._check_folder(path.partition("/")[0])
        if path in self.odd:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    def _check_folder(self, folder: str) -> None:
        if folder in self.odd:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)

    # ------------------------------------------------------------ the seam

    def lock(self, *folders: str) -> None:
        if self._locked:
            raise DataFolderLocked("another broker holds the simulated folder")
        self._locked = True
        self._folders.update(folders)

    def unlock(self) -> None:
        self._locked = False

    def make_folder(self, folder: str) -> None:
        self.call("make_folder")
        if folder in self.odd:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
        self._folders.add(folder)

    def names(self, folder: str) -> list[str]:
        self._check_folder(folder)
        prefix = "" if folder == "." else folder + "/"
        return sorted(
            path.removeprefix(prefix)
            for path in [*self._files, *self.odd]
            if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
        )

    def open(self, path: str, *, create: bool = False, is_read_only: bool = False) -> SimFile:
        if not is_read_only:
            self.check_writable(path)
        self._check_file(path)
        if create:
            if path in self._files:
                raise FileExistsError(errno.EEXIST, "exists", path)
            self.call("create")
            self._files[path] = self._durable_names[path] = Content()
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "missing", path)
        if not create:
            self.call("open")
        return SimFile(self, self._files[path])

    def read(self, path: str) -> bytes:
        self.call("pread")
        self._check_file(path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "missing", path)
        if self._files[path].bad_pages:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data = bytes(self._files[path].shown)
        self.bytes_read += len(data)
        return data

    def replace(
        self, path: str, pieces: Iterable[bytes], head: Callable[[], bytes] | None = None
    ) -> Generator[None, None, None]:
        self.check_writable(path)
        self._check_folder(path.partition("/")[0])
        content = Content()
        taken = 0
        try:
            for piece in pieces:
                self.take_room(len(piece))
                self.draft_bytes += len(piece)
                taken += len(piece)
                content.change(("write", len(content.shown), piece))
                yield
            self.call("replace")
            if head is not None:
                content.change(("write", 0, head()))
                content.synced()
            if path in self.odd:
                self.set_aside(path)
            self._files[path] = content
        finally:
            self.draft_bytes -= taken

    def move(self, path: str, to: str) -> None:
        self.call("move")
        self._files[to] = self._files.pop(path)
        self._names_are_durable(to.rpartition("/")[0])
        self._names_are_durable(path.rpartition("/")[0])

    def remove(self, path: str) -> None:
        self.discard(path)
        self._names_are_durable(path.rpartition("/")[0])  # it is the folder that is synced

    def sync_names(self, folder: str) -> None:
        self.call("sync_names")
        self._names_are_durable(folder)

    def _names_are_durable(self, folder: str) -> None:
        prefix = folder + "/" if folder else ""
        for path in [path for path in self._durable_names if path.startswith(prefix) and path not in self._files]:
            if "/" not in path.removeprefix(prefix):
                del self._durable_names[path]
        for path in self.paths(prefix):
            if "/" not in path.removeprefix(prefix):
                self._durable_names[path] = self._files[path]

    def discard(self, path: str) -> None:
        self.call("remove")
        if path in self._files or path in self.odd:
            self.check_writable(path)
        if path in self.odd:
            self.set_aside(path)
        self._files.pop(path, None)

    def set_aside(self, path: str) -> None:
        self.call("set_aside")
        self.check_writable(path)
        self.odd.discard(path)
        for one in [one for one in self._files if one == path or one.startswith(path + "/")]:
            del self._files[one]
            self._durable_names.pop(one, None)

    @property
    def leaves(self) -> bool:
        return False  # room is given back at once

    def give_back(self) -> None:
        """There is nothing to give back."""
