"""Connections to HTTP targets: a name is resolved once, and only an address that was judged is connected to.

So a name that has another address between the check and the connection changes nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpcore
import trio

from events.addresses import AllowedAddresses
from events.delivery import Failed

ADDRESSES_MAX: Final = 4
IDLE_MAX: Final = 64
"""Unused connections that are kept for each host and port."""
IDLE_S: Final = 20.0


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """The network as ``httpcore`` sees it. Raises ``Failed``, finally, where no address is allowed."""

    def __init__(self, allowed: AllowedAddresses) -> None:
        self._allowed = allowed
        self._trio = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's own name
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Failed(f"{host} cannot be resolved: {error}") from None
        addresses = list(dict.fromkeys([str(row[4][0]) for row in found]))
        allowed = [one for one in addresses if self._allowed.allows(one)][:ADDRESSES_MAX]
        if not allowed:
            told = ", ".join(addresses[:ADDRESSES_MAX])
            raise Failed(f"{host} is at {told}, which private_targets does not list", is_final=True)
        for at, address in enumerate(allowed):
            try:
                return await self._trio.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if at + 1 == len(allowed):
                    raise
        raise AssertionError("an address was there")

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise Failed(f"{path} is no HTTP target", is_final=True)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class TargetConnections:
    """Connections to targets, kept for the next request: the last one used is the next. ``httpcore``'s own pool
    looks at all of its connections for each request."""

    def __init__(self, backend: CheckedBackend) -> None:
        self._backend = backend
        self._context = ssl.create_default_context()
        self._idle: dict[str, list[httpcore.AsyncHTTPConnection]] = {}

    @asynccontextmanager
    async def exchange(self, request: httpcore.Request) -> AsyncIterator[httpcore.Response]:
        """The answer to a request, as far as its head; the block reads the body. The connection is kept if the body was
        read to its end."""
        connection = await self._taken(request.url.origin)
        try:
            response = await connection.handle_async_request(request)
            try:
                yield response
            finally:
                with trio.CancelScope(shield=True):
                    await response.aclose()
        finally:
            await self._put_back(connection, request.url.origin)

    async def _taken(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        idle = self._idle.get(str(origin), [])
        while idle:
            connection = idle.pop()
            if not connection.has_expired():
                return connection
            await _close(connection)
        return httpcore.AsyncHTTPConnection(
            origin, ssl_context=self._context, keepalive_expiry=IDLE_S, network_backend=self._backend
        )

    async def _put_back(self, connection: httpcore.AsyncHTTPConnection, origin: httpcore.Origin) -> None:
        idle = self._idle.setdefault(str(origin), [])
        if connection.is_idle() and len(idle) < IDLE_MAX:
            idle.append(connection)
        else:
            await _close(connection)

    async def close(self) -> None:
        """Closes what is kept."""
        for idle in self._idle.values():
            while idle:
                await _close(idle.pop())


async def _close(connection: httpcore.AsyncHTTPConnection) -> None:
    with trio.CancelScope(shield=True):
        await connection.aclose()
