"""The front as a member of consumer groups: one native member per group, which holds all queues of its broker.

RocketMQ's clients divide the queues among themselves, without asking the broker. So a group is of one kind at a time:
the front joins with the strategy ``remoting``, and the broker refuses native members meanwhile, as it refuses the front
while native members are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.errors import Fenced, PenstockError
from penstock.protocol.requests.groups import (
    REMOTING,
    Assignment,
    CommitOffsets,
    JoinGroup,
    LeaveGroup,
    QueueOffset,
    WatchGroup,
)
from remoting.flows import Flow, Sleep
from topicmap.queues import retry_topic

SESSION_S: Final = 30.0
WATCH_S: Final = 10.0
AGAIN_S: Final = 1.0


@dataclass(slots=True)
class Membership:
    """The front in one group.

    Attributes:
        topics: those that it has joined with.
        generation: the one in which it holds its queues.
        refusal: why the broker does not let it in; empty while it is in.
        is_left: whether the front has left the group, so that it is not renewed.
    """

    topics: frozenset[str]
    generation: int = 0
    refusal: str = ""
    is_left: bool = False


class Groups:
    """The front's memberships."""

    def __init__(self, member: str, start: Callable[[Flow], None]) -> None:
        """``start`` runs a flow beside the present one."""
        self._member = member
        self._start = start
        self._memberships: dict[str, Membership] = {}

    def join(self, group: str, topics: frozenset[str]) -> Flow:
        """Joins a group with these topics, or leaves it if there are none. Raises ``PenstockError`` where the broker
        does not let the front in."""
        known = self._memberships.get(group)
        if not topics:
            if known is not None:
                known.is_left = True
                del self._memberships[group]
                yield LeaveGroup(group, self._member)
            return
        if known is not None and known.topics == topics and not known.refusal:
            return
        membership = known or Membership(topics)
        membership.topics, membership.refusal = topics, ""
        self._memberships[group] = membership
        try:
            yield from self._enter(group, membership)
        except PenstockError as error:
            membership.refusal = _refusal(group, error)
            raise
        if known is None:
            self._start(self._stay(group, membership))

    def _enter(self, group: str, membership: Membership) -> Flow:
        topics = tuple(sorted(membership.topics | {retry_topic(group)}))
        joined: Assignment = yield JoinGroup(group, self._member, topics, SESSION_S, strategy=REMOTING)
        membership.generation, membership.refusal = joined.generation, ""

    def _stay(self, group: str, membership: Membership) -> Flow:
        """Renews the membership until it is left; enters again where the broker has forgotten it."""
        while not membership.is_left:
            try:
                if membership.refusal:
                    yield from self._enter(group, membership)
                watched: Assignment = yield WatchGroup(group, self._member, membership.generation, WATCH_S)
                membership.generation = watched.generation
            except PenstockError as error:
                membership.refusal = _refusal(group, error)
                if not isinstance(error, Fenced):
                    yield Sleep(AGAIN_S)

    def refusal(self, group: str) -> str:
        """The reason why the group's clients may not read, empty if they may."""
        known = self._memberships.get(group)
        return known.refusal if known is not None else ""

    def is_in(self, group: str) -> bool:
        """Whether the front is a member."""
        known = self._memberships.get(group)
        return known is not None and not known.refusal

    @property
    def member(self) -> str:
        """The front's name in its groups."""
        return self._member

    def generation(self, group: str) -> int:
        """In which the front holds the group's queues. Raises ``Fenced`` where it is no member."""
        known = self._memberships.get(group)
        if known is None or known.refusal:
            raise Fenced(known.refusal if known is not None else f"no client has told of the group {group}")
        return known.generation

    def commit(self, group: str, queue: str, offset: int) -> Flow:
        """Stores a position. Without members it is a tool's reset."""
        if group in self._memberships:
            yield CommitOffsets(group, self._member, self.generation(group), (QueueOffset(queue, offset),))
        else:
            yield CommitOffsets(group, "", 0, (QueueOffset(queue, offset),))


def _refusal(group: str, error: PenstockError) -> str:
    return f"the group {group} cannot be RocketMQ's now: {error.message}"
