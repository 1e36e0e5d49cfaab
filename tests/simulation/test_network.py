from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio

from tests.simulation.network import HOST, WINDOW_BYTES, SimSocket
from tests.simulation.running import Simulation, simulate

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"


async def listening(nursery: trio.Nursery, serve: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
    token = HOST.set(SERVER)
    listeners = await trio.open_tcp_listeners(7, host=SERVER)
    nursery.start_soon(trio.serve_listeners, serve, listeners)
    HOST.reset(token)
    HOST.set(CLIENT)


def within(scenario: Callable[[Simulation, trio.Nursery], Awaitable[None]]) -> None:
    async def whole(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            await scenario(simulation, nursery)
            nursery.cancel_scope.cancel()

    simulate(1, whole)


def test_bytes_arrive_whole_in_order_and_later_with_trio_and_anyio() -> None:
    sent = bytes(range(256)) * 2000

    async def echo(stream: trio.SocketStream) -> None:
        async for piece in stream:
            await stream.send_all(piece)
        await stream.aclose()

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        await listening(nursery, echo)
        stream = await trio.open_tcp_stream(SERVER, 7)
        nursery.start_soon(stream.send_all, sent)
        got = bytearray()
        while len(got) < len(sent):
            got += await stream.receive_some(1000)
        assert bytes(got) == sent
        assert trio.current_time() > 0
        async with await anyio.connect_tcp(SERVER, 7) as other:
            await other.send(b"hello")
            assert await other.receive() in (b"h", b"he", b"hel", b"hell", b"hello")

    within(scenario)


def test_a_receiver_that_does_not_read_stops_its_sender() -> None:
    async def ignore(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        await listening(nursery, ignore)
        stream = await trio.open_tcp_stream(SERVER, 7)
        socket = stream.socket
        assert isinstance(socket, SimSocket)
        with trio.move_on_after(100) as scope:
            await stream.send_all(bytes(2 * WINDOW_BYTES))
        assert scope.cancelled_caught
        assert socket._out.under_way == WINDOW_BYTES

    within(scenario)


def test_a_host_that_dies_resets_its_connections_and_refuses_new_ones() -> None:
    async def ignore(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        await listening(nursery, ignore)
        stream = await trio.open_tcp_stream(SERVER, 7)
        simulation.network.kill(SERVER)
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        with pytest.raises(ConnectionRefusedError):
            await trio.socket.socket().connect((SERVER, 7))

    within(scenario)


def test_a_cut_delays_what_is_sent_until_it_is_healed() -> None:
    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(b"hello")

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        await listening(nursery, greet)
        simulation.network.cut(SERVER, CLIENT)
        with trio.move_on_after(100) as scope:
            await trio.open_tcp_stream(SERVER, 7)
        assert scope.cancelled_caught
        simulation.network.heal(CLIENT, SERVER)
        stream: Any = await trio.open_tcp_stream(SERVER, 7)
        assert await stream.receive_some() == b"hello"[:5]

    within(scenario)


def test_an_address_is_taken_by_one_listener() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        HOST.set(SERVER)
        listeners = await trio.open_tcp_listeners(7, host=SERVER)
        with pytest.raises(OSError, match="in use"):
            await trio.open_tcp_listeners(7, host=SERVER)
        await listeners[0].aclose()
        await trio.open_tcp_listeners(7, host=SERVER)

    within(scenario)
