"""The event bridge's settings: one frozen value. docs/guide/settings.md lists them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from penstock.errors import InvalidConfig
from penstock.service import common_settings as common
from penstock.service.access_settings import AccessSettings
from penstock.service.setting import port_setting, setting

CALLERS: Final = "writes events and rules, and has this machine send requests"
"""The power of a peer at an event bridge's port."""


@dataclass(frozen=True, slots=True)
class EventsSettings(AccessSettings):
    """Settings of an event bridge. Users, rules, tokens and TLS are those of the broker's ports."""

    host: str = common.host()
    port: int = port_setting(8095, "port on which it listens; 0 takes any free one")
    hosts: tuple[str, ...] = common.hosts()
    peers_tls_ca: str = common.peers_tls_ca()
    namesrv: tuple[str, ...] = common.namesrv()
    private_targets: tuple[str, ...] = setting(
        (),
        "networks of private, loopback and link-local addresses that HTTP targets may have, as `10.0.0.0/8`; public"
        " addresses are always allowed",
    )
    secrets: str = setting("", "folder of the files with secrets that targets name; empty: there are none")
    body_bytes_max: int = setting(8 * 1024 * 1024, "maximum bytes of a request", above=0)
    rule_topics_per_min_max: int = setting(
        1000,
        "maximum number of topics per minute, and in one burst, that the events of one rule make at this instance: a"
        " name under which devices get them may come from the event. 0: no limit",
        least=0,
    )
    session_s: float = setting(
        10.0, "seconds after which the rules of an instance that died go to others", least=1, most=3_600
    )
    status_host: str = common.status_host()
    status_port: int = common.status_port()
    status_hosts: tuple[str, ...] = common.status_hosts()

    def __post_init__(self) -> None:
        self.check_access(self.host, CALLERS)
        self.check_clear(self.host)
        if self.status_port >= 0:
            self.check_pages("status_host", self.status_host)
        for network in self.private_targets:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                raise InvalidConfig(f"private_targets has {network!r}", hint="write networks, as 10.0.0.0/8") from None
