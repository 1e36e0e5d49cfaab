"""The running name server: a registry behind a listening socket, and one task that lets leases end.

Every request is answered at once, so that replies leave in the order of the requests. It keeps nothing on disk: brokers
register again within their heartbeat's period.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from namesrv.registry import Registry
from namesrv.settings import NamesrvSettings
from penstock.accepting import Doorkeeper
from penstock.addresses import join_address
from penstock.errors import UnknownRequest
from penstock.frame_server import Peer, Session, listening_address, open_listeners, serve_frames
from penstock.link import OnResult
from penstock.requests.request import Request
from penstock.requests.servers import Ping, ServerInfo
from penstock.version import VERSION
from penstock.world import Clock, World

EXPIRE_EVERY_S: Final = 5.0
"""How often leases are looked at when nobody asks; every request looks at them too."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningNamesrv:
    """A name server that accepts connections; ``open_session`` reaches it from within the process. ``figures``: gauges
    by metric name. ``reasons``: why nobody should come here; none if there is no reason."""

    host: str
    port: int
    open_session: Callable[[Peer], Session]
    figures: Callable[[], Mapping[str, float]]
    reasons: Callable[[], Sequence[str]]


class NamesrvSession:
    """Answers the requests of one peer; it keeps nothing of it."""

    def __init__(self, registry: Registry, clock: Clock, about: ServerInfo) -> None:
        self._registry = registry
        self._clock = clock
        self._about = about

    def submit(self, request: Request, on_result: OnResult) -> None:
        """Answers before it returns."""
        if isinstance(request, Ping):
            on_result(self._about)
            return
        result = self._registry.answer(request, self._clock.monotonic())
        on_result(result or UnknownRequest(f"a name server does not serve {type(request).__name__}"))

    def flush(self) -> None:
        """Nothing was held back."""

    def hold(self) -> None:
        """Nothing waits for anything."""

    release = hold

    def close(self) -> None:
        """A broker's lease does not end with its connection: it may only be reconnecting."""


async def run(
    settings: NamesrvSettings, world: World, *, task_status: trio.TaskStatus[RunningNamesrv] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serves until cancelled. Raises ``AddressInUse`` or ``InvalidConfig`` where it cannot listen."""
    registry = Registry(settings.lease_s_max, settings.brokers_max, settings.topics_max, settings.away_s_max)
    listeners = await open_listeners(settings.host, settings.port, "the name server")
    host, port = listening_address(listeners)
    about = ServerInfo("namesrv", join_address(host, port), VERSION)

    def open_session(_peer: Peer) -> NamesrvSession:
        return NamesrvSession(registry, world.clock, about)

    def figures() -> Mapping[str, float]:
        return registry.figures(world.clock.monotonic())

    door = Doorkeeper("the name server")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expire, registry, world.clock)
        nursery.start_soon(partial(serve_frames, listeners, open_session, door=door))
        task_status.started(RunningNamesrv(host, port, open_session, figures, door.reasons))


async def _expire(registry: Registry, clock: Clock) -> None:
    while True:
        await trio.sleep(EXPIRE_EVERY_S)
        for broker in registry.expire(clock.monotonic()):
            _log.warning("the lease of broker %s ended without a word from it", broker)
