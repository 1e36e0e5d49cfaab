"""State: checkpoint and keyframe give back exactly what was put in, or nothing."""

from __future__ import annotations

import pytest

from broker.store.queue_index import Queue
from broker.store.records import KEYFRAME_TOPIC
from broker.store.state import (
    PART_BYTES_MAX,
    KeyframeReader,
    State,
    checkpoint_path,
    decode_checkpoint,
    decode_state,
    encode_checkpoint,
    encode_state,
    keyframe_records,
    stored_positions,
)
from penstock.message import check_record, record_topic
from tests.simulation.disk import SimDisk


def test_equal_states_are_equal_bytes_in_whatever_order_queues_were_made() -> None:
    one, two = Queue("a:0", 5), Queue("~f", 700)
    assert encode_state(b"folds", [one, two]) == encode_state(b"folds", [two, one])
    assert decode_state(encode_state(b"folds", [two, one])) == State(b"folds", [("a:0", 5), ("~f", 700)])
    assert decode_state(b"") == State(b"", [])


def test_damage_anywhere_makes_a_checkpoint_worthless() -> None:
    data = encode_checkpoint(123, b"state")
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
    records = list(keyframe_records(state, 1))
    assert len(records) == max(1, -(-size // PART_BYTES_MAX))
    reader = KeyframeReader()
    for record in records:
        check_record(record)
        assert record_topic(record).decode() == KEYFRAME_TOPIC
    assert [reader.take(record) for record in records] == [None] * (len(records) - 1) + [state]


def test_a_keyframe_with_a_part_missing_gives_nothing() -> None:
    records = list(keyframe_records(bytes(3 * PART_BYTES_MAX), 1))
    reader = KeyframeReader()
    assert [reader.take(record) for record in (records[0], records[2])] == [None, None]
    assert [reader.take(record) for record in records][-1] is not None


def test_positions_come_from_names_and_other_files_are_left_alone() -> None:
    disk = SimDisk()
    for path in (checkpoint_path(70), checkpoint_path(5), "checkpoint/x.ckpt", "checkpoint/7.draft"):
        disk.put(path, b"")
    assert stored_positions(disk, "checkpoint", ".ckpt") == [5, 70]
