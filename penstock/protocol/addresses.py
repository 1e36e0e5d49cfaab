"""Server addresses as people write them: ``host:port``, several separated by commas, IPv6 in brackets; and the errors
for an address that does not answer or cannot be listened at.

Pure. An address is kept as text, the form in which routes carry it, and split only to connect.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.errors import AddressInUse, InvalidConfig, PenstockError, Unavailable

_EXAMPLE: Final = "write host:port, for example 127.0.0.1:9876"
SERVERS: Final = "127.0.0.1:9876"
"""Name server of a client that names none: where ``penstock up`` listens."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6]:port``. Raises ``InvalidConfig``."""
    if not isinstance(address, str):
        raise InvalidConfig(f"a server address is a str, not {address!r:.100}", hint=_EXAMPLE)
    scheme, slashes, _ = address.partition("://")
    if slashes:
        hint = f"write host:port without {scheme.strip()}://, for example 127.0.0.1:9876"
        raise InvalidConfig(f"{address!r} is no server address", hint=hint)
    host, colon, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidConfig(f"{address!r} is no server address", hint="write an IPv6 address as [::1]:9876")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise InvalidConfig(f"{address!r} is no server address", hint=_EXAMPLE)
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """The address of a host and port, as ``split_address`` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, so that bytes for it cannot leave the machine. A name counts only if it is
    ``localhost``: what another means is decided elsewhere, and may change."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def parse_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """Addresses of ``"a:1,b:2"`` or of a list of them, checked, each once, in order. Raises ``InvalidConfig``."""
    given: object = servers.split(",") if isinstance(servers, str) else servers
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise InvalidConfig(f"servers are addresses, not {given!r:.100}", hint=_EXAMPLE)
    addresses = [part.strip() if isinstance(part, str) else part for part in given]
    addresses = [address for address in addresses if address != ""]
    if not addresses:
        raise InvalidConfig("no server address given", hint=_EXAMPLE)
    for address in addresses:
        split_address(address)
    return tuple(dict.fromkeys(addresses))


def no_server(address: str, error: OSError) -> Unavailable:
    """The error for a connection that could not be made: which address was tried, what happened, what to do."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    refused = cause.errno == errno.ECONNREFUSED
    reason = "connection refused" if refused else cause.strerror or str(cause) or type(cause).__name__
    return Unavailable(f"no server at {address}: {reason}", hint="is it running? `penstock up` starts one")


def no_name_server(address: str) -> InvalidConfig:
    """The error for an address where another kind of server answers."""
    hint = "give the address of a name server, not that of a broker, a gateway or a health page"
    return InvalidConfig(f"{address} is no Penstock name server (usual port 9876)", hint=hint)


def nobody_answers(failures: Sequence[PenstockError]) -> PenstockError:
    """The error when no name server answers: what each failed with, or that none of them is one."""
    if all(isinstance(error, InvalidConfig) for error in failures):
        return failures[0]
    reasons = "; ".join(error.message for error in failures)
    hint = "is one running? `penstock up` starts one; a gateway's port is not its own, and one with TLS needs `--tls`"
    return Unavailable(f"no name server answers: {reasons}", hint=hint)


def lost(address: str, reason: str, hint: str = "") -> Unavailable:
    """The error for a connection that ended with requests on their way: the outcome of writes is unknown."""
    return Unavailable(f"the connection to {address} was lost: {reason}", hint=hint).with_fate(True)


CHOOSE_PORT: Final[Mapping[str, str]] = {
    "the broker": "--broker-port of `penstock up`, or `port` under [broker]",
    "the name server": "--namesrv-port of `penstock up`, or `port` under [namesrv]",
    "the gateway": "--mqtt-port of `penstock up`, or `port` under [gateway]",
    "the status pages": "--http-port of `penstock up`, or `status_port` of a service that runs alone",
}
"""How to choose the port of each server; of further listeners of a gateway it stands in their own lines."""
SOME_SERVER: Final = "this server"


def cannot_listen(host: str, port: int, error: OSError | UnicodeError, who: str = SOME_SERVER) -> PenstockError:
    """The error when a server, ``who``, cannot listen on an address: ``AddressInUse`` where the port is taken, also
    when that is one of several causes, else ``InvalidConfig``. A ``UnicodeError`` is of a host that is no name."""
    if isinstance(error, UnicodeError):
        return InvalidConfig(f"{who} cannot listen on {join_address(host, port)}: {host!r} is no host name")
    causes = {error.errno, *(getattr(one, "errno", None) for one in getattr(error.__cause__, "exceptions", ()))}
    if errno.EADDRINUSE in causes:
        option = CHOOSE_PORT.get(who, "in the line of the listener")
        hint = f"end the server that holds it, or choose another port: {option}"
        return AddressInUse(f"{join_address(host, port)} is already in use: {who} cannot listen there", hint=hint)
    return InvalidConfig(f"{who} cannot listen on {join_address(host, port)}: {error.strerror or error}")
