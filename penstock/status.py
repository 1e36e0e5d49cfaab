"""The status port: ``/livez``, ``/readyz``, ``/healthz`` and ``/metrics`` over HTTP.

An ASGI application, served by hypercorn in trio. It only reads: GET and HEAD, no body is looked at, nothing is kept
between requests. What it shows comes from two functions of its caller, each with a deadline, so that a page never
hangs: ``figures`` (a mapping of numbers) and ``reasons`` (why the system cannot serve, none if it can).

``/livez`` says that the event loop turns, ``/readyz`` is 503 while there is a reason not to send traffic here, and
``/healthz`` always answers 200 with the reasons as JSON, because degraded is not down: there a figure may be a reason
too, where much is still served.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from penstock import metrics
from penstock.addresses import cannot_listen, join_address
from penstock.errors import PenstockError
from penstock.troubles import troubles_of

ANSWER_S: Final = 5.0
"""How long figures and reasons may take."""
REQUEST_BYTES_MAX: Final = 16 * 1024
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


class StatusPages:
    """The ASGI application."""

    def __init__(self, figures: Figures, reasons: Reasons) -> None:
        self._figures = figures
        self._reasons = reasons

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
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _page(self, scope: Mapping[str, Any]) -> _Page:
        if scope["method"] not in ("GET", "HEAD"):
            return _Page(405, _TEXT, "only GET and HEAD are served here\n")
        match scope["path"]:
            case "/livez":
                return _Page(200, _TEXT, "ok\n")
            case "/readyz":
                reasons = await self._read_reasons()
                return _Page(503 if reasons else 200, _TEXT, "\n".join(reasons or ("ok",)) + "\n")
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
        return _Page(200, kind, metrics.expose(figures, openmetrics=openmetrics))

    async def _look_for_troubles(self, found: list[str]) -> None:
        with trio.move_on_after(ANSWER_S), contextlib.suppress(PenstockError):
            figures = await self._figures()
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


def _reason(error: Exception) -> str:
    return f"no answer within {ANSWER_S:g} s" if isinstance(error, trio.TooSlowError) else str(error)


async def _live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises ``AddressInUse`` or ``InvalidConfig``. An empty host, which
    ``bind`` would take for every interface, is no host, as with all servers."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except (OSError, UnicodeError) as error:
        listening.close()
        raise cannot_listen(host, port, error) from None
    return listening


async def serve_status(
    host: str,
    port: int,
    figures: Figures,
    reasons: Reasons,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves the status pages until cancelled; reports its address ("host:port") once it accepts.

    Raises:
        AddressInUse: the port is taken.
        InvalidConfig: the host is no address of this machine, or the port needs rights that we do not have.
    """
    listening = open_socket(host, port)
    address = join_address(*listening.getsockname()[:2])
    config = Config()
    config.bind = [f"fd://{listening.detach()}"]  # hypercorn owns and closes it from here on
    config.accesslog = None
    config.errorlog = _log
    config.h11_max_incomplete_size = REQUEST_BYTES_MAX
    config.keep_alive_timeout = IDLE_S
    config.read_timeout = int(IDLE_S)
    config.graceful_timeout = 0.5
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, StatusPages(figures, reasons), config)
        task_status.started(address)
