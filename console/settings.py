"""The console's settings: one frozen value, every limit in it. docs/guide/settings.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import InvalidConfig
from penstock.service.exposure import is_loopback, refuse_exposed

CONSOLE: Final = "reads messages and ends sessions"
"""What a peer of a console without users can do."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of a console.

    Attributes:
        host, port: where it listens; port 0 takes any free one.
        hosts: names that a Host header may have beside ``localhost``, loopback addresses and the address that the
            connection came to; ``*`` for any.
        namesrv: name servers of the cluster that it shows.
        cluster_secret_file: the key by which brokers and name servers know their console; empty where they ask for
            none.
        peers_tls_ca: the authority of the certificates of brokers and name servers, where these speak TLS.
        password_file: the users that may log in, as ``penstock user`` writes it; empty: everyone who reaches the port
            is an administrator.
        acl_file: the rules, as ``penstock acl`` reads them: ``view *`` is the right to look, ``admin *`` to change,
            ``consume`` to read a topic's messages; empty: users may look and read, and change nothing.
        certificate, key: PEM files; with them the console speaks HTTPS.
        insecure: allows a ``host`` beyond loopback without ``password_file`` or without ``certificate``.
        login_s: seconds after which a login ends.
        status_host, status_port: where it has its status pages if it runs alone; port -1 for none, 0 for any free one.
        status_hosts: names that a Host header of the status pages may have beside ``localhost``, loopback addresses and
            the address that the connection came to; ``*`` for any.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    hosts: tuple[str, ...] = ()
    namesrv: tuple[str, ...] = ("127.0.0.1:9876",)
    cluster_secret_file: str = ""
    peers_tls_ca: str = ""
    password_file: str = ""
    acl_file: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False
    login_s: float = 43_200.0
    status_host: str = "127.0.0.1"
    status_port: int = -1
    status_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.host:
            raise InvalidConfig("host is empty", hint="0.0.0.0 is every address of this machine")
        if not 0 <= self.port <= 65_535:
            raise InvalidConfig(f"port is {self.port}", hint="it is from 0 to 65535")
        if not self.password_file:
            refuse_exposed("host", self.host, self.insecure, CONSOLE, hint=_EXPOSED)
        elif not self.certificate and not self.insecure and not is_loopback(self.host):
            raise InvalidConfig(f"host is {self.host!r}: passwords would travel in clear text there", hint=_EXPOSED)
        if not self.namesrv:
            raise InvalidConfig("namesrv is empty", hint="name at least one name server, as 127.0.0.1:9876")
        if self.login_s <= 0:
            raise InvalidConfig("login_s is greater than 0")


_EXPOSED: Final = (
    "set password_file and certificate, or, in a network of trusted machines or behind a proxy that speaks HTTPS, "
    "insecure = true"
)
