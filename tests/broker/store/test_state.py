"""State: checkpoint and keyframe give back exactly what was put in, or nothing."""

from __future__ import annotations

import msgpack
import pytest

from broker.store.queue_index import Passed
from broker.store.records import KEYFRAME_TOPIC
from broker.store.rows import packed_rows
from broker.store.state import (
    PART_BYTES_MAX,
    Keyframe,
    KeyframeMarks,
    KeyframeReader,
    QueueRow,
    State,
    checkpoint_path,
    checkpoint_pieces,
    decode_checkpoint,
    decode_state,
    keyframe_records,
    state_pieces,
    stored_positions,
)
from penstock.protocol.message import check_record, record_body, record_topic
from tests.simulation.disk import SimDisk


def test_a_state_gives_back_what_was_put_in() -> None:
    rows = [QueueRow("a:0", 5, 0), QueueRow("~f", 710, 700)]
    marks = [Keyframe(8192, 9000), Keyframe(0, 100)]
    pieces = state_pieces(
        b"folds", 2, [packed_rows(rows[:1]), packed_rows(rows[1:])], marks, 1234, Passed(7, 80, [(0, 9)])
    )
    assert decode_state(b"".join(pieces)) == State(b"folds", rows, sorted(marks), 1234, Passed(7, 80, [[0, 9]]))
    assert decode_state(b"") == State(b"", [], [])


def test_a_state_without_a_store_time_is_read() -> None:
    data = msgpack.packb([b"folds", [["a:0", 5, 0]], [[0, 100]]])
    assert decode_state(data) == State(b"folds", [QueueRow("a:0", 5, 0)], [Keyframe(0, 100)], 0)


def test_damage_anywhere_makes_a_checkpoint_worthless() -> None:
    data = b"".join(checkpoint_pieces(123, [b"st", b"ate"]))
    assert decode_checkpoint(data, 123) == b"state"
    assert decode_checkpoint(data, 124) is None
    for at in range(len(data)):
        rotten = bytearray(data)
        rotten[at] ^= 4
        assert decode_checkpoint(bytes(rotten), 123) is None, f"byte {at}"
        assert decode_checkpoint(data[:at], 123) is None


@pytest.mark.parametrize("size", [0, 10, PART_BYTES_MAX, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX])
def test_a_keyframe_in_parts_is_put_together_again(size: int) -> None:
    state = bytes(range(251)) * (size // 251) + bytes(size % 251)
    cuts = [0, *sorted(at for at in (1, 9, PART_BYTES_MAX // 2, PART_BYTES_MAX, 2 * PART_BYTES_MAX + 7) if at < size)]
    pieces = [state[begin:end] for begin, end in zip(cuts, [*cuts[1:], size], strict=True)]
    records = list(keyframe_records(pieces, 8192, 1))
    assert len(records) == max(1, -(-size // PART_BYTES_MAX))
    reader = KeyframeReader(8192)
    for record in records:
        check_record(record)
        assert record_topic(record).decode() == KEYFRAME_TOPIC
    assert [reader.take(record) for record in records] == [None] * (len(records) - 1) + [state]


def test_a_keyframe_with_a_part_missing_gives_nothing() -> None:
    records = list(keyframe_records([bytes(3 * PART_BYTES_MAX)], 8192, 1))
    reader = KeyframeReader(8192)
    assert [reader.take(record) for record in (records[0], records[2])] == [None, None]
    assert [reader.take(record) for record in records][-1] is not None


def test_parts_of_another_segments_keyframe_are_no_parts_of_this_one() -> None:
    reader = KeyframeReader(16384)
    assert [reader.take(record) for record in keyframe_records([b"state"], 8192, 1)] == [None]
    assert (reader.has_begun, reader.is_over) == (False, False)


def test_a_part_of_a_later_segments_keyframe_says_that_there_will_be_no_more_of_this_one() -> None:
    reader = KeyframeReader(8192)
    reader.take(next(keyframe_records([bytes(2 * PART_BYTES_MAX)], 8192, 1)))
    assert (reader.has_begun, reader.is_over) == (True, False)
    reader.take(next(keyframe_records([b"state"], 16384, 1)))
    assert reader.is_over


def test_parts_are_as_large_as_asked_for() -> None:
    records = list(keyframe_records([bytes(250), bytes(251)], 8192, 1, 100))
    assert [len(msgpack.unpackb(record_body(record))[2]) for record in records] == [100] * 5 + [1]


def test_a_keyframe_counts_from_its_last_part_on_and_only_if_all_came_in_order() -> None:
    first, second, third = keyframe_records([bytes(3 * PART_BYTES_MAX)], 8192, 1)
    marks = KeyframeMarks([Keyframe(0, 10)])
    for position, record in enumerate([second, first, third, third, first, second]):
        marks.take(record, position)
        assert marks.get(8192) is None
    marks.take(third, 77)
    assert list(marks) == [Keyframe(0, 10), Keyframe(8192, 77)]
    marks.forget_before(8192)
    assert list(marks) == [Keyframe(8192, 77)]


def test_positions_come_from_names_and_other_files_are_left_alone() -> None:
    disk = SimDisk()
    for path in (checkpoint_path(70), checkpoint_path(5), "checkpoint/x.ckpt", "checkpoint/7.draft"):
        disk.put(path, b"")
    assert stored_positions(disk, "checkpoint", ".ckpt") == [5, 70]
