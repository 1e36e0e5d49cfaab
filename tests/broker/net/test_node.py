"""A node of a group: what it refuses while too few others are there, and who may change the group."""

from __future__ import annotations

import contextlib
import errno
from typing import Any

import pytest
import trio

from broker.net.node import Node
from broker.net.peers import Introduction
from penstock.errors import Busy, InvalidRequest, NoQuorum, PenstockError, StorageFailed
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.replicas import SPEAKS, ForceLeader, MoveLeader, RemoveReplica, ReplicaHello, SetCopies
from penstock.protocol.requests.topics import CreateTopic
from penstock.world import RealClock
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


def test_a_defect_that_shows_itself_while_a_node_follows_ends_it_and_it_comes_back() -> None:
    def defect(*_: Any) -> int:
        raise AssertionError("a stretch that cannot be")

    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        await group.level()
        assert group.c.running is not None
        node = group.c.running.lead._group
        assert isinstance(node, Node)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node.replica.log, "receive", defect)  # type: ignore[union-attr]
            await group.send("kept by the others")
            with trio.fail_after(60.0):
                while group.c.is_alive:  # noqa: ASYNC110 (nothing sets an event)
                    await trio.sleep(0.2)
        assert isinstance(group.c.error, BaseExceptionGroup)
        assert group.c.error.subgroup(AssertionError) is not None
        group.c.begin(group.a.address)
        await group.level()
        logs = group.logs()
        assert logs[0] == logs[1] == logs[2]

    in_group(15, scenario)


@pytest.mark.parametrize(
    ("speaks", "speaks_from", "is_refused"), [(SPEAKS, 1, False), (9, 1, False), (9, 9, True), (0, 0, True)]
)
def test_a_node_of_a_version_that_is_too_far_away_is_refused(speaks: int, speaks_from: int, is_refused: bool) -> None:
    node = Node(Introduction("", "g", "a", "u1", "a:1", "a:2", ()), RealClock(), lambda: "")
    hello = ReplicaHello("", "g", "b", "u2", "b:1", "b:2", (), b"nonce", b"", speaks, speaks_from)
    with pytest.raises(InvalidRequest, match=f"speaks version {speaks} ") if is_refused else contextlib.nullcontext():
        assert node.welcome(hello).node == "a"


async def leaders_under_load(group: SimGroup, seconds: float) -> list[str]:
    """Who has led while messages were stored for so long, each as often as it began to."""
    led: list[str] = []
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        await group.send("x" * 5_000)
        leader = await group.leader()
        if led[-1:] != [leader.name]:
            led.append(leader.name)
        await trio.sleep(0.5)
    return led


def test_a_full_disk_costs_the_lead_once_and_nothing_acknowledged() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        assert await leaders_under_load(group, 12.0) == ["a"]
        group.a.disk.capacity = group.a.disk.used()
        [heir] = await leaders_under_load(group, 60.0)
        assert heir != "a"
        running = group.a.running
        assert running is not None
        figures = running.figures()
        assert (figures["penstock_replica_handed_over_total"], figures["penstock_disk_full"]) == (1, 1)
        group.a.disk.capacity = None
        await group.send("the last one")
        await group.level()
        logs = group.logs()
        assert logs[0] == logs[1] == logs[2]
        assert await leaders_under_load(group, 15.0) == [heir], "room again is no reason to move"

    in_group(15, scenario)


@pytest.mark.long
def test_where_all_disks_are_full_the_lead_stays() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        await leaders_under_load(group, 12.0)
        for node in group.nodes:
            node.disk.capacity = node.disk.used()
        epochs: list[int] = []
        for _ in range(300):
            with contextlib.suppress(PenstockError):
                await group.ask(await group.leader(), append(Message("t", b"x" * 2_000, key="k")))
            epochs += [said.epoch for node in group.nodes if (said := await group.describe(node))]
            await trio.sleep(0.5)
        assert max(epochs) > min(epochs), "it goes to where a little room was left"
        assert set(epochs[-100:]) == {max(epochs)}, "and stays when there is none any more"

    in_group(16, scenario)


def test_a_slow_disk_costs_the_lead_once() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(quick_sync_s=0.0)
        await group.until_done(CreateTopic("t", 1))
        assert await leaders_under_load(group, 12.0) == ["a"]
        group.a.slow_s = 2.0
        [first, second] = await leaders_under_load(group, 60.0)
        assert (first, second != "a") == ("a", True)
        for node in group.nodes:
            node.slow_s = 2.0
        assert await leaders_under_load(group, 30.0) == [second], "nobody is better"

    in_group(17, scenario)
