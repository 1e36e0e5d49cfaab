"""Sealing: the index leaves memory without a gap, and a queue that ended meanwhile is still written."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import msgpack
import pytest

from broker.lineage.owner import KEYFRAME_SHARE, PARTS_PER_TICK
from broker.store import sealing
from broker.store.frames import read_stored
from broker.store.index_chunk import check_chunk
from broker.store.message_store import MessageStore
from broker.store.records import KEYFRAME_TOPIC
from broker.store.recovery import keyframe_at, open_segments, open_store
from broker.store.scan import Scan
from broker.store.sealing import INDEX_SHARE, KEYFRAME_PART, RETRY_MS, STRETCH
from broker.store.state import checkpoint_path, decode_checkpoint, decode_state, stored_positions
from penstock.protocol.message import FRAME_HEAD_BYTES, record_body
from tests.broker.store.store_rig import SMALL, SmallFolds, bodies, command, fill, incoming, opened, stored, sync, tick
from tests.simulation.disk import SimDisk


def test_chunks_follow_each_other_without_a_gap_and_end_at_segment_borders() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 300)
    ends = [0]
    for start in stored_positions(disk, "index", ".idx"):
        checked = check_chunk(disk, start)
        assert checked is not None
        chunk, _ = checked
        assert chunk.start == ends[-1]
        ends.append(chunk.end)
    borders = set(range(SMALL.segment_bytes, ends[-1] + 1, SMALL.segment_bytes))
    assert borders <= set(ends)
    assert ends[-1] == store.sealed


def test_only_the_newest_checkpoints_are_kept() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 300)
    kept = stored_positions(disk, "checkpoint", ".ckpt")
    assert len(kept) == 2
    assert kept[-1] == store.sealed


def test_nothing_is_sealed_before_it_is_durable() -> None:
    disk = SimDisk()
    store = opened(disk)
    for number in range(60):
        store.append([incoming(str(number) * 50)], 1000)
        tick(store)
    assert disk.paths("index") == []
    sync(store)
    tick(store)
    assert disk.paths("index") != []


def test_a_queue_that_ended_before_its_entries_were_sealed_lives_again_if_its_end_is_lost() -> None:
    lived_again = 0
    for seed in range(20):
        disk = SimDisk(seed)
        store = opened(disk)
        stored(store, command("+all t"))
        sent = []
        while not store._sealing._plans:
            sent.append(str(len(sent)).encode() * 20)
            store.append([incoming(sent[-1])], 1000)
            tick(store)
        sync(store)
        store.append([command("-all")], 1000)
        tick(store)
        disk.write_back("index")
        disk.write_back("checkpoint")
        disk.lose_power()
        again = opened(disk)
        if again._index.find("~all") is not None:
            assert bodies(again, "~all") == sent
            lived_again += 1
    assert lived_again > 0


def test_an_index_that_cannot_be_written_waits_and_harms_nothing() -> None:
    disk = SimDisk()
    store = opened(disk)
    for number in range(40):
        disk.fail("replace", errno.EIO)
        stored(store, incoming(str(number).rjust(100)))
        tick(store)
        sync(store)
    assert disk.paths("index") == []
    disk.kill()
    sent = [str(number).rjust(100).encode() for number in range(40)]
    assert bodies(store) == sent
    for _ in range(5):
        tick(store, 1000 + RETRY_MS)
    assert disk.paths("index") != []
    assert bodies(store) == sent


ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 18)
LINE = "index/ or checkpoint/ cannot be written: Read-only file system"


@pytest.mark.parametrize("folder", ["index", "checkpoint"])
def test_a_start_says_at_once_that_the_index_cannot_be_written(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 40)
    store.close(1000)
    assert store.index_trouble == ""
    disk.read_only = {folder}
    again = opened(disk)
    assert again.index_trouble == "Read-only file system"
    assert caplog.text.count(LINE) == 1
    more = fill(again, 40, start=40)
    assert bodies(again) == sent + more
    disk.kill()
    disk.read_only = set()
    once_more = opened(disk)
    assert bodies(once_more) == sent + more
    assert once_more.index_trouble == ""
    assert not [path for path in disk.paths() if "probe" in path]


def test_an_index_that_cannot_be_written_any_more_is_told_once_and_holds_few_plans_and_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    sent = fill(store, 60)
    sealed = store.sealed
    assert sealed > 0
    disk.read_only = {"index", "checkpoint"}
    now_ms = 1000
    for number in range(60, 300):
        sent += fill(store, 1, start=number)
        now_ms += RETRY_MS // 10
        tick(store, now_ms)
    assert (store.index_trouble, store.sealed) == ("Read-only file system", sealed)
    assert caplog.text.count(LINE) == 1
    assert len(store._sealing._plans) <= 2
    assert bodies(store) == sent
    disk.read_only = set()
    for _ in range(5):
        tick(store, now_ms + RETRY_MS)
        sync(store)
    assert store.index_trouble == ""
    assert caplog.text.count("the index can be written again") == 1
    assert store.written - store.sealed < ONE_SEGMENT.chunk_bytes
    assert bodies(store) == sent
    disk.kill()
    assert bodies(opened(disk, ONE_SEGMENT)) == sent


def test_a_checkpoint_holds_the_state_at_its_own_position() -> None:
    disk = SimDisk()
    store = opened(disk)
    while not store._sealing._plans:
        stored(store, incoming("x" * 100))
        store._sealing.plan_if_due(store.written)
    opening = store.written
    stored(store, command("+late t"))
    tick(store)
    position = stored_positions(disk, "checkpoint", ".ckpt")[-1]
    assert position <= opening
    snapshot = decode_checkpoint(disk.read(checkpoint_path(position)), position)
    assert snapshot is not None
    assert "~late" not in [row.key for row in decode_state(snapshot).queues]


def test_a_checkpoint_knows_no_message_that_came_behind_it() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, *[incoming(str(number)) for number in range(5)])
    store._sealing.plan(store.written)
    position = store.written
    stored(store, *[incoming(str(number)) for number in range(5)])
    while store.sealed < position:
        tick(store)
    snapshot = decode_checkpoint(disk.read(checkpoint_path(position)), position)
    assert snapshot is not None
    assert [row.next for row in decode_state(snapshot).queues] == [5]
    disk.kill()
    assert len(bodies(opened(disk))) == 10


class SlowFolds(SmallFolds):
    """Their bytes are made when they are asked for, and no more of them once they are frozen again, as with the real
    ones."""

    frozen = 0

    def freeze(self) -> Iterator[bytes]:
        self.frozen += 1
        return self._pieces(self.frozen, b"".join(super().freeze()))

    def _pieces(self, mine: int, packed: bytes) -> Iterator[bytes]:
        for at in range(0, len(packed), 10):
            if mine != self.frozen:
                return
            yield packed[at : at + 10]


def test_a_checkpoint_is_whole_though_other_plans_were_made_before_it_was_written() -> None:
    disk = SimDisk()
    store = open_store(disk, SMALL, SlowFolds(), 1000)
    stored(store, command("+all t"), incoming("r" * 50, "r", retain=True))
    for _ in range(40):
        stored(store, incoming("x" * 800))
        store._sealing.plan_if_due(store.written)
    assert len(store._sealing._plans) > 5
    sync(store)
    store._sealing.finish(1000)
    disk.delete(disk.paths("checkpoint")[-1])  # the one of the last plan, behind which none was made
    disk.kill()
    folds = SlowFolds()
    open_store(disk, SMALL, folds, 1000)
    assert folds.open == {"~all": "t"}
    assert folds.retained == {"r": b"r" * 50}


def test_only_the_unsealed_log_is_read_at_start() -> None:
    disk = SimDisk()
    fill(opened(disk), 300)
    disk.kill()
    disk.calls.clear()
    opened(disk)
    assert len(disk.paths("index")) > 5
    assert disk.calls["pread"] < 60
    assert disk.calls.get("replace", 0) <= 2, "sound chunks were made again"


def test_many_queues_are_sealed_a_piece_at_a_time_and_stay_readable_all_the_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealing, "SLICE_QUEUES", 10)
    disk = SimDisk()
    store = opened(disk)
    stored(store, *[incoming(str(number), queue_id=number) for number in range(35)])
    store._sealing.plan(store.written)
    store._sealing._plans[-1].finish()
    steps = 0
    while store.sealed < store.written:
        store._sealing.step()
        stored(store, incoming(f"{steps} later", queue_id=3))
        assert bodies(store, "t:34") == [b"34"]
        assert bodies(store, "t:3") == [b"3", *[b"%d later" % number for number in range(steps + 1)]]
        steps += 1
        if steps == 3:
            assert store.sealed == 0
        if not store._sealing._plans:
            break
    assert 6 <= steps <= 9
    disk.kill()
    assert bodies(opened(disk), "t:3")[0] == b"3"


LARGE = SMALL.segment_bytes * 3
"""So large is the state in these tests, or a little larger."""


def with_large_state(disk: SimDisk, size: int = LARGE, retention_bytes: int = 0) -> MessageStore:
    """A store with retained messages that no segment holds."""
    store = opened(disk, replace(SMALL, retention_bytes=retention_bytes))
    for number in range(size // 1000 + 1):
        stored(store, incoming(f"{number:03d}" * 333, topic=f"kept/{number:02d}", retain=True))
    return store


def keyframes_of(disk: SimDisk) -> dict[int, list[int]]:
    """Where the parts of each segment's keyframe are."""
    found: dict[int, list[int]] = {}
    segments = open_segments(disk, SMALL)
    for position, frame in Scan(segments, segments[0].base):
        if read_stored(frame, position).topic == KEYFRAME_TOPIC:
            *_, base = msgpack.unpackb(record_body(memoryview(frame)[FRAME_HEAD_BYTES:]))
            found.setdefault(base, []).append(position)
    return found


