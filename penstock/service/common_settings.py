"""The settings that several services have, each declared once."""

from __future__ import annotations

from typing import Final

from penstock.service.native_room import HELD_BYTES_MAX
from penstock.service.paced_lines import LOG_RATES
from penstock.service.setting import port_setting, setting

LEASE_S_MAX: Final = 600.0
"""The longest lease that a name server gives a broker."""
_HOSTS: Final = (
    "names that a Host header{of} may have beside `localhost`, loopback addresses and the address that the connection"
    " came to; `*` for any"
)


def host() -> str:
    """Where a service listens."""
    return setting("127.0.0.1", "address on which it listens")


def hosts(of: str = "") -> tuple[str, ...]:
    """The names that an HTTP port is called by."""
    return setting((), _HOSTS.format(of=of))


def status_host() -> str:
    """Where the status pages of a service are that runs alone."""
    return setting("127.0.0.1", "address of its status pages, if it runs alone")


def status_port() -> int:
    """Their port."""
    return port_setting(-1, "port of its status pages, if it runs alone; -1 for none, 0 for any free one", least=-1)


def status_hosts() -> tuple[str, ...]:
    """The names that they are called by."""
    return hosts(" of the status pages")


def peers_tls_ca(peers: str = "brokers and name servers, where these speak TLS") -> str:
    """Whom a service trusts when it connects."""
    return setting("", f"the authority of the certificates of {peers}")


def cluster_secret_file() -> str:
    """What services of one cluster know each other by."""
    return setting(
        "",
        "the key that services of one cluster prove to each other; empty for none",
        option="Key of the cluster: `penstock replica key` makes it.",
    )


def jwt_key_file() -> str:
    """What tokens are checked with."""
    return setting("", "the secret or public keys that tokens are checked with; empty for no tokens")


def jwt_algorithms() -> tuple[str, ...]:
    """How tokens may be signed."""
    return setting((), "by which tokens may be signed; empty for that of the key or its usual one")


def jwt_audience() -> str:
    """For whom tokens are."""
    return setting("", "the audience of tokens; empty: a token that names one is refused")


def jwt_issuer() -> str:
    """Who makes tokens."""
    return setting("", "the issuer of tokens; empty: any that has the key")


def namesrv() -> tuple[str, ...]:
    """The name servers that a service asks."""
    return setting(("127.0.0.1:9876",), "`host:port` of each name server")


def connection_log(of: str = " and failed TLS handshakes") -> str:
    """How many lines of connections there are in the log."""
    return setting(
        "sampled",
        f"lines in the log for connects and disconnects (level `info`){of} (`warning`): `off`, `sampled` (of each"
        " kind 1 a second, 10 at once), or `on` (50 and 1,000). A line says how many were left out before it",
        choices=tuple(LOG_RATES),
    )


def held_bytes_max() -> int:
    """What all connections of a native port may have the server hold."""
    return setting(
        HELD_BYTES_MAX,
        "maximum bytes that all connections together may have this server hold: once of incomplete requests, and once"
        " of replies that their peers have not read",
        above=0,
    )
