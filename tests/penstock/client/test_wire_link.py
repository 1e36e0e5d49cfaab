"""The wire link when things go wrong: nobody there, lost connections, servers that come back, bytes that are no reply.

What it shares with the link in the same process is in test_link.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from penstock.client.retry import BackOff
from penstock.client.wire_link import WireLink, WireLinks, call
from penstock.errors import InvalidConfig, ProtocolError, TooLarge, Unavailable
from penstock.protocol import wire
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.messages import Append, Appended, Pull
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.frame_server import Peer
from tests.patience import PATIENCE_S

Run = Callable[..., Any]
QUICK = BackOff(0.001, 0.01)


class Service:
    """Answers Ping with the peer's address, keeps everything else for ever."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def submit(self, request: Request, on_result: OnResult) -> None:
        if isinstance(request, Ping):
            on_result(ServerInfo("s", self._peer.address, "1"))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


@asynccontextmanager
async def running(address: str) -> AsyncIterator[WireLink]:
    async with anyio.create_task_group() as tasks:
        link = WireLink(address, back_off=QUICK)
        tasks.start_soon(link.run)
        yield link
        tasks.cancel_scope.cancel()


@pytest.fixture
def scripted() -> Iterator[Callable[..., str]]:
    """A server that handles one connection after the other by the given functions."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def start(*scripts: Callable[[socket.socket], object]) -> str:
        def work() -> None:
            for script in scripts:
                connection, _ = listener.accept()
                with connection:
                    script(connection)

        threads.append(threading.Thread(target=work))
        threads[0].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    with listener:
        listener.settimeout(PATIENCE_S)
        yield start
        for thread in threads:
            thread.join(PATIENCE_S)


def answer(connection: socket.socket) -> None:
    frame = next(wire.FrameReader().receive(connection.recv(10_000)))
    connection.sendall(wire.join(wire.encode_reply(frame.request_id, ServerInfo("s", "again", "1"))))
    connection.recv(1)


async def until_answered(link: Link) -> ServerInfo:
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                reply = await call(link, Ping())
            except Unavailable:
                await anyio.sleep(0.001)
            else:
                assert isinstance(reply, ServerInfo)
                return reply


def test_nobody_there_is_known_not_to_be_stored(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    async def test() -> None:
        async with running(address) as link:
            with pytest.raises(Unavailable, match=f"no server at {address}: connection refused") as caught:
                await call(link, Ping())
            assert not caught.value.unknown

    run(test)


def test_a_lost_connection_fails_what_waits_as_unknown_and_is_made_again(
    run: Run, scripted: Callable[..., str]
) -> None:
    address = scripted(lambda connection: connection.recv(10_000), answer)

    async def test() -> None:
        async with running(address) as link:
            results: list[Result] = []
            link.submit(Append(1, False, b"x"), results.append)
            link.submit(Append(1, False, b"y"), results.append)
            with pytest.raises(Unavailable, match="was lost"):
                await call(link, Ping())
            assert [isinstance(result, Unavailable) and result.unknown for result in results] == [True, True]
            assert (await until_answered(link)).name == "again"

    run(test)


def test_what_never_left_is_known_not_to_be_stored(run: Run, scripted: Callable[..., str]) -> None:
    close = threading.Event()

    def answer_once(connection: socket.socket) -> None:
        frame = next(wire.FrameReader().receive(connection.recv(10_000)))
        connection.sendall(wire.join(wire.encode_reply(frame.request_id, ServerInfo("s", "once", "1"))))
        close.wait(PATIENCE_S)

    async def test(address: str) -> None:
        async with running(address) as link:
            await call(link, Ping())
            results: list[Result] = []
            done = anyio.Event()

            def on_lost(result: Result) -> None:
                results.append(result)
                link.submit(Ping(), results.append)  # while the link is down: fails at once
                done.set()

            link.submit(Append(1, False, b"x"), on_lost)  # and no flush
            close.set()
            await done.wait()
            assert [isinstance(result, Unavailable) and result.unknown for result in results] == [False, False]

    run(test, scripted(answer_once))


def test_a_server_that_comes_back_is_found_again(run: Run, serve: Callable[..., Any]) -> None:
    first = serve(Service)
    port = int(first.address.rpartition(":")[2])

    async def test() -> None:
        async with running(first.address) as link:
            await call(link, Ping())
            await anyio.to_thread.run_sync(first.stop)
            with pytest.raises(Unavailable):
                await call(link, Ping())
            await anyio.to_thread.run_sync(serve, Service, port)
            await until_answered(link)

    run(test)


@pytest.mark.parametrize("sent", [b"\xff" * 100, wire.join(wire.encode_error(0, TooLarge("too much")))])
def test_bytes_that_are_no_frames_and_last_words_end_the_connection(
    run: Run, scripted: Callable[..., str], sent: bytes
) -> None:
    address = scripted(lambda connection: (connection.recv(10_000), connection.sendall(sent)), answer)

    async def test() -> None:
        async with running(address) as link:
            with pytest.raises(Unavailable, match=r"was lost: (a frame of|too much)"):
                await call(link, Ping())
            await until_answered(link)

    run(test)


def test_a_reply_of_the_wrong_form_fails_its_request_only(run: Run, scripted: Callable[..., str]) -> None:
    def wrong_then_right(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(wire.join(wire._frame([0, 1, 5])))
        answer(connection)

    async def test(address: str) -> None:
        async with running(address) as link:
            with pytest.raises(ProtocolError) as caught:
                await call(link, Ping())
            assert caught.value.unknown
            assert isinstance(await call(link, Ping()), ServerInfo)

    run(test, scripted(wrong_then_right))


def test_a_request_over_the_limit_fails_alone(run: Run, serve: Callable[..., Any]) -> None:
    async def test() -> None:
        async with running(serve(Service).address) as link:
            with pytest.raises(TooLarge):
                await call(link, Append(1, False, bytes(wire.FRAME_BYTES_MAX)))
            assert isinstance(await call(link, Ping()), ServerInfo)

    run(test)


def test_a_link_that_ends_fails_what_waits(run: Run, serve: Callable[..., Any]) -> None:
    results: list[Result] = []

    async def test() -> None:
        async with running(serve(Service).address) as link:
            link.submit(Pull("a:0", 0, wait_s=60), results.append)
            await call(link, Ping())
        link.submit(Ping(), results.append)

    run(test)
    assert [type(result) for result in results] == [Unavailable, Unavailable]


def test_links_keep_one_connection_per_address(run: Run, serve: Callable[..., Any]) -> None:
    async def test() -> None:
        async with anyio.create_task_group() as tasks:
            links = WireLinks(tasks)
            first, second = serve(Service).address, serve(Service).address
            names = [await call(links.link(address), Ping()) for address in (first, second, first)]
            assert names[0] == names[2]
            assert names[0] != names[1]
            with pytest.raises(InvalidConfig):
                links.link("nowhere")
            tasks.cancel_scope.cancel()

    run(test)


def test_requests_that_a_socket_takes_in_parts_arrive_whole_and_in_order(
    run: Run, scripted: Callable[..., str]
) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate([10, 9 << 20, 10, 10, 7 << 20, *[300] * 40])]
    came: list[bytes] = []

    def collect(connection: socket.socket) -> None:
        reader = wire.FrameReader()
        while len(came) <= len(bodies) and (data := connection.recv(1 << 16)):
            for frame in reader.receive(data):
                came.append(bytes(frame.body))
                connection.sendall(wire.join(wire.encode_reply(frame.request_id, Appended("disk"))))

    address = scripted(collect)

    async def test() -> None:
        results: list[Result] = []
        all_there = anyio.Event()

        def on_result(result: Result) -> None:
            results.append(result)
            if len(results) == len(bodies):
                all_there.set()

        async with running(address) as link:
            await call(link, Append(1, False, b"connected"))
            for body in bodies:
                link.submit(Append(1, False, body), on_result)
                link.flush()
            with anyio.fail_after(PATIENCE_S):
                await all_there.wait()
        assert results == [Appended("disk")] * len(bodies)

    run(test)
    assert came[1:] == bodies


def test_many_callers_at_once_share_the_connection(run: Run, serve: Callable[..., Any]) -> None:
    async def test() -> None:
        async with running(serve(Service).address) as link, anyio.create_task_group() as callers:
            for _ in range(200):
                callers.start_soon(call, link, Ping())

    run(test)


def test_an_address_that_is_given_up_ends_what_waits_at_once_and_serves_again(
    run: Run, serve: Callable[..., Any]
) -> None:
    async def test() -> None:
        async with anyio.create_task_group() as tasks:
            links = WireLinks(tasks)
            links.give_up("127.0.0.1:1")  # nobody was asked there
            address = serve(Service).address
            link = links.link(address)
            results: list[Result] = []
            link.submit(Pull("a:0", 0, wait_s=60), results.append)
            first = await call(link, Ping())
            link.submit(Append(1, False, b"x"), results.append)  # it has not left
            links.give_up(address)
            assert [isinstance(result, Unavailable) and result.unknown for result in results] == [True, False]
            assert await until_answered(links.link(address)) != first, "over a new connection"
            tasks.cancel_scope.cancel()

    run(test)


def test_a_link_that_nobody_uses_may_be_given_up(run: Run, serve: Callable[..., Any]) -> None:
    async def test() -> None:
        async with running(serve(Service).address) as link:
            link.give_up()
            await until_answered(link)
            link.give_up()
            link.give_up()
            await until_answered(link)

    run(test)