def test_the_keyframe_of_a_state_that_no_segment_holds_goes_on_in_the_next_ones() -> None:
    disk = SimDisk()
    fill(with_large_state(disk), 2500)
    disk.kill()
    parts, segments = keyframes_of(disk), open_segments(disk, SMALL)
    assert len(parts) >= 3
    assert all(positions[-1] - base > LARGE for base, positions in parts.items())
    assert all(keyframe_at(segments, base) is not None for base in list(parts)[:-1])


def test_keyframes_stay_a_part_of_the_log_however_large_the_state_is() -> None:
    disk = SimDisk()
    fill(with_large_state(disk), 2500)
    disk.kill()
    gaps = [later - earlier for earlier, later in pairwise([0, *keyframes_of(disk)])]
    assert min(gaps) >= KEYFRAME_SHARE * LARGE
    assert max(gaps) <= KEYFRAME_SHARE * LARGE + 3 * SMALL.segment_bytes


def test_retention_goes_on_with_a_state_that_no_segment_holds_and_the_log_alone_still_says_all() -> None:
    disk = SimDisk()
    store = with_large_state(disk, retention_bytes=SMALL.segment_bytes)
    expected = store._sealing._folds.retained  # type: ignore[attr-defined]
    most = 0
    for number in range(2500):
        stored(store, incoming("x" * 100))
        tick(store)
        if number > 2000:
            most = max(most, store.written - store.start)
    assert most <= (KEYFRAME_SHARE + 2) * LARGE + 3 * SMALL.segment_bytes
    disk.kill()
    for path in [*disk.paths("index"), *disk.paths("checkpoint")]:
        disk.delete(path)
    folds = SmallFolds()
    open_store(disk, SMALL, folds, 1000)
    assert folds.retained == expected
    assert len(expected) > 20


