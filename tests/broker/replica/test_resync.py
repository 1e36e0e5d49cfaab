"""A whole copy: it comes in pieces, goes on after any crash, and becomes the log at once or not at all."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from broker.lineage.owner import LogOwner
from broker.replica.resync import Resync, finish_resync
from broker.store.recovery import StateLost
from broker.store.segment import segment_path
from broker.store.settings import StoreSettings
from penstock.errors import ProtocolError, StorageFull
from tests.broker.replica.pair import LARGER, Copy, follow
from tests.broker.store.store_rig import SMALL, bodies
from tests.simulation.disk import PowerCut, SimDisk


def old_leader(retention_bytes: int = 30_000) -> Copy:
    """One whose log begins late."""
    leader = Copy(settings=replace(SMALL, retention_bytes=retention_bytes)).lead()
    owner = LogOwner(leader.store, leader.folds)
    for _ in range(30):
        leader.put(20)
        for _ in range(4):
            leader.commit()
            leader.store.tick(1000)
            owner.tick(1000, 1000)
    leader.commit()
    assert (leader.store.start > 0) == bool(retention_bytes)
    return leader


def fetch(resync: Resync, leader: Copy, rng: random.Random, times: int) -> bool:
    """Some stretches; whether all have come."""
    for _ in range(times):
        wanted = resync.wanted(leader.log.committed, 0.0)
        if wanted is None:
            return True
        resync.take(leader.log.stretch(wanted.position, wanted.until, rng.choice([1, 700, 5_000])), 0.0)
    return False


@pytest.mark.parametrize("retention_bytes", [0, 30_000])
@pytest.mark.parametrize("settings", [SMALL, LARGER])
def test_a_copy_comes_in_pieces_over_crashes_and_is_the_leaders_log(
    retention_bytes: int, settings: StoreSettings
) -> None:
    leader, rng = old_leader(retention_bytes), random.Random(1)
    disk = SimDisk(3)
    own = Copy(disk, settings)
    follow(Copy().lead(), own)
    while True:
        resync = Resync(disk, settings, leader.store.start, 0.0)
        if fetch(resync, leader, rng, 40):
            break
        resync.close()
        if rng.random() < 0.5:
            disk.lose_power()
    assert resync.is_whole(leader.log.committed)
    own.store.abandon()
    resync.finish()
    copy = Copy(disk, settings, committed=leader.log.committed)
    assert copy.bytes() == leader.bytes()
    assert copy.store.missing == copy.store.damage == []
    assert bodies(copy.store) == bodies(leader.store)
    assert b"".join(copy.folds.freeze()) == b"".join(leader.folds.freeze())
    assert disk.paths("replica") == []
    leader.put(5)
    follow(leader, copy)
    assert copy.bytes() == leader.bytes()


def test_a_copy_comes_as_the_disk_has_it_wherever_frames_end() -> None:
    leader, rng = old_leader(), random.Random(6)
    disk = SimDisk(3)
    while True:
        resync = Resync(disk, LARGER, leader.store.start, 0.0)
        for _ in range(60):
            left = leader.log.committed - resync.coming
            if rng.random() < 0.1:
                resync.drop_rest()
            elif left:
                resync.take_raw(leader.log.raw(resync.coming, min(left, rng.choice([1, 30, 700, 5_000]))))
        if resync.end == leader.log.committed:
            break
        resync.close()
        disk.lose_power()
    resync.finish()
    copy = Copy(disk, LARGER, committed=leader.log.committed)
    assert copy.bytes() == leader.bytes()
    assert b"".join(copy.folds.freeze()) == b"".join(leader.folds.freeze())


def test_a_flipped_bit_in_what_a_disk_has_is_never_written() -> None:
    leader, rng = old_leader(0), random.Random(7)
    sound = leader.log.raw(0, SMALL.segment_bytes // 2)
    for _ in range(30):
        at = rng.randrange(len(sound))
        bad = bytearray(sound)
        bad[at] ^= 1 << rng.randrange(8)
        resync = Resync(SimDisk(), SMALL, 0, 0.0)
        with contextlib.suppress(ProtocolError):
            for start in range(0, len(bad), 900):
                resync.take_raw(bytes(bad[start : start + 900]))
        assert resync.end <= at


def test_a_power_loss_at_any_step_of_the_switch_leaves_the_old_log_or_the_new_one() -> None:
    leader, seen = old_leader(), set[bool]()
    for step in range(60):
        disk = SimDisk(step)
        own = Copy(disk).lead()
        own.put(90)
        own.commit()
        before = own.bytes()
        resync = Resync(disk, SMALL, leader.store.start, 0.0)
        assert fetch(resync, leader, random.Random(step), 1 << 20)
        own.store.abandon()
        disk.cut_power("any", step)
        is_through = False
        with contextlib.suppress(PowerCut):
            resync.finish()
            is_through = True
        disk.lose_power()
        for again in range(3):  # and once more while that is finished
            disk.cut_power("any", step // 3 + again)
            with contextlib.suppress(PowerCut):
                finish_resync(disk)
            disk.lose_power()
        is_new = finish_resync(disk) or disk.read("log/label.toml").count(b"begins = 0") == 0
        copy = Copy(disk, committed=leader.log.committed if is_new else 0)
        assert copy.bytes() == (leader.bytes() if is_new else before)
        assert copy.store.missing == []
        seen.add(is_new)
        if is_through:
            break
    assert seen == {False, True}


def test_it_is_whole_only_with_its_first_keyframe_and_what_is_committed() -> None:
    leader = old_leader()
    resync = Resync(SimDisk(), SMALL, leader.store.start, 0.0)
    whole = []
    while (wanted := resync.wanted(leader.log.committed, 0.0)) is not None:
        resync.take(leader.log.stretch(wanted.position, wanted.until, 500), 0.0)
        whole.append(resync.is_whole(leader.log.committed))
    assert (whole[0], whole[-1]) == (False, True)
    assert not resync.is_whole(1 << 40)


def test_what_does_not_fit_is_refused_and_the_rate_is_kept() -> None:
    leader = old_leader()
    resync = Resync(SimDisk(), SMALL, leader.store.start, 0.0, bytes_s=1000.0)
    stretch = leader.log.stretch(leader.store.start, leader.log.end, 2_000)
    bad = bytearray(stretch.data)
    bad[900] ^= 1
    for other in (stretch._replace(position=0), stretch._replace(data=bytes(bad))):
        with pytest.raises(ProtocolError):
            resync.take(other, 0.0)
    resync.take(stretch, 0.0)
    takes_s = len(stretch.data) / 1000.0
    assert resync.wanted(leader.log.committed, takes_s - 0.1) is None
    assert resync.wanted(leader.log.committed, takes_s + 0.1) is not None


def test_a_copy_that_a_full_disk_broke_off_within_a_stretch_goes_on_behind_what_came() -> None:
    leader, disk = old_leader(0), SimDisk()
    resync = Resync(disk, SMALL, 0, 0.0)
    disk.capacity = disk.used() + 2 * SMALL.segment_bytes
    with pytest.raises(StorageFull):
        resync.take(leader.log.stretch(0, leader.log.end), 0.0)
    assert 0 < resync.end < leader.log.end
    disk.capacity = None
    assert fetch(resync, leader, random.Random(5), 1 << 20)


def test_a_copy_of_a_log_that_begins_elsewhere_by_now_begins_anew() -> None:
    leader, disk = old_leader(0), SimDisk()
    resync = Resync(disk, SMALL, 0, 0.0)
    fetch(resync, leader, random.Random(2), 50)
    resync.close()
    assert resync.end > 0
    other = Resync(disk, SMALL, 8192, 0.0)
    assert other.end == 8192
    assert disk.paths("replica/incoming") == [f"replica/incoming/{8192:020d}.log"]


def test_a_copy_that_begins_late_and_has_lost_its_state_is_not_opened() -> None:
    leader, disk = old_leader(), SimDisk()
    resync = Resync(disk, SMALL, leader.store.start, 0.0)
    fetch(resync, leader, random.Random(4), 1 << 20)
    resync.finish()
    for at in range(0, 8192, 100):
        disk.flip(segment_path(leader.store.start), at)
    with pytest.raises(StateLost):
        Copy(disk, committed=leader.log.committed)
    again = Resync(disk, SMALL, leader.store.start, 0.0)
    fetch(again, leader, random.Random(4), 1 << 20)
    again.finish()
    assert Copy(disk, committed=leader.log.committed).bytes() == leader.bytes()
