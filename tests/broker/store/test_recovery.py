"""Opening a store: every state in which a folder can be found."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from collections.abc import Callable
from itertools import pairwise

import pytest

from broker.store import label
from broker.store.destinations import Incoming
from broker.store.disk import DRAFT
from broker.store.frames import crc_of
from broker.store.inspection import verify
from broker.store.message_store import MessageStore
from broker.store.recovery import keyframe_at, open_segments, open_store
from broker.store.sealing import RETRY_MS
from broker.store.settings import StoreSettings
from penstock.errors import DataFolderLocked, DataFolderUnusable, StorageFailed, StorageFull
from penstock.protocol.message import decode_batch
from penstock.version import VERSION
from tests.broker.store.store_rig import (
    SMALL,
    SmallFolds,
    bodies,
    command,
    fill,
    incoming,
    messages,
    opened,
    pack_frame,
    record_of,
    segment_paths,
    stored,
    sync,
    tick,
)
from tests.simulation.disk import PowerCut, SimDisk

ROOMY = StoreSettings(
    segment_bytes=16 << 20,
    reserve_step_bytes=1 << 16,
    emergency_bytes=0,
    chunk_bytes=1 << 20,
    retention_s=0.0,
    fresh_bytes=0,
)


def test_an_empty_folder_becomes_an_empty_store() -> None:
    disk = SimDisk()
    store = opened(disk)
    assert store.damage == []
    assert store.durable == store.written
    assert disk.names("log") == ["00000000000000000000.log", "label.toml"]


def test_a_folder_is_held_by_one_store_until_it_closes() -> None:
    disk = SimDisk()
    store = opened(disk)
    with pytest.raises(DataFolderLocked):
        opened(disk)
    store.close(1000)
    opened(disk)


def test_a_failed_start_gives_the_folder_back() -> None:
    disk = SimDisk()
    disk.fail("create", errno.EACCES)
    with pytest.raises(DataFolderUnusable, match="Permission denied"):
        opened(disk)
    opened(disk)


def test_a_torn_tail_is_cut_and_writing_goes_on_there() -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 5)
    end = store.written
    store.append([incoming("torn")], 1000)
    disk.flip("log/00000000000000000000.log", end + 30)
    disk.kill()
    again = opened(disk)
    assert (bodies(again), again.damage) == (sent, [])
    stored(again, incoming("next"))
    disk.kill()
    assert bodies(opened(disk)) == [*sent, b"next"]


def test_rot_in_the_middle_is_reported_and_never_cut_and_the_rest_stays_readable() -> None:
    disk = SimDisk()
    store = opened(disk, StoreSettings(segment_bytes=1 << 16, emergency_bytes=0, reserve_step_bytes=1024))
    sent = fill(store, 20)
    bad = store.position_of("t:0", 7)
    following = store.position_of("t:0", 8)
    disk.flip("log/00000000000000000000.log", bad + 140)
    disk.kill()
    again = opened(disk, StoreSettings(segment_bytes=1 << 16, emergency_bytes=0, reserve_step_bytes=1024))
    assert again.damage == [(bad, following)]
    assert bodies(again) == sent[:7] + sent[8:]
    assert again.bounds("t:0").end == 20, "later offsets keep their meaning"


def test_rot_in_the_last_batch_is_told_from_a_torn_tail_by_the_seal() -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 3)
    tick(store, 2000)
    sync(store)
    disk.flip("log/00000000000000000000.log", store.position_of("t:0", 2) + 100)
    disk.kill()
    again = opened(disk)
    assert len(again.damage) == 1
    assert bodies(again) == sent[:2]
    assert (again.bounds("t:0").end, again.damaged) == (3, 1)


def test_the_offset_of_a_lost_message_is_never_another_messages() -> None:
    """A group that had read the lost one would take the next for read. Nothing lost: but what rotted itself."""
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 3)
    last = store.position_of("t:0", 2)
    store.append([incoming(b"of another queue", queue_id=1)], 1500)
    tick(store, 2000)
    sync(store)
    disk.flip("log/00000000000000000000.log", last + 100)
    for number in range(3):
        disk.kill()
        again = opened(disk)
        assert again.bounds("t:0").end == 3 + number
        again.append([incoming(b"next %d" % number)], 3000)
        sync(again)
        assert bodies(again) == [*sent[:2], *[b"next %d" % one for one in range(number + 1)]]
    assert again.bounds("t:1").end == 1, "what came behind the rot says where its queue is"
    again.close(4000)
    assert opened(disk).bounds("t:0").end == 6


def test_the_offset_of_a_queues_only_message_that_rotted_is_never_anothers() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, incoming("b0", "b"))
    [lost] = store.append([incoming("a0", "a")], 1000)
    sync(store)
    for number in (1, 2):
        stored(store, incoming(f"b{number}", "b"))
    disk.kill()
    disk.flip("log/00000000000000000000.log", lost.position + 50)
    folds = SmallFolds()
    folds.topics = [("a", 0), ("b", 0)]
    again = open_store(disk, SMALL, folds, 1000)
    assert again.damage
    [placed] = again.append([incoming("another", "a")], 1000)
    assert placed.offset > lost.offset


def mostly_lost(disk: SimDisk, settings: StoreSettings = SMALL, *left: Incoming) -> int:
    """A log in which all messages of topic ``a`` but these have rotted, and with them what made it if there are none;
    the offset behind them."""
    store = opened(disk, settings)
    stored(store, *left)
    stored(store, incoming("0", "b"))
    begin = store.written
    for number in range(5):
        stored(store, incoming(str(number), "a"))
    end, bound = store.written, store.bounds("a:0").end
    stored(store, incoming("1", "b"))
    for number in range(40):
        stored(store, incoming(str(number), "late"))
    disk.kill()
    for at in range(begin + 10, end, 100):
        disk.flip("log/00000000000000000000.log", at)
    return bound


def test_a_topic_that_rotted_with_what_made_it_gives_out_no_offset_again_whenever_it_is_made() -> None:
    disk = SimDisk()
    bound = mostly_lost(disk)
    again = opened(disk)
    assert again.damage
    again.ensure_queue("a", 0)
    assert again.bounds("a:0").min == again.bounds("a:0").end >= bound
    again.close(1000)
    later = opened(disk)
    assert later.damage == []
    [first] = later.append([incoming("another", "a", 1)], 1000)
    assert first.offset >= bound
    for _ in range(2):
        sync(later)
        disk.kill()
        later = opened(disk)
        assert given(later, "a:1") == {first.offset: b"another"}
        for path in derived(disk):  # the log alone says so, too
            disk.delete(path)


@pytest.mark.parametrize("left", [[], [incoming("left", "a")]], ids=["nothing is left", "a message is left"])
def test_a_start_over_damage_that_dies_while_it_seals_gives_no_offset_out_again(left: list[Incoming]) -> None:
    """Some chunks behind the damage are there then, and the next start does not come to it."""
    settings = dataclasses.replace(SMALL, segment_bytes=2048, reserve_step_bytes=512)
    seen = set()
    for after in range(12):
        disk = SimDisk()
        bound = mostly_lost(disk, settings, *left)
        disk.cut_power("replace", after=after)
        with contextlib.suppress(PowerCut):
            opened(disk, settings)
        disk.kill()
        again = opened(disk, settings)
        seen.add(bool(again.damage))
        again.ensure_queue("a", 0)
        assert again.bounds("a:0").end >= bound
        late = given(again, "late:0")
        assert late == dict(enumerate(late.values())), "these began before anybody knew of the damage"
        assert len(late) == 40
    assert seen == {True, False}


def test_rot_at_the_end_is_told_from_a_torn_tail_by_a_checkpoint_though_its_chunk_is_lost() -> None:
    disk = SimDisk()
    store = opened(disk, ROOMY)
    fill(store, 30)
    [last] = store.append([incoming("the last")], 1000)
    store.close(1000)
    end = store.written
    disk.delete(disk.paths("index")[-1])
    for at in (last.position + 120, end - 20):  # the message, and the seal behind it
        disk.flip("log/00000000000000000000.log", at)
    again = opened(disk, ROOMY)
    assert again.damage == [(last.position, end)]
    [placed] = again.append([incoming("another")], 1000)
    assert placed.offset > last.offset


def test_a_start_that_reads_much_of_the_log_seals_as_it_goes_and_the_next_one_goes_on_there() -> None:
    settings = dataclasses.replace(ROOMY, chunk_bytes=1 << 18)
    disk = SimDisk()
    store = opened(disk, settings)
    count = 0
    while store.written < 10 << 20:
        stored(store, *[incoming(b"x" * 1000) for _ in range(200)])
        count += 200
    store.close(1000)
    for path in [*disk.paths("index"), *disk.paths("checkpoint")]:
        disk.delete(path)

    def break_off(done: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(DataFolderUnusable):
        open_store(disk, settings, SmallFolds(), 1000, break_off)
    reached = int(disk.paths("checkpoint")[-1].partition("/")[2].partition(".")[0])
    assert reached > 2 << 20, "all but what the newest plans are for"
    seen: list[int] = []
    again = open_store(disk, settings, SmallFolds(), 1000, lambda done, total: seen.append(total))
    assert seen[-1] <= store.written - reached + settings.reserve_step_bytes
    assert again.bounds("t:0").end == count
    assert len(list(messages(again, "t:0"))) == count


def test_a_start_that_reads_much_behind_damage_seals_it_too_and_the_next_one_goes_on_there() -> None:
    settings = dataclasses.replace(ROOMY, chunk_bytes=1 << 18)
    disk = SimDisk()
    store = opened(disk, settings)
    stored(store, command("+all t"), incoming("left", "a"), incoming("rotten", "a"), incoming("gone", "b"))
    rotten = store.position_of("a:0", 1)
    sent: list[bytes] = []
    while store.written < 10 << 20:
        some = [str(number).encode().ljust(1000) for number in range(len(sent), len(sent) + 200)]
        stored(store, *[incoming(body) for body in some])
        sent += some
        if len(sent) == 400:
            stored(store, command("+later t"))
        if len(sent) == 600:
            stored(store, incoming("also rotten", "c"))
    offsets = max(given(store, "~all"))
    store.close(1000)
    log = "log/00000000000000000000.log"
    for at in (rotten + 100, rotten + 200, store.position_of("c:0", 0) + 100):
        disk.flip(log, at)
    for path in derived(disk):
        disk.delete(path)

    def break_off(done: int, total: int) -> None:
        if done > 5 << 20:
            raise InterruptedError

    with pytest.raises(DataFolderUnusable):
        open_store(disk, settings, SmallFolds(), 1000, break_off)
    reached = int(disk.paths("checkpoint")[-1].partition("/")[2].partition(".")[0])
    assert reached > 4 << 20
    seen: list[int] = []
    again = open_store(disk, settings, SmallFolds(), 1000, lambda done, total: seen.append(total))
    assert seen[-1] <= again.written - reached + settings.reserve_step_bytes
    assert bodies(again, "t:0") == sent
    now, later = given(again, "~all"), given(again, "~later")
    assert (list(now.values()), list(later.values())) == (sent, sent[400:])
    assert min(now) > offsets
    assert all(again.next_offset(key) <= again.written for key in ("~all", "~later"))
    for topic in ("a", "b", "c"):  # the first start knew what may be lost of them, the second one kept places for it
        [placed] = again.append([incoming("another", topic)], 1000)
        assert placed.offset >= (2 if topic == "a" else 1)


def test_a_replay_on_a_full_disk_goes_on_without_sealing() -> None:
    settings = dataclasses.replace(ROOMY, chunk_bytes=1 << 16)
    disk = SimDisk()
    store = opened(disk, settings)
    sent = [body for _ in range(10) for body in fill(store, 100, 1000)]
    disk.kill()
    for path in [*disk.paths("index"), *disk.paths("checkpoint")]:
        disk.delete(path)
    disk.capacity = disk.used()
    assert bodies(opened(disk, settings)) == sent


def test_how_large_the_state_is_is_known_from_the_start_on() -> None:
    settings = dataclasses.replace(ROOMY, chunk_bytes=1 << 14)
    disk = SimDisk()
    store = opened(disk, settings)
    stored(store, *[incoming(b"r" * 10_000, f"r{number}", retain=True) for number in range(50)])
    store.close(1000)
    again = opened(disk, settings)
    sealed = again.sealed
    for _ in range(5):  # more than a chunk, and less than a quarter of the state
        fill(again, 100)
        tick(again)
        sync(again)
    assert again.written > sealed + 2 * settings.chunk_bytes
    assert again.sealed == sealed


def test_rot_in_sealed_log_is_found_by_the_reader_and_passed_over() -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 100)
    store.close(1000)
    again = opened(disk)
    disk.flip("log/00000000000000000000.log", again.position_of("t:0", 3) + 120)
    assert bodies(again) == sent[:3] + sent[4:]
    assert again.damaged > 0


def test_recovery_vouches_for_nothing_that_it_has_not_synced() -> None:
    """A process dies, the next one recovers what was never synced, and then the power goes: the new process's own seal
    must not make a torn tail look like rot."""
    for seed in range(60):
        disk = SimDisk(seed)
        store = opened(disk)
        sent = fill(store, 2)
        for number in range(40):  # into the next segment
            store.append([incoming(b"unsynced %d" % number + bytes(100))], 1000)
        disk.kill()
        disk.cut_power("sync", after=seed % 4)
        with contextlib.suppress(PowerCut):
            opened(disk)
        disk.lose_power()
        again = opened(disk)
        assert again.damage == []
        assert bodies(again)[:2] == sent


def derived(disk: SimDisk) -> list[str]:
    return disk.paths("index") + disk.paths("checkpoint")


def test_what_a_failed_sync_left_unwritten_is_written_by_the_next_start() -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 40)  # in more than one segment
    store.append([incoming("unsynced")], 1000)
    disk.fail("sync", errno.EIO)
    with pytest.raises(StorageFailed):
        sync(store)
    disk.kill()
    assert bodies(opened(disk)) == [*sent, b"unsynced"], "the system shows it still"
    disk.lose_power()
    again = opened(disk)
    assert again.damage == []
    assert bodies(again) == [*sent, b"unsynced"], "and whoever has read it is right"


@pytest.mark.parametrize(
    "harm",
    [
        lambda disk, path: disk.delete(path),
        lambda disk, path: disk.flip(path, len(disk.read(path)) // 2),
        lambda disk, path: disk.put(path, b""),
        lambda disk, path: disk.put(path, disk.read(path)[:-1]),
        lambda disk, path: disk.obstruct(path),
        lambda disk, path: disk.fail("pread", errno.EIO, after=disk.calls["pread"] % 7),
    ],
    ids=["deleted", "flipped", "emptied", "shortened", "a folder instead", "unreadable now and then"],
)
def test_harm_to_any_one_derived_file_changes_nothing(harm: Callable[[SimDisk, str], None]) -> None:
    for number in range(100):
        disk = SimDisk()
        store = opened(disk)
        stored(store, command("+all t"))
        sent = fill(store, 120)
        bounds = store.bounds("t:0"), store.bounds("~all")
        store.close(1000)
        if number >= len(derived(disk)):
            assert number > 4, "the test met too few files"
            return
        harm(disk, derived(disk)[number])
        again = opened(disk)
        assert again.index_trouble == ""
        assert (again.bounds("t:0"), again.bounds("~all")) == bounds
        assert bodies(again) == bodies(again, "~all") == sent


RETAINED = dataclasses.replace(SMALL, retention_bytes=20_000)


def in_no_file(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "in no file of log/" in line]


def test_segments_that_are_gone_at_the_front_are_named_at_each_start(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    sent = fill(opened(disk), 120)
    disk.kill()
    disk.delete(segment_paths(disk)[0])
    for start in range(1, 3):
        store = opened(disk)
        assert store.missing == [(0, 8192)]
        assert (store.damage, store.damaged) == ([], 1)
        assert len(in_no_file(caplog)) == start
        assert "positions 0 to 8192 of the log are in no file" in in_no_file(caplog)[-1]
        assert set(bodies(store)) < set(sent)
        store.close(1000)


@pytest.mark.parametrize("has_index", [True, False])
def test_a_segment_that_is_gone_in_the_middle_is_named_and_no_damage_besides(
    has_index: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk()
    fill(opened(disk), 120)
    disk.kill()
    for path in [segment_paths(disk)[1], *([] if has_index else derived(disk))]:
        disk.delete(path)
    store = opened(disk)
    assert store.missing == store.damage == [(8192, 16384)]
    assert store.damaged == 1
    assert len(in_no_file(caplog)) == 1
    assert "kept as it is" not in caplog.text


def test_what_retention_removes_is_not_missed_whenever_the_power_is_cut() -> None:
    removed = set()
    for after in range(120):
        disk = SimDisk(after)
        store = opened(disk, RETAINED)
        disk.cut_power("any", after * 7)
        with contextlib.suppress(PowerCut):
            fill(store, 250)
        removed.add(store.start)
        disk.lose_power()
        again = opened(disk, RETAINED)
        assert again.missing == [], after
    assert len(removed) > 3


def test_on_a_full_disk_retention_makes_room_first_and_then_says_where_the_log_begins() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 250)
    store.close(1000)
    store = opened(disk, RETAINED)
    disk.capacity = disk.used()
    for size in (100, 1):
        with contextlib.suppress(StorageFull):  # what was reserved before can still be filled
            while True:
                stored(store, incoming("x" * size))
    before = disk.used()
    tick(store)
    assert store.start > 0
    assert disk.used() < before
    assert store._folds.removed.before == 0
    store.tick(1000)
    disk.kill()
    again = opened(disk, RETAINED)
    assert again.missing == []
    disk.capacity = None
    tick(again)
    assert again._folds.removed.before == store.start


def test_a_log_without_a_label_is_of_an_older_version_and_taken_up_from_where_it_begins() -> None:
    disk = SimDisk()
    sent = fill(opened(disk, RETAINED), 250)
    disk.kill()
    disk.delete("log/label.toml")
    store = opened(disk)
    assert (store.missing, label.read(disk)) == ([], label.Label(label.FORMAT, store.start))
    assert store.start > 0
    assert bodies(store) == sent[store.bounds("t:0").min :]


def test_a_start_whose_label_cannot_be_written_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    disk.fail("replace", errno.ENOSPC)
    fill(opened(disk), 3)
    assert "log/label.toml cannot be written: No space left on device" in caplog.text


def put_label(disk: SimDisk) -> str:
    disk.put(label.PATH, label.encode(label.Label(label.FORMAT + 1, 0, "9.9")))
    return f"the data folder has format {label.FORMAT + 1} (written by Penstock 9.9)"


def append_frame(disk: SimDisk) -> str:
    path = segment_paths(disk)[-1]
    data = disk.read(path).rstrip(b"\0")
    position = int(path[4:24]) + len(data)
    old = pack_frame(record_of(incoming("of later")), 0, 0, position, 0, 1, 0)
    rest = b"PEN2" + old[8:]
    disk.put(path, data + crc_of([rest]).to_bytes(4, "big") + rest)
    return f"the log has a frame of format 2 at position {position}"


def put_checkpoint(disk: SimDisk) -> str:
    path = disk.paths("checkpoint")[-1]
    return f"{path} has {with_version(disk, path, 2)}"


def put_chunk(disk: SimDisk) -> str:
    path = disk.paths("index")[-1]
    return f"{path} has {with_version(disk, path, 3)}"


def with_version(disk: SimDisk, path: str, version: int) -> str:
    data = disk.read(path)
    rest = data[4:8] + version.to_bytes(4, "big") + data[12:] + b"more than there was"
    disk.put(path, crc_of([rest]).to_bytes(4, "big") + rest)
    return f"version {version}"


@pytest.mark.parametrize("put", [put_label, append_frame, put_checkpoint, put_chunk])
def test_what_a_newer_version_has_written_is_refused_with_one_sentence_and_left_as_it_is(
    put: Callable[[SimDisk], str],
) -> None:
    disk = SimDisk()
    fill(opened(disk), 120)
    disk.kill()
    sentence = f"{put(disk)}, and this Penstock {VERSION} reads up to "
    before = {path: disk.read(path) for path in disk.paths()}
    for _ in range(2):
        with pytest.raises(DataFolderUnusable) as caught:
            opened(disk)
        assert caught.value.message.startswith(sentence)
        assert caught.value.hint.startswith("start the newer Penstock again")
        with pytest.raises(DataFolderUnusable) as caught:
            list(verify(disk))
        assert caught.value.message.startswith(sentence)
        assert {path: disk.read(path) for path in disk.paths()} == before


def test_a_log_that_lost_all_its_segments_and_checkpoints_is_refused_as_its_label_knows_where_it_began() -> None:
    disk = SimDisk()
    store = opened(disk, RETAINED)
    fill(store, 250)
    start = store.start
    disk.kill()
    for path in [*segment_paths(disk), *derived(disk)]:
        disk.delete(path)
    with pytest.raises(DataFolderUnusable, match=rf"on the disk to {start:,}: a part of it is gone"):
        opened(disk)


@pytest.mark.parametrize("folder", ["index", "checkpoint"])
def test_something_else_in_place_of_a_folder_of_derived_files_is_set_aside(folder: str) -> None:
    disk = SimDisk()
    sent = fill(opened(disk), 120)
    disk.kill()
    for path in disk.paths(folder + "/"):
        disk.delete(path)
    disk.obstruct(folder)
    store = opened(disk)
    assert bodies(store) == sent
    assert store.index_trouble == ""
    store.close(1000)
    assert disk.paths(folder + "/")


def test_something_else_in_place_of_a_file_that_is_about_to_be_written_is_set_aside() -> None:
    disk = SimDisk()
    store = opened(disk)
    disk.obstruct("index/00000000000000000000.idx")
    sent = fill(store, 120)
    assert store.sealed > 0
    disk.kill()
    assert bodies(opened(disk)) == sent


def test_what_cannot_be_removed_stops_no_start(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    sent = fill(opened(disk), 120)
    disk.kill()
    for path in derived(disk):
        disk.put(path, b"nonsense")
    disk.read_only = {"index", "checkpoint"}
    store = opened(disk)
    assert bodies(store) == sent
    assert "a derived file cannot be removed" in caplog.text
    sent += fill(store, 20, start=120)
    disk.kill()
    disk.read_only = set()
    assert bodies(opened(disk)) == sent


def test_names_that_are_not_ours_are_left_alone() -> None:
    disk = SimDisk()
    sent = fill(opened(disk), 60)
    disk.kill()
    foreign = [
        f"{place}{suffix}" for place, suffix in (("log/5", ".log"), ("index/\u00b2", ".idx"), ("index/x", ".idx"))
    ]
    for path in foreign:
        disk.put(path, b"?")
    assert bodies(opened(disk)) == sent
    assert set(foreign) <= set(disk.paths())


def test_what_a_crash_left_half_written_is_removed() -> None:
    disk = SimDisk()
    sent = fill(opened(disk), 60)
    disk.kill()
    whole = derived(disk)
    for path in [*whole, "index/00000000000000000001.idx"]:
        disk.put(path + DRAFT, b"half a file")
    again = opened(disk)
    assert not [path for path in disk.paths() if path.endswith(DRAFT)]
    assert set(whole) <= set(derived(disk))
    assert bodies(again) == sent


def test_chunks_behind_the_starting_point_are_not_known() -> None:
    disk = SimDisk()
    store = opened(disk)
    for number in range(70):
        stored(store, incoming(str(number), key="k"))
        tick(store)
        sync(store)
    disk.delete(disk.paths("checkpoint")[-1])
    disk.kill()
    again = opened(disk)
    for more in (0, 30):
        fill(again, more)
        found = again.find("t", "k", 0, 1 << 62, 100)
        assert [int(message.body) for _, message in decode_batch(found.count, found.body)] == list(range(70))[::-1]
        assert all(one.end == following.start for one, following in pairwise(again._keys.chunks))


def test_derived_files_of_another_log_are_not_believed() -> None:
    disk, other = SimDisk(), SimDisk()
    fill(opened(other, now_ms=999), 120, topic="other")
    store = opened(disk)
    sent = fill(store, 120)
    store.close(1000)
    for path in derived(other):
        disk.put(path, other.read(path))
    assert bodies(opened(disk)) == sent


def test_an_index_without_its_log_is_not_believed() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 120)
    store.close(1000)
    for path in [*segment_paths(disk), *disk.paths("checkpoint")]:
        disk.delete(path)
    again = opened(disk)
    sent = fill(again, 3)
    assert bodies(again) == sent


def test_without_derived_files_a_log_that_begins_late_is_read_from_its_keyframe() -> None:
    settings = StoreSettings(
        segment_bytes=8192, reserve_step_bytes=2048, emergency_bytes=0, chunk_bytes=3000, retention_bytes=20_000
    )
    disk = SimDisk()
    store = opened(disk, settings)
    stored(store, command("+all t"), incoming("kept", retain=True))
    fill(store, 200)
    assert store.start > 0
    disk.kill()
    for path in derived(disk):
        disk.delete(path)
    folds = SmallFolds()
    open_store(disk, settings, folds, 1000)
    assert folds.open == {"~all": "t"}
    assert folds.retained == {"t": b"kept"}


def test_only_the_unsealed_part_is_replayed() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 300)
    sealed = store.sealed
    disk.kill()
    disk.calls.clear()
    again = opened(disk)
    assert sealed <= again.sealed
    assert disk.calls["pread"] < 60


@pytest.mark.parametrize(
    "harm", [lambda disk: None, lambda disk: [disk.remove(path) for path in derived(disk)]], ids=["whole", "log alone"]
)
def test_store_times_never_go_back_over_a_clean_restart(harm: Callable[[SimDisk], object]) -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, incoming("a"), now_ms=9000)
    store.close(9000)
    harm(disk)
    for _ in range(2):  # the second time nothing with a store time of its own lies between
        store = opened(disk, now_ms=4000)
        store.close(4000)
    store = opened(disk, now_ms=4000)
    stored(store, incoming("b"), now_ms=4000)
    stored(store, incoming("c"), now_ms=9500)
    assert [store.seek_time("t:0", at) for at in (9000, 9001, 9500)] == [0, 2, 2]


def test_every_segment_has_a_keyframe() -> None:
    disk = SimDisk()
    fill(opened(disk), 300)
    segments = open_segments(disk, SMALL)
    assert len(segments) > 4
    for segment in segments[1:-1]:
        assert keyframe_at(segments, segment.base) is not None, f"segment {segment.base}"


def test_a_keyframe_that_a_crash_cut_short_is_written_at_the_next_start() -> None:
    disk = SimDisk()
    store = opened(disk)
    while store._log.active.base == 0:
        stored(store, incoming("x" * 200))
    base = store._log.active.base
    disk.kill()
    tick(opened(disk))
    found = keyframe_at(open_segments(disk, SMALL), base)
    assert found is not None
    assert [row.key for row in found.queues] == ["t:0"]


def test_a_segment_of_which_nothing_reached_the_medium_has_a_border_and_a_keyframe_all_the_same() -> None:
    disk = SimDisk()
    store = opened(disk)
    while len(store._log.bases) < 2:
        stored(store, incoming("x" * 200))
    base = store._log.bases[1]
    disk.kill()
    disk.put(segment_paths(disk)[1], bytes(SMALL.reserve_step_bytes))
    for path in derived(disk):
        disk.delete(path)
    again = opened(disk)
    assert again._log.bases == [0, base]
    fill(again, 60)
    assert not [chunk for chunk in again._keys.chunks if chunk.start < base < chunk.end]
    assert again._sealing.keyframes.get(base) is not None


def test_a_store_on_a_full_disk_opens_and_can_be_read() -> None:
    disk = SimDisk()
    sent = fill(opened(disk), 50)
    disk.kill()
    disk.capacity = disk.used()
    assert bodies(opened(disk)) == sent


def test_a_smaller_segment_setting_does_not_cut_the_segment_that_is_open() -> None:
    disk = SimDisk()
    sent = fill(opened(disk, StoreSettings(segment_bytes=1 << 16, emergency_bytes=0, reserve_step_bytes=512)), 100)
    disk.kill()
    again = opened(disk, SMALL)
    more = fill(again, 50, start=100)
    assert bodies(again) == sent + more


def given(store: MessageStore, queue: str) -> dict[int, bytes]:
    """What a reader gets under which offset."""
    return dict(messages(store, queue))


@pytest.mark.parametrize("rotten", [5, 20, 59])
@pytest.mark.parametrize("sealed", [False, True])
def test_after_rot_no_offset_of_a_light_queue_means_another_message(rotten: int, sealed: bool) -> None:
    settings = StoreSettings(segment_bytes=1 << 17, reserve_step_bytes=4096, emergency_bytes=0, chunk_bytes=1 << 16)
    disk = SimDisk()
    store = opened(disk, settings)
    stored(store, command("+all t"), command("+gone t"))
    fill(store, 10)
    if sealed:
        store._sealing.plan(store.written)
        store._sealing.finish(1000)
    sent = fill(store, 60, start=10)
    fill(store, 1, start=1000)
    ever = [given(store, "~all")]
    place = store.position_of("t:0", 10 + rotten)
    for _ in range(3):
        disk.kill()
        if len(ever) == 1:
            disk.flip("log/00000000000000000000.log", place + 120)
        store = opened(disk, settings)
        now = given(store, "~all")
        for before in ever:
            assert all(before[offset] == body for offset, body in now.items() if offset in before)
            for offset in before:  # whoever stands there loses nothing that is left
                left = set(list(before.values())[list(before).index(offset) :]) & set(now.values())
                assert left <= {body for at, body in now.items() if at >= offset}
        assert store.next_offset("~all") <= store.written
        assert sent[rotten] not in now.values()
        assert len(now.values()) >= 69
        ever.append(now)
        fill(store, 3, start=2000 + 10 * len(ever))
        ever.append(given(store, "~all"))
        for path in derived(disk):
            disk.delete(path)
    stored(store, command("-gone"), command("+gone t"))
    assert store.bounds("~gone").min > max(max(one) for one in ever)


def test_reads_and_searches_pass_over_the_gap_that_rot_leaves_in_a_light_queue() -> None:
    settings = StoreSettings(segment_bytes=1 << 17, reserve_step_bytes=4096, emergency_bytes=0, chunk_bytes=1 << 16)
    disk = SimDisk()
    store = opened(disk, settings)
    stored(store, command("+all t"))
    fill(store, 10)
    store._sealing.plan(store.written)
    store._sealing.finish(1000)
    stored(store, *[incoming(str(number)) for number in range(10, 20)], now_ms=5000)
    stored(store, incoming("last"), now_ms=6000)
    end = store.bounds("~all").end
    disk.kill()
    disk.flip("log/00000000000000000000.log", store.position_of("t:0", 16) + 100)
    again = opened(disk, settings)
    gone, moved = end - 5, again.bounds("~all").end - 4  # where 16 was, where 17 is
    assert moved > end
    assert again.seek_time("~all", 5000) == end - 11
    assert again.read("~all", end, 100, 1 << 20).next == again.bounds("~all").end
    assert again.position_of("~all", gone) == again.position_of("~all", moved) == again.position_of("t:0", 17)
    assert again.offset_at("~all", again.position_of("t:0", 17)) == moved
    assert again.seek_time("~all", 6000) == again.bounds("~all").end - 1
    assert len(bodies(again, "~all")) == 20


def rotten_elsewhere(disk: SimDisk, settings: StoreSettings) -> MessageStore:
    """A store with ten messages in a light queue, one of an unrelated topic, and five more: that one rots, and the
    process dies. What the store knew."""
    store = opened(disk, settings)
    stored(store, command("+all t"))
    fill(store, 10)
    fill(store, 1, topic="unrelated")
    fill(store, 5, start=10)
    fill(store, 1, topic="unrelated", start=1)
    disk.kill()
    disk.flip("log/00000000000000000000.log", store.position_of("unrelated:0", 0) + 120)
    return store


@pytest.mark.parametrize("chunk_bytes", [2000, 1 << 16])
def test_what_stands_before_the_damage_keeps_its_offsets(chunk_bytes: int) -> None:
    settings = StoreSettings(segment_bytes=1 << 17, reserve_step_bytes=4096, emergency_bytes=0, chunk_bytes=chunk_bytes)
    disk = SimDisk()
    before = given(rotten_elsewhere(disk, settings), "~all")
    again = opened(disk, settings)
    now = given(again, "~all")
    assert list(now.items())[:10] == list(before.items())[:10]
    assert list(now.values())[10:] == list(before.values())[10:]
    assert min(list(now)[10:]) > max(before)
    reached = max(before) + 1  # whoever has read all
    assert again.bounds("~all").min < reached < min(list(now)[10:])


def test_the_start_behind_damage_that_was_passed_over_moves_nothing_again() -> None:
    disk = SimDisk()
    settings = StoreSettings(segment_bytes=1 << 17, reserve_step_bytes=4096, emergency_bytes=0, chunk_bytes=1 << 16)
    rotten_elsewhere(disk, settings)
    again = opened(disk, settings)
    assert len(again.damage) == 1
    assert again.sealed == again.written
    moved = given(again, "~all")
    for number in range(3):
        stored(again, incoming(b"later %d" % number))
        disk.kill()
        again = opened(disk, settings)
        assert again.damage == []
        assert list(given(again, "~all").items())[:15] == list(moved.items())
    assert bodies(again, "~all")[15:] == [b"later 0", b"later 1", b"later 2"]


@pytest.mark.parametrize("chunk_bytes", [300, 1 << 16])
@pytest.mark.parametrize("dies", [SimDisk.kill, SimDisk.lose_power])
def test_a_start_over_damage_that_is_cut_short_is_made_again_as_if_it_had_not_been(
    chunk_bytes: int, dies: Callable[[SimDisk], None]
) -> None:
    """Wherever it dies: what was not told to anybody may move again, what stands before the damage does not."""
    settings = StoreSettings(segment_bytes=1 << 17, reserve_step_bytes=4096, emergency_bytes=0, chunk_bytes=chunk_bytes)
    for after in range(60):
        disk = SimDisk(after)
        before = given(rotten_elsewhere(disk, settings), "~all")
        for path in derived(disk):  # so that the start comes to the damage
            disk.delete(path)
        disk.cut_power("any", after=after)
        with contextlib.suppress(PowerCut):
            opened(disk, settings)
        dies(disk)
        again = opened(disk, settings)
        now = given(again, "~all")
        assert list(now.items())[:10] == list(before.items())[:10]
        assert list(now.values()) == list(before.values())
        assert min(list(now)[10:]) > max(before)
        assert again.bounds("unrelated:0").end == 2


@pytest.mark.parametrize("starts", [1, 2])
def test_a_keyframe_from_before_damage_was_known_is_not_taken_for_what_is_behind_it(starts: int) -> None:
    """The chunks have the offsets that the start over the damage has given. A keyframe has those from before; without a
    checkpoint it is all there is. The log says that there was such a start, behind it."""
    disk = SimDisk()
    store = opened(disk)
    stored(store, command("+all t"), incoming("left", "a"), incoming("rotten", "a"))
    rotten = store.position_of("a:0", 1)
    sent = fill(store, 200)
    ever = [given(store, "~all")]
    disk.kill()
    disk.flip("log/00000000000000000000.log", rotten + 100)
    for _ in range(starts):
        for path in derived(disk):
            disk.delete(path)
        store = opened(disk)
        assert store.damage
        sent += fill(store, 1, start=1000 + len(sent))
        ever.append(given(store, "~all"))
        disk.kill()
    for path in disk.paths("checkpoint"):
        disk.delete(path)
    again = opened(disk)
    now = given(again, "~all")
    assert list(now.values()) == sent
    assert all(before.get(offset, body) == body for before in ever for offset, body in now.items())
    [placed] = again.append([incoming("another", "a")], 1000)
    assert placed.offset >= 2


def fill_up(disk: SimDisk, store: MessageStore) -> None:
    """Leaves no room on a disk, and none that the log has reserved and a start would give back."""
    [log] = segment_paths(disk)
    disk.capacity = disk.used() - len(disk.read(log)) + store.written


def test_on_a_full_disk_what_has_moved_behind_damage_is_told_to_nobody_before_there_is_room() -> None:
    """The log cannot grow, so the next start may give the same offsets out: to others, if it can seal what stands
    before the damage. What topic queues hold is read as ever."""
    settings = StoreSettings(segment_bytes=1 << 17, reserve_step_bytes=4096, emergency_bytes=0, chunk_bytes=1 << 16)
    disk = SimDisk()
    store = rotten_elsewhere(disk, settings)
    before, sent = given(store, "~all"), bodies(store)
    fill_up(disk, store)
    for _ in range(2):
        again = opened(disk, settings)
        assert given(again, "~all") == {}
        assert bodies(again) == sent
        disk.kill()
    again = opened(disk, settings)
    disk.capacity = None
    assert again.take_readable() == []
    for _ in range(3):
        tick(again, 1000 + RETRY_MS)
        sync(again)
    assert again.take_readable() == ["~all"]
    now = given(again, "~all")
    assert list(now.values()) == list(before.values())
    assert min(now) > max(before)
    disk.kill()
    for _ in range(2):
        again = opened(disk, settings)
        assert again.damage == [], "it was sealed as soon as there was room"
        assert given(again, "~all") == now
        disk.kill()


def moved_on_a_full_disk(disk: SimDisk, settings: StoreSettings) -> MessageStore:
    """A store behind damage, with more messages in a light queue than there is room for bytes in the log."""
    store = opened(disk, settings)
    stored(store, command("+all t"))
    fill(store, 1, topic="unrelated")
    for begin in range(0, 1000, 100):
        stored(store, *[incoming(str(number)) for number in range(begin, begin + 100)])
    fill(store, 1, topic="unrelated", start=1)
    disk.kill()
    disk.flip("log/00000000000000000000.log", store.position_of("unrelated:0", 0) + 120)
    fill_up(disk, store)
    return opened(disk, settings)


@pytest.mark.parametrize("with_messages", [False, True])
def test_what_a_full_disk_kept_from_growing_behind_damage_grows_before_anything_else_is_stored(
    with_messages: bool,
) -> None:
    """Else the log would come to the positions whose numbers the light queues have as offsets."""
    settings = dataclasses.replace(ROOMY, reserve_step_bytes=4096)
    disk = SimDisk()
    store = moved_on_a_full_disk(disk, settings)
    assert given(store, "~all") == {}
    with pytest.raises(StorageFull):
        store.append([incoming("refused")], 1000)
    disk.capacity = None
    if with_messages:
        stored(store, incoming("next"))
        before = given(store, "~all")
        assert [int(body) for body in list(before.values())[:-1]] == list(range(1000))
        disk.kill()
        store = opened(disk, settings)
        now = given(store, "~all")
        assert all(before[offset] == body for offset, body in now.items() if offset in before)
        assert list(now.values()) == list(before.values())
    else:
        moved = store.next_offset("~all")
        stored(store, command("-all"), command("+all t"), incoming("another"))
        now = given(store, "~all")
        assert list(now.values()) == [b"another"]
        assert min(now) > moved


def test_what_is_kept_for_urgent_records_lets_the_log_grow_behind_damage_on_a_full_disk() -> None:
    settings = dataclasses.replace(ROOMY, reserve_step_bytes=4096, emergency_bytes=8192)
    disk = SimDisk()
    store = moved_on_a_full_disk(disk, settings)
    before = given(store, "~all")
    assert store.written > max(before)
    stored(store, command("-all"), command("+all t"))
    assert store.bounds("~all").min > max(before)


@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_a_log_that_has_lost_what_was_on_the_disk_is_refused_and_nothing_is_touched(harm: str) -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 120)
    store.close(1000)
    whole = {path: disk.read(path) for path in segment_paths(disk)}
    for path in segment_paths(disk)[1:] if harm == "cut" else segment_paths(disk):
        disk.delete(path)
    before = derived(disk)
    for _ in range(2):
        with pytest.raises(DataFolderUnusable, match="a part of it is gone") as caught:
            opened(disk)
        assert "index/ and checkpoint/" in (caught.value.hint or "")
    assert derived(disk) == before
    for path, data in whole.items():
        disk.put(path, data)
    assert bodies(opened(disk)) == sent


def test_who_gives_up_what_is_lost_begins_with_what_is_there() -> None:
    disk = SimDisk()
    store = opened(disk)
    sent = fill(store, 120)
    store.close(1000)
    for path in [*segment_paths(disk)[1:], *derived(disk)]:
        disk.delete(path)
    left = bodies(opened(disk))
    assert left == sent[: len(left)]
    assert len(left) > 20
