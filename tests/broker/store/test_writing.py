"""The write side: offsets, order between folds and queues, and what the indexes learn of a record."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from broker.store.destinations import Destination, incoming_of
from broker.store.level import Level
from penstock.errors import StorageFull
from penstock.protocol.message import encode_record, record_tail, tag_hash
from penstock.protocol.requests.given import GivenPulled
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.runs import Run
from tests.broker.store.store_rig import (
    SMALL,
    bodies,
    command,
    fill,
    incoming,
    messages,
    opened,
    pack_frame,
    record_of,
    stored,
    sync,
)
from tests.simulation.disk import SimDisk


def run_in_queue(queue_id: int, flag: int, *bodies: bytes) -> Run:
    """A run of the topic ``t``, accepted for a queue."""
    run = Run(record_tail(b"t", b""), flag, 1, list(bodies))
    run.queue_id = queue_id
    return run


def test_the_batch_layout_is_byte_for_byte_that_of_single_frames() -> None:
    disk = SimDisk()
    store = opened(disk)
    start, durable = store.written, store.durable
    batch = [incoming("one", queue_id=1, tag="x"), incoming("two", queue_id=0), incoming("three", queue_id=1)]
    store.append(batch, 4711)
    expected, position = b"", start
    for one, offset in zip(batch, (0, 0, 1), strict=True):
        frame = pack_frame(record_of(one), one.run.queue_id, offset, position, 4711, 1, durable)
        expected += frame
        position += len(frame)
    assert disk.read("log/00000000000000000000.log")[start:position] == expected


def test_a_batch_is_one_write() -> None:
    disk = SimDisk()
    store = opened(disk, replace(SMALL, segment_bytes=1 << 20, reserve_step_bytes=1 << 16))
    store.append([incoming("first")], 1000)
    disk.calls.clear()
    store.append([incoming(str(number), queue_id=number % 3) for number in range(50)], 1000)
    assert disk.calls["pwrite"] == 1


def test_an_empty_batch_changes_nothing() -> None:
    disk = SimDisk()
    store = opened(disk)
    written = store.written
    assert store.append([], 1000) == []
    assert store.written == written


def test_a_filter_that_opens_within_a_batch_takes_what_follows_it_in_the_batch() -> None:
    store = opened(SimDisk())
    stored(store, incoming("1"), command("+all t"), incoming("2"), command("-all"), incoming("3"))
    stored(store, command("+all t"), incoming("4"))
    assert bodies(store) == [b"1", b"2", b"3", b"4"]
    assert bodies(store, "~all") == [b"4"]


def test_the_runs_of_a_device_go_to_the_light_queues_that_are_open_when_they_come() -> None:
    store = opened(SimDisk())

    def store_run(*texts: str) -> None:
        run = run_in_queue(0, 0, *[text.encode() for text in texts])
        store.append_runs([run], [Destination("t", b"", Level.DISK)], 1000)
        sync(store)

    store_run("1")
    stored(store, command("+all t"))
    store_run("2", "3")
    stored(store, command("+more t"), command("+other u"))
    store_run("4")
    stored(store, command("-all"))
    store_run("5")
    stored(store, command("+all t"))
    store_run("6", "7")
    assert bodies(store) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    assert bodies(store, "~all") == [b"6", b"7"], "a queue that begins anew has nothing of the one before"
    assert bodies(store, "~more") == [b"4", b"5", b"6", b"7"]
    assert bodies(store, "~other") == []


@pytest.mark.parametrize("together", [1, 2, 3, 6])
def test_runs_of_one_device_are_laid_out_as_records_whatever_changes_between_them(together: int) -> None:
    by_runs, by_records = opened(SimDisk()), opened(SimDisk())
    destination, runs, records = Destination("t", b"", Level.CACHE), [], []
    for queue_id, flag, body in ((0, 0, b"x"), (1, 0, b"y"), (0, 0, b"z"), (0, 1, b"x"), (0, 1, b"long"), (0, 1, b"x")):
        runs.append(run_in_queue(queue_id, flag, body))
        record = encode_record(b"t", body, b"", queue_id=queue_id, flag=flag, born_ms=1)
        records.append(incoming_of(record, Level.CACHE))
    for first in range(0, len(runs), together):
        by_runs.append_runs(runs[first : first + together], [destination] * together, 1000)
        by_records.append(records[first : first + together], 1000)
    assert [(run.queue_id, run.offset, run.stored_ms) for run in runs] == [
        (queue_id, offset, 1000) for queue_id, offset in ((0, 0), (1, 0), (0, 1), (0, 2), (0, 3), (0, 4))
    ]
    assert [run.position + run.step for run in runs] == [run.position for run in runs[1:]] + [by_runs.written]
    for queue in ("t:0", "t:1"):
        found = by_runs.read(queue, 0, 10, 10_000)
        assert found == by_records.read(queue, 0, 10, 10_000)
        assert found.count > 0


def test_a_refused_append_of_runs_leaves_no_gap_in_its_queues() -> None:
    disk = SimDisk()
    store, destination = opened(disk), Destination("t", b"", Level.CACHE)
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(StorageFull):
        store.append_runs([run_in_queue(0, 0, *[b"never"] * 3)], [destination], 1000)
    store.append_runs([run_in_queue(0, 0, b"after")], [destination], 1000)
    assert store.next_offset("t:0") == 1
    assert bodies(store) == [b"after"]


def test_runs_are_kept_for_gateways_only_where_one_has_opened_a_filter_that_they_match() -> None:
    store = opened(SimDisk(), replace(SMALL, fresh_bytes=1 << 20))
    runs = [run_in_queue(0, 0, b"1"), run_in_queue(0, 0, b"2", b"3")]
    destination = Destination("t", b"", Level.DISK)
    store.append_runs(runs[:1], [destination], 1000)
    stored(store, command("+all t"))
    store.append_runs(runs[1:], [destination], 1000)
    sync(store)
    given = store.read_given("~all", store.bounds("~all").min, 10, 10_000)
    assert isinstance(given, GivenPulled)
    assert given.runs == runs[1:]
    pulled = store.read_given("t:0", 0, 10, 10_000)
    assert isinstance(pulled, Pulled), "the first is told as any reader is told"
    assert bodies(store) == [b"1", b"2", b"3"]


def test_system_records_are_in_no_queue() -> None:
    store = opened(SimDisk())
    placed = store.append([command("+all t"), incoming("a"), command("+two t"), incoming("b")], 1000)
    assert [one.offset for one in placed] == [0, 0, 0, 1]


def test_tags_and_keys_are_learned_again_for_each_topic() -> None:
    store = opened(SimDisk())
    stored(store, *[incoming("x", topic, tag="hot", key="k") for topic in ("t", "u", "t")])
    assert len(list(messages(store, "u:0", tags=frozenset({tag_hash("hot")})))) == 1
    assert store.find("u", "k", 0, 1 << 60, 10).count == 1
    assert store.find("t", "k", 0, 1 << 60, 10).count == 2


@pytest.mark.parametrize("kind", ["pwrite", "reserve", "create"])
def test_a_batch_is_stored_whole_or_not_at_all_whichever_call_finds_no_room(kind: str) -> None:
    for after in range(6):
        disk = SimDisk()
        store = opened(disk)
        sent = fill(store, 25)
        disk.half_written = 0.8
        disk.fail(kind, errno.ENOSPC, after)
        for number in range(30):
            batch = [incoming(b"%d %d" % (number, part)) for part in range(3)]
            try:
                store.append(batch, 1000)
            except StorageFull:
                continue
            sent += [b"%d %d" % (number, part) for part in range(3)]
        sync(store)
        assert bodies(store) == sent
        disk.kill()
        assert bodies(opened(disk)) == sent
