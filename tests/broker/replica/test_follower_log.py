"""A follower's log: the leader's bytes, checked before anything of them is written."""

from __future__ import annotations

import contextlib
import errno

import pytest

from broker.kernel.fold import fact_record
from broker.replica.follower_log import Mismatch
from broker.replica.log_face import ReplicaLog, Stretch
from broker.replica.members import TOPIC, MembersFold
from broker.store.frames import read_head
from broker.store.raw import BadPlace, parts_of
from broker.store.settings import StoreSettings
from penstock.errors import ProtocolError, StorageFailed, StorageFull
from penstock.protocol.message import FRAME_HEAD_BYTES
from penstock.protocol.requests.replicas import Member, Members
from tests.broker.replica.pair import EPOCH, LARGER, SMALLER, Copy, follow
from tests.broker.store.store_rig import SMALL, bodies, command, incoming
from tests.simulation.disk import PowerCut


@pytest.mark.parametrize("settings", [SMALL, LARGER, SMALLER])
@pytest.mark.parametrize("bytes_max", [1, 1000, 1 << 20])
def test_a_follower_has_the_leaders_bytes_and_rolls_where_they_say(settings: StoreSettings, bytes_max: int) -> None:
    leader, follower = Copy().lead(), Copy(settings=settings)
    for size in (10, 700, 10, 2000):
        leader.put(40, size)
    leader.commit()
    follow(leader, follower, bytes_max=bytes_max)
    assert follower.bytes() == leader.bytes()
    follower.sync()
    follower.log.commit(leader.log.end)
    assert (follower.log.applied, follower.log.durable) == (leader.log.end, leader.log.end)
    assert bodies(follower.store) == bodies(leader.store)
    assert follower.again().bytes() == leader.bytes()


def test_nothing_is_taken_in_or_read_before_it_is_committed() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(3, cache=True)
    middle = leader.log.end
    leader.put(3)
    assert bodies(leader.store) == []
    follow(leader, follower)
    follower.sync()
    assert (follower.log.applied, follower.log.durable) == (0, leader.log.end)
    follower.log.commit(middle)
    assert (follower.log.applied, len(bodies(follower.store))) == (middle, 3)
    follower.log.commit(leader.log.end + 10_000)
    assert (follower.log.committed, len(bodies(follower.store))) == (leader.log.end, 6)


def test_what_no_leader_has_committed_is_not_taken_in_by_a_start() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(3)
    leader.commit()
    middle = leader.log.end
    leader.put(3)  # say that the log was committed up to the middle
    follow(leader, follower)
    follower.sync()
    again = follower.again()
    assert (again.log.committed, again.log.applied, again.log.end) == (middle, middle, leader.log.end)
    assert len(bodies(again.store)) == 3
    told = again.again(committed=leader.log.end)
    assert (told.log.applied, len(bodies(told.store))) == (leader.log.end, 6)


def test_every_frame_carries_what_is_committed_and_not_what_one_disk_has() -> None:
    leader = Copy().lead()
    leader.put(2)
    committed = leader.log.end
    leader.commit()
    leader.put(2)
    leader.sync()
    last = leader.log.end
    leader.put(1)
    assert read_head(leader.store.log.read(last, FRAME_HEAD_BYTES)).watermark == committed
    assert leader.log.durable == last


def test_every_flipped_byte_of_a_stretch_is_refused_and_nothing_of_it_written() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(12, 5)
    stretch = leader.log.stretch(0, leader.log.end)
    for at in range(0, len(stretch.data), 7):
        data = bytearray(stretch.data)
        data[at] ^= 4
        with pytest.raises(ProtocolError):
            follower.log.receive(stretch._replace(data=bytes(data)), EPOCH)
        assert follower.log.end == 0
    with pytest.raises(ProtocolError):
        follower.log.receive(stretch._replace(data=stretch.data[:-1]), EPOCH)


def begin(copy: Copy, epoch: int) -> None:
    copy.store.begin_epoch(epoch, incoming(b"\x93%c\xa0\xa0" % epoch, "%sys%epoch"), 1000)


def test_epochs_never_go_back_nor_beyond_the_leaders() -> None:
    leader, follower = Copy().lead(), Copy()
    begin(leader, 3)
    leader.put(2)
    stretch = leader.log.stretch(0, leader.log.end)
    with pytest.raises(ProtocolError):
        follower.log.receive(stretch, 2)
    follower.log.receive(stretch, 3)
    assert follower.log.epochs == [(1, 0), (3, 0)]
    with pytest.raises(ProtocolError):
        follower.log.receive(Stretch(0, 4, stretch.data), 4)


def test_what_does_not_fit_is_answered_with_what_is_there() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(1)
    first = leader.log.end
    leader.put(2)
    begin(leader, 3)
    leader.put(3)
    follow(leader, follower, until=leader.log.end)
    end = leader.log.end
    leader.put(2)
    behind = leader.log.stretch(end, leader.log.end)
    with pytest.raises(Mismatch) as caught:
        follower.log.receive(behind._replace(before=2), EPOCH)
    assert (caught.value.epoch, caught.value.end) == (1, leader.log.epochs[1][1])
    shorter = Copy()
    follow(leader, shorter, until=first)
    with pytest.raises(Mismatch) as caught:
        shorter.log.receive(behind, EPOCH)
    assert (caught.value.epoch, caught.value.end) == (1, shorter.log.end)


