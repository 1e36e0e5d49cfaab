"""The event bridge's settings: one frozen value. docs/guide/settings.md lists them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from penstock.errors import InvalidConfig
from penstock.protocol.addresses import SERVERS
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import is_loopback

_EXPOSED: Final = (
    "set tls_certificate, or, in a network of trusted machines or behind a proxy that speaks HTTPS, insecure = true"
)
CALLERS: Final = "writes events and rules, and has this machine send requests"
"""What a peer of an event bridge's port can do."""


@dataclass(frozen=True, slots=True)
class EventsSettings(AccessSettings):
    """Settings of an event bridge. Users, rules, tokens and TLS are those of the broker's ports.

    Attributes:
        host, port: where it listens; port 0 takes any free one.
        hosts: names that a Host header may have beside ``localhost``, loopback addresses and the address that the
            connection came to; ``*`` for any.
        peers_tls_ca: the authority of the certificates of brokers and name servers, where these speak TLS.
        namesrv: the name servers, as ``host:port``.
        private_targets: networks of private, loopback and link-local addresses that HTTP targets may have, as
            ``10.0.0.0/8``; public addresses are always allowed.
        secrets: folder of the files with secrets that targets name; empty: there are none.
        body_bytes_max: maximum bytes of a request.
        rule_topics_per_min_max: maximum number of topics per minute, and in one burst, that the events of one rule make
            at this instance: a name under which devices get them may come from the event. 0: no limit.
        session_s: seconds after which the rules of an instance that died go to others.
        status_host, status_port: where it has its status pages if it runs alone; port -1 for none, 0 for any free one.
        status_hosts: names that a Host header of the status pages may have beside ``localhost``, loopback addresses and
            the address that the connection came to; ``*`` for any.
    """

    host: str = "127.0.0.1"
    port: int = 8095
    hosts: tuple[str, ...] = ()
    peers_tls_ca: str = ""
    namesrv: tuple[str, ...] = (SERVERS,)
    private_targets: tuple[str, ...] = ()
    secrets: str = ""
    body_bytes_max: int = 8 * 1024 * 1024
    rule_topics_per_min_max: int = 1000
    session_s: float = 10.0
    status_host: str = "127.0.0.1"
    status_port: int = -1
    status_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidConfig(f"port is {self.port}", hint="it is from 0 to 65535")
        self.check_access(self.host, CALLERS)
        if self.asks and not (self.tls_certificate or self.insecure or is_loopback(self.host)):
            raise InvalidConfig(
                f"host is {self.host!r}: passwords and tokens would travel in clear text there", hint=_EXPOSED
            )
        if self.status_port >= 0:
            self.check_pages("status_host", self.status_host)
        if self.rule_topics_per_min_max < 0:
            raise InvalidConfig("rule_topics_per_min_max must not be negative")
        if self.body_bytes_max <= 0 or not 1 <= self.session_s <= 3_600:
            raise InvalidConfig("body_bytes_max is greater than 0, session_s is from 1 to 3600")
        for network in self.private_targets:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                raise InvalidConfig(f"private_targets has {network!r}", hint="write networks, as 10.0.0.0/8") from None
