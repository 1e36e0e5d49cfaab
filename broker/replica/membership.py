"""Requests of operators to change a group's members: the members that follow, or the reason for a refusal.

The leader decides whether the group can carry a change out now (``Core.change_refusal``). This module refuses changes
that are wrong at any time: a group of two voters, where either one's death ends all writing; a leader that removes
itself; a data folder that has lost its promises under a name that still counts on them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.replica.members import with_member, without_member
from penstock.errors import InvalidRequest
from penstock.protocol.requests.replicas import Member, Members

TWO: Final = 2


def with_node(members: Members, node: str, uuid: str, address: str) -> Members:
    """A node joins as an observer; a member is where it says that it is. Raises ``InvalidRequest`` for a data folder
    that is not the member's."""
    known = members.get(node)
    if known is None:
        return with_member(members, Member(node, uuid, address, is_voter=False))
    if known.uuid != uuid:
        raise InvalidRequest(
            f"the data folder of node {node} is not the one that this group knows: it was made anew, and has forgotten"
            " what it promised",
            hint=f"start it with another --node, for example {node}2, then: penstock replica replace {node} --by"
            f" {node}2; or put its old folder back",
        )
    return with_member(members, known._replace(address=address))


def with_role(members: Members, node: str, leader: str, *, is_voter: bool, allows_two: bool = False) -> Members:
    """A node becomes a voter or an observer. ``allows_two``: a group of two voters is meant. Raises
    ``InvalidRequest``."""
    known = _known(members, node)
    if known.is_voter == is_voter:
        return members
    after = with_member(members, known._replace(is_voter=is_voter))
    if not is_voter:
        _refuse_leader(node, leader, "demoted")
    _check_voters(after, node if is_voter else "", allows_two=allows_two)
    return after


def without_node(members: Members, node: str, leader: str, *, allows_two: bool = False) -> Members:
    """A node leaves. Raises ``InvalidRequest``."""
    known = _known(members, node)
    _refuse_leader(node, leader, "removed")
    after = without_member(members, node)
    if after.copies > len(after.nodes):
        raise InvalidRequest(
            f"the group keeps {after.copies} copies of what is committed, and would have {len(after.nodes)} nodes",
            hint="add a node first, or lower the copies: penstock replica copies 1",
        )
    if known.is_voter:
        _check_voters(after, "", allows_two=allows_two)
    return after


def with_copies(members: Members, copies: int) -> Members:
    """Another minimum number of disks for committed messages. Raises ``InvalidRequest``."""
    if not 1 <= copies <= len(members.nodes):
        raise InvalidRequest(
            f"a group of {len(members.nodes)} nodes keeps 1 to {len(members.nodes)} copies, not {copies}"
        )
    return members._replace(copies=copies)


def forced(members: Members, node: str, lost: Collection[str]) -> Members:
    """The members of a leadership that no majority has elected: those that are not lost, and ``node`` as a voter.
    Raises ``InvalidRequest`` where a majority is left, or the wish makes no sense."""
    for name in (node, *lost):
        _known(members, name)
    if node in lost:
        raise InvalidRequest(f"node {node} cannot lead and be lost")
    left = [one for one in members.voters if one not in lost]
    if len(left) >= members.majority:
        raise InvalidRequest(
            f"{' and '.join(left)} are a majority of {len(members.voters)} voters: they elect a leader without force",
            hint="start them, and see why they do not: penstock replica list, penstock doctor",
        )
    after = tuple(
        one._replace(is_voter=one.is_voter or one.node == node) for one in members.nodes if one.node not in lost
    )
    return members._replace(nodes=after, copies=min(members.copies, len(after)))


def _known(members: Members, node: str) -> Member:
    known = members.get(node)
    if known is None:
        there = ", ".join(one.node for one in members.nodes) or "none but the leader"
        raise InvalidRequest(f"the group has no node {node}", hint=f"its nodes: {there}")
    return known


def _refuse_leader(node: str, leader: str, what: str) -> None:
    if node == leader:
        raise InvalidRequest(
            f"node {node} leads, and cannot be {what} meanwhile",
            hint="move the lead first: penstock replica move-leader NODE",
        )


def _check_voters(after: Members, promoted: str, *, allows_two: bool) -> None:
    if not after.voters:
        raise InvalidRequest("a group needs a voter")
    if len(after.voters) == TWO and not allows_two:
        others = [one.node for one in after.nodes if not one.is_voter]
        more = f" {others[0]}" if others else " NODE"
        hint = f"promote two at once: penstock replica promote {promoted}{more}" if promoted else "add a voter first"
        raise InvalidRequest(
            "with two voters nothing is stored while either is away: that is less safe than one, not more",
            hint=f"{hint}; if two are meant: --yes-no-failover",
        )