def test_what_is_sent_again_changes_nothing_and_what_differs_is_cut() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(60)
    leader.commit()
    common = leader.log.end
    follow(leader, follower)
    follower.sync()
    other = Copy()
    follow(leader, other)
    leader.put(100)
    follow(leader, follower, bytes_max=500)
    for at in (0, common):
        follower.log.receive(leader.log.stretch(at, leader.log.end), EPOCH)
    assert follower.bytes() == leader.bytes()
    other.lead()
    begin(other, 4)
    other.put(30, 333)
    stretch = other.log.stretch(common, other.log.end)
    assert follower.log.receive(stretch, EPOCH) == follower.log.end
    follow(other, follower)
    assert follower.bytes() == other.bytes()
    assert follower.log.epochs == other.log.epochs
    again = follower.again(power=True)
    follow(other, again)
    assert again.bytes() == other.bytes()


def test_what_is_committed_is_never_cut() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(10)
    follow(leader, follower)
    frames = list(parts_of(leader.log.stretch(0, leader.log.end).data, 0))
    assert len(frames) == 1
    follower.log.commit(leader.log.end)
    other = Copy().lead()
    other.put(10, 50)
    with pytest.raises(BadPlace):
        follower.log.receive(other.log.stretch(0, other.log.end), EPOCH)
    with pytest.raises(BadPlace):
        follower.log.cut(0)
    assert follower.bytes() == leader.bytes()


def test_a_full_disk_stops_a_follower_and_nothing_else() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(20)
    follow(leader, follower)
    leader.put(30)
    follower.disk.capacity = follower.disk.used()
    with pytest.raises(StorageFull):
        follow(leader, follower)
    follower.disk.capacity = None
    follow(leader, follower)
    follower.log.commit(leader.log.end)
    assert follower.bytes() == leader.bytes()
    assert len(bodies(follower.store)) == 50


def test_a_disk_that_is_full_behind_the_first_frames_of_an_epoch_leaves_that_epoch_known() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(2)
    follow(leader, follower)
    begin(leader, 3)
    leader.put(100)
    follower.disk.capacity = follower.disk.used() + SMALL.segment_bytes
    with pytest.raises(StorageFull):
        follow(leader, follower)
    assert follower.log.epoch_at(follower.log.end) == 3
    follower.disk.capacity = None
    follow(leader, follower)
    assert follower.bytes() == leader.bytes()
    assert follower.log.epochs == leader.log.epochs


def test_after_a_failed_write_a_follower_goes_on_where_its_log_ends() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(5)
    follow(leader, follower, until=leader.log.end)
    leader.put(5)
    follower.disk.fail("pwrite", errno.EIO)
    with pytest.raises(StorageFailed):
        follow(leader, follower)
    assert follower.log.end < leader.log.end
    again = follower.again()
    follow(leader, again)
    assert again.bytes() == leader.bytes()


def test_a_start_brings_to_the_medium_what_a_failed_sync_has_left_although_the_group_has_it() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(5)
    leader.commit()
    leader.put(1)  # its watermark says that the group has the others, not that this follower has
    follow(leader, follower)
    follower.disk.fail("sync", errno.EIO)
    with pytest.raises(StorageFailed):
        follower.sync()
    again = follower.again()
    assert again.log.durable == leader.log.end
    assert again.again(power=True).bytes() == leader.bytes()


def test_a_leader_that_steps_down_takes_back_what_it_had_taken_in() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.store.append([command("+a t")], 1000)
    leader.put(30)
    leader.commit()
    committed = leader.log.end
    follow(leader, follower)
    leader.store.append([command("+b t"), command("-a")], 1000)
    leader.put(90)
    leader.sync()
    leader.store.tick(1000)
    leader.store.abandon()
    follower.log.commit(committed)
    back = Copy(leader.disk, committed=committed, cut_at=committed)
    assert back.bytes() == follower.bytes()
    assert b"".join(back.folds.freeze()) == b"".join(follower.folds.freeze())
    assert bodies(back.store) == bodies(follower.store)


def test_cuts_at_any_moment_of_a_power_loss_leave_the_old_log_or_the_new() -> None:
    for step in range(6):
        leader, follower = Copy().lead(), Copy()
        leader.put(5)
        leader.commit()
        kept = leader.log.end
        leader.put(200)
        follow(leader, follower)
        follower.sync()
        follower.log.commit(kept)
        follower.disk.cut_power("any", step)
        with contextlib.suppress(PowerCut):
            follower.log.cut(kept)
        again = follower.again(power=True)
        assert kept <= again.log.end <= leader.log.end
        follow(leader, again)
        assert again.bytes() == leader.bytes()


def test_the_log_of_a_copy_goes_on_as_this_ones_after_take_over() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(20)
    follow(leader, follower)
    follower.lead()
    assert follower.log.applied == follower.log.end
    assert bodies(follower.store) == []
    begin(follower, 7)
    follower.put(1)
    follower.commit()
    assert len(bodies(follower.store)) == 21
    face: ReplicaLog = follower.log
    assert face.end == face.applied


def test_changes_of_members_are_found_in_what_is_not_taken_in_yet() -> None:
    leader, follower = Copy().lead(), Copy()
    first, second = (Members((Member("a", "aa"), Member(name, name, is_voter=False))) for name in "bc")
    for after in (first, second):
        leader.put(3)
        leader.store.append([fact_record(TOPIC, MembersFold.fact(after))], 1000)
    assert leader.log.changes == [leader.folds.members.now]
    follow(leader, follower)
    follower.sync()
    one, two = follower.log.changes
    assert (one.members, two) == (first, leader.folds.members.now)
    assert follower.again().log.changes == [one, two]
    follower.log.commit(two.position)
    assert (follower.folds.members.now, follower.log.changes) == (one, [one, two])
    follower.log.cut(two.position)
    assert follower.log.changes == [one]
