"""Connections between nodes: made again when they are lost, and only with who has the key."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import trio

from broker.net.peer_sessions import PeerDoor, PeerSession
from broker.net.peers import Introduction, PeerLink, ask
from penstock.errors import UnknownRequest
from penstock.protocol.link import OnResult
from penstock.protocol.requests.replicas import (
    DescribeReplicas,
    MoveLeader,
    RemoveReplica,
    ReplicaHello,
    ReplicaWelcome,
    SetRole,
    TakeEntries,
    Taken,
)
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.topics import CreateTopic
from penstock.service.frame_server import serve_frames
from tests.simulation.network import SimSocket
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


def test_a_removed_node_that_is_gone_is_called_no_more_and_a_member_that_is_away_still_is() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        await group.level()
        calls: list[str] = []
        connected = SimSocket.connect

        async def connect(self: SimSocket, address: Any) -> None:
            calls.append(address[0])
            await connected(self, address)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimSocket, "connect", connect)
            group.b.die()
            group.c.die()
            await group.until_done(RemoveReplica("c"))
            await trio.sleep(120.0)
            calls.clear()
            await trio.sleep(60.0)
            assert group.b.host in calls
            assert group.c.host not in calls
        group.b.begin(group.a.address)
        await group.level()

    in_group(44, scenario)


def test_nodes_that_take_long_to_answer_come_to_know_each_other_all_the_same() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        await group.until_done(CreateTopic("t", 1))
        group.b.stop()
        group.simulation.network.latency_s = (0.7, 0.7)
        await trio.sleep(1.0)
        group.b.begin(group.a.address)
        await group.level()

    in_group(45, scenario)


class _Taker:
    """A node that counts the bytes of each stretch and answers with the sum."""

    def __init__(self) -> None:
        self.bytes = 0

    def welcome(self, hello: ReplicaHello) -> ReplicaWelcome:
        return ReplicaWelcome("", "taker", "u", "", "", (), b"")

    def came(self, session: PeerSession) -> None: ...

    def asked(self, session: PeerSession, request: Request, on_result: OnResult) -> None:
        assert isinstance(request, TakeEntries)
        assert request.body == bytes([request.round]) * (request.end - request.position)
        self.bytes += len(request.body)
        session.answer(Taken(1, self.bytes, request.round))

    def flush(self) -> None: ...

    def left(self, session: PeerSession) -> None: ...


@pytest.mark.endtoend  # real sockets, whose room runs out
async def test_what_a_socket_has_no_room_for_follows_in_order() -> None:
    taker, met = _Taker(), trio.Event()
    own = Introduction("", "group", "x", "u", f"{CLIENT}:1", f"{CLIENT}:2", ())
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    link = PeerLink(f"127.0.0.1:{port}", lambda: own, KEY, random.Random(1), lambda _: met.set(), lambda _: None)
    sizes = [10, 6 << 20, 0, 5 << 20, 100, 3 << 20, 1]
    answers: list[Any] = []
    done = trio.Event()

    def on_result(result: Any) -> None:
        answers.append(result)
        if len(answers) == len(sizes):
            done.set()

    with trio.fail_after(60.0):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_frames, listeners, PeerDoor(taker, KEY).open_session)
            nursery.start_soon(link.run)
            await met.wait()
            for number, size in enumerate(sizes):
                request = TakeEntries(1, "x", 0, 0, size, 0, number, (), (), bytes([number]) * size)
                assert link.ask(request, on_result)
            await done.wait()
            nursery.cancel_scope.cancel()
    assert [(one.round, one.durable) for one in answers] == list(enumerate(itertools.accumulate(sizes)))
