"""A segment knows its positions and its room."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store.segment import Segment, segment_path, storage_error
from penstock.errors import StorageFailed, StorageFull
from tests.simulation.disk import SimDisk


def test_a_segments_name_is_its_first_position() -> None:
    assert segment_path(4096) == "log/00000000000000004096.log"


def test_room_is_reserved_once_and_never_shrinks() -> None:
    disk = SimDisk()
    segment = Segment(1000, disk.open("one", create=True), 4096)
    segment.reserve(500)
    segment.reserve(300)
    assert (segment.reserved, disk.calls["reserve"], segment.end) == (500, 1, 5096)


def test_a_cut_is_durable() -> None:
    disk = SimDisk()
    segment = Segment(1000, disk.open("one", create=True), 4096)
    segment.file.pwrite(b"x" * 100, 0)
    segment.file.sync()
    segment.cut(1040)
    disk.lose_power()
    assert disk.read("one") == b"x" * 40
    assert segment.reserved == 40


@given(st.lists(st.integers(1, 3000), max_size=30), st.integers(0, 40_000))
def test_zeros_are_written_ahead_of_what_comes_and_never_over_what_is_there(sizes: list[int], room: int) -> None:
    disk = SimDisk()
    segment = Segment(0, disk.open("one", create=True), 1 << 20)
    segment.reserve(sum(sizes) + room)
    stream = b""
    for number, size in enumerate(sizes):
        data = bytes([1 + number]) * size
        segment.write(data, len(stream))
        stream += data
        assert len(stream) <= segment.written <= segment.reserved
    shown = disk.read("one")
    assert shown == stream + bytes(len(shown) - len(stream))
    assert len(shown) == sum(sizes) + room, "never beyond what is reserved"


def test_what_is_filled_is_zeros_on_their_way_to_the_disk_and_is_not_filled_again() -> None:
    disk = SimDisk()
    segment = Segment(0, disk.open("one", create=True), 1 << 20)
    segment.reserve(700_000)
    segment.write(b"x" * 10, 0)
    written = segment.written
    segment.fill(written, 600_001)
    assert disk.read("one") == b"x" * 10 + bytes(700_000 - 10)
    assert (segment.written, segment.reserved, disk.calls["write_back"]) == (600_001, 700_000, 1)
    before = disk.calls["pwrite"]
    segment.write(b"y" * 600_001, 0)
    assert disk.calls["pwrite"] - before == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_is_a_full_disk(number: int) -> None:
    assert isinstance(storage_error(OSError(number, "x")), StorageFull)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EBADF])
def test_any_other_error_is_a_failed_disk(number: int) -> None:
    assert isinstance(storage_error(OSError(number, "x")), StorageFailed)
