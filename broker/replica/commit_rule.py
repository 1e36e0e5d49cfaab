"""The commit rule of a group: the position that a majority of its voters, and ``copies`` nodes in all, have on their
disks.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.protocol.requests.replicas import Members


def agreed(members: Members, durable: Mapping[str, int]) -> int:
    """The position before which all is on enough disks. ``durable``: up to where each node has the leader's log."""
    voters = sorted([durable.get(one.node, 0) for one in members.nodes if one.is_voter])
    nodes = sorted([durable.get(one.node, 0) for one in members.nodes])
    if not voters or members.copies > len(nodes):
        return 0
    majority = len(voters) // 2 + 1
    return min(voters[-majority], nodes[-max(1, members.copies)])
