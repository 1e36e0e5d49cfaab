from __future__ import annotations

import ipaddress
from functools import partial

import h11
import pytest
import trio
import trio.testing

from events.addresses import AllowedAddresses
from events.connecting import Connector, HostNames, Place, TargetConnections
from events.delivery import Failed

HERE = Connector(AllowedAddresses(["127.0.0.1/32"]))


class Turning:
    """A name with addresses, of which each question takes the next."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    async def look_up(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return [self.addresses.pop(0)]


@pytest.mark.endtoend
async def test_the_address_that_was_judged_is_the_one_that_is_connected_to() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    name = Turning("127.0.0.1", "10.0.0.1")
    connector = Connector(AllowedAddresses(["127.0.0.1/32"]), name.look_up)
    stream = await connector.connect(Place("turning.example", port, False))
    assert isinstance(stream, trio.SocketStream)
    assert stream.socket.getpeername() == ("127.0.0.1", port)
    assert name.asked == ["turning.example"]
    await stream.aclose()
    await listeners[0].aclose()


async def test_a_name_that_turns_to_a_private_address_is_refused() -> None:
    with pytest.raises(Failed, match=r"at 10\.0\.0\.1") as caught:
        await Connector(AllowedAddresses(), Turning("10.0.0.1").look_up).connect(Place("turning.example", 80, False))
    assert caught.value.is_final


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("::ffff:127.0.0.1", "::ffff:7f00:1"),
    ],
)
async def test_an_address_is_judged_however_it_is_written(host: str, address: str) -> None:
    found = await HostNames().addresses_of(host, 80)
    assert [ipaddress.ip_address(one) for one in found] == [ipaddress.ip_address(address)]
    with pytest.raises(Failed, match="private_targets"):
        await Connector(AllowedAddresses()).connect(Place(host, 80, False))


async def ask(connections: TargetConnections, port: int, body: bytes = b"x") -> int:
    headers = [("host", "x"), ("content-length", str(len(body)))]
    place = Place("127.0.0.1", port, False)
    return (await connections.exchange(place, "POST", "/", headers, body, 1_000)).status


@pytest.mark.endtoend
async def test_a_connection_whose_answer_was_read_is_used_again_until_the_other_end_closes_it() -> None:
    served: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        served.append(0)
        while await stream.receive_some():
            served[-1] += 1
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            if served[-1] == 3:
                return

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        connections = TargetConnections(HERE)
        port = listener.socket.getsockname()[1]
        for _ in range(3):
            assert await ask(connections, port) == 200
        await trio.testing.wait_all_tasks_blocked()
        assert await ask(connections, port) == 200
        assert served == [3, 1]
        await connections.close()
        nursery.cancel_scope.cancel()


@pytest.mark.endtoend
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"SSH-2.0-OpenSSH\r\n",
    ],
)
async def test_what_is_no_answer_is_an_error_and_nothing_is_kept(answer: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        connections = TargetConnections(HERE)
        for _ in range(2):
            with pytest.raises(h11.RemoteProtocolError):
                await ask(connections, listener.socket.getsockname()[1])
        nursery.cancel_scope.cancel()


@pytest.mark.endtoend
async def test_an_answer_that_comes_before_all_was_sent_counts_and_of_a_long_one_little_is_read() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(10)
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 10000000000\r\n\r\n" + b"x" * 2_000)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        assert await ask(TargetConnections(HERE), listener.socket.getsockname()[1]) == 413
        nursery.cancel_scope.cancel()
