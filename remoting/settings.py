"""Settings of a remoting front."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidConfig
from penstock.service.exposure import NATIVE, PAGES, refuse_exposed


@dataclass(frozen=True, slots=True)
class RemotingSettings:
    """What a front for RocketMQ's clients needs to know.

    Attributes:
        host: address on which it listens.
        port: where clients reach the broker; 0 takes any free one.
        namesrv_port: where clients ask for routes; 0 takes any free one.
        advertise: ``host:port`` that clients are told to come to; empty: where it listens.
        insecure: allows addresses beyond loopback, where these ports ask for no login.
        cluster_secret_file: the key by which broker and name server know this front; empty where they ask for none.
        peers_tls_ca: the authority of their certificates, where they speak TLS.
        broker: ``host:port`` of its broker's native port.
        namesrv: ``host:port`` of the name server.
        status_host: address of the status pages.
        status_port: port of the status pages; -1 for none, 0 for any free one.
        status_hosts: names that a Host header of the status pages may have beside loopback; ``*`` for any.
    """

    host: str = "127.0.0.1"
    port: int = 10909
    namesrv_port: int = 9877
    advertise: str = ""
    insecure: bool = False
    cluster_secret_file: str = ""
    peers_tls_ca: str = ""
    broker: str = "127.0.0.1:10911"
    namesrv: str = "127.0.0.1:9876"
    status_host: str = "127.0.0.1"
    status_port: int = -1
    status_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_exposed("host", self.host, self.insecure, NATIVE)
        refuse_exposed("status_host", self.status_host, self.insecure, PAGES)
        for name in ("port", "namesrv_port"):
            if not 0 <= getattr(self, name) <= 65_535:
                raise InvalidConfig(f"{name} is {getattr(self, name)}", hint="it is from 0 to 65535")
        if self.advertise and not self.advertise.rpartition(":")[2].isdigit():
            raise InvalidConfig(f"advertise is {self.advertise!r}", hint="it is HOST:PORT")
