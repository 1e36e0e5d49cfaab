"""Frames that are alike: what is said of many at a time is what would be said of each."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.alike import FEW, Alike, Groups, good_alike
from broker.store.destinations import Destination
from broker.store.frames import good_within, indexed
from broker.store.level import Level
from broker.store.message_store import MessageStore
from broker.store.run_frames import layout_of
from broker.store.scan import Scan
from broker.store.segment import Segment, segment_path
from penstock.protocol.message import UNIQUE_KEY, check_tail, encode_properties, record_tail
from penstock.protocol.runs import DIGITS, Run, check_counts, counted
from tests.broker.store.store_rig import SMALL, command, opened, sync
from tests.simulation.disk import SimDisk

ROOMY = replace(SMALL, segment_bytes=1 << 17, chunk_bytes=1 << 40)  # all stays in memory


def tail_of(topic: str, name: str, counts: bool, number: int = 0xFE) -> bytes:
    """``name`` has one character, so that tails of one kind have one size."""
    properties = {"MQTT_TOPIC": name, "TAGS": name, "KEYS": "k"}
    if counts:
        properties[UNIQUE_KEY] = f"x-{number:0{DIGITS}x}"
    return record_tail(topic.encode(), encode_properties(properties))


def run_of(tail: bytes, flag: int, count: int, size: int, counts: bool) -> tuple[Run, Destination]:
    at = check_tail(tail)
    id_at = check_counts(tail, at, count) - at if counts else -1
    run = Run(tail, flag, 1, [bytes([number % 251]) * size for number in range(count)], counts)
    return run, Destination(tail[2 : at - 2].decode(), tail[at:], Level.DISK, id_at)


shapes = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.sampled_from(["a", "b"]),
        st.booleans(),
        st.sampled_from([0, 1, 5]),  # of the flags, 5 is retained: folds take it in one by one
        st.integers(1, 40),
        st.sampled_from([0, 7, 7, 8]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=12,
)


def store_of(disk: SimDisk, mix: Any) -> MessageStore:
    store = opened(disk, ROOMY)
    store.append([command("+f t")], 1)
    numbers = itertools.count(0xFE, 50)
    for topic, name, counts, flag, count, size, queue_id in mix:
        run, destination = run_of(tail_of(topic, name, counts, next(numbers)), flag, count, size, counts)
        run.queue_id = queue_id
        store.append_runs([run], [destination], 1)
    sync(store)
    return store


def looks(store: MessageStore) -> dict[str, Any]:
    queues = {queue.key: (queue.first, queue.min, queue.next, bytes(queue.tail)) for queue in store._index}
    keys: list[tuple[int, int]] = []  # of each record, however they are joined
    for key, first, step, count in itertools.chain(*store._keys.sealed_before(store.written)):
        keys += [(int(key), int(first) + number * int(step)) for number in range(count)]
    return {"queues": queues, "keys": sorted(keys), "folds": [*store._folds.freeze()]}


@given(shapes)
@settings(max_examples=40, deadline=None)
def test_a_start_knows_of_runs_what_was_known_when_they_were_stored(mix: Any) -> None:
    disk = SimDisk()
    before = store_of(disk, mix)
    other = SimDisk()
    other.put(segment_path(0), disk.read(segment_path(0)))
    after = opened(other, ROOMY)
    assert looks(after) == looks(before)


@given(shapes, st.floats(0, 1), st.integers(1, 255))
@settings(max_examples=40, deadline=None)
def test_a_scan_finds_the_frames_that_are_good_one_by_one_up_to_the_first_bad_one(
    mix: Any, where: float, flip: int
) -> None:
    disk = SimDisk()
    store = store_of(disk, mix)
    data = bytearray(disk.read(segment_path(0))[: store.written])
    data[int(where * (len(data) - 1))] ^= flip
    expected, at = [], 0
    while at + 24 < len(data) and good_within(
        bytes(data), at, length := int.from_bytes(data[at + 8 : at + 12], "big"), at
    ):
        expected.append(bytes(data[at : at + length]))
        at += length
    other = SimDisk()
    other.put(segment_path(0), bytes(data))
    scan = Scan([Segment(0, other.open(segment_path(0)), 1 << 17)], 0)
    runs: list[list[bytes]] = []
    for position, frames in scan.runs():
        if scan.damage:
            break
        assert position == sum([len(frame) for run in runs for frame in run])
        runs.append(list(frames))
    found = list(itertools.chain(*runs))
    assert found[: len(expected)] == expected
    assert len(found) == len(expected) or scan.damage or at > store.written


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30), st.booleans()), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_groups_end_where_a_frame_does_not_go_on_with_the_run_before_it(parts: Any) -> None:
    pieces: list[bytes] = []
    position = offset = 0
    number = 0xF0
    for kind, count, goes_on in parts:
        if not goes_on:
            offset += 3
            number += 7
        run, _ = run_of(tail_of("t", "ab"[kind % 2], kind < 2, number), 1, count, 5, kind < 2)
        if kind >= 2:
            run.tail += b"\x02pad\x01" + b"0" * (len(tail_of("t", "a", True)) - len(run.tail) - 5)
        layout = layout_of(run, 1, 0)
        run.placed(position, layout.length, 0, offset, 5 + kind // 3)
        run.queue_id = 0
        layout.frames(run, 0, pieces)
        position, offset = position + count * layout.length, offset + count
        number += count if kind < 2 else 0
    data = b"".join(pieces)
    step = int.from_bytes(data[8:12], "big")
    found = good_alike(data, 0, step, 0, 10_000)
    rows = len(data) // step
    assert (found is None) == (rows < FEW)
    frames = found or Alike(data, 0, step, rows)
    assert list(frames) == [data[at : at + step] for at in range(0, len(data), step)] == frames[:]
    for counts in (False, True):
        groups = Groups(frames)
        ends = [rows]
        for at in range(rows - 1, 0, -1):
            ends.insert(0, at if not is_next(frames[at - 1], frames[at], counts) else ends[0])
        assert [groups.end(at, counts) for at in range(rows)] == ends


def is_next(one: bytes, other: bytes, counts: bool) -> bool:
    """Whether a frame goes on with the run of the one before it."""
    _, queue_id, flag, offset, stored_ms, tail_at = indexed(one)
    _, its_queue_id, its_flag, its_offset, its_stored_ms, its_tail_at = indexed(other)
    tail, its_tail = one[tail_at:], other[its_tail_at:]
    if counts and not set(tail[-DIGITS:]) <= set(b"0123456789abcdef"):
        return False
    expected = counted(tail, 1) if counts else tail
    mine = (queue_id, flag, offset + 1, stored_ms, tail_at, expected)
    return mine == (its_queue_id, its_flag, its_offset, its_stored_ms, its_tail_at, its_tail)
