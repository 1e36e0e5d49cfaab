"""A connection writes what is answered in one round at once, and the rest when there is room."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from penstock.access.authority import Authority
from penstock.service.audit import Audit
from penstock.service.frame_connection import Peer
from penstock.service.guard import Guard
from remoting.connection import RUNNING_MAX, Connection
from remoting.frames import Command, FrameReader
from remoting.logins import SignedLogins

pytestmark = pytest.mark.endtoend  # on real sockets


async def pair() -> tuple[Connection, trio.SocketStream]:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    theirs = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
    ours = await listener.accept()
    await listener.aclose()
    guard = Guard(Authority(lambda: b"", lambda: 0), Audit(lambda: 0, lambda: 0.0), lambda: 0.0, lambda: 0.0)
    peer = Peer(1, "memory")
    return Connection(ours, peer, bytes(8), SignedLogins(guard, peer)), theirs


async def test_answers_of_a_round_leave_with_its_end() -> None:
    connection, peer = await pair()
    connection.begin_round()
    for number in range(3):
        connection.put(Command(0, number))
    with trio.move_on_after(0):
        await peer.receive_some()
        raise AssertionError("nothing leaves before")
    connection.end_round()
    assert [one.opaque for one in FrameReader().feed(await peer.receive_some())] == [0, 1, 2]
    await connection.close()
    await peer.aclose()


async def test_what_the_socket_does_not_take_is_written_when_there_is_room_in_order() -> None:
    connection, peer = await pair()
    connection.begin_round()
    connection.put(Command(0, 1, body=bytes(4 << 20)))
    connection.end_round()
    reader, found = FrameReader(), list[int]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.write)
        connection.begin_round()
        connection.put(Command(0, 2))
        connection.end_round()
        connection.put(Command(0, 3))
        while len(found) < 3:
            found += [one.opaque for one in reader.feed(await peer.receive_some())]
        nursery.cancel_scope.cancel()
    assert found == [1, 2, 3]
    await connection.close()
    assert await peer.receive_some() == b""
    await peer.aclose()


async def test_nothing_is_read_while_as_many_commands_as_may_be_are_under_way() -> None:
    connection, peer = await pair()
    await peer.send_all(b"x")
    for _ in range(RUNNING_MAX):
        connection.begin()
    received = list[bytes]()

    async def read() -> None:
        received.append(bytes(await connection.receive()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert received == []
        connection.end()
    assert received == [b"x"]
    await connection.close()
    await peer.aclose()


async def test_a_connection_that_says_nothing_for_two_minutes_is_silent() -> None:
    connection, peer = await pair()
    now = trio.current_time()
    assert not connection.is_silent(now + 60)
    assert connection.is_silent(now + 180)
    await connection.close()
    await peer.aclose()
