"""The name server's settings: one frozen value, every limit in it. docs/guide/settings.md lists them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.service import common_settings as common
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import ROUTES
from penstock.service.setting import constant, port_setting, setting


@dataclass(frozen=True, slots=True)
class NamesrvSettings(AccessSettings):
    """Settings of a name server."""

    host: str = common.host()
    port: int = port_setting(9876, "port on which it listens; 0 takes any free one")
    lease_s_max: float = constant(common.LEASE_S_MAX, above=0)
    brokers_max: int = setting(1_000, "how many brokers may be registered", above=0)
    topics_max: int = setting(100_000, "how many topics one broker may register", above=0)
    connection_log: str = common.connection_log()
    held_bytes_max: int = common.held_bytes_max()
    away_s_max: float = setting(
        86_400.0,
        "seconds for which an absent broker is remembered: its topics are not created at another broker, and readers"
        " of a whole topic are told that it is absent",
        least=0,
    )
    peers_tls_ca: str = common.peers_tls_ca("brokers, where these speak TLS: they store the audit log")
    config_file: str = setting("", "file of its key-value store (`penstock config`); empty: in memory, until it stops")
    status_host: str = common.status_host()
    status_port: int = common.status_port()
    status_hosts: tuple[str, ...] = common.status_hosts()

    def __post_init__(self) -> None:
        self.check_access(self.host, ROUTES)
        if self.status_port >= 0:
            self.check_pages("status_host", self.status_host)
