"""Merging: a queue has few pieces, and everything reads as before, whenever the work is interrupted and by whatever."""

from __future__ import annotations

import dataclasses
import errno
import logging
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store import index_chunk, merging
from broker.store.index_chunk import (
    HEAD,
    KEY,
    KEY_DTYPE,
    ChunkFiles,
    ChunkParts,
    ChunkReader,
    Sealed,
    check_chunk,
    chunk_path,
)
from broker.store.key_index import KeyIndex
from broker.store.merging import MERGED, MERGED_BYTES_MAX, RETRY_MS, SOURCES_MAX, Merging, next_merge
from broker.store.message_store import MessageStore
from broker.store.queue_index import ENTRY20, QueueIndex
from broker.store.settings import StoreSettings
from penstock.errors import Damaged, OffsetOutOfRange
from penstock.protocol.message import decode_batch
from tests.broker.store.store_rig import bodies, command, fill, incoming, opened, read_chunk, stored, sync, tick
from tests.simulation.disk import PowerCut, SimDisk

ONE_SEGMENT = StoreSettings(
    segment_bytes=1 << 18,
    reserve_step_bytes=4096,
    emergency_bytes=0,
    chunk_bytes=1500,
    retention_s=0.0,
    fresh_bytes=0,
)
SEGMENTS = StoreSettings(
    segment_bytes=8192,
    reserve_step_bytes=2048,
    emergency_bytes=0,
    chunk_bytes=1500,
    retention_s=0.0,
    fresh_bytes=0,
)


@pytest.fixture(autouse=True)
def _few_queues_count_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "DIRECTORIES_BYTES_MIN", 8)


def row_of(*ends: int, level: int = 0, size: int = 10) -> list[Sealed]:
    """Chunks between these positions."""
    return [Sealed(start + level, start, end, size, 1) for start, end in pairwise(ends)]


def rest(store: MessageStore, ticks: int = 300) -> None:
    """Upkeep until nothing is left to do."""
    for _ in range(ticks):
        tick(store)
        sync(store)


def begun(disk: SimDisk, settings: StoreSettings = ONE_SEGMENT) -> tuple[MessageStore, list[bytes]]:
    """A store whose first merge has begun, and what was sent."""
    store = opened(disk, settings)
    sent: list[bytes] = []
    while not store._merging._work:
        sent += fill(store, 1, start=len(sent))
    return store, sent


def keyed(store: MessageStore, first: int, end: int) -> None:
    """Stores messages that all have one key, one by one, ticking."""
    for number in range(first, end):
        stored(store, incoming(str(number), key="k"))
        tick(store)
        sync(store)


def found_by_key(store: MessageStore) -> list[int]:
    """What ``keyed`` has stored and is found, oldest first."""
    found = store.find("t", "k", 0, 1 << 62, 10_000)
    return [int(message.body) for _, message in decode_batch(found.count, found.body)][::-1]


def sealed_queues(disk: SimDisk, chunks: int, queues: int) -> tuple[QueueIndex, KeyIndex]:
    """Queues that each have one entry in each of so many chunks, 100 bytes of log apart."""
    index, keys = QueueIndex(), KeyIndex()
    for start in range(0, 100 * chunks, 100):
        parts = ChunkParts()
        for number in range(queues):
            queue = index.ensure(f"q{number:03d}:0", 70_000)
            index.add(queue, ENTRY20.pack(start, 10, 0), True)
            parts.add([(queue, 1)])
            queue.take_from_tail(1, start, 20 * number)
        disk.put(chunk_path(start), b"".join(parts.pieces(start, start + 100, 7, np.array([], KEY_DTYPE))))
        checked = check_chunk(disk, start)
        assert checked is not None
        keys.know_chunk(checked[0])
    return index, keys


def chunks_on(disk: SimDisk) -> list[str]:
    return disk.paths("index")


# ------------------------------------------------------------ which


