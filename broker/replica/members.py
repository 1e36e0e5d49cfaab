"""Fold of a group's members, and the rule for changes of them: one node at a time.

A change counts from its append on, as in Raft's paper. So the majorities before and after a change have a voter in
common, and a node knows its new peers before any decision that they make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from broker.kernel.fold import fact_in, fact_of, packed
from broker.store.frames import unpack_frame
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.protocol.requests.replicas import Member, Members, MembersAt

TOPIC: Final = "%sys%members"
TOPIC_BYTES: Final = TOPIC.encode()
NO_MEMBERS: Final = MembersAt(-1, Members())
"""Before the first record."""


class MembersFold:
    """The members of a log's group.

    Attributes:
        now: since the latest record of them.
    """

    KEY: Final = "members"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self.now = NO_MEMBERS

    @staticmethod
    def fact(members: Members) -> list[Any]:
        """Body of the record that changes the members."""
        return list(members)

    def apply(self, record: Stored) -> Change:
        self.now = MembersAt(record.position, _members(fact_of(record)))
        return NO_CHANGE

    def freeze(self) -> Iterator[bytes]:
        return packed([self.now.position, *self.now.members])

    def restore(self, snapshot: list[Any] | None) -> None:
        position, *members = snapshot or NO_MEMBERS[:1]
        self.now = MembersAt(position, _members(members))


def members_in(frames: Sequence[bytes], position: int) -> Iterator[MembersAt]:
    """The changes of members among frames of the log that stand one behind the other."""
    for frame in frames:
        if unpack_frame(frame)[5] == TOPIC_BYTES:
            yield MembersAt(position, _members(fact_in(frame)))
        position += len(frame)


def _members(fact: list[Any]) -> Members:
    nodes, *more = fact or ((),)
    return Members(tuple(Member(*one) for one in nodes), *more)


def with_member(members: Members, member: Member) -> Members:
    """Adds a node, or gives the one of its name another role or address."""
    others = tuple(one for one in members.nodes if one.node != member.node)
    return members._replace(nodes=tuple(sorted((*others, member))))


def without_member(members: Members, node: str) -> Members:
    """Leaves a node out."""
    return members._replace(nodes=tuple(one for one in members.nodes if one.node != node))


def why_not(before: Members, after: Members) -> str:
    """The reason why these members may not follow those; empty if they may."""
    if not after.voters:
        return "a group needs a voter"
    if len({one.node for one in set(before.nodes) ^ set(after.nodes)}) > 1:
        return "one node is changed at a time"
    if any(one.uuid != known.uuid for one in after.nodes if (known := before.get(one.node))):
        return "a new data folder is a new node: give it another name"
    if not 1 <= after.copies <= len(after.nodes):
        return f"a group of {len(after.nodes)} nodes cannot have {after.copies} copies"
    return ""
