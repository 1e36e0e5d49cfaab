"""Consumer groups: who is a member, and which queues each member holds.

The broker assigns its own queues (``allocate``): a member holds a run of each topic's queues, and members with the
same topics hold equally many over all topics. Every change of members, subscriptions or queue counts begins a new
generation; commits carry their generation and are fenced. Members live in memory, offsets in the log. Pure.

Invariants: each queue of a subscribed topic has exactly one holder; generations only grow, and no generation of one
life of the broker is one of another (the caller says where they begin).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

from penstock.errors import Fenced, GroupNotFound
from penstock.protocol.requests.groups import MemberInfo
from topicmap.queues import topic_queue


@dataclass(slots=True)
class Member:
    """One consumer of a group."""

    topics: tuple[str, ...]
    session_s: float
    deadline: float
    queues: tuple[str, ...] = ()


@dataclass(slots=True)
class Group:
    """Members by id, and the generation of their assignment."""

    generation: int
    members: dict[str, Member] = field(default_factory=dict)


def allocate(members: Mapping[str, Collection[str]], queues: Mapping[str, int], turn: int = 0) -> dict[str, list[str]]:
    """The queues of each member, by topic. Each queue goes to the subscriber of its topic that holds fewest so far, so
    that members with the same topics are at most one queue apart; of a topic a member holds neighbours.

    Args:
        members: the topics of each member.
        queues: how many queues each topic has.
        turn: of members that hold equally many, the one in this place of their order comes first; it differs from
            broker to broker, else one member would hold the odd queue of each.
    """
    names = sorted(members)
    start = turn % len(names) if names else 0
    order = names[start:] + names[:start]
    readers: dict[str, list[int]] = {}
    for place, name in enumerate(order):
        for topic in members[name]:
            readers.setdefault(topic, []).append(place)
    held = [0] * len(order)
    runs: list[dict[str, int]] = [{} for _ in order]
    for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic)):  # few readers leave least choice
        fewest = [(held[place], place) for place in readers[topic]]
        heapify(fewest)
        for _ in range(queues[topic]):
            count, place = fewest[0]
            heapreplace(fewest, (count + 1, place))
            runs[place][topic] = runs[place].get(topic, 0) + 1
        for count, place in fewest:
            held[place] = count
    places = {name: place for place, name in enumerate(order)}
    given = dict.fromkeys(readers, 0)
    dealt: dict[str, list[str]] = {}
    for name in names:
        run = runs[places[name]]
        dealt[name] = []
        for topic in sorted(run):
            first, given[topic] = given[topic], given[topic] + run[topic]
            dealt[name] += [topic_queue(topic, number) for number in range(first, given[topic])]
    return dealt


class Groups:
    """All groups that have members. ``changed``: those with a new generation that nobody has taken yet.

    Args:
        queue_count: number of queues of a topic, 0 while it does not exist.
        first_generation: generations begin above this.
        broker: this broker's name, which decides who holds the odd queue.
    """

    def __init__(self, queue_count: Callable[[str], int], first_generation: int, broker: str = "") -> None:
        self._queue_count = queue_count
        self._broker = broker
        self._groups: dict[str, Group] = {}
        self._generation = first_generation
        self.changed: dict[str, None] = {}
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
        return {topic for group in self._groups.values() for one in group.members.values() for topic in one.topics}

    def join(self, name: str, member: str, topics: tuple[str, ...], session_s: float, now: float) -> Group:
        """Enters a group or renews a membership; a new member or other topics begin a generation."""
        group = self._groups.setdefault(name, Group(self._generation))
        known = group.members.get(member)
        group.members[member] = Member(topics, session_s, now + session_s, known.queues if known else ())
        self._next_deadline = min(self._next_deadline, now + session_s)
        if known is None or known.topics != topics:
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

    def queues_changed(self, topic: str) -> None:
        """A topic was created or has another number of queues."""
        for name, group in list(self._groups.items()):
            if any(topic in member.topics for member in group.members.values()):
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

    def take_changed(self) -> list[str]:
        """Groups with a new generation since the last call."""
        changed = list(self.changed)
        self.changed.clear()
        return changed

    def _rebalance(self, name: str, group: Group) -> None:
        self._generation += 1
        group.generation = self._generation
        self.changed[name] = None
        if not group.members:
            del self._groups[name]
            return
        topics = {name: frozenset(member.topics) for name, member in group.members.items()}
        counts = {topic: self._queue_count(topic) for some in topics.values() for topic in some}
        for member, queues in allocate(topics, counts, _turn_of(self._broker)).items():
            group.members[member].queues = tuple(queues)


def _turn_of(broker: str) -> int:
    """Brokers whose names count up (``broker-a``, ``broker-b``) have turns that follow each other."""
    return sum(broker.encode())
