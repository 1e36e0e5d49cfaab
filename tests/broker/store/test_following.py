"""The write side of a copy: bytes first, queues and folds when they are committed."""

from __future__ import annotations

import pytest

from broker.store import following
from broker.store.raw import BadPlace
from broker.store.segment import segment_path
from penstock.protocol.message import FRAME_HEAD_BYTES
from tests.broker.replica.pair import Copy, follow
from tests.broker.store.store_rig import bodies


@pytest.mark.parametrize("held", [0, 2_000, 1 << 20])
def test_what_is_not_kept_in_memory_is_read_again(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HELD_BYTES_MAX", held)
    leader, follower = Copy().lead(), Copy()
    positions = []
    for _ in range(80):
        leader.put(1)
        positions.append(leader.log.end)
    follow(leader, follower, bytes_max=3_000)
    for number, position in enumerate(positions, 1):
        follower.log.commit(position)
        assert (follower.log.applied, len(bodies(follower.store))) == (position, number)
    again = follower.again(committed=positions[50])
    assert len(bodies(again.store)) == 51


def test_a_copy_seals_and_checkpoints_no_more_than_it_has_and_is_committed() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(60)
    follow(leader, follower)
    follower.log.commit(leader.log.end)
    for _ in range(40):
        follower.store.tick(1000)
    assert follower.store.sealed == 0, "what its own disk does not have is not sealed"
    follower.sync()
    for _ in range(40):
        follower.store.tick(1000)
    assert 0 < follower.store.sealed <= follower.log.committed
    leader.put(60)
    follow(leader, follower)
    follower.sync()
    before = follower.log.committed
    for _ in range(40):
        follower.store.tick(1000)
    assert follower.store.sealed <= before
    again = follower.again()
    assert again.log.applied == follower.store.sealed
    assert 0 < len(bodies(again.store)) <= 60
    leader.sync()
    for _ in range(40):
        leader.store.tick(1000)
    assert leader.store.sealed == 0, "nothing of it is committed, as far as this leader knows"


def test_a_start_leaves_a_page_alone_that_the_disk_cannot_read() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(130)
    leader.commit()
    leader.put(1)
    follow(leader, follower)
    follower.sync()
    follower.disk.spoil_page(segment_path(0), 5_000)
    again = follower.again()
    [(first, behind)] = again.store.damage
    assert 0 < first <= 5_000 < behind
    assert (again.log.applied, again.log.end, again.log.durable) == (first, leader.log.end, leader.log.end)


def test_a_start_stops_before_damage_and_keeps_what_stands_behind_it() -> None:
    leader, follower = Copy().lead(), Copy()
    leader.put(5)
    bad = leader.log.end
    leader.put(10)
    leader.commit()
    leader.put(1)  # its watermark says that all of this was committed
    follow(leader, follower)
    follower.sync()
    follower.disk.flip(segment_path(0), bad + FRAME_HEAD_BYTES)
    again = follower.again()
    assert [first for first, _ in again.store.damage] == [bad]
    assert (again.log.applied, again.log.end, len(bodies(again.store))) == (bad, leader.log.end, 5)
    with pytest.raises(BadPlace):
        again.log.commit(leader.log.end)
    with pytest.raises(BadPlace):
        again.log.take_over()
    assert len(bodies(again.store)) == 5
