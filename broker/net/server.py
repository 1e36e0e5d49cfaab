"""Runs a broker: opens its store, listens, flushes, ticks, registers, and closes all of it in order.

``service`` and ``dispatch`` decide; this module has the tasks. A failed sync ends the broker at once, without a clean
stop: the next start decides by the disk.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import trio

from broker.lineage.naming import name_log
from broker.net import group
from broker.net.flusher import Flusher
from broker.net.lead import BrokerSession, Lead
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
    untold,
)
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
from penstock.service.accepting import Doorkeeper
from penstock.service.access_files import AccessFiles
from penstock.service.cluster_secret import read_secret
from penstock.service.exposure import NATIVE, is_loopback
from penstock.service.frame_server import listening_address, open_listeners
from penstock.service.native_room import NativeRoom
from penstock.world import World, guarded

_log = logging.getLogger(__name__)


async def run(
    settings: BrokerSettings,
    world: World,
    *,
    disk: Disk | None = None,
    tell: Tell = untold,
    secret: bytes | None = None,
    task_status: trio.TaskStatus[RunningBroker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a broker until cancelled. ``tell`` gets a text for each step of the start, from the thread that does it.
    ``secret``: the cluster's, in place of the one in ``cluster_secret_file``.

    Raises ``AddressInUse``, ``DataFolderLocked``, ``DataFolderUnusable``, and ``StorageFailed`` when the disk fails.
    """
    if settings.cluster_secret_file and secret is None:
        secret = read_secret(Path(settings.cluster_secret_file))
    if not (is_loopback(settings.host) or settings.asks):
        _log.warning("insecure: any client that reaches %s:%d %s", settings.host, settings.port, NATIVE)
    access = AccessFiles(settings, world, secret, whose="the broker")
    listeners = await open_listeners(settings.host, settings.port, "the broker")
    if settings.has_copies:
        await group.run(settings, world, disk or RealDisk(settings.data), tell, secret, access, listeners, task_status)
        return
    state = BrokerState()
    open_disk = disk or RealDisk(settings.data)
    tell("opening the store")
    world, guard = guarded(world)
    opening = partial(_open, settings, world, open_disk, state, told_of_recovery(tell))
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
        for listener in listeners:  # also where no task serves them yet
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
    credentials = service_credentials(secret, settings.name, settings.peers_tls_ca, settings.shown)
    async with (
        world.own_thread() as offload,
        lasting_links(clock, world.rng, credentials) as links,
        trio.open_nursery() as nursery,
    ):
        registration = Registration(settings, advertised(settings, host, port), state, links, secret)
        read_clock = lambda: guard.figures() | clock.figures()  # noqa: E731
        lead = Lead(
            settings,
            state,
            store,
            clock,
            timer_clock,
            flusher.need,
            registration.topics_changed,
            read_clock,
            asker=access.guard.asker,
        )
        door, room = Doorkeeper("the broker"), NativeRoom(settings.held_bytes_max)
        running = RunningBroker(host, port, lead, door, lambda: registration.away, room, access.guard)
        links.on_lost = registration.lost
        nursery.start_soon(flusher.run, lead, offload)
        nursery.start_soon(keep_ticking, lead, clock)
        nursery.start_soon(give_back, store, world.offload)
        nursery.start_soon(keep_times, disk, timer_clock)
        mirror = mirror_of(settings, state, lead, links)
        tell("asking the home of sessions what they hold here")
        with trio.move_on_after(settings.handover_wait_s) as patience:
            await nursery.start(keep_mirror, mirror, clock)
        if patience.cancelled_caught:
            nursery.start_soon(keep_mirror, mirror, clock)
            _log.warning("the home of sessions does not answer: their filters are opened here when it does")
        nursery.start_soon(access.run)
        nursery.start_soon(serve_clients, running, settings, access, listeners)
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
    """Recovers the store, and names its log if that has no identity yet: at the log's own time, because the clock is
    not checked yet."""
    store = open_store(disk, settings.store(), state, world.clock.wall_ms(), on_progress)
    try:
        name_log(state.identity, store, world.rng, store.last_ms)
    except BaseException:
        store.close(store.last_ms)
        raise
    return store
