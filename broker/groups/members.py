"""Consumer groups: who is a member, and which queues each member holds.

The broker assigns its own queues, by the group's strategy (``allocation``). Every change of members, subscriptions,
terms or queue counts begins a new generation; commits carry their generation and are fenced. Members live in memory,
offsets in the log. Pure.

Invariants: a queue has at most one holder; generations only grow, and no generation of one life of the broker is one of
another (the caller says where they begin); all members of a group have the same terms: its filter and its strategy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.groups.allocation import Claim, Place, allocate
from broker.kernel.theme import Wakers
from penstock.errors import Fenced, GroupNotFound, InvalidRequest
from penstock.protocol.requests.groups import MemberInfo


class Terms(NamedTuple):
    """What all members of a group agree on: the filter of its messages, and how its queues are dealt."""

    filter: str = ""
    strategy: str = "average"


USUAL: Final = Terms()


@dataclass(slots=True)
class Member:
    """One consumer of a group."""

    claim: Claim
    session_s: float
    deadline: float
    queues: tuple[str, ...] = ()


@dataclass(slots=True)
class Group:
    """Members by id, the generation of their assignment, and their terms."""

    generation: int
    terms: Terms
    members: dict[str, Member] = field(default_factory=dict)


def group_waker(group: str) -> str:
    """What stirs when a group begins a new generation; no queue has such a name."""
    return f"group {group}"


class Groups:
    """All groups that have members.

    Args:
        queue_count: number of queues of a topic, 0 while it does not exist.
        first_generation: generations begin above this.
        place: this broker, which decides who holds the odd queue.
        wakers: those of groups with a new generation stir.
    """

    def __init__(self, queue_count: Callable[[str], int], first_generation: int, place: Place, wakers: Wakers) -> None:
        self._queue_count = queue_count
        self._place = place
        self._groups: dict[str, Group] = {}
        self._generation = first_generation
        self._wakers = wakers
        self._next_deadline = math.inf  # no session ends before this

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    @property
    def names(self) -> list[str]:
        """Groups with members."""
        return list(self._groups)

    @property
    def topics(self) -> set[str]:
        """The topics that members read."""
        return {
            topic for group in self._groups.values() for one in group.members.values() for topic in one.claim.topics
        }

    def join(
        self,
        name: str,
        member: str,
        claim: Claim,
        session_s: float,
        now: float,
        terms: Terms = USUAL,
        *,
        force: bool = False,
    ) -> Group:
        """Enters a group or renews a membership; a new member, another claim or other terms begin a generation.

        Raises ``InvalidRequest`` if other members have other terms; with ``force`` they get the new ones."""
        group = self._groups.get(name)
        if group is not None and group.terms != terms and not force and group.members.keys() - {member}:
            raise _disagreement(name, group.terms, terms)
        if group is None:
            group = self._groups[name] = Group(self._generation, terms)
        known = group.members.get(member)
        is_same = known is not None and known.claim == claim and group.terms == terms
        group.members[member] = Member(claim, session_s, now + session_s, known.queues if known else ())
        group.terms = terms
        self._next_deadline = min(self._next_deadline, now + session_s)
        if not is_same:
            self._rebalance(name, group)
        return group

    def leave(self, name: str, member: str) -> None:
        """Leaves a group; leaving twice is fine."""
        group = self._groups.get(name)
        if group is not None and group.members.pop(member, None) is not None:
            self._rebalance(name, group)

    def of_member(self, name: str, member: str) -> Group:
        """The group of a member. Raises ``Fenced`` if it is no member any more."""
        group = self._groups.get(name)
        if group is None or member not in group.members:
            raise Fenced(f"{member} is not a member of group {name} any more", hint="join again")
        return group

    def touch(self, name: str, member: str, now: float) -> Group:
        """A member's sign of life. Raises ``Fenced`` if it is no member any more."""
        group = self.of_member(name, member)
        known = group.members[member]
        known.deadline = now + known.session_s
        return group

    def check_commit(self, name: str, member: str, generation: int, queues: Sequence[str]) -> None:
        """Raises ``Fenced`` unless the member may commit these queues; an empty member stands for a tool."""
        group = self._groups.get(name)
        if not member:
            if group is not None:
                raise Fenced(f"group {name} has members; its offsets are theirs", hint="stop its consumers first")
            return
        known = group.members.get(member) if group else None
        if group is None or known is None or group.generation != generation:
            raise Fenced(f"{member} commits for generation {generation} of group {name}, which is over")
        held = frozenset(known.queues)
        foreign = [queue for queue in queues if queue not in held]
        if foreign:
            raise Fenced(f"{member} does not hold {', '.join(foreign[:3])}")

    def members(self, name: str) -> tuple[int, tuple[MemberInfo, ...]]:
        """Generation and members of a group. Raises ``GroupNotFound`` if it has none."""
        group = self._groups.get(name)
        if group is None:
            raise GroupNotFound(f"group {name} has no members")
        return group.generation, tuple(MemberInfo(member, one.queues) for member, one in sorted(group.members.items()))

    def terms_of(self, name: str) -> Terms | None:
        """The terms of a group; ``None`` if it has no members."""
        group = self._groups.get(name)
        return group.terms if group is not None else None

    def queues_changed(self, topic: str) -> None:
        """A topic was created or has another number of queues."""
        for name, group in list(self._groups.items()):
            if any(topic in member.claim.topics for member in group.members.values()):
                self._rebalance(name, group)

    def expire(self, now: float) -> None:
        """Drops the members that have been silent for too long."""
        if now < self._next_deadline:
            return
        self._next_deadline = math.inf
        for name, group in list(self._groups.items()):
            silent = [member for member, one in group.members.items() if one.deadline <= now]
            for member in silent:
                del group.members[member]
            if silent:
                self._rebalance(name, group)
            self._next_deadline = min([self._next_deadline, *(one.deadline for one in group.members.values())])

    def _rebalance(self, name: str, group: Group) -> None:
        self._generation += 1
        group.generation = self._generation
        self._wakers[group_waker(name)] = None
        if not group.members:
            del self._groups[name]
            return
        claims = {member: one.claim for member, one in group.members.items()}
        counts = {topic: self._queue_count(topic) for claim in claims.values() for topic in claim.topics}
        for member, queues in allocate(group.terms.strategy, claims, counts, self._place).items():
            group.members[member].queues = tuple(queues)


def _disagreement(name: str, old: Terms, new: Terms) -> InvalidRequest:
    """The error of a member whose terms are not the group's, which names both."""
    hint = "give all its members the same; force=True changes it for the whole group"
    if old.strategy != new.strategy:
        return InvalidRequest(
            f"group {name} deals its queues by {old.strategy}, this member asks for {new.strategy}", hint=hint
        )
    has, asks = (f"the filter {one.filter!r}" if one.filter else "no filter" for one in (old, new))
    return InvalidRequest(f"group {name} has {has}, this member {asks}", hint=hint)
