from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpcore
import pytest
import trio

from events.addresses import AllowedAddresses
from events.connecting import CheckedBackend, TargetConnections
from events.delivery import Failed
from tests.events.sink import Sink


class Resolver(trio.abc.HostnameResolver):
    """Names with addresses, of which each question takes the next."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[Any] = []

    async def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        self.asked.append(host)
        return [(2, 1, 6, "", (self.addresses.pop(0), int(port)))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


@pytest.mark.endtoend
async def test_the_address_that_was_judged_is_the_one_that_is_connected_to() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    resolver = Resolver("127.0.0.1", "10.0.0.1")
    trio.socket.set_custom_hostname_resolver(resolver)
    stream = await CheckedBackend(AllowedAddresses(["127.0.0.1/32"])).connect_tcp("turning.example", port)
    assert stream.get_extra_info("server_addr") == ("127.0.0.1", port)
    assert resolver.asked == [b"turning.example"]
    await stream.aclose()
    await listeners[0].aclose()


async def test_a_name_that_turns_to_a_private_address_is_refused() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver("10.0.0.1"))
    with pytest.raises(Failed, match=r"at 10\.0\.0\.1") as caught:
        await CheckedBackend(AllowedAddresses()).connect_tcp("turning.example", 80)
    assert caught.value.is_final


@pytest.mark.endtoend
async def test_a_connection_whose_answer_was_read_is_used_again(sink: Callable[..., Sink]) -> None:
    api = sink()
    connections = TargetConnections(CheckedBackend(AllowedAddresses(["127.0.0.1/32"])))
    used = []
    for _ in range(3):
        request = httpcore.Request("POST", api.url, headers=[(b"host", b"x"), (b"content-length", b"0")])
        async with connections.exchange(request) as response:
            used.append(response.extensions["network_stream"].get_extra_info("client_addr"))
            await response.aread()
    assert len(set(used)) == 1
    await connections.close()
