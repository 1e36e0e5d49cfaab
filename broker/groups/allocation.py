"""Strategies by which a broker deals its queues to the members of a group. Pure: members and queues in, queues out.

| strategy | who holds a queue |
|---|---|
| ``average`` | equally many each over all topics; of a topic, neighbours |
| ``circle`` | equally many each over all topics; of a topic, in turn |
| ``hash`` | the next member on a ring of hashes: few queues move when a member comes or goes |
| ``configured`` | the member that asks for it by name; the first by name of several; retries as ``average`` |
| ``room`` | as ``average``, among the members in the broker's room |
| ``nearest-room`` | the same; among all, where none is in that room |
| ``remoting`` | as ``average``; the one member stands for a group of RocketMQ's clients |

Invariants: a queue has at most one holder, which reads its topic; it has none only if no member may hold it. With
``average``, ``circle`` and the rooms, members that may hold the same are at most one queue apart over all topics. The
odd queues go to others on each broker (``Place.turn``), and so do those of a ring.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heapify, heapreplace
from typing import Final

from penstock.protocol.requests.groups import REMOTING
from topicmap.queues import RETRY_PREFIX, topic_queue

RING_POINTS: Final = 64
"""Places that a member has on a ring."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A member's claim: its topics, its room, and the queues that it asks for by name."""

    topics: frozenset[str]
    room: str = ""
    queues: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """A broker, which deals its queues: its name, and the room where it is."""

    broker: str = ""
    room: str = ""

    @property
    def turn(self) -> int:
        """Brokers whose names count up (``broker-a``, ``broker-b``) have turns that follow each other."""
        return sum(self.broker.encode())


Members = Mapping[str, Collection[str]]
Dealt = dict[str, list[str]]


def allocate(strategy: str, claims: Mapping[str, Claim], queues: Mapping[str, int], place: Place) -> Dealt:
    """The queues of each member, by topic and number.

    Args:
        strategy: one of ``STRATEGIES`` (penstock/protocol/requests/groups.py).
        claims: the members.
        queues: how many queues each topic has.
        place: the broker that deals.
    """
    return _STRATEGIES[strategy](claims, queues, place)


def _topics(claims: Mapping[str, Claim]) -> Members:
    return {name: claim.topics for name, claim in claims.items()}


def _average(claims: Mapping[str, Claim], queues: Mapping[str, int], place: Place) -> Dealt:
    return _as_runs(_holders(_topics(claims), queues, place.turn), claims)


def _circle(claims: Mapping[str, Claim], queues: Mapping[str, int], place: Place) -> Dealt:
    dealt: Dealt = {name: [] for name in sorted(claims)}
    for topic, holders in sorted(_holders(_topics(claims), queues, place.turn).items()):
        for number, name in enumerate(holders):
            dealt[name].append(topic_queue(topic, number))
    return dealt


def _holders(members: Members, queues: Mapping[str, int], turn: int) -> dict[str, list[str]]:
    """By topic, the members that get its queues: each goes to the reader that holds fewest so far.

    ``turn``: of members that hold equally many, the one in this place of their order comes first."""
    names = sorted(members)
    start = turn % len(names) if names else 0
    order = names[start:] + names[:start]
    readers: dict[str, list[int]] = {}
    for place, name in enumerate(order):
        for topic in members[name]:
            readers.setdefault(topic, []).append(place)
    held = [0] * len(order)
    holders: dict[str, list[str]] = {}
    for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic)):  # few readers leave least choice
        fewest = [(held[place], place) for place in readers[topic]]
        heapify(fewest)
        holders[topic] = []
        for _ in range(queues[topic]):
            count, place = fewest[0]
            heapreplace(fewest, (count + 1, place))
            holders[topic].append(order[place])
        for count, place in fewest:
            held[place] = count
    return holders


def _as_runs(holders: Mapping[str, list[str]], members: Collection[str]) -> Dealt:
    """As many queues of each topic for each member, as neighbours, in the order of the members' names."""
    dealt: Dealt = {name: [] for name in sorted(members)}
    for topic, some in sorted(holders.items()):
        for number, name in enumerate(sorted(some)):
            dealt[name].append(topic_queue(topic, number))
    return dealt


def _hash(claims: Mapping[str, Claim], queues: Mapping[str, int], place: Place) -> Dealt:
    dealt: Dealt = {name: [] for name in sorted(claims)}
    points = sorted((_point(f"{name} {number}"), name) for name in claims for number in range(RING_POINTS))
    rings: dict[frozenset[str], list[tuple[int, str]]] = {}
    for topic in sorted({topic for claim in claims.values() for topic in claim.topics}):
        readers = frozenset(name for name, claim in claims.items() if topic in claim.topics)
        ring = rings.setdefault(readers, [point for point in points if point[1] in readers])
        for number in range(queues[topic]):
            queue = topic_queue(topic, number)
            at = bisect(ring, (_point(f"{place.broker} {queue}"), ""))
            dealt[ring[at % len(ring)][1]].append(queue)
    return dealt


def _point(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _configured(claims: Mapping[str, Claim], queues: Mapping[str, int], place: Place) -> Dealt:
    retries = {name: [one for one in claim.topics if one.startswith(RETRY_PREFIX)] for name, claim in claims.items()}
    dealt = _as_runs(_holders(retries, queues, place.turn), claims)
    for topic, count in sorted(queues.items()):
        for number in range(count):
            queue = topic_queue(topic, number)
            for name in dealt if not topic.startswith(RETRY_PREFIX) else ():
                if queue in claims[name].queues and topic in claims[name].topics:
                    dealt[name].append(queue)
                    break
    return dealt


def _room(claims: Mapping[str, Claim], queues: Mapping[str, int], place: Place) -> Dealt:
    near = {name: claim.topics if claim.room == place.room else frozenset[str]() for name, claim in claims.items()}
    return _as_runs(_holders(near, queues, place.turn), claims)


def _nearest_room(claims: Mapping[str, Claim], queues: Mapping[str, int], place: Place) -> Dealt:
    served = {topic for claim in claims.values() if claim.room == place.room for topic in claim.topics}
    near = {name: claim.topics if claim.room == place.room else claim.topics - served for name, claim in claims.items()}
    return _as_runs(_holders(near, queues, place.turn), claims)


_STRATEGIES: Final[dict[str, Callable[[Mapping[str, Claim], Mapping[str, int], Place], Dealt]]] = {
    "average": _average,
    "circle": _circle,
    "hash": _hash,
    "configured": _configured,
    "room": _room,
    "nearest-room": _nearest_room,
    REMOTING: _average,
}