def test_neighbours_with_the_pieces_of_few_queues_wait_for_the_end_of_their_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "DIRECTORIES_BYTES_MIN", 9)
    chunks = row_of(*range(0, 1000, 100))
    assert next_merge(chunks, [0], frozenset()) == ([], 0)
    assert next_merge(chunks, [0, 800], frozenset()) == (chunks[:8], 2)


def test_what_is_too_much_for_one_or_damaged_is_passed_over() -> None:
    half = MERGED_BYTES_MAX // 2
    chunks = [*row_of(0, 100, 200, 300, 400, size=half), *row_of(400, 500)]
    assert next_merge(chunks, [0, 400], frozenset()) == (chunks[:2], 2)
    done = [Sealed(2, 0, 200, 2 * half, 2), *chunks[2:]]
    assert next_merge(done, [0, 400], frozenset()) == (chunks[2:4], 2)
    small = row_of(0, 100, 200, 300, 400, 500)
    assert next_merge(small, [0, 400], frozenset({100})) == (small[2:4], 2)
    many = row_of(*range(0, 10 * (SOURCES_MAX + 3), 10))
    assert next_merge(many, [0, many[-1].start], frozenset()) == (many[:SOURCES_MAX], 2)


# ------------------------------------------------------------ what becomes of it


def test_a_queue_has_few_pieces_and_reads_as_before() -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    stored(store, command("+all t"))
    sent = fill(store, 400)
    rest(store)
    assert len(store._index.get("t:0").pieces) // 28 == len(chunks_on(disk)) <= 2 * MERGED
    assert [chunk.level for chunk in store._keys.chunks][:3] == [1, 1, 1]
    assert bodies(store) == bodies(store, "~all") == sent
    disk.kill()
    disk.calls.clear()
    again = opened(disk, ONE_SEGMENT)
    assert disk.calls.get("replace", 0) <= 2, "sound chunks were made again"
    assert bodies(again) == bodies(again, "~all") == sent


def test_a_finished_segment_has_one_chunk() -> None:
    disk = SimDisk()
    store = opened(disk, SEGMENTS)
    sent = fill(store, 300)
    rest(store)
    borders = [base for base in store._log.bases if base <= store._keys.chunks[-1].start]
    spans = [(chunk.start, chunk.end) for chunk in store._keys.chunks]
    assert len(borders) > 4
    assert set(pairwise(borders)) <= set(spans)
    assert bodies(store) == sent
    disk.kill()
    assert bodies(opened(disk, SEGMENTS)) == sent


def test_many_queues_some_of_which_end_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SLICE_ROWS", 3)
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    expected: dict[str, list[bytes]] = {}
    for number in range(400):
        name = f"f{number % 7}"
        if number % 40 == number % 7:
            stored(store, command(f"-{name}"), command(f"+{name} t{number % 3}"))
            expected[f"~{name}"] = []
        body = str(number).encode().ljust(60, b".")
        stored(store, incoming(body, f"t{number % 3}", number % 2))
        expected.setdefault(f"t{number % 3}:{number % 2}", []).append(body)
        for key, wanted in store._sealing._folds.open.items():  # type: ignore[attr-defined]
            if wanted == f"t{number % 3}":
                expected[key].append(body)
        sync(store)
        tick(store)
    rest(store)
    assert any(chunk.level for chunk in store._keys.chunks)
    for key, wanted in expected.items():
        assert bodies(store, key) == wanted, key
    disk.kill()
    again = opened(disk, ONE_SEGMENT)
    for key, wanted in expected.items():
        assert bodies(again, key) == wanted, key


def test_messages_are_found_by_key_as_before() -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    for number in range(300):
        stored(store, incoming(str(number), key=f"k{number % 5}"))
        tick(store)
        sync(store)
    rest(store)
    assert any(chunk.level for chunk in store._keys.chunks)
    for one in range(5):
        found = store.find("t", f"k{one}", 0, 1 << 62, 1000)
        got = [message.body for _, message in decode_batch(found.count, found.body)]
        assert got == [b"%d" % number for number in reversed(range(300)) if number % 5 == one]


