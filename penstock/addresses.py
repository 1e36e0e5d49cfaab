"""Server addresses as people write them: ``host:port``, several separated by commas, IPv6 in brackets.

Pure. An address is kept as text, the form in which routes carry it, and split only to connect.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidConfig


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6]:port``. Raises ``InvalidConfig``."""
    host, colon, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidConfig(f"{address!r} is no server address", hint="write an IPv6 address as [::1]:9876")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise InvalidConfig(f"{address!r} is no server address", hint="write host:port, for example 127.0.0.1:9876")
    return host, int(port)


def parse_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """Addresses of ``"a:1,b:2"`` or of a list of them, checked, each once, in order. Raises ``InvalidConfig``."""
    given = servers.split(",") if isinstance(servers, str) else servers
    addresses = [part.strip() for part in given if part.strip()]
    if not addresses:
        raise InvalidConfig("no server address given", hint="write host:port, for example 127.0.0.1:9876")
    for address in addresses:
        split_address(address)
    return tuple(dict.fromkeys(addresses))
