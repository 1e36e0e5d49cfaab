"""What an operator asks of a data folder."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from broker.kernel.fold import fact_record
from broker.lineage.removals import Removals
from broker.store import inspection
from broker.store.bulk import ENTRY_DTYPE
from broker.store.index_chunk import KEY_DTYPE, ChunkParts, check_chunk, chunk_path
from broker.store.inspection import Report, Step, dump, repair_index, verify
from broker.store.label import PATH
from broker.store.message_store import MessageStore
from broker.store.queue_index import ENTRY_BYTES, QueueIndex
from broker.store.records import REMOVED_TOPIC
from penstock.errors import DataFolderLocked, DataFolderUnusable
from tests.broker.store.store_rig import (
    SMALL,
    SmallFolds,
    bodies,
    command,
    fill,
    incoming,
    opened,
    segment_paths,
    stored,
    tick,
)
from tests.simulation.disk import SimDisk


def verified(disk: SimDisk) -> Report:
    steps = verify(disk)
    while True:
        try:
            step = next(steps)
            assert isinstance(step, Step)
            assert 0 <= step.done <= step.total
        except StopIteration as end:
            report = end.value
            assert isinstance(report, Report)
            return report


def closed_store(disk: SimDisk) -> tuple[MessageStore, list[bytes]]:
    store = opened(disk)
    stored(store, command("+all t"))
    sent = fill(store, 120)
    store.close(1000)
    return store, sent


def test_a_sound_folder_is_sound_and_left_as_it_was() -> None:
    disk = SimDisk()
    store, sent = closed_store(disk)
    before = {path: disk.read(path) for path in disk.paths()}
    report = verified(disk)
    assert report.sound
    assert (report.start, report.end, report.torn_bytes) == (0, store.written, 0)
    assert report.records > len(sent)
    assert {path: disk.read(path) for path in disk.paths()} == before


def test_a_running_brokers_folder_can_be_looked_at() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 30)
    assert verified(disk).sound
    stored(store, incoming("goes on"))


def test_rot_is_reported_with_its_positions() -> None:
    disk = SimDisk()
    closed_store(disk)
    disk.flip(segment_paths(disk)[1], 3000)
    report = verified(disk)
    assert not report.sound
    ((first, last),) = report.damage
    assert first <= 8192 + 3000 < last


def test_a_torn_tail_is_counted_but_is_no_damage() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 3)
    end = store.written
    store.append([incoming("torn")], 1000)
    disk.flip("log/00000000000000000000.log", end + 2)
    report = verified(disk)
    assert report.sound
    assert (report.end, report.torn_bytes > 0) == (end, True)


def test_a_rotten_last_record_is_damage_after_a_clean_stop_and_the_next_start_keeps_it() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 3)
    behind = store.written
    store.close(1000)
    end = store.written
    disk.flip("log/00000000000000000000.log", behind + 30)
    rotten = disk.read("log/00000000000000000000.log")[:end]
    report = verified(disk)
    assert (report.damage, report.end, report.torn_bytes, report.sound) == ([(behind, end)], end, 0, False)
    assert opened(disk).written > end
    assert disk.read("log/00000000000000000000.log")[:end] == rotten


def test_a_rotten_last_record_without_a_clean_stop_is_a_torn_tail_and_the_next_start_cuts_it() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 3)
    behind = store.written
    stored(store, incoming("last"))
    end = store.written
    disk.kill()
    disk.flip("log/00000000000000000000.log", behind + 30)
    rotten = disk.read("log/00000000000000000000.log")[behind:end]
    report = verified(disk)
    assert (report.damage, report.end, report.torn_bytes > 0, report.sound) == ([], behind, True, True)
    opened(disk)
    assert disk.read("log/00000000000000000000.log")[behind:end] != rotten


def test_every_damaged_derived_file_is_named() -> None:
    disk = SimDisk()
    closed_store(disk)
    harmed = [disk.paths("index")[1], disk.paths("checkpoint")[0]]
    for path in harmed:
        disk.flip(path, 30)
    assert verified(disk).bad_files == harmed


def test_derived_files_that_the_disk_cannot_read_are_named() -> None:
    disk = SimDisk()
    closed_store(disk)
    harmed = [disk.paths("index")[1], disk.paths("checkpoint")[0]]
    for path in harmed:
        disk.spoil_page(path, 0)
    assert verified(disk).bad_files == harmed


def test_what_stands_in_place_of_a_derived_file_is_named_and_made_anew_by_a_repair() -> None:
    disk = SimDisk()
    closed_store(disk)
    harmed = [disk.paths("index")[1], disk.paths("checkpoint")[0]]
    for path in harmed:
        disk.obstruct(path)
    assert verified(disk).bad_files == harmed
    assert repair_index(disk, SMALL, SmallFolds(), 1000, lambda done, total: None) == []
    assert verified(disk).sound


@pytest.mark.parametrize("how", ["unreadable", "rotten"])
def test_a_chunk_that_is_harmed_while_it_is_looked_at_is_named(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "STEP_BYTES", 1000)
    disk = SimDisk()
    closed_store(disk)
    path = disk.paths("index")[-1]
    steps = verify(disk)
    report: Report | None = None
    try:
        next(steps)
        while True:
            if how == "unreadable":
                disk.spoil_page(path, 0)
            else:
                disk.put(path, b"rubbish" * 20)
            next(steps)
    except StopIteration as end:
        report = end.value
    assert report is not None
    assert report.bad_files == [path]


def test_a_chunk_of_a_removed_segment_that_a_power_cut_brought_back_is_no_fault() -> None:
    disk = SimDisk()
    store = opened(disk, replace(SMALL, retention_bytes=20_000))
    fill(store, 60)
    path = disk.paths("index")[0]
    data = disk.read(path)
    fill(store, 400, start=60)
    store.close(1000)
    assert path not in disk.paths("index")
    for brought_back in (data, data[:-1]):
        disk.put(path, brought_back)  # its removal was not synced
        report = verified(disk)
        assert report.start > 0
        assert report.sound


def test_entries_that_point_to_no_record_are_counted() -> None:
    disk, other = SimDisk(), SimDisk()
    closed_store(disk)
    fill(opened(other), 200, size=77)
    borders = set(disk.paths("index")) & set(other.paths("index"))
    for path in borders:
        disk.put(path, other.read(path))
    assert verified(disk).stray_entries > 0


def test_a_block_of_entries_is_looked_up_among_the_records_of_a_chunk_without_a_copy_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many records there are, and so blocks: each costs what it holds."""
    monkeypatch.setattr(inspection, "BLOCK_BYTES", 5_000 * ENTRY_BYTES)
    count = 200_000
    entries = np.zeros(count, ENTRY_DTYPE)
    entries["position"], entries["size"] = np.arange(count) * 160, 160
    entries["position"][12_345] += 1
    entries["size"][777], entries["position"][777] = 0, 1  # a hole
    index = QueueIndex()
    queue = index.ensure("t:0")
    index.add(queue, entries.tobytes(), True)
    parts = ChunkParts()
    parts.add([(queue, count)])
    disk = SimDisk()
    disk.put(chunk_path(0), b"".join(parts.pieces(0, count * 160, 7, np.zeros(0, KEY_DTYPE))))
    sealed = check_chunk(disk, 0)
    assert sealed is not None
    report = Report()
    check = inspection._EntryCheck(disk, [sealed[0]], report)
    for number in range(count):
        check.take(number * 160)
    tracemalloc.start()
    try:
        check.finish(count * 160)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.stray_entries == 1
    assert most < 8 * count, "less than all positions once"