def test_a_key_is_found_at_every_step_of_a_merge() -> None:
    store = opened(SimDisk(), ONE_SEGMENT)
    count = 0
    while not store._merging._work:
        keyed(store, count, count + 1)
        count += 1
    steps = 0
    while store._merging._work:
        assert found_by_key(store) == list(range(count))
        store._merging.step(store._log.bases, 1000)
        steps += 1
    assert found_by_key(store) == list(range(count))
    assert steps > MERGED


def test_every_queue_reads_as_before_at_every_step_of_a_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SLICE_ROWS", 1)
    store = opened(SimDisk(), ONE_SEGMENT)
    stored(store, *[command(f"+{name} t") for name in "abcd"])
    sent: list[bytes] = []
    while not store._merging._work:
        sent += fill(store, 1, start=len(sent))
    counted = 0
    while store._merging._work:
        store._merging.step(store._log.bases, 1000)
        counted += store._merging._counts
        assert all(bodies(store, key) == sent for key in ("t:0", "~a", "~b", "~c", "~d"))
    assert counted > 5 + MERGED, "each queue was pointed to it, and each source removed"


def test_the_files_of_sources_are_closed_when_they_are_merged() -> None:
    store, _ = begun(SimDisk())
    bodies(store)
    while store._merging._work:
        assert set(store._chunks._open) & {source.number for source in store._merging._sources}
        store._merging.step(store._log.bases, 1000)
        bodies(store)
    assert set(store._chunks._open) <= {chunk.number for chunk in store._keys.chunks}


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=5), st.integers(1, 5))
def test_the_keys_of_all_sources_stand_in_order_and_none_is_missing(sources: list[list[int]], block: int) -> None:
    disk = SimDisk()
    rows: list[tuple[int, int, int, int]] = []
    for number, hashes in enumerate(sources):
        mine = sorted((one, 1000 * number + place, 0, 1) for place, one in enumerate(hashes))
        parts = ChunkParts().pieces(100 * number, 100 * number + 100, 7, np.array(mine, KEY_DTYPE))
        disk.put(chunk_path(100 * number), b"".join(parts))
        rows += mine
    readers = [ChunkReader(disk, 100 * number) for number in range(len(sources))]
    for reader in readers:
        assert list(reader.rows()) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "SLICE_KEYS", block)
        made = np.frombuffer(b"".join(merging._keys(readers)), KEY_DTYPE).tolist()
    assert made == sorted(rows)
    for reader in readers:
        reader.finish()


