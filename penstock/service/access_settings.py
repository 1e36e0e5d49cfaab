"""The settings of logins, access rules and TLS, which brokers and name servers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.access.token_keys import check_algorithms
from penstock.access.tokens import TokenRules
from penstock.errors import InvalidConfig
from penstock.service import common_settings as common
from penstock.service.certificates import Files
from penstock.service.exposure import PAGES, is_loopback, refuse_exposed, ways_out
from penstock.service.setting import check_bounds, setting

CLIENTS: Final = ("none", "optional", "required")


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The access settings of a native port."""

    insecure: bool = setting(
        False,
        "allows `host` beyond loopback although it asks for no login, and status pages there that ask for none",
        option="Allow ports without a login beyond loopback.",
    )
    cluster_secret_file: str = common.cluster_secret_file()
    password_file: str = setting(
        "", "the users (`penstock user`); empty for none. At ports of brokers and name servers they use SCRAM-SHA-256"
    )
    acl_file: str = setting(
        "",
        "who may produce, consume, view and administer what (`penstock acl`); empty: whoever has logged in, all but"
        " administer",
    )
    jwt_key_file: str = common.jwt_key_file()
    jwt_algorithms: tuple[str, ...] = common.jwt_algorithms()
    jwt_audience: str = common.jwt_audience()
    jwt_issuer: str = common.jwt_issuer()
    tls_certificate: str = setting(
        "", "the certificate in PEM; with one the port speaks TLS alone. Read again when it changes"
    )
    tls_key: str = setting("", "its key, where that is in another file")
    tls_client_ca: str = setting("", "the authority of clients' certificates")
    tls_clients: str = setting(
        "none",
        "whether clients show a certificate: `none`, `optional` or `required`. Its name is a user",
        choices=CLIENTS,
    )
    tls_client_crl: str = setting("", "the authority's list of those that it has revoked; empty for none")

    @property
    def asks(self) -> bool:
        """Whether clients have to log in."""
        return bool(self.password_file or self.jwt_key_file) or self.tls_clients != "none"

    def check_access(self, host: str, peer_can: str) -> None:
        """Raises ``InvalidConfig`` for settings that do not fit each other, and for a port beyond loopback that asks
        for no login."""
        check_bounds(self)
        check_algorithms(self.jwt_algorithms)
        if self.tls_clients != "none" and not (self.tls_client_ca and self.tls_certificate):
            raise InvalidConfig(
                f"tls_clients is {self.tls_clients!r}, and nothing says whose certificates count",
                hint="set tls_certificate, and tls_client_ca to the authority's certificate",
            )
        if (self.tls_key or self.tls_client_ca) and not self.tls_certificate:
            raise InvalidConfig("tls_key and tls_client_ca need a tls_certificate")
        if self.acl_file and not self.asks:
            raise InvalidConfig(
                "acl_file has rules about users, but no client has to log in",
                hint="set password_file, jwt_key_file or tls_clients",
            )
        if not self.asks:
            refuse_exposed("host", host, self.insecure, peer_can, hint=ways_out("host", _USERS))

    def check_clear(self, host: str) -> None:
        """Raises ``InvalidConfig`` for an HTTP port beyond loopback where passwords would travel in clear text."""
        if self.asks and not (self.tls_certificate or self.insecure or is_loopback(host)):
            raise InvalidConfig(
                f"host is {host!r}: passwords and tokens would travel in clear text there", hint=_CLEAR_MENDED
            )

    def check_pages(self, setting: str, host: str) -> None:
        """Raises ``InvalidConfig`` for status pages beyond loopback where there are neither users and a certificate nor
        ``insecure``. ``setting``: the name of the one that holds ``host``."""
        if not self.guards_pages(host):
            refuse_exposed(setting, host, self.insecure, PAGES, hint=ways_out(setting, _PAGES_LOGIN))

    def guards_pages(self, host: str) -> bool:
        """Whether status pages there speak TLS and ask for a login. On loopback they do neither: probes and scrapers of
        the machine itself need no secrets."""
        return self.asks and bool(self.tls_certificate) and not (self.insecure or is_loopback(host))

    def token_rules(self) -> TokenRules:
        """The rules for tokens."""
        return TokenRules(self.jwt_algorithms, self.jwt_audience, self.jwt_issuer)

    @property
    def shown(self) -> tuple[str, str]:
        """The files of the certificate and the key that this service shows to other services."""
        return self.tls_certificate, self.tls_key

    def tls_files(self) -> Files | None:
        """The files of TLS; None without TLS."""
        if not self.tls_certificate:
            return None
        return Files(self.tls_certificate, self.tls_key, self.tls_client_ca, self.tls_clients, self.tls_client_crl)


_CLEAR_MENDED: Final = (
    "set tls_certificate, or, in a network of trusted machines or behind a proxy that speaks HTTPS, insecure = true"
)
_USERS: Final = 'make a user with `penstock user add NAME --file users`, and set password_file = "users"'
_PAGES_LOGIN: Final = (
    "set password_file (or jwt_key_file) and tls_certificate, and the pages ask for a login with the right `view *`"
)
