"""Runs a broker: opens its store, listens, flushes, ticks, registers; closes it all in order.

Everything that decides is in ``service`` and ``dispatch``; here are the tasks. A failed sync ends the broker at
once, without a clean stop: what is on the disk decides at the next start.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final

import trio

from broker.lineage.naming import name_log
from broker.net.flusher import Flusher
from broker.net.lead import BrokerSession, Lead
from broker.net.mirror import SessionMirror
from broker.net.registration import LEAVE_S, Registration
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import Disk, RealDisk
from broker.store.message_store import MessageStore
from broker.store.recovery import Progress, open_store
from broker.store_clock import StoreClock, compare, read_times, write_times
from broker.timer_clock import TimerClock
from penstock.client.credentials import service_credentials
from penstock.client.lasting_links import lasting_links
from penstock.errors import Unavailable
from penstock.guarded_clock import GuardedClock
from penstock.protocol.addresses import join_address
from penstock.protocol.link import Links
from penstock.protocol.requests.request import Request, Result
from penstock.service.accepting import Doorkeeper
from penstock.service.access_files import AccessFiles
from penstock.service.cluster_secret import read_secret
from penstock.service.exposure import NATIVE, is_loopback
from penstock.service.frame_connection import Peer, Session
from penstock.service.frame_server import listening_address, open_listeners, serve_frames
from penstock.service.guard import Guard
from penstock.service.native_room import NativeRoom
from penstock.world import Clock, Offload, World, guarded

EVERYWHERE: Final = ("0.0.0.0", "::")
"""Addresses to listen at that nobody elsewhere can connect to."""
TICK_S: Final = 0.05
STALL_S: Final = 1.0
"""A broker that comes to its next tick so much later stood still: the disk or the whole machine did."""
HEARING_S: Final = 1.0
MIRROR_S: Final = 0.5
JOINING_S: Final = 0.005
GIVE_BACK_S: Final = 1.0
TIMES_S: Final = 60.0
"""How often the next life of the broker is left what this one knows of the time."""
OWN_SESSION: Final = -1
"""This broker's own requests; peers have numbers from 0 on."""

Tell = Callable[[str], None]

_log = logging.getLogger(__name__)


def _nobody(doing: str) -> None:
    """Nobody wants to know."""


class RunningBroker:
    """A broker that accepts requests. ``lead``: what carries them out. ``door``: at which they come in. ``room``: what
    their connections may hold. ``namesrv_away``: the name servers that do not answer. ``guard``: decides what a session
    may ask for."""

    def __init__(
        self,
        host: str,
        port: int,
        lead: Lead,
        door: Doorkeeper,
        namesrv_away: Collection[str],
        room: NativeRoom,
        guard: Guard,
    ) -> None:
        self.host = host
        self.port = port
        self.lead = lead
        self._namesrv_away = namesrv_away
        self.door = door
        self.room = room
        self.guard = guard

    def open_session(self, peer: Peer, *, ends_rounds: bool = False) -> Session:
        """A session for one peer, on the wire or in this process. ``ends_rounds``: its batches are all that a round of
        this process had."""
        return BrokerSession(self.lead, peer.id, ends_rounds)

    def figures(self) -> dict[str, float]:
        """Counters since start, and gauges, by metric name."""
        own = {"penstock_namesrv_away": len(self._namesrv_away), **self.room.figures("penstock")}
        own |= self.guard.figures("penstock")
        return self.lead.figures() | own

    def reasons(self) -> list[str]:
        """Why no traffic should come here; empty if there is no reason."""
        return [*self.door.reasons(), *self.lead.reasons()]


