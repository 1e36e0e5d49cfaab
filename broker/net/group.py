"""A broker as a node of a group of copies: its port for other nodes, its replica, and its broker where it leads.

This module builds the parts and closes them in order. The reasons: decisions 86 and 87.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import trio

from broker.net.flusher import Flusher
from broker.net.lead import BrokerSession, Lead
from broker.net.node import Node
from broker.net.node_tasks import GroupNode
from broker.net.office import LogMedium, OpenLog
from broker.net.peer_sessions import PeerDoor
from broker.net.peers import PeerLink, Peers
from broker.net.promises import Promised, introduction, promise, promises
from broker.net.registration import LEAVE_S, Registration
from broker.net.running import (
    OWN_SESSION,
    RunningBroker,
    Tell,
    advertised,
    give_back,
    keep_mirror,
    keep_ticking,
    keep_times,
    mirror_of,
    serve_clients,
    told_of_recovery,
)
from broker.net.whole_copy import copy_whole
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import Disk
from broker.store.recovery import StateLost
from broker.store_clock import StoreClock, compare, read_times, write_times
from broker.timer_clock import TimerClock
from penstock.client.credentials import Credentials, service_credentials
from penstock.client.lasting_links import lasting_links, lasting_tasks
from penstock.errors import InvalidConfig, Unavailable
from penstock.guarded_clock import GuardedClock
from penstock.protocol.addresses import join_address
from penstock.protocol.link import Links
from penstock.service.accepting import Doorkeeper
from penstock.service.access_files import AccessFiles
from penstock.service.frame_server import listening_address, open_listeners, serve_frames
from penstock.service.native_room import NativeRoom
from penstock.world import Offload, World, guarded, mutex

TICK_S: Final = 0.05
NAMES_S: Final = 0.5


async def run(
    settings: BrokerSettings,
    world: World,
    disk: Disk,
    tell: Tell,
    secret: bytes | None,
    access: AccessFiles,
    listeners: list[trio.SocketListener],
    task_status: trio.TaskStatus[RunningBroker],
) -> None:
    """Runs the node until cancelled: ``server.run`` for a node of a group."""
    if secret is None:
        raise InvalidConfig("replica_port is set, and no key", hint="make one: penstock replica key > cluster.key")
    world, _ = guarded(world)
    async with AsyncExitStack() as stack:
        for one in listeners:
            stack.push_async_callback(trio.aclose_forcefully, one)
        inner = await open_listeners(settings.host, settings.replica_port, "the port for replicas")
        for one in inner:
            stack.push_async_callback(trio.aclose_forcefully, one)
        await _Group(settings, world, disk, tell, secret, access).serve(listeners, inner, task_status)


class _Parts(NamedTuple):
    """The parts of a running node."""

    node: Node
    lead: Lead
    tasks: GroupNode
    clock: StoreClock
    timer_clock: TimerClock


class _Group:
    """Puts a node together, and takes it apart."""

    def __init__(
        self, settings: BrokerSettings, world: World, disk: Disk, tell: Tell, secret: bytes, access: AccessFiles
    ) -> None:
        self._settings = settings
        self._world = world
        self._disk = disk
        self._tell = tell
        self._secret = secret
        self._access = access
        self._state = BrokerState()
        self._turn = trio.Event()
        self._registration: Registration | None = None

    async def serve(
        self,
        listeners: list[trio.SocketListener],
        inner: list[trio.SocketListener],
        task_status: trio.TaskStatus[RunningBroker],
    ) -> None:
        """Serves until cancelled."""
        settings, world, state = self._settings, self._world, self._state
        host, port = listening_address(listeners)
        clients = advertised(settings, host, port)
        address = settings.replica_advertise or join_address(*listening_address(inner))
        promised = promises(settings, self._disk, world.rng)
        node = Node(introduction(settings, promised.hard, clients, address), world.clock, lambda: state.identity.log_id)
        credentials = service_credentials(self._secret, settings.name, settings.peers_tls_ca, settings.shown)
        async with (
            world.own_thread() as offload,
            lasting_links(world.clock, world.rng, credentials, self._lost) as links,
            lasting_tasks() as nursery,
        ):
            peers = self._connect(nursery, node, credentials, inner)
            opened = await self._open(peers)
            promise(settings, *promised, opened)
            parts = self._compose(opened, node, peers, promised)
            running = RunningBroker(
                host,
                port,
                parts.lead,
                Doorkeeper("the broker"),
                lambda: self._registration.away if self._registration else (),
                NativeRoom(settings.held_bytes_max),
                self._access.guard,
            )
            try:
                await self._work(nursery, offload, parts, running, listeners, links)
                task_status.started(running)
                own = BrokerSession(parts.lead, OWN_SESSION, ends_rounds=False)
                await self._access.keep_audit(settings.name, links, settings.namesrv, own)
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(LEAVE_S, shield=True):
                    await self._leave(node)
                write_times(self._disk, parts.timer_clock.times())
                node.end()
                parts.lead.close(Unavailable("the broker is stopping"))
                opened.close(parts.clock.wall_ms())
                promised.file.close()

    def _connect(
        self, nursery: trio.Nursery, node: Node, credentials: Credentials, inner: list[trio.SocketListener]
    ) -> Peers:
        """Other nodes can be reached, and reach this one."""
        world, secret, own = self._world, self._secret, lambda: node.introduction

        def link(to: str) -> PeerLink:
            return PeerLink(to, own, secret, world.rng, node.met, node.lost, credentials.tls)

        peers = Peers(nursery, link, node.introduction.address, self._settings.join)
        node.connect(peers)
        door = PeerDoor(node, secret)
        served = partial(serve_frames, guard=door, certificates=self._access.certificates)
        nursery.start_soon(served, inner, door.open_session)
        return peers

    def _compose(self, opened: OpenLog, node: Node, peers: Peers, promised: Promised) -> _Parts:
        settings, world, state = self._settings, self._world, self._state
        guard = world.clock
        assert isinstance(guard, GuardedClock)
        times = read_times(self._disk)
        clock = compare(guard, opened.store.last_ms, times)
        timer_clock = TimerClock(guard, clock, times)
        medium = LogMedium(opened, node.synced)
        flusher = Flusher(medium, clock, settings.flush_after_s, settings.flush_bytes, settings.quick_sync_s)

        def unsynced(is_waited_for: bool, is_whole: bool) -> None:
            node.appended()
            flusher.need(is_waited_for, is_whole)

        def figures() -> dict[str, float]:
            return {**guard.figures(), **clock.figures(), **node.figures()}

        lead = Lead(
            settings,
            state,
            opened.store,
            clock,
            timer_clock,
            unsynced,
            self._topics_changed,
            figures,
            group=node,
            leads=False,
            confirm=node.confirm,
            asker=self._access.guard.asker,
        )
        tasks = GroupNode(
            settings, world, self._disk, state, opened, *promised, node, peers, lead, flusher, self._on_role
        )
        return _Parts(node, lead, tasks, clock, timer_clock)

    async def _work(
        self,
        nursery: trio.Nursery,
        offload: Offload,
        parts: _Parts,
        running: RunningBroker,
        listeners: list[trio.SocketListener],
        links: Links,
    ) -> None:
        """Starts all tasks; returns when a leader is known."""
        disk, lead, access = self._disk, parts.lead, self._access
        write_times(disk, parts.timer_clock.times())
        await nursery.start(parts.tasks.run, offload)
        nursery.start_soon(keep_ticking, lead, parts.clock)
        nursery.start_soon(keep_times, disk, parts.timer_clock)
        nursery.start_soon(access.run)
        nursery.start_soon(give_back, disk, self._world.offload)
        nursery.start_soon(serve_clients, running, self._settings, access, listeners)
        nursery.start_soon(self._keep_mirror, parts.node, lead, links)
        self._tell("waiting for a leader of the group")
        while lead.reasons():  # noqa: ASYNC110 - it is a matter of seconds
            await trio.sleep(TICK_S)
        await nursery.start(self._keep_registered, parts.node, links)

    async def _leave(self, node: Node) -> None:
        """A leader that stops hands the lead over, if another voter can take it."""
        heirs = node.heirs()
        if heirs:
            node.move_lead(heirs[0], self._world.clock.monotonic())
            while node.leads():  # noqa: ASYNC110 - it takes an election
                await trio.sleep(TICK_S)
        if self._registration is not None:
            await self._registration.leave()

    async def _open(self, peers: Peers) -> OpenLog:
        settings, world = self._settings, self._world
        self._tell("opening the store")
        progress = told_of_recovery(self._tell)
        opening = partial(OpenLog, settings, self._disk, self._state, world.clock, mutex(), progress)
        while True:
            try:
                return await world.offload(opening)
            except StateLost:
                self._tell("the state of this copy is lost: all of the log comes from another node")
                await copy_whole(settings, self._disk, peers, world)

    def _lost(self, address: str) -> None:
        if self._registration is not None:
            self._registration.lost(address)

    def _topics_changed(self) -> None:
        if self._registration is not None:
            self._registration.topics_changed()

    def _on_role(self) -> None:
        self._topics_changed()
        turn, self._turn = self._turn, trio.Event()
        turn.set()

    async def _keep_registered(
        self, node: Node, links: Links, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Registers this node at all name servers that a node of the group knows."""
        settings, clients, rank = self._settings, node.introduction.clients, lambda: node.rank
        while True:
            names = node.namesrv(settings.namesrv)
            told = replace(settings, namesrv=names)
            registration = Registration(told, clients, self._state, links, self._secret, rank)
            self._registration = registration
            async with trio.open_nursery() as nursery:
                await nursery.start(registration.run)
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                while names == node.namesrv(settings.namesrv):  # noqa: ASYNC110 (connections come and go)
                    await trio.sleep(NAMES_S)
                nursery.cancel_scope.cancel()

    async def _keep_mirror(self, node: Node, lead: Lead, links: Links) -> None:
        """While this node leads, it keeps what sessions hold as their home has it."""
        while True:
            while not node.leads():
                await self._turn.wait()
            async with trio.open_nursery() as hours:
                mirror = mirror_of(self._settings, self._state, lead, links)
                hours.start_soon(keep_mirror, mirror, self._world.clock)
                while node.leads():
                    await self._turn.wait()
                hours.cancel_scope.cancel()
