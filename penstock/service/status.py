"""The status port: ``/livez``, ``/readyz``, ``/healthz`` and ``/metrics`` over HTTP.

An ASGI application. It reads and keeps nothing: GET and HEAD, no bodies. ``figures`` and ``reasons`` (why the system
cannot serve) have a deadline each. ``/livez``: the event loop turns. ``/readyz``: 503 while there is a reason.
``/healthz``: always 200, with the reasons as JSON, and figures that are a reason. The Host header must name this
machine, or a web page could read the pages through a name that it had resolved to here (DNS rebinding). With users
``/healthz`` and ``/metrics`` take the right to view, and ``/readyz`` does not say why (decision 98).
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from penstock.access.acl import VIEW
from penstock.errors import PenstockError
from penstock.protocol.addresses import SOME_SERVER, cannot_listen, join_address
from penstock.service import metrics
from penstock.service.access_files import AccessFiles
from penstock.service.access_settings import AccessSettings
from penstock.service.http_logins import HttpLogins
from penstock.service.http_server import HTTP, HttpLimits, serve_http
from penstock.service.troubles import clock_troubles_of, troubles_of
from penstock.world import World

ANSWER_S: Final = 5.0
"""How long figures and reasons may take."""
REQUEST_BYTES_MAX: Final = 16 * 1024
"""Of a request's line and headers, without what separates them."""
_INCOMPLETE_BYTES_MAX: Final = 64 * 1024  # h11 holds it against what a chunk leaves incomplete: not the same limit
ANY_HOST: Final = "*"
IDLE_S: Final = 5.0

Figures = Callable[[], Awaitable[Mapping[str, float]]]
Reasons = Callable[[], Awaitable[Sequence[str]]]

_ZERO: Final = re.compile(rb"q=0(\.0*)?")
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_INDEX: Final = "/livez\n/readyz\n/healthz\n/metrics\n"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Page:
    status: int
    kind: str
    text: str
    challenge: str = ""


class _Refusal(Exception):
    """A request whose login is missing or wrong, or is not enough."""

    def __init__(self, status: int, _code: str, detail: str, *, challenge: str = "", hint: str = "") -> None:
        super().__init__(detail)
        self.page = _Page(status, _TEXT, f"{detail}\n" + (f"{hint}\n" if hint else ""), challenge)


