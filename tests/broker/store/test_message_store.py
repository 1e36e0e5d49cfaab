"""The store's face: what is appended is read back, by level, after any end of the process."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker.store import merging
from broker.store.message_store import HOLD_CHECK_MS, QUIET_MS, MessageStore
from broker.store.queue_index import Queue
from broker.store.recovery import open_store
from broker.store.sealing import RETRY_MS
from broker.store.settings import StoreSettings
from penstock.errors import OffsetOutOfRange, QueueNotFound, StorageFailed, StorageFull, TooLarge
from penstock.protocol.message import decode_batch, tag_hash
from tests.broker.store.store_rig import (
    SMALL,
    SmallFolds,
    bodies,
    command,
    fill,
    incoming,
    messages,
    opened,
    retain,
    stored,
    sync,
    tick,
)
from tests.simulation.disk import SimDisk

MERGES = StoreSettings(
    segment_bytes=1 << 18,
    reserve_step_bytes=1024,
    emergency_bytes=0,
    chunk_bytes=1500,
    retention_s=0.0,
    fresh_bytes=0,
    ahead_bytes=0,
)


def merging_store(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> tuple[MessageStore, list[bytes]]:
    """A store whose first merge is about to write, and what was sent."""
    monkeypatch.setattr(merging, "DIRECTORIES_BYTES_MIN", 8)
    store = opened(disk, MERGES)
    sent: list[bytes] = []
    while not disk.draft_bytes:
        sent += fill(store, 1, start=len(sent))
    assert store._merging._work is not None
    return store, sent


def test_a_message_of_a_disk_topic_is_readable_only_after_the_sync() -> None:
    store = opened(SimDisk())
    store.append([incoming("a")], 1000)
    assert store.bounds("t:0").end == 0
    assert store.take_readable() == []
    sync(store)
    assert bodies(store) == [b"a"]
    assert store.take_readable() == ["t:0"]


def test_a_message_of_a_cache_topic_is_readable_at_once() -> None:
    store = opened(SimDisk())
    store.append([incoming("a", cache=True)], 1000)
    assert bodies(store) == [b"a"]
    assert store.take_readable() == ["t:0"]


def test_a_cache_message_behind_a_disk_message_waits_for_it() -> None:
    store = opened(SimDisk())
    store.append([incoming("+all t", "%sys%filter"), incoming("a"), incoming("b", cache=True)], 1000)
    assert store.bounds("t:0").end == 0
    sync(store)
    assert bodies(store) == [b"a", b"b"]


def test_a_sync_covers_only_what_was_appended_before_its_point() -> None:
    store = opened(SimDisk())
    store.append([incoming("a")], 1000)
    point = store.sync_point()
    store.append([incoming("b")], 1000)
    store.sync()
    store.mark_durable(point)
    assert bodies(store) == [], "it is on this disk and not committed yet"
    store.mark_committed(store.durable)
    assert bodies(store) == [b"a"]


def test_placed_says_queue_offset_and_position() -> None:
    store = opened(SimDisk())
    first = store.append([incoming("a", queue_id=2), incoming("b", queue_id=1), incoming("c", queue_id=2)], 1000)
    assert [(one.queue_id, one.offset) for one in first] == [(2, 0), (1, 0), (2, 1)]
    assert first[0].position < first[1].position < first[2].position < store.written


def test_a_pulled_frame_carries_its_offset_position_and_store_time() -> None:
    store = opened(SimDisk())
    placed = store.append([incoming("a", key="k", tag="x")], 4711)
    sync(store)
    pulled = store.read("t:0", 0, 10, 10_000)
    ((offset, message),) = decode_batch(pulled.count, pulled.body)
    assert (offset, message.offset, message.position) == (0, 0, placed[0].position)
    assert (message.stored_ms, message.key, message.tag) == (4711, "k", "x")


def test_a_light_queue_begins_at_the_position_that_opened_it_and_gets_what_follows() -> None:
    store = opened(SimDisk())
    stored(store, incoming("before"))
    position = store.written
    stored(store, command("+all t"), incoming("after"))
    assert store.bounds("~all").min == position
    assert list(messages(store, "~all")) == [(position, b"after")]


def test_a_light_queue_that_is_opened_again_never_reuses_an_offset() -> None:
    store = opened(SimDisk())
    stored(store, command("+all t"), incoming("a"), incoming("b"))
    end = store.bounds("~all").end
    stored(store, command("-all"))
    with pytest.raises(QueueNotFound):
        store.bounds("~all")
    stored(store, command("+all t"), incoming("c"))
    assert store.bounds("~all").min > end
    assert bodies(store, "~all") == [b"c"]


def test_a_light_queue_that_was_opened_again_keeps_its_beginning_over_a_restart() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, command("+all t"))
    fill(store, 60)
    stored(store, command("-all"), command("+all t"), incoming("new"))
    bounds = store.bounds("~all")
    store.close(1000)
    assert opened(disk).bounds("~all") == bounds


def test_an_offset_outside_the_queue_is_refused_with_both_bounds() -> None:
    store = opened(SimDisk())
    stored(store, incoming("a"))
    assert store.read("t:0", 1, 1, 1).count == 0
    with pytest.raises(OffsetOutOfRange, match="0 to 1"):
        store.read("t:0", 2, 1, 1)


def test_a_read_gives_at_least_one_message_whatever_the_limit() -> None:
    store = opened(SimDisk())
    stored(store, incoming(b"x" * 500), incoming(b"y" * 500))
    pulled = store.read("t:0", 0, 10, 1)
    assert (pulled.count, pulled.next) == (1, 1)


def test_a_tag_filter_passes_over_what_does_not_match() -> None:
    store = opened(SimDisk())
    stored(store, *[incoming(str(number), tag="odd" if number % 2 else "even") for number in range(30)])
    odd = [body for _, body in messages(store, "t:0", tags=frozenset({tag_hash("odd")}))]
    assert odd == [str(number).encode() for number in range(1, 30, 2)]


def test_a_batch_that_does_not_fit_the_rest_of_a_segment_goes_whole_into_the_next() -> None:
    store = opened(SimDisk())
    fill(store, 30)
    store.append([incoming(b"z" * 700) for _ in range(6)], 1000)
    sync(store)
    positions = [store.position_of("t:0", 30 + number) for number in range(6)]
    assert len({position // SMALL.segment_bytes for position in positions}) == 1


def test_a_batch_larger_than_a_segment_is_refused_whole() -> None:
    store = opened(SimDisk())
    stored(store, incoming("a"))
    with pytest.raises(TooLarge):
        store.append([incoming(b"z" * 700) for _ in range(20)], 1000)
    assert bodies(store) == [b"a"]


def test_a_full_disk_refuses_the_batch_whole_and_writing_resumes_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 3)
    disk.capacity = disk.used()
    written = store.written
    with contextlib.suppress(StorageFull):
        while True:  # what was reserved before can still be filled
            stored(store, incoming("fits"))
            sent.append(b"fits")
    assert store.written > written
    for _ in range(3):
        with pytest.raises(StorageFull):
            store.append([incoming("refused")], 1000)
    assert store.is_full
    disk.capacity = None
    stored(store, incoming("more"))
    assert bodies(store) == [*sent, b"more"]
    assert not store.is_full
    begins, ends = [record.message for record in caplog.records]
    assert "messages are refused until 2 KiB are free" in begins
    assert "room again" in ends


def filled(store: MessageStore) -> list[bytes]:
    """What it takes until the disk is full."""
    sent = []
    with contextlib.suppress(StorageFull):
        while True:
            stored(store, incoming("x" * 100))
            sent.append(b"x" * 100)
    assert store.is_full
    return sent


def test_on_a_full_disk_a_merge_makes_room_and_is_done_when_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    store, sent = merging_store(disk, monkeypatch)
    disk.capacity = disk.used()
    sent += filled(store)
    tick(store)
    assert (store._merging._work, disk.draft_bytes) == (None, 0)
    disk.capacity = None
    sent += fill(store, 1, start=len(sent))
    for _ in range(50):
        tick(store, 1000 + merging.RETRY_MS)
    assert store._keys.chunks[0].level == 1
    assert bodies(store) == sent


def test_on_a_full_disk_a_merge_that_counts_still_removes_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    store, sent = merging_store(disk, monkeypatch)
    while not store._merging._counts:
        store._merging.step(store._log.bases, 1000)
    sources = {f"index/{source.number:020d}.idx" for source in store._merging._sources}
    assert sources <= set(disk.paths("index"))
    disk.capacity = disk.used()
    sent += filled(store)
    for _ in range(2 * len(sources)):
        disk.capacity = min(disk.capacity, disk.used())  # others take what becomes free
        tick(store)
    assert store.is_full
    assert not sources & set(disk.paths("index"))
    assert bodies(store) == sent


def test_a_refused_batch_never_turns_up_even_if_the_disk_wrote_half_of_it() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, incoming("a"))
    disk.half_written = 0.7
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(StorageFull):
        store.append([incoming("refused 1"), incoming("refused 2"), incoming("refused 3")], 1000)
    disk.kill()
    assert bodies(opened(disk)) == [b"a"]


def test_a_shorter_batch_after_a_refused_one_does_not_uncover_its_rest() -> None:
    disk = SimDisk()
    store = opened(disk)
    disk.half_written = 0.99
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(StorageFull):
        store.append([incoming("refused 1"), incoming("refused 2"), incoming("refused 3")], 1000)
    stored(store, incoming("wanted 11"[:9]))
    disk.kill()
    assert bodies(opened(disk)) == [b"wanted 11"]


def test_offset_commits_still_work_on_a_full_disk() -> None:
    disk = SimDisk()
    settings = StoreSettings(
        segment_bytes=1 << 16, reserve_step_bytes=2048, emergency_bytes=1024, chunk_bytes=1 << 15, retention_s=0.0
    )
    store = opened(disk, settings)
    tick(store)
    disk.capacity = disk.used()
    with contextlib.suppress(StorageFull):
        while True:
            store.append([incoming("x" * 50)], 1000)
    store.append([command("+kept t")], 1000)
    sync(store)
    assert store.bounds("~kept").min > 0


def test_a_failed_sync_ends_all_writing_for_ever() -> None:
    disk = SimDisk()
    store = opened(disk)
    store.append([incoming("a")], 1000)
    disk.fail("sync", errno.EIO)
    point = store.sync_point()
    with pytest.raises(StorageFailed):
        store.sync()
    assert store.durable < point
    for again in (store.sync, lambda: store.append([incoming("b")], 1000)):
        with pytest.raises(StorageFailed):
            again()
    assert store.bounds("t:0").end == 0


def test_a_failed_write_ends_all_writing() -> None:
    disk = SimDisk()
    store = opened(disk)
    disk.fail("pwrite", errno.EIO)
    with pytest.raises(StorageFailed):
        store.append([incoming("a")], 1000)
    with pytest.raises(StorageFailed):
        store.append([incoming("b")], 1000)


def test_a_store_whose_folder_was_taken_from_it_stops_and_writes_nothing_there_any_more() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 3)
    disk.lost = "data/lock was removed"
    paths, changes = disk.paths(), disk.calls["any"]
    with pytest.raises(StorageFailed, match=r"not this broker's any more: data/lock was removed"):
        tick(store, 1000 + HOLD_CHECK_MS)
    with pytest.raises(StorageFailed):
        store.append([incoming("late")], 3000)
    store.close(3000)
    assert (disk.paths(), disk.calls["any"]) == (paths, changes)


def test_store_times_never_go_back_so_that_a_search_by_time_works() -> None:
    store = opened(SimDisk())
    for now_ms in (5000, 4000, 6000):
        stored(store, incoming(str(now_ms)), now_ms=now_ms)
    assert [store.seek_time("t:0", at) for at in (0, 5000, 5001, 6000, 6001)] == [0, 0, 2, 2, 3]


def test_a_message_is_found_by_each_of_its_keys_newest_first() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, incoming("1", key="order-1 red"), incoming("2", key="order-2"), incoming("3", key="red"))
    fill(store, 60)
    for topic, key, wanted in (("t", "red", [b"3", b"1"]), ("t", "order-2", [b"2"]), ("u", "red", []), ("t", "x", [])):
        pulled = store.find(topic, key, 0, 1 << 60, 10)
        assert [message.body for _, message in decode_batch(pulled.count, pulled.body)] == wanted


def test_after_silence_a_seal_carries_the_watermark_once() -> None:
    store = opened(SimDisk())
    stored(store, incoming("a"), now_ms=1000)
    before = store.written
    tick(store, 1010)
    assert store.written == before
    tick(store, 1100)
    sealed = store.written
    assert sealed > before
    sync(store)
    tick(store, 1200)
    assert store.written == sealed


def test_room_is_prepared_while_nobody_writes() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, incoming("a"), now_ms=1000)
    tick(store, 1000 + QUIET_MS - 1)
    assert "write_back" not in disk.calls
    tick(store, 1000 + QUIET_MS)
    assert disk.calls["write_back"] == 1
    stored(store, incoming("b"), now_ms=2000)
    tick(store, 2000)
    assert disk.calls["write_back"] == 1


@pytest.mark.parametrize("end", ["close", "kill"])
def test_everything_is_there_again_after_a_restart(end: str) -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, command("+all t"), incoming("kept", retain=True))
    sent = [b"kept", *fill(store, 150)]
    bounds = store.bounds("t:0"), store.bounds("~all")
    store.close(2000) if end == "close" else disk.kill()
    folds = SmallFolds()
    again = open_store(disk, SMALL, folds, 3000)
    assert bodies(again) == bodies(again, "~all") == sent
    assert (again.bounds("t:0"), again.bounds("~all")) == bounds
    assert folds.retained == {"t": b"kept"}
    assert again.damage == []


def test_a_clean_stop_leaves_nothing_to_replay() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 20)
    store.close(2000)
    assert opened(disk).sealed == store.written


def test_a_close_in_the_middle_of_a_merge_leaves_no_work_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    store, sent = merging_store(disk, monkeypatch)
    store.close(1000)
    assert (store._merging._work, disk.draft_bytes) == (None, 0)
    assert bodies(opened(disk, MERGES)) == sent


def test_retention_by_size_moves_every_queues_beginning_and_frees_the_disk() -> None:
    disk = SimDisk()
    settings = StoreSettings(
        segment_bytes=8192, reserve_step_bytes=2048, emergency_bytes=0, chunk_bytes=3000, retention_bytes=20_000
    )
    store = opened(disk, settings)
    stored(store, command("+all t"))
    sent = fill(store, 300)
    assert 0 < store.bounds("t:0").min < 300
    assert disk.used() < 60_000
    assert bodies(store) == bodies(store, "~all") == sent[store.bounds("t:0").min :]
    bounds = store.bounds("t:0"), store.bounds("~all")
    for folder in ("index", "checkpoint"):
        for path in disk.paths(folder):
            disk.delete(path)
    disk.kill()
    again = opened(disk, settings)
    assert (again.bounds("t:0"), again.bounds("~all")) == bounds
    assert bodies(again, "~all") == sent[bounds[0].min :]


def test_keyframes_of_what_retention_removed_are_forgotten() -> None:
    store = opened(SimDisk(), replace(SMALL, retention_bytes=20_000))
    fill(store, 300)
    assert store.start > 0
    assert store._sealing.keyframes.get(store.start) is not None
    assert min(mark.base for mark in store._sealing.keyframes) == store.start


class Looked(dict[str, Queue]):
    """Queues, and how many were looked at while somebody went through them."""

    count = 0

    def values(self) -> Iterator[Queue]:  # type: ignore[override]
        for queue in super().values():
            self.count += 1
            yield queue


def test_retention_looks_at_each_queue_once_however_many_chunks_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SOURCES_MAX", 1)  # none is merged
    disk = SimDisk()
    store = opened(disk, replace(SMALL, chunk_bytes=1000, retention_s=1.0))
    stored(store, *[command(f"+{number} t") for number in range(20)])
    sent = fill(store, 100)
    chunks = len(disk.paths("index"))
    index = store._index
    looked = index._queues = Looked(index._queues)
    retain(store, 1_000_000)
    assert len(disk.paths("index")) <= chunks - 8
    assert store.start > 0
    assert looked.count == len(index) == 21
    retain(store, 1_000_000)
    assert looked.count == 21, "nothing more goes"
    first = store.bounds("t:0").min
    assert all(bodies(store, key) == sent[first:] for key in list(looked))


def test_retention_by_age_waits_for_the_slowest_reader() -> None:
    settings = StoreSettings(
        segment_bytes=8192, reserve_step_bytes=2048, emergency_bytes=0, chunk_bytes=3000, retention_s=1.0
    )
    store = opened(SimDisk(), settings)
    fill(store, 100)
    retain(store, 1_000_000, needed_from=0)
    assert store.bounds("t:0").min == 0
    retain(store, 1_000_000, needed_from=store.written)
    assert store.bounds("t:0").min > 0
    assert store._folds.removed.before == store.start


def test_retention_by_size_announces_what_a_reader_still_needed(caplog: pytest.LogCaptureFixture) -> None:
    settings = StoreSettings(
        segment_bytes=8192, reserve_step_bytes=2048, emergency_bytes=0, chunk_bytes=3000, retention_bytes=10_000
    )
    store = opened(SimDisk(), settings)
    for number in range(100):
        stored(store, incoming(str(number).ljust(100)))
        tick(store, 1000, needed_from=0)
        sync(store)
    told = [record.message for record in caplog.records]
    assert told
    assert all("which a reader still needs" in line for line in told)
    assert store._folds.removed.before == store.start > 0


def test_a_segment_that_cannot_be_removed_is_told_once_and_counts_as_removed_when_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = StoreSettings(
        segment_bytes=8192, reserve_step_bytes=2048, emergency_bytes=0, chunk_bytes=3000, retention_s=1.0
    )
    disk = SimDisk()
    store = opened(disk, settings)
    fill(store, 200)
    for _ in range(50):
        tick(store, 1000, needed_from=0)  # its chunks are merged
    stored(store, incoming("late"))
    tick(store, 1_000_000)
    sync(store)
    for _ in range(5):
        disk.fail("remove", errno.EACCES)
        tick(store, 1_000_000)
    assert store.start == 0
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    disk.fail("remove", errno.EACCES, after=1)
    tick(store, 1_000_000)
    assert store.start == 8192
    tick(store, 1_000_000)
    assert store.start == store._folds.removed.before > 8192


def test_retention_never_takes_what_is_not_sealed_yet() -> None:
    settings = StoreSettings(
        segment_bytes=8192, reserve_step_bytes=2048, emergency_bytes=0, chunk_bytes=1 << 20, retention_bytes=10_000
    )
    disk = SimDisk()
    store = opened(disk, settings)
    for number in range(100):
        stored(store, incoming(str(number).ljust(100)))
        disk.fail("replace", errno.EIO)
        tick(store)
    sync(store)
    assert store.start == 0
    disk.kill()  # nothing fails any more
    for _ in range(10):
        retain(store, 1000 + RETRY_MS)
    assert 0 < store.start <= store.sealed


def test_facts_that_no_segment_holds_together_are_stored_in_order_in_several_appends() -> None:
    disk = SimDisk()
    store = opened(disk)
    store.append_facts([command(f"+{number:04d}{'x' * 200} t") for number in range(100)], 1)
    assert store.written > 3 * store.batch_bytes_max - 8192
    sync(store)
    disk.kill()
    folds = SmallFolds()
    open_store(disk, SMALL, folds, 1)
    assert [name[1:5] for name in folds.open] == [f"{number:04d}" for number in range(100)]
    assert store.fact_bytes_max < store.batch_bytes_max


def test_a_fact_that_no_segment_holds_is_refused_and_those_before_it_are_stored() -> None:
    folds = SmallFolds()
    store = open_store(SimDisk(), SMALL, folds, 1)
    with pytest.raises(TooLarge):
        store.append_facts([command("+a t"), command(f"+{'x' * 9_000} t"), command("+b t")], 1)
    assert list(folds.open) == ["~a"]
