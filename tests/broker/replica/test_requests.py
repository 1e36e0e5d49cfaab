"""What operators ask of a group of copies, and what a broker answers that has no other copy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.kernel.outcomes import AfterQuorum
from broker.replica.requests import Change, ReplicaRequests
from penstock.errors import InvalidRequest
from penstock.protocol.requests.replicas import (
    DescribeReplicas,
    ForceLeader,
    Member,
    Members,
    MoveLeader,
    RemoveReplica,
    Replicas,
    SetCopies,
    SetRole,
)
from penstock.protocol.requests.request import Done, Request
from tests.broker.broker_rig import Rig, now


class Copies:
    """A group that takes every change."""

    def __init__(self) -> None:
        self.members = Members((Member("a", "1"), Member("b", "2", "", is_voter=False)))
        self.moved: list[str] = []
        self.lost: Sequence[str] = ()

    def describe(self, now: float) -> Replicas:
        return Replicas("g", "a", "leader", 3, "a", 10, 20, 1, ())

    def change(self, change: Change, now: float, now_ms: int) -> int:
        self.members = change(self.members)
        return 70

    def move_lead(self, node: str, now: float) -> None:
        self.moved.append(node)

    def force_lead(self, lost: tuple[str, ...], now: float) -> None:
        self.lost = lost


def test_a_broker_without_other_copies_is_a_group_of_one() -> None:
    rig = Rig(name="broker-x")
    told = now(rig.handle(DescribeReplicas()))
    assert isinstance(told, Replicas)
    assert (told.group, told.node, told.role, told.leader, told.copies) == (
        "broker-x",
        "broker-x",
        "leader",
        "broker-x",
        1,
    )
    [row] = told.rows
    assert (row.node, row.is_voter, told.end) == ("broker-x", True, rig.store.written)


@pytest.mark.parametrize(
    "request_", [SetRole("b", True), RemoveReplica("b"), MoveLeader("b"), ForceLeader(()), SetCopies(2)]
)
def test_a_group_of_one_has_nothing_to_change(request_: Request) -> None:
    refused = now(Rig(name="broker-x").handle(request_))
    assert isinstance(refused, InvalidRequest)
    assert "no other copies" in refused.message


def test_a_change_of_the_members_is_answered_when_it_is_committed() -> None:
    group = Copies()
    requests = ReplicaRequests(group)
    outcome = requests.set_role(SetRole("b", True, True), 0.0, 0)
    assert isinstance(outcome, AfterQuorum)
    assert (outcome.point, outcome.result) == (70, Done())
    assert group.members.voters == ["a", "b"]
    requests.set_copies(SetCopies(2), 0.0, 0)
    assert group.members.copies == 2
    requests.set_copies(SetCopies(1), 0.0, 0)
    requests.remove(RemoveReplica("b"), 0.0, 0)
    assert group.members.voters == ["a"]
    with pytest.raises(InvalidRequest, match="no node b"):
        requests.remove(RemoveReplica("b"), 0.0, 0)


def test_what_would_hurt_is_refused_unless_it_is_meant() -> None:
    group = Copies()
    requests = ReplicaRequests(group)
    with pytest.raises(InvalidRequest, match="two voters"):
        requests.set_role(SetRole("b", True), 0.0, 0)
    with pytest.raises(InvalidRequest, match="node a leads"):
        requests.remove(RemoveReplica("a", True), 0.0, 0)
    with pytest.raises(InvalidRequest, match="1 to 2 copies"):
        requests.set_copies(SetCopies(3), 0.0, 0)


def test_the_lead_is_moved_and_taken() -> None:
    group = Copies()
    requests = ReplicaRequests(group)
    assert now(requests.move_leader(MoveLeader("b"), 0.0, 0)) == Done()
    assert now(requests.force_leader(ForceLeader(("a",)), 0.0, 0)) == Done()
    assert now(requests.describe(DescribeReplicas(), 0.0, 0)).role == "leader"  # type: ignore[union-attr]
    assert (group.moved, group.lost) == (["b"], ("a",))
