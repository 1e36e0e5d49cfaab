"""Settings of a remoting front."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidConfig
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import NATIVE
from penstock.service.paced_lines import check_detail


@dataclass(frozen=True, slots=True)
class RemotingSettings(AccessSettings):
    """Settings of a front for RocketMQ's clients. Users sign with their secret keys (`penstock user key`), which the
    password file holds.

    Attributes:
        host: address on which it listens.
        port: where clients reach the broker; 0 takes any free one.
        namesrv_port: where clients ask for routes; 0 takes any free one.
        advertise: ``host:port`` that clients are to use; empty: where it listens.
        peers_tls_ca: the authority of their certificates, where they speak TLS.
        broker: ``host:port`` of its broker's native port; of one with copies, as it is advertised.
        namesrv: ``host:port`` of the name server.
        connection_log: lines in the log for connects and disconnects (level ``info``) and failed TLS handshakes
            (``warning``): ``off``, ``sampled`` (of each kind 1 a second, 10 at once), or ``on`` (50 and 1,000).
        user_topics_per_min_max: maximum number of topics per minute, and in one burst, that messages of one user make
            here. 0: no limit. A front that asks for no login has none.
        status_host: address of the status pages.
        status_port: port of the status pages; -1 for none, 0 for any free one.
        status_hosts: names that a Host header of the status pages may have beside loopback; ``*`` for any.
    """

    host: str = "127.0.0.1"
    port: int = 10909
    namesrv_port: int = 9877
    advertise: str = ""
    peers_tls_ca: str = ""
    broker: str = "127.0.0.1:10911"
    namesrv: str = "127.0.0.1:9876"
    connection_log: str = "sampled"
    user_topics_per_min_max: int = 1000
    status_host: str = "127.0.0.1"
    status_port: int = -1
    status_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.check_access(self.host, NATIVE)
        check_detail(self.connection_log)
        if self.user_topics_per_min_max < 0:
            raise InvalidConfig("user_topics_per_min_max must not be negative")
        self.check_pages("status_host", self.status_host)
        for name in ("port", "namesrv_port"):
            if not 0 <= getattr(self, name) <= 65_535:
                raise InvalidConfig(f"{name} is {getattr(self, name)}", hint="it is from 0 to 65535")
        if self.advertise and not self.advertise.rpartition(":")[2].isdigit():
            raise InvalidConfig(f"advertise is {self.advertise!r}", hint="it is HOST:PORT")
