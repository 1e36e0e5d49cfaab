"""The name server's settings: one frozen value, every limit in it. docs/guide/settings.md lists them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidConfig
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import ROUTES
from penstock.service.native_room import HELD_BYTES_MAX
from penstock.service.paced_lines import check_detail


@dataclass(frozen=True, slots=True)
class NamesrvSettings(AccessSettings):
    """Settings of a name server.

    Attributes:
        host, port: where it listens; port 0 takes any free one.
        lease_s_max: no broker is believed for longer than this without a word.
        brokers_max: how many brokers may be registered.
        topics_max: how many topics one broker may register.
        connection_log: lines in the log for connects and disconnects (level ``info``) and failed TLS handshakes
            (``warning``): ``off``, ``sampled`` (of each kind 1 a second, 10 at once), or ``on`` (50 and 1,000).
        held_bytes_max: maximum bytes that all connections together may have this server hold: once of incomplete
            requests, and once of replies that their peers have not read.
        away_s_max: seconds for which an absent broker is remembered: its topics are not created at another broker, and
            readers of a whole topic are told that it is absent.
        peers_tls_ca: the authority of the certificates of brokers, where these speak TLS: they store the audit log.
        config_file: file of its key-value store (``penstock config``); empty: in memory, until it stops.
        status_host, status_port: where it has its status pages if it runs alone; port -1 for none, 0 for any free one.
        status_hosts: names that a Host header of the status pages may have beside ``localhost``, loopback addresses and
            the address that the connection came to; ``*`` for any.
    """

    host: str = "127.0.0.1"
    port: int = 9876
    lease_s_max: float = 600.0
    brokers_max: int = 1_000
    topics_max: int = 100_000
    connection_log: str = "sampled"
    held_bytes_max: int = HELD_BYTES_MAX
    away_s_max: float = 86_400.0
    peers_tls_ca: str = ""
    config_file: str = ""
    status_host: str = "127.0.0.1"
    status_port: int = -1
    status_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidConfig(f"port is {self.port}", hint="it is from 0 to 65535")
        check_detail(self.connection_log)
        self.check_access(self.host, ROUTES)
        if self.status_port >= 0:
            self.check_pages("status_host", self.status_host)
        if min(self.lease_s_max, self.brokers_max, self.topics_max, self.held_bytes_max) <= 0 or self.away_s_max < 0:
            raise InvalidConfig(
                "lease_s_max, brokers_max, topics_max and held_bytes_max are greater than 0, away_s_max is not less"
            )
