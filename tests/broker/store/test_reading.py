"""Reading: raw frames, few reads, and nothing that is not good."""

from __future__ import annotations

import errno
from itertools import chain

import pytest

from broker.store import reading
from broker.store.frames import is_good
from broker.store.message_store import MessageStore
from broker.store.settings import StoreSettings
from penstock.errors import OffsetOutOfRange
from penstock.protocol.message import ENTRY, STORED_AT, decode_batch, tag_hash
from tests.broker.store.store_rig import bodies, fill, incoming, messages, opened, stored, tick
from tests.simulation.disk import SimDisk

WIDE = StoreSettings(
    segment_bytes=1 << 18, reserve_step_bytes=4096, emergency_bytes=0, chunk_bytes=1 << 17, fresh_bytes=0
)


def test_a_pull_is_entries_then_untouched_frames() -> None:
    store = opened(SimDisk())
    placed = store.append([incoming("a", tag="hot"), incoming("bc")], 1000)
    point = store.sync_point()
    store.sync()
    store.mark_durable(point)
    store.mark_committed(point)
    pulled = store.read("t:0", 0, 10, 10_000)
    body = bytes(pulled.body)
    rows = list(ENTRY.iter_unpack(body[: 2 * ENTRY.size]))
    assert [(row[0], row[1], row[3]) for row in rows] == [
        (0, placed[0].position, tag_hash("hot")),
        (1, placed[1].position, 0),
    ]
    frame = body[2 * ENTRY.size : 2 * ENTRY.size + rows[0][2]]
    assert is_good(frame, placed[0].position)
    assert len(body) == 2 * ENTRY.size + rows[0][2] + rows[1][2]
    assert (pulled.count, pulled.next, pulled.min, pulled.end) == (2, 2, 0, 2)


def test_the_size_of_a_queue_is_its_number_of_messages_times_the_mean_of_the_newest() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    stored(store, incoming("x" * 90_000), *[incoming("y" * 1_000)] * reading.SAMPLED)
    disk.calls.clear()
    assert (reading.SAMPLED + 1) * 1_000 < store.size_of("t:0") < (reading.SAMPLED + 1) * 1_200
    assert "pread" not in disk.calls, "the newest entries are in memory"


def test_neighbours_in_the_log_are_one_read() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    stored(store, *[incoming(str(number)) for number in range(50)])
    disk.calls.clear()
    assert store.read("t:0", 0, 50, 1 << 20).count == 50
    assert disk.calls["pread"] == 1


def test_entries_of_two_queues_interleaved_are_still_few_reads() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    stored(store, *[incoming(str(number), queue_id=number % 2) for number in range(100)])
    disk.calls.clear()
    pulled = store.read("t:1", 0, 50, 1 << 20)
    assert [message.body for _, message in decode_batch(pulled.count, pulled.body)] == [
        str(number).encode() for number in range(1, 100, 2)
    ]
    assert disk.calls["pread"] == 1


def test_readers_that_catch_up_cost_the_readers_at_the_tail_nothing() -> None:
    """A message at the tail takes the same calls of the disk, whoever reads the sealed past in between."""

    def calls_per_message(with_others: bool) -> list[dict[str, int]]:
        disk = SimDisk()
        store = opened(disk)
        fill(store, 300)
        behind = [0, 150]  # places of two readers
        found = []
        for number in range(40):
            stored(store, incoming(f"new {number}", "live"))
            if with_others:
                behind = [store.read("t:0", offset, 5, 1 << 20).next for offset in behind]
            disk.calls.clear()
            assert store.read("live:0", number, 10, 1 << 20).count == 1
            found.append(dict(disk.calls))
        return found

    alone, among_others = calls_per_message(False), calls_per_message(True)
    assert alone == among_others
    assert all(calls == {"pread": 1} for calls in alone), alone[0]