def test_plans_do_not_pile_up_and_retention_goes_on_where_several_segments_are_filled_in_a_tick() -> None:
    store = opened(SimDisk(), replace(SMALL, retention_bytes=2 * SMALL.segment_bytes))
    most, plans = 0, 0
    for number in range(8_000):
        store.append([incoming("x" * 100)], 1000)
        if number % 100 == 99:
            sync(store)
            tick(store)
            plans = max(plans, len(store._sealing._plans))
            most = max(most, store.written - store.start)
    assert plans <= 10
    assert most <= 20 * SMALL.segment_bytes


def test_a_segment_that_was_full_before_its_state_was_made_into_bytes_has_a_keyframe_in_the_next() -> None:
    disk = SimDisk()
    store = opened(disk)
    base = 0
    while not base:
        stored(store, incoming("x" * 200))
        base = store._log.active.base
    while store._log.active.base == base:  # nobody ticks meanwhile
        stored(store, incoming("x" * 200))
    for _ in range(20):
        tick(store)
        sync(store)
    disk.kill()
    assert keyframes_of(disk)[base][0] >= base + SMALL.segment_bytes
    assert keyframe_at(open_segments(disk, SMALL), base) is not None


def test_where_that_has_no_room_for_it_either_the_keyframe_is_in_the_third_segment() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, incoming("x" * 900, topic="kept", retain=True))
    base = 0
    while not base:
        stored(store, incoming("x" * 200))
        base = store._log.active.base
    while store._log.active.base == base or store._log.room() > 900:  # nobody ticks meanwhile
        stored(store, incoming("x" * 200))
    for _ in range(20):
        tick(store)
        sync(store)
    disk.kill()
    segments = open_segments(disk, SMALL)
    third = [one.base for one in segments if one.base >= base][2]
    assert keyframes_of(disk)[base][0] >= third
    assert keyframe_at(segments, base) is not None


