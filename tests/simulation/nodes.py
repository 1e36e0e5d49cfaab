"""A group of nodes, each a whole broker with a disk and a host of its own, on a simulated network in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

import broker.net.server
import namesrv.server
from broker.net.running import RunningBroker
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock.client.credentials import service_credentials
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import PenstockError
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Appended
from penstock.protocol.requests.replicas import DescribeReplicas, Replicas, SetRole
from penstock.protocol.requests.request import Reply, Request
from penstock.world import World
from tests.broker.broker_rig import SMALL, append
from tests.broker.store.store_rig import log_bytes
from tests.simulation.disk import SimDisk
from tests.simulation.mortal import MortalDisk
from tests.simulation.network import HOST
from tests.simulation.running import Simulation, simulate

T = TypeVar("T")
KEY = b"k" * 32
NAMES, CLIENT = "10.0.1.100", "10.0.1.101"
WAIT_S = 120.0


class GroupMember:
    """A node over all its lives.

    Attributes:
        running: the broker of this life.
        error: in which its last life has ended by itself.
        slow_s: so much longer than others' its syncs take.
    """

    def __init__(self, group: SimGroup, name: str, number: int) -> None:
        self.group = group
        self.name = name
        self.host = f"10.0.1.{number}"
        self.disk = SimDisk(group.simulation.seed * 10 + number)
        self.running: RunningBroker | None = None
        self.is_alive = False
        self.error: BaseException | None = None
        self._mortal = MortalDisk(self.disk)
        self._scope = trio.CancelScope()
        self.key = KEY
        self.slow_s = 0.0
        self._lives = 0

    @property
    def address(self) -> str:
        return f"{self.host}:10912"

    @property
    def clients(self) -> str:
        return f"{self.host}:10911"

    def begin(self, *join: str, **more: Any) -> None:
        """A life begins."""
        for other in self.group.hosts - {self.host}:
            self.group.simulation.network.heal(self.host, other)
        self.is_alive, self.error = True, None
        self._mortal, self._scope = MortalDisk(self.disk), trio.CancelScope()
        self.group.nursery.start_soon(self._live, self._mortal, self._scope, join, more)

    async def _live(self, mortal: MortalDisk, scope: trio.CancelScope, join: tuple[str, ...], more: Any) -> None:
        HOST.set(self.host)
        given: dict[str, Any] = {**SMALL, "name": "group", "node": self.name, "host": self.host, "insecure": True}
        given |= {"port": 10911, "replica_port": 10912, "join": join, "data": Path("none"), **more}
        settings = BrokerSettings(**{"namesrv": (f"{NAMES}:9876",), **given})
        self._lives += 1
        world = self._slowed(self.group.simulation.world(f"{self.name}/{self._lives}"))
        run = partial(broker.net.server.run, settings, world, disk=mortal)
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    self.running = await nursery.start(partial(run, secret=self.key))
        except (Exception, BaseExceptionGroup) as error:
            if not mortal.dead:
                self.is_alive, self.error = False, error

    def _slowed(self, world: World) -> World:
        async def offload(work: Callable[[], T]) -> T:
            await trio.sleep(self.slow_s)
            return await world.offload(work)

        return replace(world, offload=offload, own_thread=lambda: nullcontext(offload))

    def die(self, *, power: bool = False) -> None:
        """The process dies, and with ``power`` the machine."""
        network = self.group.simulation.network
        self.is_alive, self.running = False, None
        self._mortal.die(power_lost=power)
        for other in self.group.hosts - {self.host}:
            network.cut(self.host, other)
        self._scope.cancel()
        network.kill(self.host)

    def stop(self) -> None:
        """A clean stop."""
        self.is_alive = False
        self._scope.cancel()


class SimGroup:
    """Three nodes and a name server."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery) -> None:
        self.simulation = simulation
        self.nursery = nursery
        self.a, self.b, self.c = (GroupMember(self, name, at) for at, name in enumerate("abc", 1))
        self.nodes = [self.a, self.b, self.c]
        self.hosts = {NAMES, CLIENT, *[one.host for one in self.nodes]}
        HOST.set(CLIENT)
        credentials = service_credentials(KEY, "test")
        self.links = WireLinks(nursery, clock=simulation.clock, rng=simulation.rng("links"), credentials=credentials)

    def grow(self, names: str) -> None:
        """More nodes, before the group begins."""
        self.nodes += [GroupMember(self, name, at) for at, name in enumerate(names, len(self.nodes) + 1)]
        self.hosts |= {one.host for one in self.nodes}

    async def begin(self, voters: str = "abc", **more: Any) -> None:
        """The name server, and the nodes: the first begins the group, the others join it and become voters."""
        HOST.set(NAMES)
        names = NamesrvSettings(host=NAMES, port=9876, insecure=True)
        await self.nursery.start(partial(namesrv.server.run, names, self.simulation.world("names"), secret=KEY))
        HOST.set(CLIENT)
        self.a.begin(**more)
        for one in self.nodes[1:]:
            one.begin(self.a.address, **more)
        for one in self.nodes[1:]:
            if one.name in voters:
                await self.until_done(SetRole(one.name, True, True))

    async def ask(self, node: GroupMember, request: Request) -> Reply:
        """Raises ``PenstockError``."""
        return await ask(self.links.link(node.clients), request, Reply, 5.0)

    async def describe(self, node: GroupMember) -> Replicas | None:
        try:
            said = await self.ask(node, DescribeReplicas())
        except PenstockError:
            return None
        assert isinstance(said, Replicas)
        return said

    async def leader(self) -> GroupMember:
        """The node that leads, when there is one."""
        with trio.fail_after(WAIT_S):
            while True:
                said = [(one, await self.describe(one)) for one in self.nodes if one.is_alive]
                led = [(what.epoch, one.name) for one, what in said if what and what.role == "leader"]
                if led:
                    return next(one for one in self.nodes if one.name == max(led)[1])
                await trio.sleep(0.1)

    async def until_done(self, request: Request) -> Reply:
        """What the leader answers, when it does."""
        with trio.fail_after(WAIT_S):
            while True:
                try:
                    return await self.ask(await self.leader(), request)
                except PenstockError as error:
                    self.simulation.say(f"{type(request).__name__}: {error}")
                    await trio.sleep(0.1)

    async def send(self, body: str) -> str:
        """Sends a message until it is acknowledged; returns its place."""
        reply = await self.until_done(append(Message("t", body.encode(), key="k"), detail=True))
        assert isinstance(reply, Appended)
        [placed] = reply.placed
        return f"{placed.queue_id}:{placed.offset}"

    async def level(self) -> None:
        """All is well: every node that lives has all of the log."""
        with trio.fail_after(WAIT_S):
            while True:
                said = [await self.describe(one) for one in self.nodes if one.is_alive]
                known = {(what.committed, what.end, what.leader) for what in said if what}
                has_begun = all([one.running is not None for one in self.nodes if one.is_alive])
                if has_begun and None not in said and len(known) == 1:
                    [(committed, end, leader)] = known
                    if committed == end and leader:
                        return
                await trio.sleep(0.2)

    def states(self) -> list[bytes]:
        """The snapshot of what each node that lives knows by its log; it is level."""
        return [
            node.running.lead._state.snapshot() for node in self.nodes if node.is_alive and node.running is not None
        ]

    def logs(self) -> list[dict[str, bytes]]:
        """The bytes of the log of each node that lives; it is level."""
        found = []
        for node in self.nodes:
            if node.is_alive and node.running is not None:
                found.append(log_bytes(node.disk, node.running.lead._store.written))
        return found


def in_group(seed: int, scenario: Callable[[SimGroup], Awaitable[None]]) -> None:
    """Runs a scenario with a group of three."""

    async def whole(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            await scenario(SimGroup(simulation, nursery))
            nursery.cancel_scope.cancel()

    logging.disable(logging.CRITICAL)
    try:
        simulate(seed, whole)
    finally:
        logging.disable(logging.NOTSET)
