"""The log: grows only at the end, refuses whole, and stops for ever after a failed sync."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store.commit_log import RESERVE_FILE, CommitLog
from broker.store.frames import is_blank
from broker.store.segment import Segment, segment_path
from broker.store.settings import StoreSettings
from penstock.errors import Damaged, StorageFailed, StorageFull
from tests.simulation.disk import SimDisk

SETTINGS = StoreSettings(segment_bytes=1000, reserve_step_bytes=256, emergency_bytes=300)


def new_log(disk: SimDisk) -> CommitLog:
    return CommitLog(disk, SETTINGS, [Segment(0, disk.open(segment_path(0), create=True), 1000)], 0)


def put(log: CommitLog, data: bytes) -> int:
    log.reserve(len(data))
    return log.append(data)


def test_appends_stand_one_behind_the_other() -> None:
    log = new_log(SimDisk())
    assert (put(log, b"abc"), put(log, b"defg"), log.end) == (0, 3, 7)
    assert log.read(2, 3) == b"cde"


def test_an_append_is_one_write() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x" * 500)
    assert disk.calls["pwrite"] == 2, "it is, and zeros go before it where blocks were never written"
    put(log, b"x" * 500)
    assert disk.calls["pwrite"] == 3


def test_room_is_reserved_in_steps() -> None:
    disk = SimDisk()
    log = new_log(disk)
    for _ in range(10):
        put(log, b"x" * 20)
    assert disk.calls["reserve"] == 1
    put(log, b"x" * 100)
    assert disk.calls["reserve"] == 2


def test_a_folder_in_place_of_the_emergency_room_is_set_aside() -> None:
    disk = SimDisk()
    log = new_log(disk)
    disk.obstruct(RESERVE_FILE)
    log.keep_emergency_room()
    assert len(disk.read(RESERVE_FILE)) == SETTINGS.emergency_bytes


def test_an_emergency_room_that_is_too_small_gets_all_of_its_room() -> None:
    disk = SimDisk()
    disk.put(RESERVE_FILE, b"")
    new_log(disk).keep_emergency_room()
    assert len(disk.read(RESERVE_FILE)) == SETTINGS.emergency_bytes


def test_a_roll_fills_the_segment_with_a_blank_and_begins_the_next() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x" * 900)
    assert log.room() == 1000 - 900 - 24
    log.roll(1)
    assert (log.end, list(log.bases)) == (1000, [0, 1000])
    assert is_blank(disk.read(segment_path(0))[900:924], 100)
    assert put(log, b"new") == 1000
    assert log.read(1000, 3) == b"new"


def test_a_roll_that_found_no_room_can_be_made_again() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x" * 900)
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.roll(1)
    assert (log.end, log.failed) == (900, None)
    log.roll(1)
    assert log.end == 1000


def test_both_segments_of_a_roll_are_synced() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x" * 900)
    log.roll(1)
    put(log, b"new")
    point = log.sync_point()
    log.sync()
    log.mark_durable(point)
    disk.lose_power()
    assert disk.read(segment_path(0))[:900] == b"x" * 900
    assert disk.read(segment_path(1000))[:3] == b"new"


def test_a_refused_reservation_writes_nothing() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x" * 200)
    disk.capacity = disk.used()
    with pytest.raises(StorageFull):
        log.reserve(100)
    assert (log.end, log.failed) == (200, None)


def test_a_write_that_fails_half_way_is_cut_away() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x" * 50)
    disk.half_written = 0.5
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(StorageFull):
        put(log, b"y" * 50)
    assert disk.read(segment_path(0)).rstrip(b"\0") == b"x" * 50
    assert put(log, b"z" * 10) == 50


def test_a_failed_write_that_cannot_be_cut_away_ends_all_writing() -> None:
    disk = SimDisk()
    log = new_log(disk)
    log.reserve(50)
    disk.fail("pwrite", errno.ENOSPC)
    disk.fail("truncate", errno.EIO)
    with pytest.raises(StorageFailed):
        log.append(b"y" * 50)
    with pytest.raises(StorageFailed):
        log.reserve(1)


def test_a_failed_sync_is_never_tried_again() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x")
    log.sync_point()
    disk.fail("sync", errno.EIO)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            log.sync()
    assert disk.calls["sync"] == 1


def test_the_emergency_room_is_given_up_only_for_urgent_appends() -> None:
    disk = SimDisk()
    log = new_log(disk)
    log.keep_emergency_room()
    put(log, b"x" * 256)
    disk.capacity = disk.used()
    with pytest.raises(StorageFull):
        log.reserve(100)
    assert RESERVE_FILE in disk.names(".")
    log.reserve(100, urgent=True)
    assert RESERVE_FILE not in disk.names(".")
    log.keep_emergency_room()
    assert RESERVE_FILE not in disk.names(".")
    disk.capacity = None
    log.keep_emergency_room()
    assert RESERVE_FILE in disk.names(".")


def test_what_the_disk_cannot_read_is_damaged() -> None:
    disk = SimDisk()
    log = new_log(disk)
    put(log, b"x" * 100)
    for position, size in ((90, 20), (-1, 5), (2000, 1)):
        with pytest.raises(Damaged):
            log.read(position, size)
    disk.fail("pread", errno.EIO)
    with pytest.raises(Damaged):
        log.read(0, 10)
    assert log.read(0, 10) == b"x" * 10


def test_dropped_segments_are_gone_from_the_disk() -> None:
    disk = SimDisk()
    log = new_log(disk)
    for _ in range(3):
        put(log, b"x" * 900)
        log.roll(1)
    assert log.drop_before(2000) == [0, 1000]
    assert (log.start, disk.names("log")) == (2000, ["00000000000000002000.log", "00000000000000003000.log"])
    assert log.segment_end(2500) == 3000


# ------------------------------------------------------------ room that is prepared while nobody writes


def prepared_log(disk: SimDisk, **changed: int) -> CommitLog:
    settings = replace(SETTINGS, **{"segment_bytes": 10_000, "ahead_bytes": 2000, **changed})
    return CommitLog(disk, settings, [Segment(0, disk.open(segment_path(0), create=True), settings.segment_bytes)], 0)


def test_room_is_prepared_piece_by_piece_as_far_as_is_wanted() -> None:
    disk = SimDisk()
    log = prepared_log(disk)
    seen = []
    for _ in range(4):
        log.prepare()
        seen.append((log.active.written, log.active.reserved))
    assert seen == [(1000, 1024), (2000, 2048), (2000, 2048), (2000, 2048)]
    assert (log.end, log.durable, disk.read(segment_path(0))) == (0, 0, bytes(2048))


def test_an_append_to_prepared_room_is_one_write_and_what_it_used_up_is_prepared_again() -> None:
    disk = SimDisk()
    log = prepared_log(disk)
    log.prepare(), log.prepare()
    before = disk.calls["pwrite"]
    put(log, b"x" * 999)
    assert disk.calls["pwrite"] - before == 1
    log.prepare()
    assert log.active.written == 2000, "not for every little piece"
    put(log, b"y")
    log.prepare()
    assert log.active.written == 3000
    assert disk.read(segment_path(0)) == b"x" * 999 + b"y" + bytes(3072 - 1000)


def test_room_is_prepared_up_to_the_segments_end_and_goes_on_in_the_next() -> None:
    disk = SimDisk()
    log = prepared_log(disk, segment_bytes=2500)
    put(log, b"x" * 1900)
    log.prepare(), log.prepare()
    assert log.active.written == log.active.reserved == 2500
    log.roll(1)
    log.prepare()
    assert (log.active.base, log.active.written) == (2500, 1000)
    assert disk.read(segment_path(0))[:1900] == b"x" * 1900


def test_a_log_that_was_there_is_prepared_behind_its_end() -> None:
    disk = SimDisk()
    log = prepared_log(disk)
    put(log, b"x" * 700)
    again = CommitLog(disk, replace(SETTINGS, ahead_bytes=2000), [Segment(0, disk.open(segment_path(0)), 10_000)], 700)
    again.prepare()
    assert again.active.written == 1700
    assert disk.read(segment_path(0)) == b"x" * 700 + bytes(1792 - 700)


@pytest.mark.parametrize("kind", ["reserve", "pwrite", "write_back"])
def test_what_the_disk_refuses_is_told_to_the_append_that_needs_it(kind: str) -> None:
    disk = SimDisk()
    log = prepared_log(disk)
    put(log, b"x" * 100)
    disk.fail(kind, errno.ENOSPC)
    log.prepare()
    calls = dict(disk.calls)
    log.prepare()
    assert disk.calls == calls, "it is not tried again"
    assert (log.failed, log.is_full) == (None, False)
    assert put(log, b"y" * 3000) == 100
    assert disk.read(segment_path(0))[:3100] == b"x" * 100 + b"y" * 3000


def test_nothing_is_prepared_where_that_is_not_wanted_or_the_disk_is_full() -> None:
    disk = SimDisk()
    log = prepared_log(disk, ahead_bytes=0)
    log.prepare()
    assert log.active.written == 0
    full = prepared_log(SimDisk())
    full.is_full = True
    full.prepare()
    assert full.active.written == 0


@given(st.lists(st.integers(0, 1500), max_size=40), st.integers(0, 3000))
def test_zeros_are_never_prepared_over_what_is_stored(sizes: list[int], ahead: int) -> None:
    disk = SimDisk()
    log = prepared_log(disk, ahead_bytes=ahead, segment_bytes=70_000)
    stream = b""
    for number, size in enumerate(sizes):
        if size:
            put(log, bytes([1 + number]) * size)
            stream += bytes([1 + number]) * size
        else:
            log.prepare()
        assert log.active.written <= log.active.reserved
    shown = disk.read(segment_path(0))
    assert shown == stream + bytes(len(shown) - len(stream))
