"""The only door to files: the ``Disk`` seam and the real one.

Paths are relative to the data folder ("log/000...0.log"). All calls block; ``File.sync`` and ``Disk.give_back`` alone
may run in another thread than the rest. Errors are ``OSError`` as the system gave them: what they mean is decided
above.
``tests/simulation/disk.py`` is the second implementation: it forgets what was not synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Final, Protocol

from penstock.errors import DataFolderLocked, DataFolderUnusable

Bytes = bytes | bytearray | memoryview
Steps = Generator[None, None, None]
LOCK_FILE: Final = "lock"
"""Older brokers lock this alone."""
FOLDER_MODE: Final = 0o700
DRAFT: Final = ".draft"
"""Behind the name of a file that is being replaced, until it is whole."""
ASIDE: Final = ".aside"
"""Behind the name of what stood in the way of one of our files and is none."""
LARGE_BYTES: Final = 4 << 20
"""It takes a file system 0.3 ms to free a MiB: a larger file keeps its room until the broker is idle."""
LEAVING_MAX: Final = 64
"""Maximum number of removed files that still have their room."""
_log = logging.getLogger(__name__)


class File(Protocol):
    """A file that is open for reading and writing."""

    def pwrite(self, data: Bytes, at: int) -> None:
        """Writes all of ``data`` or raises; after an error any part of it may have been written."""
        ...

    def pread(self, size: int, at: int) -> bytes:
        """Up to ``size`` bytes; fewer at the end of the file."""
        ...

    def sync(self) -> None:
        """Returns when everything written before the call is on the medium."""
        ...

    def write_back(self, size: int, at: int) -> None:
        """Begins to bring to the medium what was written there, so that a later sync finds little to do; promises
        nothing and does not wait."""
        ...

    def reserve(self, size: int) -> None:
        """Gives the file room for ``size`` bytes on the disk, as zeros; raises ENOSPC if there is none."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A data folder."""

    def lock(self, *folders: str) -> None:
        """Makes the data folder ours until ``unlock``, and these folders in it, which are made where they are missing.
        Raises ``DataFolderLocked`` or ``DataFolderUnusable``."""
        ...

    def unlock(self) -> None: ...

    @property
    def lost(self) -> str:
        """The parts of the locked folder that were removed or replaced since, in words; empty if none was. Another
        broker may use the folder then."""
        ...

    def make_folder(self, folder: str) -> None: ...

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        ...

    def sync_names(self, folder: str) -> None:
        """Returns when the names in a folder are on the medium as they are."""
        ...

    def open(self, path: str, *, create: bool = False, is_read_only: bool = False) -> File:
        """Opens a file; with ``create`` it must not exist yet, and its name is durable on return. ``is_read_only``: it
        will not be written to, and need not be writable. Never waits: what is no regular file is an error."""
        ...

    def read(self, path: str) -> bytes: ...

    def replace(self, path: str, pieces: Iterable[bytes], head: Callable[[], bytes] | None = None) -> Steps:
        """Makes the pieces the content of a file, writing one at a step; the last step makes it so. Given up before, or
        after an error, it has its old content. A crash of the machine may leave anything there; not with ``head``: then
        the content is on the medium before it counts. What ``head`` returns when all is written becomes the beginning,
        for which the first piece leaves room. Anything there that is no file is set aside."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file if it is there; durable on return, as are all names in its folder. A folder in its place is
        set aside."""
        ...

    def discard(self, path: str) -> None:
        """The same, at once and without a sync: a crash of the machine may bring it back."""
        ...

    def move(self, path: str, to: str) -> None:
        """Gives a file another path, in place of what is there; durable on return."""
        ...

    def set_aside(self, path: str) -> None:
        """Gives whatever is at a path, also a folder, a name that no file of ours has."""
        ...

    @property
    def leaves(self) -> bool:
        """Whether large files that were removed still have their room: it takes time to give it back."""
        ...

    def give_back(self) -> None:
        """Gives their room back; may run in another thread."""
        ...


class RealFile:
    """A file of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pwrite(self, data: Bytes, at: int) -> None:
        written = os.pwrite(self._descriptor, data, at)
        while written < len(data):  # a short write is legal; the next one tells why
            more = os.pwrite(self._descriptor, memoryview(data)[written:], at + written)
            if more == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes and gives no reason")
            written += more

    def pread(self, size: int, at: int) -> bytes:
        return os.pread(self._descriptor, size, at)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def write_back(self, size: int, at: int) -> None:
        os.posix_fadvise(self._descriptor, at, size, os.POSIX_FADV_DONTNEED)  # Linux keeps what it is writing

    def reserve(self, size: int) -> None:
        os.posix_fallocate(self._descriptor, 0, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


def _open_regular(path: Path, flags: int) -> int:
    """A descriptor of a regular file. Opening a pipe would wait for its other end, and reading a device for ever."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


