"""The console's settings: one frozen value, every limit in it. docs/guide/settings.md lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from penstock.errors import InvalidConfig
from penstock.service import common_settings as common
from penstock.service.access_settings import AccessSettings
from penstock.service.setting import port_setting, setting

CONSOLE: Final = "reads messages and ends sessions"
"""The power of a peer of a console without users."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings(AccessSettings):
    """The settings of a console. Users, rules, tokens and TLS are those of the broker's ports, for browsers."""

    FORMER: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: f"it is called tls_{name} now" for name in ("certificate", "key", "client_ca", "client_crl", "clients")}
    )

    host: str = common.host()
    port: int = port_setting(8090, "port on which it listens; 0 takes any free one")
    hosts: tuple[str, ...] = common.hosts()
    namesrv: tuple[str, ...] = common.namesrv()
    peers_tls_ca: str = common.peers_tls_ca()
    login_s: float = setting(43_200.0, "seconds after which a login ends", above=0)
    status_host: str = common.status_host()
    status_port: int = common.status_port()
    status_hosts: tuple[str, ...] = common.status_hosts()

    def __post_init__(self) -> None:
        if not self.host:
            raise InvalidConfig("host is empty", hint="0.0.0.0 is every address of this machine")
        self.check_access(self.host, CONSOLE)
        self.check_clear(self.host)
        if self.status_port >= 0:
            self.check_pages("status_host", self.status_host)
        if not self.namesrv:
            raise InvalidConfig("namesrv is empty", hint="name at least one name server, as 127.0.0.1:9876")
