"""Upkeep by the owner of a log: it alone appends; every other store does what the records say."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from broker.lineage.owner import LogOwner
from broker.store.message_store import MessageStore
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
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
    sync,
    tick,
)
from tests.simulation.disk import PowerCut, SimDisk

RETAINED = dataclasses.replace(SMALL, retention_bytes=20_000)
LATER_MS = 100_000_000
ONE_SEGMENT = dataclasses.replace(SMALL, segment_bytes=1 << 17)


def unowned(disk: SimDisk, settings: StoreSettings = SMALL) -> MessageStore:
    return open_store(disk, settings, SmallFolds(), 1000, is_owned=False)


def passes_time(store: MessageStore) -> None:
    """Ticks of a store that nobody owns."""
    for number in range(50):
        store.tick(LATER_MS + 1000 * number)
        sync(store)


def copied(disk: SimDisk) -> SimDisk:
    """The log on another machine."""
    other = SimDisk()
    for path in segment_paths(disk):
        other.put(path, disk.read(path))
    return other


def state(store: MessageStore) -> object:
    """What the log says of everything: folds, queues' bounds, keyframes."""
    queues = [(queue.key, queue.min, queue.next) for queue in store._index]
    marks = sorted(store._sealing.keyframes)
    return b"".join(store._folds.freeze()), sorted(queues), marks, store.start, store.written


@pytest.mark.parametrize("settings", [SMALL, RETAINED, dataclasses.replace(SMALL, retention_s=1.0)])
def test_a_store_that_nobody_owns_appends_nothing_however_time_passes(settings: StoreSettings) -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 150)
    store.append([incoming("last")], 1000)  # no seal, and the watermark is behind
    end = store.written
    disk.kill()
    again = unowned(disk, settings)
    passes_time(again)
    assert (again.written, again.start) == (end, 0)
    again.close(LATER_MS)
    assert unowned(disk, settings).written == end


def test_a_keyframe_waits_for_the_owners_decision_and_one_who_is_no_owner_has_none() -> None:
    store = opened(SimDisk())
    while store._log.active.base == 0:
        stored(store, incoming("x" * 200))
    sync(store)
    for _ in range(3):
        store.tick(1000)
    due, end = store.keyframe_due, store.written
    assert due is not None
    assert (due.base, due.behind, store.sealed < due.base) == (store._log.bases[1], store._log.bases[1], True)
    store.disown()
    store.tick(1000)
    assert (store.keyframe_due, store.written, store.sealed) == (None, end, due.base)


def test_whoever_comes_to_own_it_catches_up() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 150)
    store.append([incoming("last")], 1000)
    end = store.written
    disk.kill()
    again = unowned(disk, RETAINED)
    passes_time(again)
    owner = LogOwner(again, again._folds)
    for _ in range(2):
        again.tick(LATER_MS)
        owner.tick(LATER_MS, LATER_MS)
        sync(again)
    assert again.written > end
    assert again.start == again._folds.removed.before > 0
    again.disown()
    written = again.written
    stored(again, incoming("of another owner"))
    after = again.written
    passes_time(again)
    assert again.written == after > written


def test_damage_is_passed_over_by_the_owner_alone() -> None:
    disk = SimDisk()
    store = opened(disk, ONE_SEGMENT)
    stored(store, command("+all t"))
    sent = fill(store, 20)
    bad = store.position_of("t:0", 7)
    disk.flip(segment_paths(disk)[0], bad + 140)
    end = store.written
    for path in disk.paths("checkpoint"):
        disk.delete(path)
    disk.kill()
    again = unowned(disk, ONE_SEGMENT)
    passes_time(again)
    assert [first for first, _ in again.damage] == [bad]
    assert again.written == end
    assert bodies(again, "~all") == sent[:7], "where what is behind the damage comes to stand is not decided"
    owner = LogOwner(again, again._folds)
    owner.tick(LATER_MS, LATER_MS)
    sync(again)
    assert again.written > end
    assert bodies(again, "~all")[-1:] == sent[-1:]


def test_the_stores_of_one_log_remove_the_same_by_its_records() -> None:
    disk = SimDisk()
    store = opened(disk, RETAINED)
    stored(store, command("+all t"), incoming("kept", retain=True))
    before = None
    removals = set()
    for number in range(250):
        fill(store, 1, start=number)
        if store._folds.removed.before > store.start:
            before = copied(disk)  # said, and not carried out here
            removals.add(store._folds.removed.before)
    assert len(removals) > 3
    assert before is not None
    tick(store)
    sync(store)
    follower = unowned(before)
    assert follower.start < follower._folds.removed.before
    passes_time(follower)
    assert follower.start == follower._folds.removed.before
    everything = unowned(copied(disk))
    passes_time(everything)
    assert state(everything) == state(store)


def test_removal_is_in_the_log_before_a_segment_goes_whenever_the_power_is_cut() -> None:
    found = set()
    for after in range(150):
        disk = SimDisk(after)
        store = opened(disk, RETAINED)
        disk.cut_power("any", after * 6)
        with contextlib.suppress(PowerCut):
            fill(store, 250)
        disk.lose_power()
        again = unowned(disk, RETAINED)
        said = again._folds.removed.before
        assert again.missing == []
        assert again.start <= said
        found.add((said > 0, again.start < said))
        for _ in range(50):
            again.tick(1000)
        assert again.start == said
    assert found == {(False, False), (True, False), (True, True)}, "a crash between the record and the removal, too"


def test_an_older_log_says_nothing_and_begins_with_its_first_segment_until_its_owner_says_so() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 250)
    for _ in range(2):
        store.tick(1000)
    base = store._log.bases[2]
    store.remove_before(base)  # as versions without the record did
    store.close(1000)
    again = opened(disk)
    assert (again.start, again.missing, again._folds.removed.before) == (base, [], 0)
    tick(again)
    assert again._folds.removed.before == base


def test_what_is_missing_at_the_front_is_not_said_to_be_removed() -> None:
    disk = SimDisk()
    fill(opened(disk), 120)
    disk.kill()
    disk.delete(segment_paths(disk)[0])
    store = opened(disk)
    tick(store)
    assert store.missing == [(0, 8192)]
    assert store._folds.removed.before == 0
