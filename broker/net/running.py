"""A running broker as its process sees it, and the tasks that every broker has."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

import trio

from broker.net.lead import BrokerSession, Lead
from broker.net.mirror import SessionMirror
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import Disk
from broker.store.message_store import MessageStore
from broker.store.recovery import Progress
from broker.store_clock import write_times
from broker.timer_clock import TimerClock
from penstock.protocol.addresses import join_address
from penstock.protocol.link import Links
from penstock.protocol.requests.request import Request, Result
from penstock.service.accepting import Doorkeeper
from penstock.service.access_files import AccessFiles
from penstock.service.frame_connection import Peer, Session
from penstock.service.frame_server import serve_frames
from penstock.service.guard import Guard
from penstock.service.native_room import NativeRoom
from penstock.world import Clock, Offload

EVERYWHERE: Final = ("0.0.0.0", "::")
"""Addresses to listen at that other machines cannot connect to."""
TICK_S: Final = 0.05
STALL_S: Final = 1.0
"""A broker whose next tick comes this much later stood still: the disk or the whole machine did."""
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


def untold(doing: str) -> None:
    """Ignores the steps of a start that is not watched."""


class RunningBroker:
    """A broker that accepts requests. ``lead``: what carries them out. ``door``: at which they come in. ``room``: what
    their connections may hold. ``namesrv_away``: gives the name servers that do not answer. ``guard``: decides what a
    session may ask for."""

    def __init__(
        self,
        host: str,
        port: int,
        lead: Lead,
        door: Doorkeeper,
        namesrv_away: Callable[[], Collection[str]],
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
        own = {"penstock_namesrv_away": len(self._namesrv_away()), **self.room.figures("penstock")}
        own |= self.guard.figures("penstock")
        return self.lead.figures() | own

    def reasons(self) -> list[str]:
        """The reasons why it is not ready; empty if it is."""
        return [*self.door.reasons(), *self.lead.reasons()]


def told_of_recovery(tell: Tell) -> Progress:
    """A start that is broken off does not go on recovering in its thread; the next one does it, as after a crash."""

    def told(done: int, total: int) -> None:
        tell(f"recovering the log: {done >> 20:,} of {total >> 20:,} MiB")
        with contextlib.suppress(RuntimeError):  # of a world without threads
            trio.from_thread.check_cancelled()

    return told


def mirror_of(settings: BrokerSettings, state: BrokerState, lead: Lead, links: Links) -> SessionMirror:
    """The mirror of this broker: keeps sessions' filters as their home has them."""

    def carry_out(request: Request) -> None:
        lead.dispatch.submit(request, _ignore, OWN_SESSION)
        lead.dispatch.end_batch()

    names = [links.link(address) for address in settings.namesrv]
    return SessionMirror(settings.name, state, names, links, carry_out)


def _ignore(result: Result) -> None:
    """Ignores the error: the mirror tries again."""


def advertised(settings: BrokerSettings, host: str, port: int) -> str:
    """The address for clients."""
    address = settings.advertise or join_address(host, port)
    if settings.host in EVERYWHERE and not settings.advertise:
        _log.warning(
            "clients on other machines are told to connect to %s, which leads them to themselves: set `advertise` to"
            " this broker's own host and port",
            address,
        )
    return address


async def serve_clients(
    running: RunningBroker, settings: BrokerSettings, access: AccessFiles, listeners: Sequence[trio.SocketListener]
) -> None:
    """Serves the connections of clients until cancelled; closes them and the listeners at the end."""
    await serve_frames(
        listeners,
        running.open_session,
        door=running.door,
        room=running.room,
        guard=running.guard,
        certificates=access.certificates,
        journal=running.lead.live.journal,
    )


async def keep_mirror(
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


async def give_back(store: MessageStore | Disk, offload: Offload) -> None:
    """Frees the room of removed files in a thread, because the loop would stand still for it."""
    while True:
        await trio.sleep(GIVE_BACK_S)
        if store.leaves:
            await offload(store.give_back)


async def keep_times(disk: Disk, clock: TimerClock) -> None:
    """Leaves the time to the next life: a hundred bytes, which no sync waits for."""
    while True:
        await trio.sleep(TIMES_S)
        write_times(disk, clock.times())


async def keep_ticking(lead: Lead, clock: Clock) -> None:
    """Calls ``tick``, which judges silent peers. After this broker stood still, it first hears what they sent in the
    meantime."""
    while True:
        slept_at = clock.monotonic()
        await trio.sleep(TICK_S)
        if clock.monotonic() - slept_at > STALL_S:
            await trio.sleep(HEARING_S)
        lead.tick()
