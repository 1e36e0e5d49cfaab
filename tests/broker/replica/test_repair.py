"""Rot in one copy: never served, and written again from another one, as far as it is committed."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from broker.replica.repair import Repair, Wanted
from broker.store.segment import segment_path
from penstock.errors import ProtocolError, Unavailable
from penstock.protocol.message import FRAME_HEAD_BYTES
from tests.broker.replica.pair import Copy, follow
from tests.broker.store.store_rig import SMALL, bodies, segment_paths
from tests.simulation.disk import PowerCut


def pair(count: int = 130) -> tuple[Copy, Copy]:
    """A leader, and a follower that has all, committed."""
    leader, follower = Copy().lead(), Copy()
    leader.put(count)
    leader.commit()
    leader.put(1)  # its watermark says so
    leader.commit()
    follow(leader, follower)
    follower.sync()
    follower.log.commit(leader.log.end)
    return leader, follower


def mend(sick: Copy, sound: Copy, repair: Repair) -> int:
    """Asks the other copy until nothing is wanted; how often."""
    for times in range(100):
        wanted = repair.wanted()
        if wanted is None:
            return times
        stretch = sound.log.stretch(wanted.position, wanted.until, 700)
        assert repair.take(stretch, sick.log.epoch_at(wanted.position)) > wanted.position
        sick.log.repaired()
    raise AssertionError("it never ends")


@pytest.mark.parametrize("at", [0, 5, FRAME_HEAD_BYTES + 30, 4000, 8030, 8192, 20_001])
def test_a_flipped_byte_is_found_by_scrubbing_and_written_again(at: int) -> None:
    leader, follower = pair()
    base = at // 8192 * 8192
    sound = follower.bytes()
    follower.disk.flip(segment_path(base), at - base)
    repair = Repair(follower.store)
    for _ in range(100):
        repair.scrub(1000)
    assert not repair.is_sound
    assert mend(follower, leader, repair)
    assert repair.is_sound
    assert follower.bytes() == sound == leader.bytes()
    assert bodies(follower.store) == bodies(leader.store)


def test_what_is_still_in_memory_is_gone_over_on_the_disk() -> None:
    leader, follower = Copy().lead(), Copy(settings=replace(SMALL, fresh_bytes=1 << 20))
    leader.put(5)
    leader.commit()
    follow(leader, follower)
    follower.sync()
    follower.log.commit(leader.log.end)
    follower.disk.flip(segment_path(0), 300)
    repair = Repair(follower.store)
    repair.scrub()
    repair.scrub()
    assert not repair.is_sound


def test_a_read_that_meets_rot_serves_nothing_and_comes_again() -> None:
    leader, follower = pair(10)
    follower.disk.flip(segment_path(0), 300)
    repair = Repair(follower.store)
    assert repair.is_sound
    with pytest.raises(Unavailable):
        bodies(follower.store)
    assert not repair.is_sound
    mend(follower, leader, repair)
    assert bodies(follower.store) == bodies(leader.store)


def test_a_start_with_rot_goes_on_when_it_is_repaired() -> None:
    leader, follower = pair()
    for at in (700, 3000):
        follower.disk.flip(segment_path(0), at)
    for path in [*follower.disk.paths("index"), *follower.disk.paths("checkpoint")]:
        follower.disk.delete(path)
    again = follower.again()
    repair = Repair(again.store)
    assert again.log.applied < 700
    assert len(repair.ranges) == 2
    mend(again, leader, repair)
    assert again.store.damage == []
    again.log.commit(leader.log.end)
    assert again.log.applied == leader.log.end
    assert again.bytes() == leader.bytes()
    assert bodies(again.store) == bodies(leader.store)


def test_segments_that_are_missing_come_back() -> None:
    leader, follower = pair(300)
    paths = segment_paths(follower.disk)
    assert len(paths) > 4
    for path in [*follower.disk.paths("index"), *follower.disk.paths("checkpoint"), *paths[1:3]]:
        follower.disk.delete(path)
    again = follower.again()
    repair = Repair(again.store)
    mend(again, leader, repair)
    assert again.bytes() == leader.bytes()
    assert bodies(again.again(committed=leader.log.end).store) == bodies(leader.store)


def test_only_what_is_committed_is_asked_for_and_taken() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(4)
    leader.commit()
    committed = leader.log.end
    leader.put(4)
    follow(leader, follower)
    follower.sync()
    follower.log.commit(committed)
    repair = Repair(follower.store)
    repair.note(committed)
    assert repair.wanted() is None
    repair.note(0)
    assert repair.wanted() == Wanted(0, committed)
    other = Copy().lead()
    other.put(4)
    other.put(4, 90)  # they were written by nobody who leads
    before = follower.bytes()
    stretch = other.log.stretch(0, other.log.end)
    assert repair.take(stretch, 0) == committed
    assert follower.bytes() == before


def test_what_another_copy_sends_is_checked_before_anything_is_written() -> None:
    leader, follower = pair(20)
    before = follower.bytes()
    repair = Repair(follower.store)
    repair.note(0)
    stretch = leader.log.stretch(0, leader.log.end)
    bad = bytearray(stretch.data)
    bad[1000] ^= 1
    with pytest.raises(ProtocolError):
        repair.take(stretch._replace(data=bytes(bad)), 0)
    with pytest.raises(ProtocolError):
        repair.take(stretch._replace(before=4), 0)
    assert repair.take(stretch._replace(position=5), 0) == 5, "nobody asked for that"
    assert follower.bytes() == before


@pytest.mark.parametrize("step", range(4))
def test_a_power_loss_within_a_repair_leaves_it_to_be_made_again(step: int) -> None:
    leader, follower = pair()
    follower.disk.flip(segment_path(0), 700)
    repair = Repair(follower.store)
    repair.scrub(1 << 20)
    follower.disk.cut_power("any", step)
    with contextlib.suppress(PowerCut):
        mend(follower, leader, repair)
    again = follower.again(power=True)
    repair = Repair(again.store)
    for _ in range(60):
        repair.scrub(1000)
        mend(again, leader, repair)
    again.log.commit(leader.log.end)
    assert again.bytes() == leader.bytes()
    assert bodies(again.store) == bodies(leader.store)