class StatusPages:
    """The ASGI application. ``hosts``: names that a Host header may have beside this machine's own, ``*`` for any.
    ``access``: the users and rules; None without logins."""

    def __init__(
        self, figures: Figures, reasons: Reasons, hosts: Sequence[str] = (), access: AccessFiles | None = None
    ) -> None:
        self._logins = HttpLogins(access, _Refusal, takes_clear=False) if access is not None else None
        self._figures = figures
        self._reasons = reasons
        self._hosts = frozenset(host_of(one) for one in hosts)

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":  # a WebSocket: refused before it opens
            await send({"type": "websocket.close"})
            return
        page = await self._page(scope)
        body = page.text.encode()
        headers = [
            (b"content-type", page.kind.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if page.challenge:
            headers.append((b"www-authenticate", page.challenge.encode()))
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _page(self, scope: Mapping[str, Any]) -> _Page:
        if _size_of(scope) > REQUEST_BYTES_MAX:
            return _Page(431, _TEXT, f"a request has at most {REQUEST_BYTES_MAX} bytes\n")
        if not is_here(scope, self._hosts):
            return _Page(
                421, _TEXT, "this host is not served here: the setting status_hosts (http_hosts) lists others\n"
            )
        if scope["method"] not in ("GET", "HEAD"):
            return _Page(405, _TEXT, "only GET and HEAD are served here\n")
        match scope["path"]:
            case "/livez":
                return _Page(200, _TEXT, "ok\n")
            case "/readyz":
                reasons = await self._read_reasons()
                told = reasons if self._logins is None or not reasons else ("not ready",)
                return _Page(503 if reasons else 200, _TEXT, "\n".join(told or ("ok",)) + "\n")
        if self._logins is not None:
            try:
                self._logins.check(scope, await self._logins.identity_of(scope), VIEW)
            except _Refusal as refused:
                return refused.page
        return await self._figured(scope)

    async def _figured(self, scope: Mapping[str, Any]) -> _Page:
        """The pages that tell how the service does."""
        match scope["path"]:
            case "/healthz":
                troubles: list[str] = []
                async with trio.open_nursery() as nursery:  # so that both have one deadline, not two
                    nursery.start_soon(self._look_for_troubles, troubles)
                    reasons = [*await self._read_reasons()]
                reasons += troubles
                state = {"status": "degraded" if reasons else "ok", "reasons": reasons}
                return _Page(200, _JSON, json.dumps(state) + "\n")
            case "/metrics":
                return await self._metrics(dict(scope["headers"]).get(b"accept", b""))
        return _Page(404, _TEXT, "there is no such page; there are\n" + _INDEX)

    async def _metrics(self, accept: bytes) -> _Page:
        try:
            with trio.fail_after(ANSWER_S):
                figures = await self._figures()
        except (PenstockError, trio.TooSlowError) as error:
            return _Page(503, _TEXT, f"the figures cannot be read: {_reason(error)}\n")
        openmetrics = _takes(accept, b"application/openmetrics-text")
        kind = metrics.OPENMETRICS if openmetrics else metrics.PROMETHEUS
        parts: list[str] = []
        for part in metrics.expose_in_parts(figures, openmetrics=openmetrics):
            parts.append(part)
            await trio.lowlevel.checkpoint()
        return _Page(200, kind, "".join(parts))

    async def _look_for_troubles(self, found: list[str]) -> None:
        with trio.move_on_after(ANSWER_S), contextlib.suppress(PenstockError):
            figures = await self._figures()
            found += clock_troubles_of(figures)
            found += [f"broker: {trouble}" for trouble in troubles_of(figures)]

    async def _read_reasons(self) -> Sequence[str]:
        try:
            with trio.fail_after(ANSWER_S):
                return await self._reasons()
        except (PenstockError, trio.TooSlowError) as error:
            return (_reason(error),)


def _takes(accept: bytes, kind: bytes) -> bool:
    """Whether a request's Accept names this kind and does not refuse it (RFC 9110, 12.4.2)."""
    for one in accept.lower().split(b","):
        name, *options = [part.strip() for part in one.split(b";")]
        if name == kind:
            return not any(_ZERO.fullmatch(option) for option in options)
    return False


def is_here(scope: Mapping[str, Any], hosts: Collection[str]) -> bool:
    """Whether the Host header of an ASGI request is one of the allowed ``hosts``, a loopback name, or the address that
    the connection came to, which no name of a web page can be. HTTP/1.0, which no browser speaks, may have none."""
    given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    host, at = host_of(given), (scope.get("server") or ("",))[0]
    return not given or ANY_HOST in hosts or host in hosts or is_own(host, at or "")


def host_of(text: str) -> str:
    """The host in a Host header or setting, without port, brackets and a dot at its end, in lower case."""
    host, colon, port = text.strip().lower().rpartition(":")
    if not colon or not (port == "" or (port.isascii() and port.isdigit())) or (":" in host and host[-1] != "]"):
        host = text.strip().lower()
    return host.removeprefix("[").removesuffix("]").removesuffix(".")


def is_own(host: str, at: str) -> bool:
    """Whether a host is a loopback name, or the address ``at`` itself."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
        return address.is_loopback or address == ipaddress.ip_address(at.partition("%")[0])
    except ValueError:
        return False


def _size_of(scope: Mapping[str, Any]) -> int:
    """About how many bytes the head of a request has, whatever the chunks in which it came."""
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return target + sum([len(name) + len(value) + 4 for name, value in scope["headers"]])


def _reason(error: Exception) -> str:
    return f"no answer within {ANSWER_S:g} s" if isinstance(error, trio.TooSlowError) else str(error)


async def _live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def open_socket(host: str, port: int, who: str = SOME_SERVER) -> socket.socket:
    """A listening socket of a server, ``who``; port 0 takes any free one. An empty host, which ``bind`` would take for
    every interface, is no host, as with all servers. Raises ``AddressInUse`` or ``InvalidConfig``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except (OSError, UnicodeError) as error:
        listening.close()
        raise cannot_listen(host, port, error, who) from None
    return listening


def pages_access(settings: object, host: str, world: World) -> AccessFiles | None:
    """The users and certificates of the status pages of a service with these settings; None where the pages ask for no
    login. Raises ``InvalidConfig``."""
    if isinstance(settings, AccessSettings) and settings.guards_pages(host):
        return AccessFiles(settings, world, None, HTTP, "the status pages")
    return None


async def serve_status(
    host: str,
    port: int,
    figures: Figures,
    reasons: Reasons,
    hosts: Sequence[str] = (),
    access: AccessFiles | None = None,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves the status pages until cancelled; reports its address ("host:port") once it accepts. ``hosts``,
    ``access``: those of ``StatusPages``; with ``access`` they speak the TLS of its certificates.

    Raises:
        AddressInUse: the port is taken.
        InvalidConfig: the host is no address of this machine, or the port needs rights that we do not have.
    """
    listening = open_socket(host, port, "the status pages")
    address = join_address(*listening.getsockname()[:2])
    pages = StatusPages(figures, reasons, hosts, access)
    certificates = access.certificates if access is not None else None
    limits = HttpLimits(IDLE_S, _INCOMPLETE_BYTES_MAX)
    async with trio.open_nursery() as nursery:
        if access is not None:
            nursery.start_soon(access.run)
        await nursery.start(partial(serve_http, pages, listening, certificates, _log, limits))
        task_status.started(address)
