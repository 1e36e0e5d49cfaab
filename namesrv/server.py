"""The running name server: a registry behind a listening socket, and one task that lets leases end.

Every request is answered at once, so that replies leave in the order of the requests. It keeps nothing on disk: brokers
register again within their heartbeat's period.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from namesrv.config_file import keep_config, read_config
from namesrv.proofs import Proofs
from namesrv.registry import Registry
from namesrv.settings import NamesrvSettings
from penstock.client.credentials import service_credentials
from penstock.client.lasting_links import lasting_links
from penstock.errors import InvalidConfig, InvalidRequest, NotAuthorized, UnknownRequest
from penstock.protocol.addresses import join_address
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import ProveBroker, QueryChallenge, QueryRoute, Route
from penstock.protocol.requests.servers import ChangeSetting, Ping, ServerInfo
from penstock.service.accepting import Doorkeeper
from penstock.service.access_files import AccessFiles
from penstock.service.cluster_secret import nonce_of, read_secret
from penstock.service.exposure import ROUTES, is_loopback
from penstock.service.frame_connection import Peer, Session
from penstock.service.frame_server import listening_address, open_listeners, serve_frames
from penstock.service.live_settings import LiveSettings
from penstock.service.native_journal import NativeJournal
from penstock.service.native_room import NativeRoom
from penstock.version import VERSION
from penstock.world import Clock, World

DOOR: Final = "the name server"
EXPIRE_EVERY_S: Final = 5.0
"""How often leases are checked without a request; every request checks them too."""

REFUSALS_TOLD_EVERY_S: Final = 60.0
"""The log names peers that may not register once in this time, however many there are."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningNamesrv:
    """A name server that accepts connections; ``open_session`` reaches it from within the process. ``figures``: gauges
    by metric name. ``reasons``: why the name server is not ready; none if it is."""

    host: str
    port: int
    open_session: Callable[[Peer], Session]
    figures: Callable[[], Mapping[str, float]]
    reasons: Callable[[], Sequence[str]]


class Refusals:
    """The requests of peers that spoke for a broker without being it: counted, and told of in the log now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_at = -math.inf
        self.count = 0

    def note(self, peer: Peer, error: NotAuthorized) -> None:
        """One more."""
        self.count += 1
        now = self._clock.monotonic()
        if now - self._told_at >= REFUSALS_TOLD_EVERY_S:
            self._told_at = now
            _log.warning("refused %s: %s (%d requests refused since the start)", peer.address, error, self.count)


class NamesrvSession:
    """Answers the requests of one peer; it keeps only the peer's proofs."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        about: ServerInfo,
        peer: Peer,
        proofs: Proofs,
        refusals: Refusals,
        keep_config: Callable[[], None],
        live: LiveSettings,
    ) -> None:
        """``live``: the settings that an operator changes while it runs."""
        self._live = live
        self._keep_config = keep_config
        self._registry = registry
        self._clock = clock
        self._about = about
        self._peer = peer
        self._proofs = proofs
        self._refusals = refusals

    def submit(self, request: Request, on_result: OnResult) -> None:
        """Answers before it returns."""
        try:
            on_result(self._answer(request))
        except NotAuthorized as error:
            self._refusals.note(self._peer, error)
            on_result(error.as_result())

    def _answer(self, request: Request) -> Result:
        if isinstance(request, Ping):
            return self._about
        if isinstance(request, ChangeSetting):
            return self._change(request)
        if isinstance(request, QueryChallenge):
            return self._proofs.challenge()
        if isinstance(request, ProveBroker):
            self._proofs.prove(request)
            return Done()
        self._proofs.check(request)
        before = self._registry.config.version
        result = self._registry.answer(request, self._clock.monotonic())
        if self._registry.config.version != before:
            self._keep_config()
        return result or UnknownRequest(f"a name server does not serve {type(request).__name__}")

    def _change(self, request: ChangeSetting) -> Result:
        try:
            self._live.change(request.name, request.value)
        except InvalidRequest as error:
            return error.as_result()
        return Done()

    def flush(self) -> None:
        """Nothing was held back."""

    def hold(self) -> None:
        """Nothing waits for anything."""

    release = hold

    def close(self) -> None:
        """A broker's lease does not end with its connection: it may only be reconnecting."""


async def run(
    settings: NamesrvSettings,
    world: World,
    *,
    secret: bytes | None = None,
    task_status: trio.TaskStatus[RunningNamesrv] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled. ``secret``: the cluster's, in place of the one in ``cluster_secret_file``.

    Raises ``AddressInUse`` or ``InvalidConfig`` where it cannot listen, and where it needs a secret and has none.
    """
    if settings.cluster_secret_file and secret is None:
        secret = read_secret(Path(settings.cluster_secret_file))
    if not is_loopback(settings.host):
        if secret is None:
            raise InvalidConfig(
                f"host is {settings.host!r}, and cluster_secret_file is empty: any peer could end a broker or take its"
                " name",
                hint="set cluster_secret_file here and for each broker to the same secret",
            )
        if not settings.asks:
            _log.warning("insecure: any client that reaches %s:%d %s", settings.host, settings.port, ROUTES)
    access = AccessFiles(settings, world, secret, whose="the name server")
    config = read_config(settings.config_file)
    registry = Registry(settings.lease_s_max, settings.brokers_max, settings.topics_max, settings.away_s_max, config)
    listeners = await open_listeners(settings.host, settings.port, "the name server")
    host, port = listening_address(listeners)
    about = ServerInfo("namesrv", join_address(host, port), VERSION)

    refusals = Refusals(world.clock)
    room = NativeRoom(settings.held_bytes_max)

    told = NativeJournal(DOOR, settings.connection_log)
    changeable = LiveSettings(told.change, settings.connection_log)

    def open_session(peer: Peer) -> NamesrvSession:
        proofs = Proofs(secret, lambda: nonce_of(secret or b"", world.rng.randbytes(32)))
        keep = partial(keep_config, config, settings.config_file)
        return NamesrvSession(registry, world.clock, about, peer, proofs, refusals, keep, changeable)

    def figures() -> Mapping[str, float]:
        own = registry.figures(world.clock.monotonic())
        asked = access.guard.figures("namesrv")
        return {**own, "namesrv_refused_total": refusals.count, **asked, **room.figures("namesrv")}

    async def live() -> Sequence[str]:
        found = registry.answer(QueryRoute(""), world.clock.monotonic())
        return [one.address for one in found.brokers] if isinstance(found, Route) else []

    door, server = Doorkeeper(DOOR), f"name server {about.name}"
    credentials = service_credentials(secret, server, settings.peers_tls_ca, settings.shown)
    async with lasting_links(world.clock, world.rng, credentials) as links, trio.open_nursery() as nursery:
        nursery.start_soon(access.keep_audit, server, links, live)
        nursery.start_soon(_expire, registry, world.clock)
        nursery.start_soon(access.run)
        served = partial(serve_frames, guard=access.guard, certificates=access.certificates, journal=told)
        nursery.start_soon(partial(served, listeners, open_session, door=door, room=room))
        task_status.started(RunningNamesrv(host, port, open_session, figures, door.reasons))


async def _expire(registry: Registry, clock: Clock) -> None:
    while True:
        await trio.sleep(EXPIRE_EVERY_S)
        for broker in registry.expire(clock.monotonic()):
            _log.warning("the lease of broker %s ended without a word from it", broker)
