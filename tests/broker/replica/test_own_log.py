"""A log in numbers: it grows, is cut, and never below what is committed."""

from __future__ import annotations

import pytest

from broker.replica.own_log import OwnLog
from penstock.protocol.requests.replicas import EpochAt, Member, Members, MembersAt

ONE, TWO = Members((Member("a", "1"),)), Members((Member("a", "1"), Member("b", "2")))


def log() -> OwnLog:
    own = OwnLog(30, 30, 20, [EpochAt(1, 0)], [MembersAt(-1, ONE)])
    own.grow(60, [EpochAt(2, 30)], [MembersAt(40, TWO)])
    return own


def test_members_count_from_their_append_on_and_go_with_a_cut() -> None:
    own = log()
    assert own.members == TWO
    assert own.has_open_change
    own.cut(40)
    assert own.members == ONE
    assert not own.has_open_change
    assert (own.end, own.epoch_at(own.end)) == (40, 2)


def test_a_cut_takes_back_what_was_durable() -> None:
    own = log()
    own.synced(60)
    own.cut(30)
    assert (own.end, own.durable, own.epochs) == (30, 30, [EpochAt(1, 0)])
    own.synced(60)
    assert own.durable == 30


def test_what_is_committed_is_neither_cut_nor_beyond_the_end() -> None:
    own = log()
    own.commit(50)
    assert not own.has_open_change
    with pytest.raises(AssertionError):
        own.cut(49)
    with pytest.raises(AssertionError):
        own.commit(61)
    own.commit(10)
    assert own.committed == 50


def test_what_could_not_be_written_is_not_committed_here_though_the_group_has_it() -> None:
    log = OwnLog(end=100, durable=100, committed=90, epochs=[EpochAt(1, 0)])
    log.grow(300, [EpochAt(2, 200)])
    log.commit(250)
    log.lack(150)
    assert (log.end, log.durable, log.committed, log.epochs) == (150, 100, 150, [EpochAt(1, 0)])