@pytest.mark.parametrize("hashes", [[5], [5, 6], [0, 5, (1 << 32) - 1], list(range(1000))])
def test_the_rows_of_one_key_go_in_bounded_pieces_however_many_they_are(
    hashes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "SLICE_KEYS", 10)
    monkeypatch.setattr(merging, "PIECE_BYTES", 20 * KEY.size)
    monkeypatch.setattr(index_chunk, "READ_BYTES", 10 * KEY.size)
    disk = SimDisk()
    rows: list[tuple[int, int, int, int]] = []
    for number in range(6):
        mine = sorted((hashes[place % len(hashes)], 1000 * number + place, 0, 1) for place in range(1000))
        parts = ChunkParts().pieces(1000 * number, 1000 * number + 1000, 7, np.array(mine, KEY_DTYPE))
        disk.put(chunk_path(1000 * number), b"".join(parts))
        rows += mine
    readers = [ChunkReader(disk, 1000 * number) for number in range(6)]
    for reader in readers:
        assert list(reader.rows()) == []
    made, most = b"", 0
    before = disk.calls["pread"]
    for piece in merging._keys(readers):
        made += piece
        most = max(most, len(piece) // KEY.size, 10 * (disk.calls["pread"] - before))
        before = disk.calls["pread"]
    assert np.frombuffer(made, KEY_DTYPE).tolist() == sorted(rows)
    assert most <= 20 + 2 * 6 * 10, "more than a piece, and a slice or two of each source, at a time"


def test_a_source_whose_keys_are_in_disorder_is_given_up_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SLICE_KEYS", 4)
    disk = SimDisk()
    rows = np.array([(one, place, 0, 1) for place, one in enumerate([9, 9, 9, 5, 7, 3, 8, 1, 6, 2])], KEY_DTYPE)
    data = b"".join(ChunkParts().pieces(0, 100, 7, np.sort(rows)))
    disk.put(chunk_path(0), data[: -rows.nbytes] + rows.tobytes())  # as rot might
    reader = ChunkReader(disk, 0)
    assert list(reader.rows()) == []
    assert sum(map(len, merging._keys([reader]))) == len(rows) * KEY.size
    with pytest.raises(Damaged):
        reader.finish()


def test_the_work_goes_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "PIECE_BYTES", 400)
    monkeypatch.setattr(index_chunk, "READ_BYTES", 64)
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    sent: list[bytes] = []
    while not store._merging._work:
        sent += fill(store, 1, start=len(sent))
    most = steps = 0
    while store._merging._work:
        before = disk.calls["pread"]
        tick(store)
        most = max(most, disk.calls["pread"] - before)
        steps += 1
        assert bodies(store) == sent
    assert steps > 10
    assert most < 30


# ------------------------------------------------------------ what may go wrong


def test_a_power_cut_at_any_moment_loses_nothing_and_what_was_merged_is_whole() -> None:
    for after in range(0, 400, 7):
        disk = SimDisk(after)
        store = opened(disk, ONE_SEGMENT)
        stored(store, command("+all t"))
        sent = fill(store, 40, size=200)
        disk.write_back("index")
        disk.write_back("checkpoint")
        disk.cut_power("any", after)
        try:
            for number in range(40, 90):
                sent += fill(store, 1, size=200, start=number)
        except PowerCut:
            disk.lose_power()
        else:
            disk.kill()
        made = [chunk.number for chunk in store._keys.chunks if chunk.level]
        made += [source.start + 1 for source in store._merging._sources[:1]]
        assert all(read_chunk(disk, number) for number in made if chunk_path(number) in chunks_on(disk))
        store = opened(disk, ONE_SEGMENT)
        kept = len(bodies(store))
        assert kept >= len(sent)
        assert bodies(store)[: len(sent)] == bodies(store, "~all")[: len(sent)] == sent
        assert store._index.get("t:0").min == 0
        sent = bodies(store)
        sent += fill(store, 60, size=200, start=kept)
        rest(store)
        assert bodies(store) == bodies(store, "~all") == sent