def test_a_long_keyframe_is_written_a_few_parts_at_a_time_also_while_others_wait() -> None:
    disk = SimDisk()
    store = with_large_state(disk, 2 * LARGE)
    written: list[int] = []
    for _ in range(2000):
        stored(store, incoming("x" * 100))
        before = store.written
        tick(store)
        written.append(store.written - before)
    in_a_segment = KEYFRAME_PART - 1  # beside the heads of frames
    assert max(written) <= (PARTS_PER_TICK // in_a_segment + 1) * SMALL.segment_bytes < 2 * LARGE
    assert sum(written) > 4 * LARGE


def test_a_keyframe_that_was_cut_short_anywhere_leaves_a_log_that_is_whole() -> None:
    for number in range(40):
        disk = SimDisk(number)
        store = with_large_state(disk)
        expected = dict(store._sealing._folds.retained)  # type: ignore[attr-defined]
        while store._log.active.base < KEYFRAME_SHARE * LARGE:
            stored(store, incoming("x" * 200))
            tick(store)
        for _ in range(number):
            tick(store)
        (disk.lose_power if number % 2 else disk.kill)()
        for again in range(2):
            if again:
                for path in [*disk.paths("index"), *disk.paths("checkpoint")]:
                    disk.delete(path)
            folds = SmallFolds()
            store = open_store(disk, SMALL, folds, 1000)
            assert folds.retained == expected
            fill(store, 30)
            disk.kill()


def test_an_index_that_is_much_longer_than_its_log_is_sealed_sooner() -> None:
    disk = SimDisk()
    store = opened(disk, replace(SMALL, segment_bytes=1 << 20, chunk_bytes=30_000))
    stored(store, *[command(f"+f{number} t") for number in range(100)])
    sent = fill(store, 10, size=10)
    rows = INDEX_SHARE * 30_000 // (101 * 20)
    assert store._sealing.planned == 0
    sent += fill(store, rows, size=10, start=10)
    assert 0 < store._sealing.planned < store.written < 30_000
    assert bodies(store, "~f7") == sent


def test_between_two_plans_lies_several_times_the_state_up_to_some_chunks() -> None:
    for size, chunks in ((SMALL.chunk_bytes // 4, 2), (SMALL.chunk_bytes, STRETCH)):
        disk = SimDisk()
        store = opened(disk, replace(SMALL, segment_bytes=1 << 20))
        stored(store, incoming("x" * size, topic="kept", retain=True))
        for _ in range(2):
            before = store.sealed
            while store.sealed == before:
                fill(store, 1)
        assert chunks <= (store.sealed - before) / SMALL.chunk_bytes < chunks + 1


def test_a_large_state_is_written_less_often_so_that_it_costs_no_more_than_a_few_times_the_log() -> None:
    disk = SimDisk()
    store = opened(disk, replace(SMALL, segment_bytes=1 << 20))
    for number in range(20):
        stored(store, incoming("x" * SMALL.chunk_bytes, topic=f"kept{number}", retain=True))
        tick(store)
    for _ in range(5):
        tick(store)
        sync(store)
    before, made = store.sealed, disk.calls["replace"]
    while store.sealed == before:
        fill(store, 1)
    assert store.sealed - before > STRETCH * SMALL.chunk_bytes
    assert disk.calls["replace"] - made == 2
