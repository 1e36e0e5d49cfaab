"""Reads at the end of a queue: out of memory, and exactly what the disk would have given."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store.fresh import APPENDS_MAX, Fresh
from broker.store.message_store import MessageStore
from broker.store.queue_index import ENTRY20, Queue, QueueIndex, hole
from penstock.errors import StorageFull
from penstock.protocol.message import decode_batch
from penstock.protocol.runs import Run
from tests.broker.store.store_rig import SMALL, bodies, incoming, messages, opened, stored, sync
from tests.simulation.disk import SimDisk

KEEPS = dataclasses.replace(SMALL, fresh_bytes=1500)
"""A few appends' worth: some reads find all of it in memory, some a part, some nothing."""

batches = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300)), min_size=1, max_size=8), min_size=1, max_size=25
)
pulls = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 12), st.integers(1, 2000)), min_size=1, max_size=20
)


@given(batches, pulls)
def test_a_pull_is_the_same_out_of_memory_and_from_the_disk(
    batches: list[list[tuple[int, int]]], pulls: list[tuple[int, int, int, int]]
) -> None:
    stores = opened(SimDisk(), KEEPS), opened(SimDisk(), SMALL)
    for store in stores:
        for queue_id in range(3):
            store.ensure_queue("t", queue_id)
        for number, batch in enumerate(batches):
            stored(store, *[incoming(f"{number}".ljust(size, "."), queue_id=queue) for queue, size in batch])
    for queue_id, back, count_max, bytes_max in pulls:
        queue = f"t:{queue_id}"
        bounds = stores[0].bounds(queue)
        offset = max(bounds.min, bounds.end - back)
        fresh, careful = [store.read(queue, offset, count_max, bytes_max) for store in stores]
        assert fresh == careful


def test_what_was_just_stored_is_read_without_the_disk() -> None:
    disk = SimDisk()
    store = opened(disk, KEEPS)
    stored(store, incoming("first"), incoming("other", queue_id=1))
    stored(store, incoming("second"))
    disk.calls.clear()
    assert bodies(store) == [b"first", b"second"]
    assert "pread" not in disk.calls


def test_many_neighbours_of_several_appends_are_read_without_the_disk_and_are_the_same() -> None:
    disk = SimDisk()
    keeps = opened(disk, dataclasses.replace(SMALL, segment_bytes=1 << 16, fresh_bytes=1 << 16))
    careful = opened(SimDisk(), dataclasses.replace(SMALL, segment_bytes=1 << 16))
    for store in (keeps, careful):
        for size in (40, 1, 0, 45, 3):
            batch = [incoming(f"{size} {number}") for number in range(size)]
            stored(store, *(batch or [incoming("between", queue_id=1)]))
    disk.calls.clear()
    for offset in (0, 1, 39, 40, 41, 43, 60):
        for bytes_max in (1, 4000, 1 << 16):
            fresh, read = [list(pulled(store, offset, bytes_max)) for store in (keeps, careful)]
            assert fresh[: len(read)] == read[: len(fresh)]
    assert list(messages(keeps, "t:0", count_max=100)) == list(messages(careful, "t:0", count_max=100))
    assert "pread" not in disk.calls


def pulled(store: MessageStore, offset: int, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    found = store.read("t:0", offset, 100, bytes_max)
    return ((at, message.body) for at, message in decode_batch(found.count, found.body))


def test_a_pull_at_the_end_of_a_queue_touches_nothing() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, incoming("first"))
    disk.calls.clear()
    pulled = store.read("t:0", 1, 10, 1000)
    assert (pulled.count, pulled.next, pulled.end, pulled.body) == (0, 1, 1, b"")
    assert not disk.calls


def test_what_is_not_durable_yet_is_not_read() -> None:
    store = opened(SimDisk(), KEEPS)
    store.append([incoming("waits")], 1000)
    assert store.bounds("t:0").end == 0
    assert store.read("t:0", 0, 10, 1000).count == 0
    sync(store)
    assert bodies(store) == [b"waits"]


def test_an_append_that_was_refused_is_not_read_where_the_next_one_stands() -> None:
    disk = SimDisk()
    store = opened(disk, KEEPS)
    stored(store, incoming("kept"))
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(StorageFull):
        store.append([incoming("never")], 1000)
    stored(store, incoming("after"))
    assert bodies(store) == [b"kept", b"after"]


def test_it_keeps_no_more_than_it_may() -> None:
    fresh = Fresh(1000)
    for number in range(3):
        fresh.written(600 * number, bytes(600))
        fresh.trim()
    assert fresh.batch(ENTRY20.pack(600, 600, 0), 0, 10_000) is None
    assert fresh.batch(ENTRY20.pack(1200, 600, 0), 0, 10_000) is not None
    fresh.written(1800, bytes(1001))  # larger than all that may be kept
    fresh.trim()
    assert fresh.batch(ENTRY20.pack(1800, 1001, 0), 0, 10_000) is None
    for number in range(APPENDS_MAX + 1):
        fresh.written(3000 + number, b"x")
    fresh.trim()
    assert fresh.batch(ENTRY20.pack(3000, 1, 0), 0, 10_000) is None
    assert fresh.batch(ENTRY20.pack(3001, 1, 0), 0, 10_000) is not None