def test_entries_of_a_chunk_of_which_no_record_is_left_are_counted() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 60)
    store.close(1000)
    chunk = store._keys.chunks[0]
    report = Report()
    inspection._EntryCheck(disk, [chunk], report).finish(chunk.end)
    assert report.stray_entries > 0


def test_what_was_lost_to_rot_is_named_and_is_no_fault_of_the_index() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, command("+all t"))
    fill(store, 200)
    place = store.position_of("t:0", 7)
    store.close(1000)
    disk.flip("log/00000000000000000000.log", place + 120)
    report = verified(disk)
    assert (report.lost, report.stray_entries, len(report.damage)) == ([("t:0", 7)], 0, 1)


def test_what_was_lost_has_its_offset_also_in_a_later_queue_chunk_and_block_of_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspection, "BLOCK_BYTES", 40)  # two entries
    disk = SimDisk()
    store = opened(disk)
    for number in range(14):
        stored(store, incoming(str(number).ljust(80), "a"), incoming(str(number).ljust(80), "b"))
        tick(store)
    places = [store.position_of(queue, 10) for queue in ("a:0", "b:0")]
    store.close(1000)
    assert places[0] > store._keys.chunks[1].start, "in a chunk where its queue does not begin at 0"
    for place, lost in zip(places, ("a:0", "b:0"), strict=True):
        disk.flip("log/00000000000000000000.log", place + 100)
        report = verified(disk)
        assert (report.lost, report.stray_entries) == ([(lost, 10)], 0)
        disk.flip("log/00000000000000000000.log", place + 100)
    assert verified(disk).sound


def test_a_dump_shows_every_record_in_order() -> None:
    disk = SimDisk()
    closed_store(disk)
    records = list(dump(disk))
    users = [one for one in records if one.topic == "t"]
    assert [one.offset for one in users] == list(range(120))
    assert users[7].body.startswith(b"7.")
    assert [one.position for one in records] == sorted(one.position for one in records)
    since = users[50].position
    assert [one for one in dump(disk, since) if one.topic == "t"] == users[50:]
    assert next(dump(disk, since - 1)).position == since


