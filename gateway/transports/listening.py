"""Listeners as the operator writes them: one line each.

KIND HOST:PORT [OPTION=VALUE ...]

``KIND`` is ``tcp``, ``tls``, ``ws`` or ``wss``. Pure: files that a line names are read elsewhere
(``penstock/service/certificates.py``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import InvalidConfig
from penstock.service.certificates import Files
from topicmap.names import InvalidName, check_name

KINDS: Final = ("tcp", "tls", "ws", "wss")
CLIENTS: Final = ("none", "optional", "required")
ANONYMOUS: Final = ("nobody", "loopback", "everyone")
OVER_RECEIVE_MAX: Final = ("close", "take")
DEFAULT_NAME: Final = "tcp"
"""The listener that ``host`` and ``port`` of the gateway's settings make."""
MOUNT_BYTES_MAX: Final = 1024
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_FORM: Final = "it is: tcp|tls|ws|wss HOST:PORT [OPTION=VALUE ...]"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Listening:
    """One listener.

    Attributes:
        name: its name. kind, host, port: the protocol and the address; port 0 takes any free one.
        files: of TLS, ``None`` where that is not spoken. path, origins: of WebSocket: where it is, and the pages that
        may open it (all if none is named). proxies: networks of load balancers that say in front of each connection
        where it comes from; no other address may then connect. connections_max: how many may be at this listener, 0 for
        as many as at the gateway. is_lenient: whether clients may exceed their Receive Maximum. anonymous: which
        clients may come without credentials (``ANONYMOUS``); empty: as the gateway's setting says. mount: the prefix of
        every name and filter of its clients, with a slash at its end; empty for nothing.
    """

    name: str
    kind: str
    host: str
    port: int
    files: Files | None = None
    path: str = "/mqtt"
    origins: tuple[str, ...] = ()
    proxies: tuple[Network, ...] = ()
    connections_max: int = 0
    is_lenient: bool = False
    anonymous: str = ""
    mount: str = ""

    @property
    def is_web(self) -> bool:
        return self.kind in ("ws", "wss")

    @property
    def is_plain(self) -> bool:
        """Whether MQTT goes over the socket as it is."""
        return self.kind == "tcp" and not self.proxies


def parse_listeners(lines: Sequence[str]) -> list[Listening]:
    """All lines. Raises ``InvalidConfig`` for one that is none, and for two of one name."""
    found = [parse_listener(line) for line in lines]
    names = [DEFAULT_NAME, *(one.name for one in found)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"two listeners have the name {name!r}", hint="give one of them name=ANOTHER")
    return found


def anonymous_at(lines: Sequence[str]) -> dict[str, str]:
    """Who may come without credentials at those listeners that say so, by name."""
    return {one.name: one.anonymous for one in parse_listeners(lines) if one.anonymous}


def parse_listener(line: str) -> Listening:
    """One line. Raises ``InvalidConfig``."""
    words = line.split()
    if len(words) < 2 or words[0] not in KINDS or "," in line:
        raise InvalidConfig(f"listener {line!r} cannot be read", hint=_FORM)
    kind = words[0]
    host, port = _place(line, words[1])
    options: dict[str, list[str]] = {}
    for word in words[2:]:
        name, equals, value = word.partition("=")
        if not equals or not value or name not in _known(kind):
            raise InvalidConfig(
                f"listener {line!r}: {word!r} is no option of {kind}", hint=f"there are {', '.join(_known(kind))}"
            )
        options.setdefault(name, []).append(value)
    single = {name: values[-1] for name, values in options.items() if name not in ("proxy", "origin")}
    for name in single:
        if len(options[name]) > 1:
            raise InvalidConfig(f"listener {line!r}: {name} stands there twice")
    name = single.get("name", kind)
    path = single.get("path", "/mqtt")
    most = single.get("connections_max", "0")
    if not _NAME.fullmatch(name):
        raise InvalidConfig(f"listener {line!r}: the name {name!r} is not of a-z 0-9 _ -")
    if not path.startswith("/") or not path.isascii():
        raise InvalidConfig(f"listener {line!r}: the path is {path!r}", hint="for example path=/mqtt")
    if not (most.isascii() and most.isdigit()):
        raise InvalidConfig(f"listener {line!r}: connections_max is {most!r}, no whole number")
    files = _files(line, single) if kind in ("tls", "wss") else None
    origins, proxies = options.get("origin", ()), [_network(line, one) for one in options.get("proxy", ())]
    return Listening(
        name,
        kind,
        host,
        port,
        files,
        path,
        tuple(origins),
        tuple(proxies),
        int(most),
        is_lenient=_one_of(line, single, "over_receive_max", OVER_RECEIVE_MAX) == "take",
        anonymous=_one_of(line, single, "anonymous", ANONYMOUS),
        mount=_mount(line, single.get("mount", "")),
    )


def _known(kind: str) -> list[str]:
    known = ["name", "connections_max", "over_receive_max", "anonymous", "mount", "proxy"]
    if kind in ("tls", "wss"):
        known += ["certificate", "key", "client_ca", "clients", "client_crl"]
    if kind in ("ws", "wss"):
        known += ["path", "origin"]
    return known


def _place(line: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidConfig(f"listener {line!r}: {text!r} is no address", hint="write an IPv6 address as [::]:8883")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidConfig(f"listener {line!r}: {text!r} is no address", hint="for example 0.0.0.0:8883")
    return host, int(port)


def _files(line: str, options: dict[str, str]) -> Files:
    if "certificate" not in options:
        raise InvalidConfig(f"listener {line!r} has no certificate", hint="certificate=FILE (PEM, with its chain)")
    authority = options.get("client_ca", "")
    clients = options.get("clients", "required" if authority else "none")
    if clients not in CLIENTS:
        raise InvalidConfig(f"listener {line!r}: clients is {clients!r}", hint=f"it is one of {', '.join(CLIENTS)}")
    if (clients != "none") != bool(authority):
        raise InvalidConfig(f"listener {line!r}: client_ca and clients need each other")
    if "client_crl" in options and not authority:
        raise InvalidConfig(f"listener {line!r}: client_crl needs client_ca", hint="whose list of revocations is it?")
    return Files(options["certificate"], options.get("key", ""), authority, clients, options.get("client_crl", ""))


def _one_of(line: str, options: dict[str, str], option: str, values: Sequence[str]) -> str:
    """The value of an option that has one of these, empty where it is not given."""
    value = options.get(option, "")
    if value and value not in values:
        raise InvalidConfig(f"listener {line!r}: {option} is {value!r}", hint=f"it is one of {', '.join(values)}")
    return value


def _mount(line: str, text: str) -> str:
    """The levels of a mount point, with a slash behind them."""
    levels, hint = text.strip("/"), "for example mount=plants/a"
    try:
        if text:
            check_name(levels)
    except InvalidName as error:
        raise InvalidConfig(f"listener {line!r}: mount: {error}", hint=hint) from None
    if text.startswith(("$", "/")):
        raise InvalidConfig(f"listener {line!r}: a mount does not begin with {text[0]}", hint=hint)
    if len(levels.encode()) > MOUNT_BYTES_MAX:
        raise InvalidConfig(f"listener {line!r}: a mount has at most {MOUNT_BYTES_MAX} bytes", hint=hint)
    return f"{levels}/" if text else ""


def _network(line: str, text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise InvalidConfig(f"listener {line!r}: {text!r} is no network", hint="for example proxy=10.0.0.0/8") from None


def is_among(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address belongs to one of the networks; what is no address does not."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)
