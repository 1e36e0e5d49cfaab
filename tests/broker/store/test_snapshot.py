"""Snapshots: one position of the log and no other, however much is appended while they are made."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store import snapshot
from broker.store.queue_index import ENTRY20, Passed, QueueIndex
from broker.store.snapshot import Snapshot
from broker.store.state import Keyframe, QueueRow, checkpoint_pieces, decode_state, keyframe_records


def add(index: QueueIndex, key: str, position: int) -> None:
    index.add(index.ensure(key, position if key.startswith("~") else 0), ENTRY20.pack(position, 100, 0), True)


@pytest.mark.interpreted
@given(st.lists(st.sampled_from("abcdef"), max_size=40), st.integers(0, 40), st.integers(1, 5))
def test_what_comes_while_it_is_made_does_not_show(keys: list[str], at: int, slice_queues: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "SLICE_QUEUES", slice_queues)
        index, before = QueueIndex(), QueueIndex()
        for number, key in enumerate(keys[:at]):
            add(index, f"~{key}", number)
            add(before, f"~{key}", number)
        index.passed = Passed(5, 9, [(0, 7)])
        made = Snapshot(at, 77, iter([b"fo", b"lds"]), index, [Keyframe(0, 1)])
        rest = iter(list(enumerate(keys))[at:])
        while not made.step():
            for number, key in rest:
                add(index, f"~{key}", number)
                index.drop("~a")
                break
        state = decode_state(b"".join(made.finish()))
    rows = sorted(QueueRow(queue.key, queue.next, queue.first) for queue in before)
    assert state == (b"folds", rows, [Keyframe(0, 1)], 77, (5, 9, [[0, 7]]))
    ends = [(queue.key, queue.next) for queue in sorted(before, key=lambda queue: queue.key) if queue.tail]
    slices = list(made.ends_in_slices(slice_queues))
    assert [(queue.key, end) for some in slices for queue, end in some] == ends
    assert all(0 < len(some) <= slice_queues for some in slices)


@pytest.mark.interpreted
def test_no_step_looks_at_more_queues_than_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SLICE_QUEUES", 10)
    index = QueueIndex()
    for number in range(95):
        add(index, f"q{number}", number)
    made = Snapshot(95, 0, iter([b"folds"]), index, [])
    steps = 1
    while not made.step():
        steps += 1
    assert steps >= 9 + 9 + 9  # the queues by their keys, the sorting, the rows
    assert len(decode_state(b"".join(made.finish())).queues) == 95


def test_a_large_state_is_in_memory_once_while_it_is_made_and_written() -> None:
    count, size = 16, 1 << 20
    tracemalloc.start()
    try:
        made = Snapshot(0, 0, (bytes(size) for _ in range(count)), QueueIndex(), [])
        while not made.step():
            pass
        for _ in keyframe_records(made.finish(), 0, 1):
            pass
        for _ in checkpoint_pieces(0, made.finish()):
            pass
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count * size < most < 1.5 * count * size