def test_the_index_is_made_again_from_nothing() -> None:
    disk = SimDisk()
    _, sent = closed_store(disk)
    for path in disk.paths("index") + disk.paths("checkpoint"):
        disk.put(path, b"rubbish")
    told: list[tuple[int, int]] = []
    assert repair_index(disk, SMALL, SmallFolds(), 1000, lambda done, total: told.append((done, total))) == []
    assert told[-1][0] == told[-1][1] > 0
    assert verified(disk).sound
    assert bodies(opened(disk)) == bodies(opened_again(disk), "~all") == sent


def opened_again(disk: SimDisk) -> MessageStore:
    disk.kill()
    return opened(disk)


def test_a_running_brokers_index_is_not_touched() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 60)
    before = disk.paths("index")
    with pytest.raises(DataFolderLocked):
        repair_index(disk, SMALL, SmallFolds(), 1000, lambda done, total: None)
    assert disk.paths("index") == before != []


def test_a_folder_without_a_log_is_refused_and_stays_empty() -> None:
    disk = SimDisk()
    for look in (lambda: next(verify(disk)), lambda: next(dump(disk))):
        with pytest.raises(DataFolderUnusable, match="no log"):
            look()
    assert disk.paths() == []


def test_a_folder_in_the_middle_of_a_merge_is_sound() -> None:
    disk = SimDisk()
    store = opened(disk)
    sent: list[bytes] = []
    while not store._merging._counts:
        sent += fill(store, 1, start=len(sent))
    assert {"index/00000000000000000000.idx", "index/00000000000000000002.idx"} <= set(disk.paths("index"))
    assert verified(disk).sound
    disk.delete("index/00000000000000000000.idx")
    assert verified(disk).sound


def test_a_chunk_that_a_running_broker_merges_away_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "STEP_BYTES", 1000)
    disk = SimDisk()
    closed_store(disk)
    steps = verify(disk)
    report: Report | None = None
    try:
        while True:
            next(steps)
            for path in disk.paths("index"):
                disk.delete(path)
    except StopIteration as end:
        report = end.value
    assert report is not None
    assert report.sound


@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize(("count", "size"), [(100, 100), (49, 60)])
def test_a_running_broker_that_begins_a_segment_meanwhile_has_lost_nothing(count: int, size: int, after: int) -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, count, size)
    calls = 0

    def goes_on(kind: str) -> None:
        nonlocal calls
        calls += kind == "pread"
        if calls == after + 1:
            disk.on_call = lambda kind: None
            segments = len(segment_paths(disk))
            fill(store, 60, size, start=count)
            assert len(segment_paths(disk)) > segments

    disk.on_call = goes_on
    report = verified(disk)
    assert calls == after + 1
    assert report.sound


@pytest.mark.parametrize("place", [0, 1])
def test_a_segment_that_is_gone_is_named_before_and_after_a_start(place: int) -> None:
    disk = SimDisk()
    closed_store(disk)
    disk.delete(segment_paths(disk)[place])
    for _ in range(2):
        report = verified(disk)
        assert report.missing == [(place * 8192, (place + 1) * 8192)]
        assert report.damage == report.missing[:place]
        assert not report.sound
        opened(disk).close(1000)


@pytest.mark.parametrize("known_by", ["record and label", "record"])
def test_what_retention_has_removed_is_not_missed_and_what_is_gone_behind_it_is(known_by: str) -> None:
    disk = SimDisk()
    store = opened(disk, replace(SMALL, retention_bytes=20_000))
    fill(store, 250)
    store.close(1000)
    if known_by == "record":
        disk.delete(PATH)
    report = verified(disk)
    assert report.start > 0
    assert (report.missing, report.sound) == ([], True)
    disk.delete(segment_paths(disk)[0])
    assert verified(disk).missing == [(report.start, report.start + 8192)]
    assert opened(disk).missing == [(report.start, report.start + 8192)]


def test_a_removal_that_is_said_and_not_carried_out_is_sound() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 120)
    stored(store, fact_record(REMOVED_TOPIC, Removals.fact(8192)))
    disk.kill()
    report = verified(disk)
    assert (report.start, report.missing, report.sound) == (0, [], True)


def test_a_log_that_is_shorter_than_its_checkpoint_says_has_lost_something() -> None:
    disk = SimDisk()
    store, _ = closed_store(disk)
    for path in segment_paths(disk)[2:]:
        disk.delete(path)
    report = verified(disk)
    assert not report.sound
    assert report.end + report.missing_bytes == store.written