class RealDisk:
    """A data folder of the operating system. ``is_read_only``: its files are opened for reading only, for a user
    without the right to write, or a read-only copy."""

    def __init__(self, root: Path, *, is_read_only: bool = False) -> None:
        self.root = root
        self._access = os.O_RDONLY if is_read_only else os.O_RDWR
        self._held: list[tuple[Path, int]] = []
        self._leaving: list[int] = []

    def lock(self, *folders: str) -> None:
        try:
            self.root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            self._hold(self.root)
            for folder in folders:
                (self.root / folder).mkdir(FOLDER_MODE, exist_ok=True)
                self._hold(self.root / folder)
            self._hold_file()
        except BlockingIOError:
            self.unlock()
            raise DataFolderLocked(
                f"another broker holds the data folder {self.root}", hint="stop it, or give this one another folder"
            ) from None
        except OSError as error:
            self.unlock()
            raise DataFolderUnusable(f"cannot use the data folder {self.root}: {error.strerror}") from None

    def _hold_file(self) -> None:
        """Raises as ``_hold``."""
        try:
            self._hold(self.root / LOCK_FILE)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOENT, errno.ENXIO):
                raise
            self.set_aside(LOCK_FILE)  # a link to nowhere, or a socket
            self._hold(self.root / LOCK_FILE)

    def _hold(self, path: Path) -> None:
        """Raises ``BlockingIOError`` where another process holds it, ``OSError``."""
        is_folder = path.is_dir()
        flags = os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR | os.O_CREAT
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._held.append((path, descriptor))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not is_folder or error.errno == errno.EWOULDBLOCK:
                raise
            _log.warning("%s itself cannot be locked: %s. Its file `lock` alone is", path, error.strerror)

    def unlock(self) -> None:
        self.give_back()
        for _, descriptor in self._held:
            os.close(descriptor)
        self._held = []

    @property
    def lost(self) -> str:
        for path, descriptor in self._held:
            try:
                found, held = os.stat(path), os.fstat(descriptor)
            except (FileNotFoundError, NotADirectoryError):
                return f"{path} was removed"
            except OSError:  # it cannot be looked at
                continue
            if (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
                return f"{path} was replaced"
        return ""

    def _check(self) -> None:
        """Before names change: raises ESTALE where they would in a folder that is not ours."""
        if self.lost:
            raise OSError(errno.ESTALE, self.lost)

    def make_folder(self, folder: str) -> None:
        (self.root / folder).mkdir(FOLDER_MODE, exist_ok=True)
        self._sync_folder(self.root)

    def names(self, folder: str) -> list[str]:
        return sorted(os.listdir(self.root / folder))

    def sync_names(self, folder: str) -> None:
        self._sync_folder(self.root / folder)

    def open(self, path: str, *, create: bool = False, is_read_only: bool = False) -> File:
        flags = (
            (os.O_RDONLY if is_read_only else self._access) | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        )
        if create:
            self._check()
        file = RealFile(_open_regular(self.root / path, flags))
        if create:
            self._sync_folder((self.root / path).parent)
        return file

    def read(self, path: str) -> bytes:
        with open(_open_regular(self.root / path, os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
            return file.read()

    def replace(self, path: str, pieces: Iterable[bytes], head: Callable[[], bytes] | None = None) -> Steps:
        target = self.root / path
        draft = target.with_name(target.name + DRAFT)
        self._check()
        self.discard(path + DRAFT)
        file = RealFile(_open_regular(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
        at = 0
        try:
            for piece in pieces:
                file.pwrite(piece, at)
                if head is not None:
                    file.write_back(len(piece), at)
                at += len(piece)
                yield
            if head is not None:
                file.pwrite(head(), 0)
                file.sync()
            self._check()
            self._put_in_place(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        finally:
            file.close()

    def _put_in_place(self, draft: Path, path: str) -> None:
        try:
            os.replace(draft, self.root / path)
        except IsADirectoryError:
            self.set_aside(path)
            os.replace(draft, self.root / path)

    def set_aside(self, path: str) -> None:
        self._check()
        number = 1
        while os.path.lexists(aside := f"{self.root / path}{ASIDE}{number}"):
            number += 1
        os.rename(self.root / path, aside)
        _log.error("%s stood in the way of a file or folder of the broker's own: it is %s now", self.root / path, aside)

    def move(self, path: str, to: str) -> None:
        self._check()
        os.replace(self.root / path, self.root / to)
        self._sync_folder((self.root / to).parent)
        self._sync_folder((self.root / path).parent)

    def remove(self, path: str) -> None:
        self.discard(path)
        self._sync_folder((self.root / path).parent)

    def discard(self, path: str) -> None:
        target = self.root / path
        self._check()
        descriptor = self._kept(target)
        try:
            target.unlink(missing_ok=True)
        except OSError:
            if not target.is_dir():
                raise
            self.set_aside(path)
        finally:  # where it could not be removed too
            if descriptor is not None:
                self._leaving.append(descriptor)

    def _kept(self, target: Path) -> int | None:
        """A descriptor with which a large file has its room also without a name."""
        with contextlib.suppress(OSError):
            if target.stat().st_size > LARGE_BYTES and len(self._leaving) < LEAVING_MAX:
                return _open_regular(target, os.O_RDONLY | os.O_CLOEXEC)
        return None

    @property
    def leaves(self) -> bool:
        return bool(self._leaving)

    def give_back(self) -> None:
        leaving, self._leaving = self._leaving, []
        for descriptor in leaving:
            os.close(descriptor)

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
