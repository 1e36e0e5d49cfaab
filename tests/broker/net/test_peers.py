"""Connections between nodes: made again when they are lost, and only with who has the key."""

from __future__ import annotations

import pytest
import trio

from broker.net.peers import Introduction, PeerLink, ask
from penstock.errors import UnknownRequest
from penstock.protocol.requests.replicas import DescribeReplicas, MoveLeader, SetRole
from penstock.protocol.requests.topics import CreateTopic
from tests.simulation.nodes import CLIENT, KEY, SimGroup, in_group


def test_a_node_with_another_key_never_joins() -> None:
    async def scenario(group: SimGroup) -> None:
        group.c.key = b"x" * len(KEY)
        await group.begin(voters="ab")
        await trio.sleep(20.0)
        said = await group.describe(group.a)
        assert said is not None
        assert [row.node for row in said.rows] == ["a", "b"]

    in_group(41, scenario)


def test_a_line_that_was_cut_is_used_again_when_it_is_whole() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        network = group.simulation.network
        leader = await group.leader()
        for other in group.nodes:
            if other is not leader:
                network.cut(leader.host, other.host)
        with trio.fail_after(60.0):
            while await group.leader() is leader:  # noqa: ASYNC110 (nothing sets an event)
                await trio.sleep(0.2)
        await group.send("elsewhere")
        for other in group.nodes:
            if other is not leader:
                network.heal(leader.host, other.host)
        await group.level()
        logs = group.logs()
        assert logs[0] == logs[1] == logs[2]

    in_group(42, scenario)


def test_a_node_that_is_known_at_two_addresses_still_hears_answers() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        for one in (group.b, group.c):
            one.stop()
        await trio.sleep(1.0)
        for one in (group.b, group.c):
            one.begin(group.a.address.replace(":", ":0"))  # another way to write the same place
        for one in (group.b, group.c):
            await group.until_done(SetRole(one.name, True, True))
        await group.until_done(CreateTopic("t", 1))
        await group.level()
        await group.until_done(MoveLeader("b"))
        with trio.fail_after(60.0):
            while await group.leader() is not group.b:  # noqa: ASYNC110 (nothing sets an event)
                await trio.sleep(0.2)
        group.c.die()
        await group.send("with the answers of a")

    in_group(43, scenario)


def test_what_only_clients_ask_is_refused_on_the_port_for_replicas() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        own = Introduction("", "group", "x", "u", f"{CLIENT}:1", f"{CLIENT}:2", ())
        met = trio.Event()
        rng = group.simulation.rng("x")
        link = PeerLink(group.a.address, lambda: own, KEY, rng, lambda _: met.set(), lambda _: None)
        group.nursery.start_soon(link.run)
        await met.wait()
        with pytest.raises(UnknownRequest, match="DescribeReplicas"):
            await ask(link, DescribeReplicas(), 5.0)
        assert group.a.is_alive

    in_group(44, scenario)
