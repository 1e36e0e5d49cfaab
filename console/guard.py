"""Security checks of requests, and security headers of responses.

An ASGI application around another one. The Host header must name this machine (DNS rebinding). No page may load, send
or be framed by anything foreign, and no script or style may stand in a page (Content-Security-Policy).
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Any, Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.service.status import host_of, is_here

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),  # with no-referrer browsers send `Origin: null` with forms
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
TARGET_BYTES_MAX: Final = 16 * 1024
_SAFE: Final = ("GET", "HEAD")


class Guard:
    """The ASGI application. ``hosts``: names that a Host header may have beside this machine's own, ``*`` for any."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host_of(one) for one in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                known = {name for name, _ in headers}
                added = HEADERS if b"cache-control" in known else (*HEADERS, ("cache-control", "no-store"))
                message["headers"] = [*headers, *[(name.encode(), value.encode()) for name, value in added]]
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if not is_here(scope, self._hosts):
            return PlainTextResponse("this host is not served here: the setting hosts lists others\n", 421)
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > TARGET_BYTES_MAX:
            return PlainTextResponse("the address is too long\n", 414)
        if scope["method"] not in (*_SAFE, "POST"):
            return PlainTextResponse("only GET, HEAD and POST are served here\n", 405)
        if scope["method"] == "POST" and not _is_from_here(scope):
            return PlainTextResponse("a form of another site was refused\n", 403)
        return None


def _is_from_here(scope: Scope) -> bool:
    """Whether a form was sent by a page of this console, by the headers that browsers set. Other clients send neither
    header, and pass."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None and site != "same-origin":
        return False
    return origin is None or origin.partition("://")[2].lower() == headers.get(b"host", "").lower()