@pytest.mark.parametrize("count_max", [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("bytes_max", [1, 1000, 1 << 20])
def test_any_limits_give_every_message_once_and_in_order(count_max: int, bytes_max: int) -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 150)
    found = [body for _, body in messages(store, "t:0", count_max=count_max, bytes_max=bytes_max)]
    assert found == sent


@pytest.mark.parametrize("count_max", [3, 1000])
@pytest.mark.parametrize("batch", [10, 63, 64, 200])
def test_the_vectorised_tag_filter_agrees_with_the_plain_one(batch: int, count_max: int) -> None:
    store = opened(SimDisk(), WIDE)
    tags = ["a", "b", "", "c", "b"]
    sent = [incoming(str(number), tag=tags[number % 5]) for number in range(batch)]
    stored(store, *sent)
    for wanted in ({"a"}, {"b"}, {"a", "c"}, {"none"}):
        found = [body for _, body in messages(store, "t:0", tags=frozenset(map(tag_hash, wanted)), count_max=count_max)]
        assert found == [str(number).encode() for number in range(batch) if tags[number % 5] in wanted]


def test_a_rotten_frame_among_neighbours_is_passed_over_alone() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    stored(store, *[incoming(str(number)) for number in range(10)])
    disk.flip("log/00000000000000000000.log", store.position_of("t:0", 4) + 115)
    pulled = store.read("t:0", 0, 10, 1 << 20)
    assert [offset for offset, _ in decode_batch(pulled.count, pulled.body)] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert (pulled.next, store.damaged) == (10, 1)


def test_when_a_stretch_cannot_be_read_at_once_its_frames_are_tried_one_by_one() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    stored(store, *[incoming(str(number)) for number in range(10)])
    disk.fail("pread", errno.EIO)
    assert bodies(store) == [str(number).encode() for number in range(10)]


def test_a_page_that_cannot_be_read_costs_only_its_own_messages() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    stored(store, *[incoming(str(number).ljust(2000)) for number in range(10)])
    disk.spoil_page("log/00000000000000000000.log", store.position_of("t:0", 5) + 100)
    left = [int(body) for body in bodies(store)]
    assert 7 <= len(left) < 10
    assert left == sorted(left)


def test_a_search_by_time_passes_sealed_and_unsealed_entries() -> None:
    store = opened(SimDisk())
    for number in range(120):
        stored(store, incoming(str(number).ljust(80)), now_ms=1000 + number * 10)
        tick(store)
    assert store.sealed > 0
    assert [store.seek_time("t:0", at) for at in (0, 1000, 1001, 1500, 2190, 2191)] == [0, 0, 1, 50, 119, 120]


def test_the_position_of_a_reader_is_that_of_its_next_message() -> None:
    store = opened(SimDisk())
    first, second = store.append([incoming("a"), incoming("b")], 1000)
    assert [store.position_of("t:0", offset) for offset in (-5, 0, 1)] == [
        first.position,
        first.position,
        second.position,
    ]
    assert store.position_of("t:0", 2) == store.written


def test_the_offset_at_a_position_is_that_of_the_next_message_sealed_or_not() -> None:
    store = opened(SimDisk())
    for number in range(120):
        stored(store, incoming(str(number).ljust(80)))
        tick(store)
    assert store.sealed > 0
    for offset in range(120):
        position = store.position_of("t:0", offset)
        assert store.offset_at("t:0", position) == offset
        assert store.offset_at("t:0", position + 1) == offset + 1
    assert store.offset_at("t:0", 0) == 0
    assert store.offset_at("t:0", store.written) == 120


def test_a_find_respects_time_and_count() -> None:
    store = opened(SimDisk())
    for number in range(10):
        stored(store, incoming(str(number), key="k"), now_ms=1000 + number)
    pulled = store.find("t", "k", 1002, 1008, 3)
    assert [message.body for _, message in decode_batch(pulled.count, pulled.body)] == [b"7", b"6", b"5"]
    assert [offset for offset, _ in decode_batch(pulled.count, pulled.body)] == [7, 6, 5]


def test_a_find_in_the_past_does_not_read_what_is_newer() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    for number in range(300):
        stored(store, incoming(str(number), key="k"), now_ms=1000 + number)
    disk.calls.clear()
    pulled = store.find("t", "k", 1002, 1005, 100)
    assert [message.body for _, message in decode_batch(pulled.count, pulled.body)] == [b"4", b"3", b"2"]
    assert disk.calls["pread"] < 40


@pytest.mark.parametrize("before", [1 << 62, 150_000])
def test_a_find_of_one_message_reads_little_though_very_many_have_its_key(before: int) -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    for number in range(1500):
        stored(store, incoming(str(number), key="k"))
    tick(store)
    rows = sum([chunk.size - chunk.directory_bytes for chunk in store._keys.chunks])
    assert rows > 30_000, "most of it is in index chunks"
    disk.bytes_read = 0
    pulled = store.find("t", "k", 0, 1 << 62, 1, before)
    assert (pulled.count, 0 < pulled.next < before) == (1, True)
    assert disk.bytes_read < 12_000


def found_in_pages(store: MessageStore, key: str, since_ms: int, until_ms: int, count_max: int) -> list[list[bytes]]:
    """Each page of a search."""
    pages, before = [], 1 << 62
    while before:
        pulled = store.find("t", key, since_ms, until_ms, count_max, before)
        pages.append([message.body for _, message in decode_batch(pulled.count, pulled.body)])
        assert pulled.next < before
        before = pulled.next
    return pages


@pytest.mark.interpreted
@pytest.mark.parametrize("times", [(0, 1 << 62), (1040, 1161), (1000, 1001), (1199, 1 << 62), (0, 5)])
def test_a_search_is_bounded_and_its_pages_hold_every_message_once(
    times: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(SimDisk())
    for number in range(200):
        stored(store, incoming(str(number), key="k" if number % 3 else "other"), now_ms=1000 + number)
        tick(store, 1000 + number)
    assert len(store._keys.chunks) >= 5, "most of it is in index chunks"
    wanted = [b"%d" % number for number in reversed(range(200)) if number % 3 and times[0] <= 1000 + number < times[1]]
    assert found_in_pages(store, "k", *times, 1000) == [wanted]
    assert all(len(page) <= 7 for page in found_in_pages(store, "k", *times, 7))
    monkeypatch.setattr(reading, "FIND_MAX", 5)
    assert all(len(page) <= 5 for page in found_in_pages(store, "k", *times, 1000))
    monkeypatch.setattr(reading, "FIND_MAX", 3)
    assert len(found_in_pages(store, "nobody's", 0, 1 << 62, 1000)) > 1, "chunks without the key count too"
    for count_max in (1, 2, 7, 1000):
        assert list(chain.from_iterable(found_in_pages(store, "k", *times, count_max))) == wanted


@pytest.mark.interpreted
def test_a_page_of_a_search_has_few_bytes_but_at_least_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(SimDisk(), WIDE)
    stored(store, *[incoming(str(number).ljust(1000), key="k") for number in range(8)])
    monkeypatch.setattr(reading, "READ_BYTES_MAX", 2500)
    assert [len(page) for page in found_in_pages(store, "k", 0, 1 << 62, 100)] == [3, 3, 2]
    monkeypatch.setattr(reading, "READ_BYTES_MAX", 1)
    assert [len(page) for page in found_in_pages(store, "k", 0, 1 << 62, 100)] == [1] * 8


@pytest.mark.parametrize("rotten", range(10))
def test_a_search_misses_nothing_but_what_is_rotten(rotten: int) -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    for number in range(10):
        stored(store, incoming(str(number), key="k"), now_ms=1000 + number)
    disk.flip("log/00000000000000000000.log", store.position_of("t:0", rotten) + 30 + STORED_AT)  # its store time
    for until_ms in range(1000, 1012):
        wanted = [b"%d" % number for number in reversed(range(10)) if number != rotten and 1000 + number < until_ms]
        assert found_in_pages(store, "k", 0, until_ms, 100) == [wanted]


def test_a_search_by_time_passes_over_holes() -> None:
    disk = SimDisk()
    store = opened(disk, WIDE)
    for number in range(20):
        stored(store, incoming(str(number)), now_ms=1000 + number * 10)
    for offset in (4, 5, 6, 7, 8, 9, 12):
        disk.flip("log/00000000000000000000.log", store.position_of("t:0", offset) + 100)
    disk.kill()
    store = opened(disk, WIDE, now_ms=5000)
    assert store.damage
    found = [store.seek_time("t:0", at) for at in (1000, 1030, 1031, 1100, 1130, 1131, 1190)]
    assert found == [0, 3, 10, 10, 13, 14, 19]


def test_frames_are_read_with_their_neighbours_and_one_that_is_not_good_is_empty() -> None:
    disk = SimDisk()
    store = opened(disk)  # of small segments
    ends: list[int] = []
    for number in range(200):
        ends.append(store.append([incoming(str(number))], 1000)[0].position)
    places = [(at, store._reading.frame(at)) for at in ends]
    wanted = [(at, len(frame)) for at, frame in places]
    disk.calls.clear()
    assert store.frames(wanted) == [frame for _, frame in places]
    assert disk.calls["pread"] == len(store._log.bases)
    mixed = [*wanted[9::-1], (wanted[3][0], wanted[3][1] + 1), (wanted[3][0] + 8, 100), (store.written + 8, 100)]
    assert store.frames(mixed) == [frame for _, frame in places[9::-1]] + [places[3][1], b"", b""]
    disk.flip("log/00000000000000000000.log", wanted[4][0] + 115)
    assert [bool(frame) for frame in store.frames(wanted[:6])] == [True, True, True, True, False, True]
    disk.fail("pread", errno.EIO)  # the first, of all together
    assert store.frames(wanted[5:8]) == [frame for _, frame in places[5:8]]


@pytest.mark.parametrize("given", [False, True])
def test_offsets_up_to_the_end_of_the_log_wait_until_they_are_committed(given: bool) -> None:
    """A leader that is new has messages that were read at the last one, and does not know yet that they may be."""
    store = opened(SimDisk())
    stored(store, incoming("a"))
    store.append([incoming("b"), incoming("c")], 1000)

    def count_at(offset: int) -> int | None:
        found = store.read_given("t:0", offset, 10, 10_000) if given else store.read("t:0", offset, 10, 10_000)
        return found.count if found is not None else 0

    assert [count_at(offset) for offset in (0, 1, 2, 3)] == [1, 0, 0, 0]
    with pytest.raises(OffsetOutOfRange, match="0 to 1"):
        count_at(4)
    point = store.sync_point()
    store.sync()
    store.mark_durable(point)
    store.mark_committed(point)
    assert [count_at(offset) for offset in (1, 2, 3)] == [2, 1, 0]
