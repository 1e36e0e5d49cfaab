"""Consumer groups: their members, and the queues that each member holds.

The broker assigns its own queues by the group's strategy (``allocation``). Every change of members, subscriptions,
terms, queue counts or holders begins a new generation; commits carry their generation and are fenced. In an ordered
group, or for a member that asks for it, a queue is handed over in two steps: it stays with its holder until the holder
has acknowledged the generation that takes it away, or its session has ended. Members live in memory, offsets in the
log. Pure.

Invariants: a queue has at most one holder; generations only grow, also over a restart (the caller says where they
begin); all members of a group have the same terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.groups.allocation import Claim, Place, allocate
from broker.kernel.deadlines import Deadlines
from broker.kernel.theme import Wakers
from penstock.errors import Fenced, GroupNotFound, InvalidRequest
from penstock.protocol.requests.groups import MemberInfo
from topicmap.queues import topic_queue


class Terms(NamedTuple):
    """The common terms of a group's members: the filter of its messages, how its queues are assigned, the length of a
    member's session if it is ordered (0: it is not), and how often a message is tried, with the waits between in ms
    (empty: as usual)."""

    filter: str = ""
    strategy: str = "average"
    ordered_s: float = 0.0
    attempts: tuple[int, ...] = ()

    @property
    def trying(self) -> str:
        """The attempts in words."""
        if not self.attempts:
            return "tries messages as usual"
        waits = ", ".join([f"{wait_ms / 1000:g}" for wait_ms in self.attempts[1:]])
        return f"tries messages {self.attempts[0]} times" + (f", with waits of {waits} s" if waits else "")


USUAL: Final = Terms()


@dataclass(slots=True)
class Member:
    """One consumer of a group.

    Attributes:
        lets_go: its queues are handed over in two steps, also where the group is not ordered.
        dealt: the queues that it is to have.
        held: the queues that it holds, each with the generation in which it got it.
        leaving: those held that are dealt to others, each with the generation that says so.
        changed: the generation in which ``queues`` or ``pending`` last changed.
    """

    claim: Claim
    session_s: float
    lets_go: bool = False
    dealt: tuple[str, ...] = ()
    held: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)
    changed: int = 0

    @property
    def queues(self) -> tuple[str, ...]:
        """Dealt to it and held by it."""
        return tuple([queue for queue in self.dealt if queue in self.held])

    @property
    def pending(self) -> tuple[str, ...]:
        """Dealt to it, while another member holds them."""
        return tuple([queue for queue in self.dealt if queue not in self.held])


@dataclass(slots=True)
class Group:
    """Members by id, the generation of their assignment, and their terms.

    Attributes:
        holders: who holds each queue.
        awaited_until: until then, members of an earlier life of the broker may hold the queues that have no holder.
        seen: queues that had a holder in this life.
    """

    generation: int
    terms: Terms
    members: dict[str, Member] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    awaited_until: float = 0.0
    seen: set[str] = field(default_factory=set)


def member_waker(group: str, member: str) -> str:
    """The waker of a member, for a new assignment or its end; no queue has such a name."""
    return f"member {group} {member}"


class Groups:
    """All groups that have members.

    Args:
        queue_count: number of queues of a topic, 0 while it does not exist.
        first_generation: generations begin above this.
        place: this broker, which decides who holds the odd queue.
        wakers: those of members with a new assignment stir.
        was_read: whether a group may have had members before this life of the broker.
        began: when this life began.
    """

    def __init__(
        self,
        queue_count: Callable[[str], int],
        first_generation: int,
        place: Place,
        wakers: Wakers,
        was_read: Callable[[str], bool] = lambda name: False,
        began: float = 0.0,
    ) -> None:
        self._queue_count = queue_count
        self._place = place
        self._groups: dict[str, Group] = {}
        self._generation = first_generation
        self._wakers = wakers
        self._was_read = was_read
        self._began = began
        self._ends: Deadlines[tuple[str, str]] = Deadlines()  # when a session does: group and member
        self._awaited: Deadlines[str] = Deadlines()  # until when members of an earlier life are: groups
        self._young_until = began  # until then, it counts what groups without members had
        self._ended: dict[str, set[str]] = {}  # their queues that were held in this life

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    @property
    def names(self) -> list[str]:
        """Groups with members."""
        return list(self._groups)

    @property
    def latest(self) -> int:
        """The last generation that began, of whatever group."""
        return self._generation

    @property
    def topics(self) -> set[str]:
        """The topics that members read."""
        return {
            topic for group in self._groups.values() for one in group.members.values() for topic in one.claim.topics
        }

    def reading(self, topic: str) -> list[str]:
        """Groups with members that read a topic."""
        return [
            name
            for name, group in self._groups.items()
            if any([topic in one.claim.topics for one in group.members.values()])
        ]

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
        lets_go: bool = False,
        holding: Iterable[str] = (),
    ) -> Group:
        """Enters a group or renews a membership; a new member, another claim or other terms begin a generation.

        ``holding``: the queues that it held before the broker was restarted; it keeps them, or has to release them.
        Raises ``InvalidRequest`` if other members have other terms; with ``force`` they get the new ones."""
        group = self._groups.get(name)
        if group is not None and group.terms != terms and not force and group.members.keys() - {member}:
            raise _disagreement(name, group.terms, terms)
        if group is None:
            group = self._groups[name] = self._begin(name, terms, now)
        known = group.members.get(member)
        is_same = known is not None and known.claim == claim and known.lets_go == lets_go and group.terms == terms
        if known is None:
            known = group.members[member] = Member(claim, session_s)
            self._go_on(group, member, holding)
        known.claim, known.session_s, known.lets_go = claim, session_s, lets_go
        self._ends.set((name, member), now + session_s)
        if not is_same:
            is_new = group.terms != terms
            group.terms = terms
            self._rebalance(name, group, tell_all=is_new)
        return group

    def _begin(self, name: str, terms: Terms, now: float) -> Group:
        """A group that has no members. Those of an earlier life are awaited while their sessions may last; where it had
        members in this life, all that these did not hold."""
        group, until = Group(self._generation, terms), self._began + terms.ordered_s
        if now < until:
            self._young_until = max(self._young_until, until)
            seen = self._ended.pop(name, None)
            if seen is not None or self._was_read(name):
                group.awaited_until, group.seen = until, seen or set()
                self._awaited.set(name, until)
        return group

    def _go_on(self, group: Group, member: str, holding: Iterable[str]) -> None:
        """Gives a member the queues that it held before the restart, while the broker waits for such members."""
        known = group.members[member]
        if group.awaited_until:
            there = {topic_queue(one, number) for one in known.claim.topics for number in range(self._queue_count(one))}
            for queue in there.intersection(holding):
                if queue not in group.holders:
                    group.seen.add(queue)
                    group.holders[queue] = member
                    known.held[queue] = self._generation + 1

    def leave(self, name: str, member: str) -> None:
        """Leaves a group; leaving twice is fine."""
        group = self._groups.get(name)
        if group is not None and member in group.members:
            self._remove(name, group, [member])

    def of_member(self, name: str, member: str) -> Group:
        """The group of a member. Raises ``Fenced`` if it is no member any more."""
        group = self._groups.get(name)
        if group is None or member not in group.members:
            raise Fenced(f"{member} is not a member of group {name} any more", hint="join again")
        return group

    def touch(self, name: str, member: str, generation: int, now: float) -> Group:
        """A member's sign of life, with the generation that it has carried out: it has released all queues that this
        one took away. Raises ``Fenced`` if it is no member any more."""
        group = self.of_member(name, member)
        known = group.members[member]
        self._ends.set((name, member), now + known.session_s)
        if known.leaving and generation <= group.generation:
            gone = [queue for queue, said in known.leaving.items() if said <= generation]
            for queue in gone:
                _release(group, known, queue)
            if gone:
                self._generation += 1
                group.generation = self._generation
                self._hand_over(name, group, {one: (two.queues, two.pending) for one, two in group.members.items()})
        return group

    def check_commit(self, name: str, member: str, generation: int, queues: Sequence[str]) -> None:
        """Raises ``Fenced`` unless the member holds these queues and has held them since its generation at least; an
        empty member stands for a tool."""
        group = self._groups.get(name)
        if not member:
            if group is not None:
                raise Fenced(f"group {name} has members; its offsets are theirs", hint="stop its consumers first")
            return
        known = group.members.get(member) if group else None
        if group is None or known is None or generation > group.generation:
            raise Fenced(f"{member} commits for generation {generation} of group {name}, which is over")
        foreign = [queue for queue in queues if known.held.get(queue, math.inf) > generation]
        if foreign:
            raise Fenced(f"{member} does not hold {', '.join(foreign[:3])} since generation {generation}")

    def members(self, name: str) -> tuple[int, tuple[MemberInfo, ...]]:
        """Generation and members of a group. Raises ``GroupNotFound`` if it has none."""
        group = self._groups.get(name)
        if group is None:
            raise GroupNotFound(f"group {name} has no members")
        rows = [
            MemberInfo(member, one.queues + tuple(one.leaving), one.pending) for member, one in group.members.items()
        ]
        return group.generation, tuple(sorted(rows))

    def terms_of(self, name: str) -> Terms | None:
        """The terms of a group; ``None`` if it has no members."""
        group = self._groups.get(name)
        return group.terms if group is not None else None

    def queues_changed(self, topic: str) -> None:
        """A topic was created or has another number of queues."""
        for name in self.reading(topic):
            self._rebalance(name, self._groups[name])

    def expire(self, now: float) -> None:
        """Drops the members that have been silent for too long, and waits no longer for those of an earlier life."""
        if now >= self._young_until:
            self._ended.clear()
        changed: dict[str, list[str]] = {}
        for name in self._awaited.due(now):
            group = self._groups.get(name)
            if group is not None and group.awaited_until:
                group.awaited_until = 0.0
                changed[name] = []
        for name, member in self._ends.due(now):
            changed.setdefault(name, []).append(member)
        for name, silent in changed.items():
            self._remove(name, self._groups[name], silent)

    def _remove(self, name: str, group: Group, members: Collection[str]) -> None:
        for member in members:
            known = group.members.pop(member)
            self._ends.cancel((name, member))
            for queue in known.held:
                del group.holders[queue]
            self._wakers[member_waker(name, member)] = None
        self._rebalance(name, group)

    # -- who holds what

    def _rebalance(self, name: str, group: Group, *, tell_all: bool = False) -> None:
        """Deals the queues anew. ``tell_all``: also members whose queues stay the same."""
        self._generation += 1
        group.generation = self._generation
        if not group.members:
            del self._groups[name]
            if group.terms.ordered_s:
                self._ended[name] = group.seen
            return
        claims = {member: one.claim for member, one in group.members.items()}
        counts = {topic: self._queue_count(topic) for claim in claims.values() for topic in claim.topics}
        before = {} if tell_all else {member: (one.queues, one.pending) for member, one in group.members.items()}
        for member, queues in allocate(group.terms.strategy, claims, counts, self._place).items():
            known = group.members[member]
            known.dealt = tuple(queues)
            self._take_away(group, known)
        self._hand_over(name, group, before)

    def _take_away(self, group: Group, known: Member) -> None:
        """Takes reassigned queues from their holder: at once, or once it has released them."""
        dealt = frozenset(known.dealt)
        for queue in list(known.held):
            if queue in dealt:
                known.leaving.pop(queue, None)
            elif group.terms.ordered_s or known.lets_go:
                known.leaving.setdefault(queue, group.generation)
            else:
                _release(group, known, queue)

    def _hand_over(self, name: str, group: Group, before: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
        """Gives each queue without a holder to the member it is dealt to; wakes members whose queues changed."""
        for member, known in group.members.items():
            for queue in known.dealt:
                if queue not in group.holders and (not group.awaited_until or queue in group.seen):
                    group.seen.add(queue)
                    group.holders[queue] = member
                    known.held[queue] = group.generation
            if before.get(member) != (known.queues, known.pending):
                known.changed = group.generation
                self._wakers[member_waker(name, member)] = None


def _release(group: Group, known: Member, queue: str) -> None:
    del group.holders[queue], known.held[queue]
    known.leaving.pop(queue, None)


def _disagreement(name: str, old: Terms, new: Terms) -> InvalidRequest:
    """The error of a member whose terms are not the group's, which names both."""
    hint = "give all its members the same; force=True changes it for the whole group"
    if old.strategy != new.strategy:
        return InvalidRequest(
            f"group {name} deals its queues by {old.strategy}, this member asks for {new.strategy}", hint=hint
        )
    if old.ordered_s != new.ordered_s:
        has, asks = (f"ordered with sessions of {s:g} s" if s else "not ordered" for s in (old[2], new[2]))
        return InvalidRequest(f"group {name} is {has}, this member is {asks}", hint=hint)
    if old.attempts != new.attempts:
        return InvalidRequest(f"group {name} {old.trying}, this member {new.trying}", hint=hint)
    has, asks = (f"the filter {one.filter!r}" if one.filter else "no filter" for one in (old, new))
    return InvalidRequest(f"group {name} has {has}, this member {asks}", hint=hint)
