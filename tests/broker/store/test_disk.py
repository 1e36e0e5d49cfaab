"""The real disk: whole writes, durable names, one broker per folder, errors that say which folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker.store.disk import ASIDE, DRAFT, LARGE_BYTES, LEAVING_MAX, RealDisk, RealFile
from broker.store.recovery import open_store
from penstock.errors import DataFolderLocked, DataFolderUnusable
from tests.broker.store.store_rig import SMALL, SmallFolds, bodies, fill


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder("log")
    file = disk.open("log/one", create=True)
    file.pwrite(b"hello", 3)
    file.sync()
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert (file.size(), disk.names("log"), disk.read("log/one")) == (8, ["one"], b"\0\0\0hello")
    file.truncate(4)
    assert file.size() == 4
    file.close()


def test_what_is_on_its_way_to_the_medium_is_still_there(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).open("one", create=True)
    file.pwrite(b"x" * 10_000, 0)
    file.write_back(5000, 2500)
    assert file.pread(20_000, 0) == b"x" * 10_000
    file.close()


def test_a_short_write_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:3], at))
    disk = RealDisk(tmp_path)
    file = disk.open("one", create=True)
    file.pwrite(b"0123456789", 0)
    assert file.pread(100, 0) == b"0123456789"
    file.close()


def test_a_write_that_never_ends_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    file = RealDisk(tmp_path).open("one", create=True)
    with pytest.raises(OSError, match="takes no more"):
        file.pwrite(b"0123456789", 0)
    file.close()


def synced_folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what fsync was called on, from now on."""
    synced: list[str] = []
    real = os.fsync

    def spy(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    return synced


def test_new_and_removed_names_are_made_durable_and_replaced_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(tmp_path)
    synced = synced_folders(monkeypatch)
    disk.make_folder("log")
    assert synced == [str(tmp_path)]
    disk.open("log/one", create=True).close()
    assert synced[1:] == [str(tmp_path / "log")]
    disk.remove("log/one")
    assert synced[2:] == [str(tmp_path / "log")]
    list(disk.replace("log/derived", [b"x"]))
    disk.discard("log/derived")
    assert synced[3:] == []
    assert disk.names("log") == []


def without_a_name() -> list[str]:
    """Files that are open and have been removed."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [link for link in links if link.endswith(" (deleted)")]


@pytest.mark.parametrize("remove", ["remove", "discard"])
def test_a_large_file_that_was_removed_has_its_room_until_somebody_has_time_to_give_it_back(
    tmp_path: Path, remove: str
) -> None:
    disk = RealDisk(tmp_path)
    for name, size in (("small", LARGE_BYTES), ("large", LARGE_BYTES + 1)):
        file = disk.open(name, create=True)
        file.truncate(size)
        file.close()
        getattr(disk, remove)(name)
        assert disk.names(".") == []
        assert disk.leaves == (name == "large")
    assert [link for link in without_a_name() if link.startswith(str(tmp_path))] == [f"{tmp_path}/large (deleted)"]
    disk.give_back()
    assert not disk.leaves
    assert not [link for link in without_a_name() if link.startswith(str(tmp_path))]


def test_only_so_many_files_have_their_room_when_they_are_removed(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    for number in range(LEAVING_MAX + 2):
        file = disk.open(str(number), create=True)
        file.truncate(LARGE_BYTES + 1)
        file.close()
        disk.discard(str(number))
    assert len([link for link in without_a_name() if link.startswith(str(tmp_path))]) == LEAVING_MAX
    disk.unlock()
    assert not [link for link in without_a_name() if link.startswith(str(tmp_path))]


def test_a_replacement_counts_with_its_last_step_and_not_before(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    list(disk.replace("one", [b"old"]))
    steps = disk.replace("one", [b"ne", b"w"])
    next(steps)
    assert disk.read("one") == b"old"
    assert disk.names(".") == ["one", "one" + DRAFT], "where a start looks for what a crash has left"
    next(steps)
    assert next(steps, "done") == "done"
    assert (disk.read("one"), disk.names(".")) == (b"new", ["one"])
    given_up = disk.replace("one", [b"newer", b"still"])
    next(given_up)
    given_up.close()  # type: ignore[attr-defined]
    assert (disk.read("one"), disk.names(".")) == (b"new", ["one"])


@pytest.mark.interpreted  # a compiled class cannot be patched
def test_a_replacement_with_a_head_is_on_the_medium_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(tmp_path)
    list(disk.replace("one", [b"old"]))
    seen: list[bytes] = []
    monkeypatch.setattr(RealFile, "sync", lambda file: seen.append(disk.read("one") + disk.read("one.draft")))
    list(disk.replace("one", [b"....", b"rest"], lambda: b"HEAD"))
    assert seen == [b"oldHEADrest"]
    assert disk.read("one") == b"HEADrest"


def test_a_created_file_must_be_new(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.open("one", create=True).close()
    with pytest.raises(FileExistsError):
        disk.open("one", create=True)


def test_reserved_room_reads_as_zeros(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).open("one", create=True)
    file.reserve(10_000)
    assert file.pread(20_000, 0) == bytes(10_000)
    file.close()


def test_a_replacement_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk(tmp_path)
    list(disk.replace("one", [b"old"]))

    def full(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="no room"):
        list(disk.replace("one", [b"new"]))
    assert (disk.read("one"), disk.names(".")) == (b"old", ["one"])


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    RealDisk(tmp_path).remove("one")


def test_a_second_broker_is_refused_by_the_folders_name(tmp_path: Path) -> None:
    first, second = RealDisk(tmp_path), RealDisk(tmp_path)
    first.lock()
    with pytest.raises(DataFolderLocked, match=str(tmp_path)):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_a_lock_file_that_is_removed_opens_nothing_and_is_missed(tmp_path: Path) -> None:
    first, second = RealDisk(tmp_path), RealDisk(tmp_path)
    first.lock("log")
    assert first.lost == ""
    (tmp_path / "lock").unlink()
    with pytest.raises(DataFolderLocked):
        second.lock("log")
    assert first.lost == f"{tmp_path}/lock was removed"
    (tmp_path / "lock").touch()
    assert first.lost == f"{tmp_path}/lock was replaced"
    first.unlock()
    assert first.lost == ""


def test_a_folder_is_locked_under_whatever_name_it_goes(tmp_path: Path) -> None:
    first = RealDisk(tmp_path / "data")
    first.lock("log")
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(DataFolderLocked):
        RealDisk(tmp_path / "moved").lock("log")
    assert first.lost == f"{tmp_path}/data was removed"
    (tmp_path / "other").mkdir()
    (tmp_path / "moved/log").rename(tmp_path / "other/log")
    with pytest.raises(DataFolderLocked):
        RealDisk(tmp_path / "other").lock("log")
    first.unlock()


def test_no_name_changes_in_a_folder_that_stands_in_place_of_the_locked_one(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "data")
    disk.lock("log")
    begun = disk.replace("derived", [b"x"])
    next(begun)
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "data/log").mkdir(parents=True)
    (tmp_path / "data/log/one").touch()
    changes: list[Callable[[], object]] = [
        lambda: disk.open("log/two", create=True),
        lambda: list(disk.replace("log/two", [b"x"])),
        lambda: list(begun),
        lambda: disk.discard("log/one"),
        lambda: disk.remove("log/one"),
    ]
    for change in changes:
        with pytest.raises(OSError, match="data was replaced") as caught:
            change()
        assert caught.value.errno == errno.ESTALE
    assert os.listdir(tmp_path / "data") == ["log"]
    assert os.listdir(tmp_path / "data/log") == ["one"]
    disk.unlock()


def test_where_a_folder_itself_cannot_be_locked_its_lock_file_is_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = fcntl.flock

    def only_files(descriptor: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EBADF, "as a network file system says")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", only_files)
    first, second = RealDisk(tmp_path), RealDisk(tmp_path)
    first.lock("log")
    assert "cannot be locked: as a network file system says" in caplog.text
    with pytest.raises(DataFolderLocked):
        second.lock("log")
    first.unlock()


def test_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "data")
    disk.lock("log")
    disk.make_folder("index")
    disk.unlock()
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("data", "data/log", "data/index", "data/lock")]
    assert modes == [0o700, 0o700, 0o700, 0o600]


def folder(path: Path) -> None:
    (path / "within").mkdir(parents=True)


def socket_file(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its name is short there
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(here)


OBSTACLES: dict[str, Callable[[Path], object]] = {
    "folder": folder,
    "pipe": os.mkfifo,
    "socket": socket_file,
    "loop": lambda path: path.symlink_to(path),
    "link to nowhere": lambda path: path.symlink_to("/nowhere/at/all"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "unreadable": lambda path: path.touch(0o000),
    "unreadable folder": lambda path: path.mkdir(0o000),
}


@pytest.mark.parametrize("obstacle", list(OBSTACLES))
def test_whatever_stands_in_place_of_a_file_is_an_error_at_once_and_makes_way(tmp_path: Path, obstacle: str) -> None:
    disk = RealDisk(tmp_path)
    if obstacle != "unreadable" or os.getuid():
        OBSTACLES[obstacle](tmp_path / "one")
        for look in (disk.read, disk.open, partial(disk.open, is_read_only=True)):
            with pytest.raises(OSError):
                look("one")
        disk.discard("one")
        assert not os.path.lexists(tmp_path / "one")
    OBSTACLES[obstacle](tmp_path / "two")
    OBSTACLES[obstacle](tmp_path / ("two" + DRAFT))
    list(disk.replace("two", [b"whole"]))
    assert disk.read("two") == b"whole"
    assert all([ASIDE in name for name in disk.names(".") if name != "two"])


@pytest.mark.parametrize("obstacle", list(OBSTACLES))
def test_nothing_in_place_of_a_derived_file_or_folder_stops_a_start_or_holds_it_up(
    tmp_path: Path, obstacle: str
) -> None:
    store = open_store(RealDisk(tmp_path), SMALL, SmallFolds(), 1000)
    sent = fill(store, 60)
    store.close(1000)
    derived = [path for folder in ("index", "checkpoint") for path in sorted((tmp_path / folder).iterdir())]
    assert len(derived) > 3
    others = ["index", "checkpoint", "reserve", "lock", "index/probe.draft", "checkpoint/probe.draft", "log/label.toml"]
    for place in [*derived, *[tmp_path / other for other in others]]:
        if os.path.lexists(place):
            place.rename(f"{place}.elsewhere")
        OBSTACLES[obstacle](place)
        store = open_store(RealDisk(tmp_path), SMALL, SmallFolds(), 1000)
        assert bodies(store) == sent, place
        assert store.index_trouble == "", place
        sent += fill(store, 10, start=len(sent))
        store.close(1000)


def test_a_folder_that_cannot_be_made_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderUnusable, match="file/data"):
        RealDisk(tmp_path / "file" / "data").lock()
