"""Generations of groups over leaders that die are linearisable; sessions are checked in all worlds of gateways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from broker.groups.members import Groups
from broker.sessions.requests import SessionRequests
from penstock.client.wire_link import ask
from penstock.errors import Fenced, PenstockError
from penstock.protocol.message import Message
from penstock.protocol.requests.groups import Assignment, CommitOffsets, JoinGroup, QueueOffset, WatchGroup
from penstock.protocol.requests.request import Done, Reply, Request
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import append
from tests.simulation import test_failovers
from tests.simulation.fences import Fences, Seen, WatchedLinks, check
from tests.simulation.nodes import SimGroup, in_group
from tests.simulation.seeds import must_see

QUEUES = 3
SESSION_S = 3.0


class Group:
    """Members of one group that come late, commit late, and forget that they were away."""

    def __init__(self, group: SimGroup) -> None:
        self.group = group
        self.fences = Fences()
        self.links = WatchedLinks(group.links, self.fences)
        self.commits = self.refused = 0

    async def ask(self, request: Request) -> Reply:
        """Asks a node that may lead; raises ``PenstockError``."""
        leader = await self.group.leader()
        return await ask(self.links.link(leader.clients), request, Reply, 5.0)

    async def live(self, name: str) -> None:
        """One member, whose pauses are at times longer than its session."""
        rng = self.group.simulation.rng(name)
        held: Assignment | None = None
        while True:
            act = rng.choice(("join", "watch", "commit", "commit", "commit"))
            request: Request = JoinGroup("g", name, ("t",), SESSION_S)
            if held is not None and act == "watch":
                request = WatchGroup("g", name, held.generation, 0.1)
            elif held is not None and act == "commit":
                offsets = tuple(QueueOffset(one.queue, max(one.offset, 0)) for one in held.queues)
                request = CommitOffsets("g", name, held.generation, offsets)
            try:
                said = await self.ask(request)
            except Fenced:
                self.refused += 1
            except PenstockError:
                pass
            else:
                if isinstance(said, Assignment) and rng.random() < 0.7:
                    held = said
                self.commits += isinstance(said, Done)
            await trio.sleep(rng.choice((0.05, 0.3, 1.0, 4.0)))


async def live_through(group: SimGroup) -> Group:
    """Three members, and three leaders that die."""
    await group.begin()
    await group.until_done(CreateTopic("t", QUEUES))
    for number in range(10):
        await group.until_done(append(Message("t", b"%d" % number)))
    members = Group(group)
    async with trio.open_nursery() as nursery:
        for name in ("m1", "m2", "m3"):
            nursery.start_soon(members.live, name)
        for number in range(3):
            await trio.sleep(15.0)
            leader = await group.leader()
            leader.die(power=number == 1)
            await trio.sleep(10.0)
            leader.begin(*[one.address for one in group.nodes if one is not leader])
            await group.level()
        nursery.cancel_scope.cancel()
    return members


def run(seed: int) -> Group:
    lived: list[Group] = []

    async def scenario(group: SimGroup) -> None:
        lived.append(await live_through(group))

    in_group(seed, scenario)
    lived[0].fences.check()
    return lived[0]


def test_generations_are_linearisable_over_leaders_that_die() -> None:
    members = run(21)
    assert members.commits >= 10
    assert members.refused > 5
    assert len({one.holder for one in members.fences.seen if one.is_grant}) == 3


def any_member_commits(self: Groups, name: str, member: str, generation: int, queues: object) -> None:
    self.of_member(name, member)


def any_epoch_saves(self: SessionRequests, owner: str, save: Any) -> int:
    entry = self._sessions.get(save.client)
    return entry.epoch if entry is not None else 0


PLANTS: list[tuple[type, str, Any, Callable[[int], object]]] = [
    (Groups, "check_commit", any_member_commits, run),
    (SessionRequests, "_epoch_of", any_epoch_saves, test_failovers.run),
]


@pytest.mark.interpreted
@pytest.mark.parametrize(("owner", "name", "bug", "world"), PLANTS, ids=[one[2].__name__ for one in PLANTS])
def test_a_planted_bug_is_caught(
    owner: type, name: str, bug: Any, world: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    must_see(bug, world, 40)


def history(*rows: tuple[str, int, bool, int, int]) -> list[Seen]:
    return [Seen("key", *row) for row in rows]


GRANT, USE = True, False


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1, GRANT, 1, 2), ("a", 1, USE, 3, 4), ("b", 2, GRANT, 5, 6), ("b", 2, USE, 7, 8)],
        [("a", 1, GRANT, 1, 2), ("b", 2, GRANT, 3, 6), ("a", 1, USE, 4, 9)],  # beside the grant: it may come before it
        [("a", 1, GRANT, 1, 2), ("b", 2, GRANT, 3, 4), ("a", 3, GRANT, 5, 6), ("a", 3, USE, 7, 8)],
        [("a", 2, GRANT, 1, 4), ("b", 1, GRANT, 2, 3)],  # both at once
    ],
)
def test_a_history_that_some_order_explains_is_none_to_complain_of(rows: list[tuple[str, int, bool, int, int]]) -> None:
    check(history(*rows))


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1, GRANT, 1, 2), ("b", 2, GRANT, 3, 4), ("a", 1, USE, 5, 6)],
        [("a", 2, GRANT, 1, 2), ("b", 1, GRANT, 3, 4)],
        [("a", 2, GRANT, 1, 2), ("b", 2, GRANT, 3, 4)],
        [("a", 3, GRANT, 1, 2), ("a", 2, GRANT, 3, 4)],
        [("a", 1, GRANT, 1, 2), ("a", 2, USE, 3, 4), ("b", 2, GRANT, 5, 6)],
    ],
)
def test_a_history_that_no_order_explains_is_told(rows: list[tuple[str, int, bool, int, int]]) -> None:
    with pytest.raises(AssertionError):
        check(history(*rows))
