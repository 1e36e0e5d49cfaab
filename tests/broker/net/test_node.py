"""A node of a group: what it refuses while too few others are there, and who may change the group."""

from __future__ import annotations

import errno

import pytest
import trio

from penstock.errors import Busy, InvalidRequest, NoQuorum, PenstockError, StorageFailed
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.replicas import ForceLeader, MoveLeader, RemoveReplica, SetCopies
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import append, bodies
from tests.simulation.nodes import SimGroup, in_group


def test_too_few_copies_are_refused_and_reading_goes_on() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        await group.until_done(CreateTopic("t", 1))
        await group.send("before")
        await group.until_done(RemoveReplica("c"))
        await group.until_done(SetCopies(2))
        await group.send("on two disks")
        group.b.die()
        refused: PenstockError | None = None
        while not isinstance(refused, NoQuorum):
            try:
                await group.ask(group.a, append(Message("t", b"?")))
            except PenstockError as error:  # until the leader misses the other node
                refused = error
            await trio.sleep(0.1)
        pulled = await group.ask(group.a, Pull("t:0", 0))
        assert isinstance(pulled, Pulled)
        assert b"on two disks" in bodies(pulled)
        await group.until_done(SetCopies(1))
        await group.send("after")

    in_group(11, scenario)


def test_a_group_that_has_lost_its_majority_is_led_by_force() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        await group.send("kept")
        await group.level()
        with pytest.raises(InvalidRequest, match="majority"):
            await group.ask(group.b, ForceLeader(("a",)))
        group.a.die()
        group.c.die()
        await group.ask(group.b, ForceLeader(("a", "c")))
        assert await group.leader() is group.b
        place = await group.send("and on")
        pulled = await group.ask(group.b, Pull("t:0", 0))
        assert isinstance(pulled, Pulled)
        assert bodies(pulled) == [b"kept", b"and on"]
        assert place == "0:1"

    in_group(12, scenario)


def test_one_change_of_the_members_at_a_time() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.level()
        leader = await group.leader()
        assert leader is group.a
        outcomes: list[PenstockError | None] = []

        async def remove(name: str) -> None:
            try:
                await group.ask(leader, RemoveReplica(name, True))
                outcomes.append(None)
            except PenstockError as error:
                outcomes.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(remove, "b")
            nursery.start_soon(remove, "c")
        assert sum(isinstance(one, Busy) for one in outcomes) == 1
        assert outcomes.count(None) == 1

    in_group(13, scenario)


def test_a_node_that_cannot_write_down_its_vote_ends() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.level()
        await trio.sleep(5.0)  # no other write is under way
        group.c.disk.fail("pwrite", errno.EIO)
        await group.ask(group.a, MoveLeader("b"))
        with trio.fail_after(60.0):
            while group.c.is_alive:  # noqa: ASYNC110 (nothing sets an event)
                await trio.sleep(0.2)
        assert isinstance(group.c.error, BaseExceptionGroup)
        assert group.c.error.subgroup(StorageFailed) is not None
        assert await group.leader() is group.b

    in_group(14, scenario)
