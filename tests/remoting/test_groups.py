"""The front as a member of groups: it enters, stays, enters again and leaves."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import Fenced, InvalidRequest, PenstockError
from penstock.protocol.requests.groups import REMOTING, Assignment, CommitOffsets, JoinGroup, LeaveGroup, WatchGroup
from penstock.protocol.requests.request import Done
from remoting.flows import Flow, Sleep
from remoting.groups import Groups

TOPICS = frozenset({"t"})


def answered(flow: Flow, *answers: object) -> list[Any]:
    """What a flow asked for, given these answers."""
    asked: list[Any] = []
    try:
        asked.append(next(flow))
        for answer in answers:
            wanted = flow.throw(answer) if isinstance(answer, PenstockError) else flow.send(answer)
            asked.append(wanted)
    except StopIteration:
        pass
    return asked


def joined() -> tuple[Groups, list[Flow]]:
    started: list[Flow] = []
    groups = Groups("front", started.append)
    (asked,) = answered(groups.join("g", TOPICS), Assignment(7, ()))
    assert isinstance(asked, JoinGroup)
    assert (asked.topics, asked.strategy) == (("%RETRY%g", "t"), REMOTING)
    return groups, started


def test_it_joins_once_and_stays_by_watching() -> None:
    groups, started = joined()
    assert answered(groups.join("g", TOPICS)) == []
    (stay,) = started
    first, second = answered(stay, Assignment(8, ()))
    assert isinstance(first, WatchGroup)
    assert (first.generation, second.generation) == (7, 8)
    assert groups.generation("g") == 8


def test_where_the_broker_has_forgotten_it_it_joins_again() -> None:
    groups, (stay,) = joined()
    asked = answered(stay, Fenced("unknown"), Assignment(9, ()))
    assert [type(one) for one in asked] == [WatchGroup, JoinGroup, WatchGroup]
    assert groups.generation("g") == 9


def test_while_it_is_kept_out_clients_are_told_why_and_it_tries_again() -> None:
    groups, (stay,) = joined()
    asked = answered(stay, InvalidRequest("native members are there"), None)
    assert [type(one) for one in asked] == [WatchGroup, Sleep, JoinGroup]
    assert "native members are there" in groups.refusal("g")
    with pytest.raises(Fenced, match="native members"):
        groups.generation("g")


def test_it_leaves_with_the_last_client() -> None:
    groups, (stay,) = joined()
    next(stay)
    (asked,) = answered(groups.join("g", frozenset()), Done())
    assert asked == LeaveGroup("g", "front")
    with pytest.raises(StopIteration):
        stay.send(Assignment(8, ()))
    assert not groups.is_in("g")


def test_it_commits_as_a_member_or_as_a_tool() -> None:
    groups, _started = joined()
    (asked,) = answered(groups.commit("g", "t:0", 5), Done())
    assert isinstance(asked, CommitOffsets)
    assert (asked.member, asked.generation, asked.offsets) == ("front", 7, (("t:0", 5),))
    (asked,) = answered(groups.commit("other", "t:0", 5), Done())
    assert (asked.member, asked.generation) == ("", 0)
