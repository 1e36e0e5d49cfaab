"""The running console: an HTTP server, and the task that watches the cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from console.application import application
from console.cluster import open_cluster
from console.logins import Attempts, Logins, UserFiles
from console.settings import ConsoleSettings
from console.visits import Console
from console.watch import Watch
from penstock.client.credentials import Credentials, service_credentials
from penstock.errors import AddressInUse
from penstock.protocol.addresses import join_address
from penstock.service.access_files import AccessFiles
from penstock.service.audit import Audit
from penstock.service.audit_keeping import at_brokers, keep_audit
from penstock.service.cluster_secret import read_secret
from penstock.service.http_server import HTTP, HttpLimits, serve_http
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
        """The address for a browser."""
        return f"{'https' if self.is_secure else 'http'}://{join_address(self.host, self.port)}/"

    def figures(self) -> dict[str, float]:
        """It counts nothing itself."""
        return {}

    def reasons(self) -> Sequence[str]:
        """The reasons why it is not ready."""
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
    files = AccessFiles(settings, world, None, HTTP, "the console")
    users = UserFiles(files) if settings.asks else None
    try:
        listening = open_socket(settings.host, settings.port, "the console")
    except AddressInUse:
        if not is_port_wish:
            raise
        listening = open_socket(settings.host, 0, "the console")
    host, port = listening.getsockname()[:2]
    credentials = _credentials(settings, key)
    async with open_cluster(settings.namesrv, credentials) as cluster, trio.open_nursery() as nursery:
        watch = Watch(cluster.reads, world.clock)
        nursery.start_soon(watch.run)
        logins = Logins(world.clock, settings.login_s)
        audit = Audit(world.clock.wall_ms, world.clock.monotonic)
        nursery.start_soon(files.run)
        if credentials is not None:  # only services may write the audit log
            nursery.start_soon(keep_audit, audit.trail, "console", at_brokers(cluster.links, settings.namesrv))
        console = Console(cluster, watch, logins, Attempts(world.clock), users, bool(settings.tls_certificate), audit)
        app = application(console, settings.hosts)
        limits = HttpLimits(IDLE_S, _HEAD_BYTES_MAX)
        await nursery.start(partial(serve_http, app, listening, files.certificates, _log, limits))
        task_status.started(RunningConsole(host, port, bool(settings.tls_certificate), watch))


def _credentials(settings: ConsoleSettings, key: bytes | None) -> Credentials | None:
    """The console's credentials at brokers and name servers: the key of the cluster, or None: those of the
    environment."""
    if settings.cluster_secret_file and key is None:
        key = read_secret(Path(settings.cluster_secret_file))
    return None if key is None else service_credentials(key, "console", settings.peers_tls_ca)
