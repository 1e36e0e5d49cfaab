"""The HTTP servers of services: the console, the event bridge and the status pages, ASGI applications on hypercorn.

With certificates a server speaks TLS alone, and a new connection gets the newest context, so that renewed files count
without a restart, as at all other ports. Which certificate the client of a request has shown, ``shown_certificate``
says: hypercorn does not tell its applications, but the tasks of a connection inherit the context variable that was set
when the connection was accepted.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from penstock.service.certificates import Certificates, name_of

HTTP: Final = "http/1.1"
"""The protocol that ALPN agrees on."""
HANDSHAKE_S: Final = 10.0
_within: Final[ContextVar[ssl.SSLObject | None]] = ContextVar("the TLS of this connection", default=None)


class HttpLimits(NamedTuple):
    """Limits of a server.

    Attributes:
        idle_s: after this long without a byte a connection ends.
        head_bytes_max: of a request's head that is incomplete.
        stop_s: the time that requests have to end in.
    """

    idle_s: float
    head_bytes_max: int = 64 * 1024
    stop_s: float = 0.5


async def serve_http(
    app: Any,
    listening: socket.socket,
    certificates: Certificates | None,
    log: logging.Logger,
    limits: HttpLimits,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves an ASGI application until cancelled.

    Args:
        app: the application.
        listening: its socket, which is closed at the end.
        certificates: of TLS; None for none.
        log: gets the server's errors.
        limits: of its connections.
    """
    config = _TlsConfig.from_mapping(
        certificates=certificates,
        bind=[f"fd://{listening.detach()}"],  # hypercorn owns and closes it from here on
        accesslog=None,
        errorlog=log,
        alpn_protocols=[HTTP],
        h11_max_incomplete_size=limits.head_bytes_max,
        keep_alive_timeout=limits.idle_s,
        read_timeout=int(limits.idle_s),
        graceful_timeout=limits.stop_s,
        include_server_header=False,
        ssl_handshake_timeout=HANDSHAKE_S,
    )
    await serve(app, config, task_status=task_status)


def shown_certificate() -> tuple[str, float]:
    """The name in the certificate that the client of this request has shown and TLS has checked, and when it ends, in
    seconds since 1970; empty and infinite without one."""
    within = _within.get()
    shown = within.getpeercert() if within is not None else None
    ends_s = ssl.cert_time_to_seconds(str(shown["notAfter"])) if shown else math.inf
    return name_of(shown) or "", ends_s


class _TlsConfig(Config):
    """hypercorn's settings, with our certificates in place of paths."""

    certificates: Certificates | None = None

    @property
    def ssl_enabled(self) -> bool:
        return self.certificates is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return None if self.certificates is None else cast(ssl.SSLContext, _NewestContext(self.certificates))


class _NewestContext:
    """The one method of a context that trio calls for each connection that it accepts."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        within = self._certificates.context.wrap_bio(*given, **named)
        _within.set(within)
        return within
