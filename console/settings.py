"""The console's settings: one frozen value, every limit in it. docs/guide/settings.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.access.token_keys import check_algorithms
from penstock.errors import InvalidConfig
from penstock.service.access_settings import CLIENTS, AccessSettings
from penstock.service.exposure import PAGES, is_loopback, refuse_exposed

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
        password_file: the users that may log in, as ``penstock user`` writes it. Where there are neither these nor
            tokens nor certificates of clients, everyone who reaches the port is an administrator.
        acl_file: the rules, as ``penstock acl`` reads them: ``view *`` is the right to look, ``admin *`` to change,
            ``consume`` to read a topic's messages; empty: users may look and read, and change nothing.
        jwt_key_file: the secret or public keys that tokens are checked with, which users may log in by; empty for none.
        jwt_algorithms: by which tokens may be signed; empty for that of the key or its usual one.
        jwt_audience: the audience of tokens; empty: a token that names one is refused.
        jwt_issuer: the issuer of tokens; empty: any that has the key.
        certificate, key: PEM files; with them the console speaks HTTPS. Read again when they change.
        client_ca: the authority of browsers' certificates; read again when it changes.
        client_crl: the authority's list of those that it has revoked, read again when it changes; empty for none.
        clients: whether browsers show a certificate: ``none``, ``optional`` or ``required``. Its name is a user, who is
            logged in.
        insecure: allows a ``host`` beyond loopback without users or without ``certificate``, and a ``status_host``.
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
    jwt_key_file: str = ""
    jwt_algorithms: tuple[str, ...] = ()
    jwt_audience: str = ""
    jwt_issuer: str = ""
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    client_crl: str = ""
    clients: str = "none"
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
        check_algorithms(self.jwt_algorithms)
        if self.clients not in CLIENTS:
            raise InvalidConfig(f"clients is {self.clients!r}", hint=f"it is one of {', '.join(CLIENTS)}")
        if self.clients != "none" and not (self.client_ca and self.certificate):
            raise InvalidConfig(
                f"clients is {self.clients!r}, and nothing says whose certificates count",
                hint="set certificate, and client_ca to the authority's certificate",
            )
        if (self.key or self.client_ca) and not self.certificate:
            raise InvalidConfig("key and client_ca need a certificate")
        if not self.asks:
            refuse_exposed("host", self.host, self.insecure, CONSOLE, hint=_EXPOSED)
        elif not self.certificate and not self.insecure and not is_loopback(self.host):
            raise InvalidConfig(f"host is {self.host!r}: passwords would travel in clear text there", hint=_EXPOSED)
        if self.status_port >= 0:
            refuse_exposed("status_host", self.status_host, self.insecure, PAGES)
        if not self.namesrv:
            raise InvalidConfig("namesrv is empty", hint="name at least one name server, as 127.0.0.1:9876")
        if self.login_s <= 0:
            raise InvalidConfig("login_s is greater than 0")

    @property
    def asks(self) -> bool:
        """Whether browsers have to log in."""
        return self.access.asks

    @property
    def access(self) -> AccessSettings:
        """The same settings under the names that native ports have for them."""
        return AccessSettings(
            password_file=self.password_file,
            acl_file=self.acl_file,
            jwt_key_file=self.jwt_key_file,
            jwt_algorithms=self.jwt_algorithms,
            jwt_audience=self.jwt_audience,
            jwt_issuer=self.jwt_issuer,
            tls_certificate=self.certificate,
            tls_key=self.key,
            tls_client_ca=self.client_ca,
            tls_clients=self.clients,
            tls_client_crl=self.client_crl,
        )


_EXPOSED: Final = (
    "set password_file and certificate, or, in a network of trusted machines or behind a proxy that speaks HTTPS, "
    "insecure = true"
)
