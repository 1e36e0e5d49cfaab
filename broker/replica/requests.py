"""Requests of operators about a group of copies: its members, how far each is, and changes of it.

Any node describes the group as it knows it; only the leader changes it. A broker without other copies is a group of
one, and has nothing to change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome
from broker.replica.membership import with_copies, with_role, without_node
from broker.store.message_store import MessageStore
from penstock.errors import InvalidRequest
from penstock.protocol.requests.replicas import (
    DescribeReplicas,
    ForceLeader,
    Members,
    MoveLeader,
    RemoveReplica,
    ReplicaRow,
    Replicas,
    SetCopies,
    SetRole,
)
from penstock.protocol.requests.request import Done

Change = Callable[[Members], Members]


class Group(Protocol):
    """The group of this node's log."""

    def describe(self, now: float) -> Replicas:
        """The group as this node knows it."""
        ...

    def change(self, change: Change, now: float, now_ms: int) -> int:
        """Changes the members; returns the log position at whose commit they are changed. Raises ``NotLeader``,
        ``Busy`` for a change that has to wait, and ``InvalidRequest`` for one that is not allowed."""
        ...

    def move_lead(self, node: str, now: float) -> None:
        """Begins to move the lead to a voter. Raises ``NotLeader``, ``InvalidRequest``."""
        ...

    def force_lead(self, lost: tuple[str, ...], now: float) -> None:
        """Leads without a majority. Raises ``InvalidRequest``."""
        ...

    def reasons(self) -> list[str]:
        """The reasons why this node is not ready, though it does not lead."""
        ...


class Alone:
    """The group of a broker without other copies.

    Args:
        name: the broker's, which is the group's and the node's too.
        epoch: gives the one in which it leads.
        store: of its log.
    """

    def __init__(self, name: str, epoch: Callable[[], int], store: MessageStore) -> None:
        self._name = name
        self._epoch = epoch
        self._store = store

    def describe(self, now: float) -> Replicas:
        name, store = self._name, self._store
        row = ReplicaRow(name, "", "", True, durable=store.durable, heard_s=0.0)
        return Replicas(name, name, "leader", self._epoch(), name, store.committed, store.written, 1, (row,))

    def change(self, change: Change, now: float, now_ms: int) -> int:
        raise self._refusal()

    def move_lead(self, node: str, now: float) -> None:
        raise self._refusal()

    def force_lead(self, lost: tuple[str, ...], now: float) -> None:
        raise self._refusal()

    def reasons(self) -> list[str]:
        return ["this broker does not lead its log"]

    def _refusal(self) -> InvalidRequest:
        return InvalidRequest(
            f"broker {self._name} has no other copies",
            hint="start it with a name of the node and a port for replicas, and others with --join",
        )


class ReplicaRequests:
    """Requests about the group of copies that a node is in."""

    def __init__(self, group: Group) -> None:
        self._group = group

    @handles(DescribeReplicas)
    def describe(self, request: DescribeReplicas, now: float, now_ms: int) -> Outcome:
        """The members of the group, and how far each is."""
        return Now(self._group.describe(now))

    @handles(SetRole)
    def set_role(self, request: SetRole, now: float, now_ms: int) -> Outcome:
        """Makes a node a voter or an observer."""
        leader = self._group.describe(now).leader

        def change(members: Members) -> Members:
            is_voter, allows_two = request.is_voter, request.allows_two
            return with_role(members, request.node, leader, is_voter=is_voter, allows_two=allows_two)

        return AfterQuorum(Done(), self._group.change(change, now, now_ms))

    @handles(RemoveReplica)
    def remove(self, request: RemoveReplica, now: float, now_ms: int) -> Outcome:
        """Takes a node out of the group."""
        leader = self._group.describe(now).leader

        def change(members: Members) -> Members:
            return without_node(members, request.node, leader, allows_two=request.allows_two)

        return AfterQuorum(Done(), self._group.change(change, now, now_ms))

    @handles(SetCopies)
    def set_copies(self, request: SetCopies, now: float, now_ms: int) -> Outcome:
        """Changes the minimum number of disks for committed messages."""
        point = self._group.change(lambda members: with_copies(members, request.copies), now, now_ms)
        return AfterQuorum(Done(), point)

    @handles(MoveLeader)
    def move_leader(self, request: MoveLeader, now: float, now_ms: int) -> Outcome:
        """Begins to move the lead to a node."""
        self._group.move_lead(request.node, now)
        return Now(Done())

    @handles(ForceLeader)
    def force_leader(self, request: ForceLeader, now: float, now_ms: int) -> Outcome:
        """Has this node lead, and takes the lost ones out of the group."""
        self._group.force_lead(request.lost, now)
        return Now(Done())
