"""Stretches of the log as they travel: any pieces of it make the whole, and no bad byte passes."""

from __future__ import annotations

import pytest

from broker.store.raw import BadPlace, epochs_of, parts_of, read_frames, read_stretch
from broker.store.segment import segment_path
from penstock.protocol.message import FRAME_HEAD_BYTES
from tests.broker.replica.pair import Copy


@pytest.mark.parametrize("bytes_max", [1, 130, 900, 5000, 1 << 20])
def test_stretches_one_behind_the_other_are_the_log_with_the_heads_of_its_blanks(bytes_max: int) -> None:
    copy = Copy().lead()
    for size in (5, 800):
        copy.put(40, size)
    log, position, frames, blanks = copy.store.log, 0, 0, 0
    while position < log.end:
        data, behind = read_frames(log, position, bytes_max, log.end)
        parts = list(parts_of(data, position))
        assert parts[-1].stop == len(data)
        assert parts[-1].frames, "a stretch ends behind a frame"
        frames += sum(len(part.frames) for part in parts)
        blanks += sum(not part.frames for part in parts)
        position = parts[-1].position + parts[-1].stop - parts[-1].start
        assert behind == position
    assert (frames, blanks) == (80, len(log.bases) - 1)
    assert read_frames(log, log.end, bytes_max, log.end) == (b"", log.end)


def test_a_blank_behind_which_nothing_stands_yet_is_not_sent() -> None:
    copy = Copy().lead()
    copy.put(2)
    before = read_frames(copy.store.log, 0, 1 << 20, copy.log.end)
    assert before[1] == copy.log.end
    copy.store.log.roll(1)
    assert read_frames(copy.store.log, 0, 1 << 20, copy.log.end) == before
    assert read_frames(copy.store.log, before[1], 1 << 20, copy.log.end) == (b"", before[1])


def test_every_flipped_byte_ends_the_parts_before_it() -> None:
    copy = Copy().lead()
    copy.put(12, 5)
    copy.put(3, 50)
    data = read_stretch(copy.store.log, 0, 1 << 20, copy.log.end)
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1
        assert max((part.stop for part in parts_of(bytes(bad), 0)), default=0) <= at
    assert not list(parts_of(data, 8))  # these frames were written elsewhere


def test_a_place_that_is_bad_is_named_and_what_stands_before_it_is_read() -> None:
    copy = Copy().lead()
    copy.put(3)
    third = copy.log.end
    copy.put(3)
    copy.disk.flip(segment_path(0), third + FRAME_HEAD_BYTES)
    log = copy.store.log
    assert len(read_stretch(log, 0, 1 << 20, log.end)) == third
    with pytest.raises(BadPlace) as caught:
        read_stretch(log, third, 1 << 20, log.end)
    assert caught.value.position == third


def test_epochs_of_frames_are_the_lowest_and_the_highest_where_they_do_not_go_back() -> None:
    def frame(epoch: int) -> bytes:
        return bytes(12) + epoch.to_bytes(4, "big")

    assert epochs_of([frame(2), frame(2), frame(3)]) == (2, 3)
    assert epochs_of([frame(2)]) == (2, 2)
    assert epochs_of([frame(3), frame(2)]) == (1, 0)
