"""The running console: an HTTP server, and the task that watches the cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from console.application import application
from console.cluster import open_cluster
from console.logins import Attempts, Logins, UserFiles
from console.settings import ConsoleSettings
from console.visits import Console
from console.watch import Watch
from penstock.client.credentials import Credentials, service_credentials
from penstock.errors import AddressInUse, InvalidConfig
from penstock.protocol.addresses import join_address
from penstock.service.audit import Audit
from penstock.service.audit_keeping import at_brokers, keep_audit
from penstock.service.cluster_secret import read_secret
from penstock.service.status import open_socket
from penstock.world import World

IDLE_S: Final = 30.0
_HEAD_BYTES_MAX: Final = 64 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningConsole:
    """The address of a running console, and its state."""

    host: str
    port: int
    is_secure: bool = False
    watch: Watch | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """What a browser opens."""
        return f"{'https' if self.is_secure else 'http'}://{join_address(self.host, self.port)}/"

    def figures(self) -> dict[str, float]:
        """It counts nothing itself."""
        return {}

    def reasons(self) -> Sequence[str]:
        """Why no browser should come here."""
        return [self.watch.trouble] if self.watch is not None and self.watch.trouble else []


async def run(
    settings: ConsoleSettings,
    world: World,
    *,
    is_port_wish: bool = False,
    key: bytes | None = None,
    task_status: trio.TaskStatus[RunningConsole] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves the console until cancelled. With ``is_port_wish`` any free port will do where another process has the one
    of the settings. ``key``: the cluster's, in place of the one in ``cluster_secret_file``.

    Raises:
        AddressInUse: the port is taken.
        InvalidConfig: the host is no address of this machine, or a file of the settings cannot be read.
    """
    users = _users_of(settings, world)
    try:
        listening = open_socket(settings.host, settings.port, "the console")
    except AddressInUse:
        if not is_port_wish:
            raise
        listening = open_socket(settings.host, 0, "the console")
    host, port = listening.getsockname()[:2]
    config = Config.from_mapping(
        bind=[f"fd://{listening.detach()}"],  # hypercorn owns and closes it from here on
        accesslog=None,
        errorlog=_log,
        alpn_protocols=["http/1.1"],
        h11_max_incomplete_size=_HEAD_BYTES_MAX,
        keep_alive_timeout=IDLE_S,
        read_timeout=int(IDLE_S),
        graceful_timeout=0.5,
        include_server_header=False,
        certfile=settings.certificate or None,
        keyfile=settings.key or settings.certificate or None,
    )
    credentials = _credentials(settings, key)
    async with open_cluster(settings.namesrv, credentials) as cluster, trio.open_nursery() as nursery:
        watch = Watch(cluster.reads, world.clock)
        nursery.start_soon(watch.run)
        logins = Logins(world.clock, settings.login_s)
        audit = Audit(world.clock.wall_ms, world.clock.monotonic)
        if users is not None:
            nursery.start_soon(users.run)
        if credentials is not None:  # only services may write the audit log
            nursery.start_soon(keep_audit, audit.trail, "console", at_brokers(cluster.links, settings.namesrv))
        console = Console(cluster, watch, logins, Attempts(world.clock), users, bool(settings.certificate), audit)
        app = cast(Any, application(console, settings.hosts))  # ASGI, as starlette's types have it
        await nursery.start(serve, app, config)
        task_status.started(RunningConsole(host, port, bool(settings.certificate), watch))


def _credentials(settings: ConsoleSettings, key: bytes | None) -> Credentials | None:
    """The console's credentials at brokers and name servers: the key of the cluster, or None: those of the
    environment."""
    if settings.cluster_secret_file and key is None:
        key = read_secret(Path(settings.cluster_secret_file))
    return None if key is None else service_credentials(key, "console", settings.peers_tls_ca)


def _users_of(settings: ConsoleSettings, world: World) -> UserFiles | None:
    for name, file in (("certificate", settings.certificate), ("key", settings.key)):
        if file and not Path(file).is_file():
            raise InvalidConfig(f"{name} {file} is no file")
    if not settings.password_file:
        return None
    return UserFiles(settings.password_file, settings.acl_file, world.offload)