def test_without_a_trim_it_keeps_twice_as_much_at_most() -> None:
    fresh = Fresh(1000)
    for number in range(100):
        fresh.written(600 * number, bytes(600))
        assert fresh._bytes <= 2000
    for number in range(100):
        fresh.written(100_000 + number, b"x")
        assert len(fresh._appends) <= 2 * APPENDS_MAX
    nothing = Fresh(0)
    nothing.written(0, b"x")
    assert nothing.between(0, 1) is None


def run_at(position: int, count: int) -> Run:
    return Run(b"tail", 1, 0, [b"x"] * count).placed(position, 200, 0, 0, 1000)


def queue_of(*entries: bytes, readable: int) -> Queue:
    index = QueueIndex()
    queue = index.ensure("~q", 7)
    for number, entry in enumerate(entries):
        index.add(queue, entry, number < readable)
    return queue


def entries(position: int, count: int) -> list[bytes]:
    return [ENTRY20.pack(position + 200 * number, 200, 0) for number in range(count)]


def test_runs_are_given_whole_as_long_as_all_of_each_is_here_and_readable_and_fits() -> None:
    fresh = Fresh(10_000)
    first, second, third = run_at(0, 2), run_at(400, 1), run_at(800, 3)
    fresh.written(0, bytes(600))
    fresh.keep([first, second])
    fresh.written(600, bytes(200))  # no run
    fresh.written(800, bytes(600))
    fresh.keep([third])
    queue = queue_of(*entries(0, 3), *entries(800, 3), readable=6)
    assert fresh.runs(queue, 7, 100, 10_000) == (6, [first, second, third])
    assert fresh.runs(queue, 10, 100, 10_000) == (3, [third])
    assert fresh.runs(queue, 7, 5, 10_000) == (3, [first, second])
    assert fresh.runs(queue, 7, 100, 599) == (2, [first])
    assert fresh.runs(queue, 7, 1, 10_000) == (0, [])
    assert fresh.runs(queue, 8, 100, 10_000) == (0, []), "it begins within a run"
    readable = queue_of(*entries(0, 3), *entries(800, 3), readable=5)
    assert fresh.runs(readable, 7, 100, 10_000) == (3, [first, second])
    assert fresh.runs(queue_of(*entries(0, 4), readable=4), 7, 100, 10_000) == (3, [first, second])


def test_runs_of_an_append_that_is_gone_already_are_not_kept() -> None:
    fresh = Fresh(1000)
    fresh.written(0, bytes(200))
    fresh.written(200, bytes(2001))
    fresh.keep([run_at(200, 1)])
    assert not fresh._appends
    fresh.written(3000, bytes(200))
    fresh.keep([run_at(200, 1)])
    assert fresh.runs(queue_of(*entries(3000, 1), readable=1), 7, 100, 10_000) == (0, [])


def test_a_run_of_which_a_queue_has_not_all_is_not_given() -> None:
    fresh = Fresh(10_000)
    fresh.written(0, bytes(600))
    fresh.keep([run_at(0, 3)])
    for some in (entries(0, 2) + entries(600, 2), [hole(0), *entries(0, 3)]):
        assert fresh.runs(queue_of(*some, readable=4), 7, 100, 10_000) == (0, [])


def test_a_hole_is_no_message_of_the_run_behind_it() -> None:
    fresh = Fresh(10_000)
    run = run_at(0, 1)
    fresh.written(0, bytes(200))
    fresh.keep([run])
    queue = queue_of(hole(0), *entries(0, 1), readable=2)
    assert fresh.runs(queue, 7, 100, 10_000) == (0, [])
    assert fresh.runs(queue, 8, 100, 10_000) == (1, [run])


def test_runs_are_forgotten_with_their_append() -> None:
    fresh = Fresh(1000)
    queue = queue_of(*entries(0, 1), *entries(200, 1), readable=2)
    fresh.written(0, bytes(200))
    fresh.keep([run_at(0, 1)])
    fresh.written(200, bytes(200))
    fresh.keep([run_at(200, 1)])
    assert fresh.runs(queue, 7, 100, 10_000)[0] == 2
    fresh.written(400, bytes(800))
    fresh.trim()
    assert fresh.runs(queue, 7, 100, 10_000)[0] == 0
    assert fresh.runs(queue, 8, 100, 10_000)[0] == 1
    fresh.written(1200, bytes(1001))
    fresh.keep([run_at(1200, 1)])
    fresh.trim()
    assert not fresh._appends