async def run(
    settings: BrokerSettings,
    world: World,
    *,
    disk: Disk | None = None,
    tell: Tell = _nobody,
    secret: bytes | None = None,
    task_status: trio.TaskStatus[RunningBroker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a broker until cancelled. ``tell`` is told what its start is doing, in words, from whatever thread does it.
    ``secret``: the cluster's, in place of the one in ``cluster_secret_file``.

    Raises ``AddressInUse``, ``DataFolderLocked``, ``DataFolderUnusable``, and ``StorageFailed`` when the disk fails.
    """
    if settings.cluster_secret_file and secret is None:
        secret = read_secret(Path(settings.cluster_secret_file))
    if not (is_loopback(settings.host) or settings.asks):
        _log.warning("insecure: whoever reaches %s:%d %s", settings.host, settings.port, NATIVE)
    access = AccessFiles(settings, world, secret)
    listeners = await open_listeners(settings.host, settings.port, "the broker")
    state = BrokerState()
    open_disk = disk or RealDisk(settings.data)
    tell("opening the store")
    world, guard = guarded(world)
    opening = partial(_open, settings, world, open_disk, state, _told_of_recovery(tell))
    try:
        store = await world.offload(opening)
        times = read_times(open_disk)
        clock = compare(guard, store.last_ms, times)
        timer_clock = TimerClock(guard, clock, times)
        try:
            write_times(open_disk, timer_clock.times())
            await _serve(
                settings,
                world,
                guard,
                clock,
                timer_clock,
                state,
                store,
                open_disk,
                listeners,
                tell,
                secret,
                access,
                task_status,
            )
        finally:
            write_times(open_disk, timer_clock.times())
            store.close(clock.wall_ms())
    finally:
        for listener in listeners:  # also where nobody has come to serve them
            await trio.aclose_forcefully(listener)


async def _serve(
    settings: BrokerSettings,
    world: World,
    guard: GuardedClock,
    clock: StoreClock,
    timer_clock: TimerClock,
    state: BrokerState,
    store: MessageStore,
    disk: Disk,
    listeners: list[trio.SocketListener],
    tell: Tell,
    secret: bytes | None,
    access: AccessFiles,
    task_status: trio.TaskStatus[RunningBroker],
) -> None:
    flusher = Flusher(store, clock, settings.flush_after_s, settings.flush_bytes, settings.quick_sync_s)
    host, port = listening_address(listeners)
    async with (
        world.own_thread() as offload,
        lasting_links(clock, world.rng, service_credentials(secret, settings.name, settings.peers_tls_ca)) as links,
        trio.open_nursery() as nursery,
    ):
        registration = Registration(settings, _advertised(settings, host, port), state, links, secret)
        read_clock = lambda: guard.figures() | clock.figures()  # noqa: E731
        lead = Lead(settings, state, store, clock, timer_clock, flusher.need, registration.topics_changed, read_clock)
        door, room = Doorkeeper("the broker"), NativeRoom(settings.held_bytes_max)
        running = RunningBroker(host, port, lead, door, registration.away, room, access.guard)
        links.on_lost = registration.lost
        nursery.start_soon(flusher.run, lead, offload)
        nursery.start_soon(_tick, lead, clock)
        nursery.start_soon(_give_back, store, world.offload)
        nursery.start_soon(_keep_times, disk, timer_clock)
        mirror = _mirror(settings, state, lead, links)
        tell("asking the home of sessions what they hold here")
        with trio.move_on_after(settings.handover_wait_s) as patience:
            await nursery.start(_keep_mirror, mirror, clock)
        if patience.cancelled_caught:
            nursery.start_soon(_keep_mirror, mirror, clock)
            _log.warning("the home of sessions does not answer: their filters are opened here when it does")
        nursery.start_soon(access.run)
        told = settings.connection_log
        served = partial(serve_frames, guard=access.guard, certificates=access.certificates, connection_log=told)
        nursery.start_soon(partial(served, listeners, running.open_session, door=door, room=room))
        tell("registering with the name servers")
        await nursery.start(registration.run)
        task_status.started(running)
        try:
            own = BrokerSession(lead, OWN_SESSION, ends_rounds=False)
            await access.keep_audit(settings.name, links, settings.namesrv, own)
        finally:
            lead.close(Unavailable("the broker is stopping"))
            with trio.move_on_after(LEAVE_S, shield=True):
                await registration.leave()


def _open(
    settings: BrokerSettings, world: World, disk: Disk, state: BrokerState, on_progress: Progress
) -> MessageStore:
    """Recovers the store, and names its log if that has no identity yet: at the log's own time, for nobody knows yet
    how right the clock is."""
    store = open_store(disk, settings.store(), state, world.clock.wall_ms(), on_progress)
    try:
        name_log(state.identity, store, world.rng, store.last_ms)
    except BaseException:
        store.close(store.last_ms)
        raise
    return store


def _told_of_recovery(tell: Tell) -> Progress:
    """A start that is broken off does not go on recovering in its thread; the next one does it, as after a crash."""

    def told(done: int, total: int) -> None:
        tell(f"recovering the log: {done >> 20:,} of {total >> 20:,} MiB")
        with contextlib.suppress(RuntimeError):  # of a world without threads
            trio.from_thread.check_cancelled()

    return told


def _mirror(settings: BrokerSettings, state: BrokerState, lead: Lead, links: Links) -> SessionMirror:
    def carry_out(request: Request) -> None:
        lead.dispatch.submit(request, _ignore, OWN_SESSION)
        lead.dispatch.end_batch()

    names = [links.link(address) for address in settings.namesrv]
    return SessionMirror(settings.name, state, names, links, carry_out)


def _ignore(result: Result) -> None:
    """What the mirror could not do it tries again."""


def _advertised(settings: BrokerSettings, host: str, port: int) -> str:
    """Where clients are told to come to."""
    address = settings.advertise or join_address(host, port)
    if settings.host in EVERYWHERE and not settings.advertise:
        _log.warning(
            "clients on other machines are told to connect to %s, which leads them to themselves: set `advertise` to"
            " this broker's own host and port",
            address,
        )
    return address


async def _keep_mirror(
    mirror: SessionMirror, clock: Clock, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Keeps what sessions hold as their home has it. Started when it has joined."""
    has_joined = False
    while True:
        mirror.tick(clock.monotonic())
        if mirror.has_joined and not has_joined:
            has_joined = True
            task_status.started()
        await trio.sleep(MIRROR_S if has_joined else JOINING_S)


async def _give_back(store: MessageStore | Disk, offload: Offload) -> None:
    """What retention removes has its room until a thread frees it: for that the loop would stand still."""
    while True:
        await trio.sleep(GIVE_BACK_S)
        if store.leaves:
            await offload(store.give_back)


async def _keep_times(disk: Disk, clock: TimerClock) -> None:
    """Leaves the time to the next life: a hundred bytes, which no sync waits for."""
    while True:
        await trio.sleep(TIMES_S)
        write_times(disk, clock.times())


async def _tick(lead: Lead, clock: Clock) -> None:
    """Who fell silent is judged by ``tick``; not where it was this broker that stood still: what the others sent in the
    meantime is heard first."""
    while True:
        slept_at = clock.monotonic()
        await trio.sleep(TICK_S)
        if clock.monotonic() - slept_at > STALL_S:
            await trio.sleep(HEARING_S)
        lead.tick()
