"""Connections to HTTP targets: a name is resolved once, and only an address that was judged is connected to.

So a name that turns to another address between the check and the connection changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import httpcore
import trio

from events.addresses import AllowedAddresses
from events.delivery import Failed

ADDRESSES_MAX: Final = 4


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