def test_a_damaged_source_is_told_once_and_never_copied(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    sent: list[bytes] = []
    while len(store._keys.chunks) < 5:
        sent += fill(store, 1, start=len(sent))
    harmed = chunks_on(disk)[2]
    disk.flip(harmed, len(disk.read(harmed)) - 30)
    sent += fill(store, 200, start=len(sent))
    rest(store)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "stay apart" in caplog.text
    assert harmed in chunks_on(disk)
    assert [chunk.level for chunk in store._keys.chunks[:9]] == [0] * 8 + [1], "the others are merged"
    disk.kill()
    again = opened(disk, ONE_SEGMENT)
    assert bodies(again) == sent
    assert all(read_chunk(disk, chunk.number) for chunk in again._keys.chunks)


def test_a_flipped_bit_anywhere_before_the_entries_of_a_source_ends_only_the_merge() -> None:
    disk = SimDisk()
    index, keys = sealed_queues(disk, chunks=3, queues=2)
    path = chunk_path(100)
    good = disk.read(path)
    for at in range(HEAD.size + keys.chunks[1].directory_bytes):
        for bit in range(8):
            disk.put(path, good)
            disk.flip(path, at, bit)
            merge = Merging(disk, index, keys, ChunkFiles(disk))
            for _ in range(20):
                merge.step([0, 200], 1000)
            assert merge._work is None
            assert merge._damaged == {0, 100}, f"byte {at} bit {bit}"
            assert not merge._counts


@pytest.mark.parametrize("harm", ["unreadable", "gone", "unreadable further on"])
def test_a_source_that_cannot_be_read_is_told_once_and_stops_no_other_merge(
    harm: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_chunk, "READ_BYTES", 64)
    disk = SimDisk()
    index, keys = sealed_queues(disk, chunks=5, queues=5)
    merge = Merging(disk, index, keys, ChunkFiles(disk))
    if harm == "unreadable":
        disk.spoil_page(chunk_path(100), 0)
    elif harm == "gone":
        disk.delete(chunk_path(100))
    else:
        merge.step([0, 200, 400], 1000)
        while not disk.draft_bytes:
            merge.step([0, 200, 400], 1000)
        disk.fail("pread", errno.EIO)
    for _ in range(50):
        merge.step([0, 200, 400], 1000)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "stay apart" in caplog.text
    assert [chunk.number for chunk in keys.chunks] == [0, 100, 202, 400]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_where_there_are_too_many_open_files_a_merge_is_tried_again_later(error: int) -> None:
    disk = SimDisk()
    index, keys = sealed_queues(disk, chunks=3, queues=2)
    merge = Merging(disk, index, keys, ChunkFiles(disk))
    disk.fail("open", error, after=1)
    for _ in range(20):
        merge.step([0, 200], 1000)
    assert [chunk.number for chunk in keys.chunks] == [0, 100, 200]
    for _ in range(20):
        merge.step([0, 200], 1000 + RETRY_MS)
    assert [chunk.number for chunk in keys.chunks] == [2, 200]


def test_on_a_full_disk_work_that_does_not_count_yet_gives_its_room_back_and_is_done_later() -> None:
    disk = SimDisk()
    store, sent = begun(disk)
    while not disk.draft_bytes:
        store._merging.step(store._log.bases, 1000)
    store._merging.make_room(1000)
    assert (store._merging._work, disk.draft_bytes) == (None, 0)
    assert bodies(store) == sent
    for _ in range(3):  # what has just been given back is not taken again
        store._merging.step(store._log.bases, 1000 + RETRY_MS - 1)
        assert store._merging._work is None
    store._merging.make_room(1000 + RETRY_MS - 1)  # nothing to give back: it waits no longer for that
    store._merging.step(store._log.bases, 1000 + RETRY_MS)
    while store._merging._work:
        store._merging.step(store._log.bases, 1000 + RETRY_MS)
    assert store._keys.chunks[0].level == 1
    assert bodies(store) == sent


def test_on_a_full_disk_work_that_counts_goes_on_to_the_removal_of_its_sources() -> None:
    disk = SimDisk()
    store, sent = begun(disk)
    while not store._merging._counts:
        store._merging.step(store._log.bases, 1000)
    sources = {chunk_path(source.number) for source in store._merging._sources}
    assert sources <= set(chunks_on(disk))
    for _ in range(2 * MERGED):
        store._merging.make_room(1000)
    assert store._merging._work is None
    assert not sources & set(chunks_on(disk))
    assert bodies(store) == sent


def test_a_disk_without_room_is_tried_again_later_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    sent: list[bytes] = []
    while not store._merging._work:
        sent += fill(store, 1, start=len(sent))
    disk.capacity = disk.used()
    for _ in range(30):
        tick(store, 2000)
    assert "No space left" in caplog.text
    assert len(caplog.records) == 1
    assert all(chunk.level == 0 for chunk in store._keys.chunks)
    disk.capacity = None
    for number in range(30):
        tick(store, 2000 + RETRY_MS + number)
    assert store._keys.chunks[0].level == 1
    assert bodies(store) == sent


def test_a_source_that_cannot_be_removed_is_removed_by_the_next_start(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    sent: list[bytes] = []
    while not store._merging._work:
        sent += fill(store, 1, start=len(sent))
    disk.fail("remove", errno.EACCES)
    rest(store, 30)
    assert "cannot be removed" in caplog.text
    left = [path for path in chunks_on(disk) if path not in [chunk_path(one.number) for one in store._keys.chunks]]
    assert len(left) == 1
    disk.kill()
    again = opened(disk, ONE_SEGMENT)
    assert left[0] not in chunks_on(disk)
    assert bodies(again) == sent


def test_where_a_crash_brings_one_source_back_the_larger_chunk_is_taken() -> None:
    disk = SimDisk()
    store, sent = begun(disk)
    first = chunk_path(store._merging._sources[0].number)
    data = disk.read(first)
    while store._merging._work:
        store._merging.step(store._log.bases, 1000)
    disk.kill()
    disk.put(first, data)
    again = opened(disk, ONE_SEGMENT)
    assert again._keys.chunks[0].level == 1
    assert first not in chunks_on(disk)
    assert bodies(again) == sent


def test_a_merged_chunk_that_is_damaged_while_its_sources_are_there_is_not_needed() -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    sent: list[bytes] = []
    while not store._merging._counts:
        sent += fill(store, 1, start=len(sent))
    merged = chunk_path(1)
    assert merged in chunks_on(disk)
    disk.flip(merged, 70)
    disk.kill()
    replaced = disk.calls["replace"]
    again = opened(disk, ONE_SEGMENT)
    assert merged not in chunks_on(disk)
    assert disk.calls["replace"] - replaced <= 2, "sound chunks were made again"
    assert bodies(again) == sent


def test_retention_takes_chunks_away_from_a_merge_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SLICE_ROWS", 1)
    settings = dataclasses.replace(SEGMENTS, retention_s=1.0)
    moments = []
    while not moments or moments[-1] != (True, True):
        disk = SimDisk()
        store = opened(disk, settings)
        stored(store, *[command(f"+{name} t") for name in "abcd"])
        sent: list[bytes] = []
        while store._merging._work is None or store._keys.chunks[-1].start < 8192:
            sent += fill(store, 1, start=len(sent))
        for _ in moments:
            store._merging.step(store._log.bases, 1000)
        moments.append((store._merging._work is None, store._merging._counts))
        stored(store, incoming("late"), now_ms=1_000_000)
        sync(store)
        while (due := store.removal_due(1_000_000)) is None:
            store.tick(1_000_000)
        store.remove_before(due.end)
        rest(store, 40)
        on_disk = [chunk_path(chunk.number) for chunk in store._keys.chunks]
        assert chunks_on(disk) == on_disk
        first = store.bounds("t:0").min
        for key in ("t:0", "~a", "~b", "~c", "~d"):
            assert bodies(store, key) == [*sent, b"late"][first:]
        with pytest.raises(OffsetOutOfRange):
            store.read("t:0", first - 1, 1, 1000)
        disk.kill()
        assert bodies(opened(disk, settings)) == [*sent, b"late"][first:]
    assert moments.count((False, False)) > 10, "before queues are pointed to what was made,"
    assert moments.count((False, True)) > 10, "meanwhile, and while its sources are removed"


def test_a_start_at_the_older_checkpoint_finds_a_chunk_that_ends_there() -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    sent = fill(store, 150)
    for number in range(150, 250, 5):  # more than one merge ends meanwhile
        sent += fill(store, 5, start=number)
        rest(store, 40)
        copy = SimDisk()
        for path in disk.paths():
            copy.put(path, disk.read(path))
        copy.delete(copy.paths("checkpoint")[-1])
        again = opened(copy, ONE_SEGMENT)
        assert bodies(again) == sent
        assert [chunk for chunk in again._keys.chunks if chunk.level], "the replay began near the end"
