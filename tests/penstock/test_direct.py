"""What a socket takes or has at once, beside its stream."""

from __future__ import annotations

import socket

import anyio
import pytest

from penstock.direct import DirectSocket


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname()[:2])
        far, _ = server.accept()
    return near, far


def direct_of(raw: socket.socket) -> DirectSocket:
    direct = DirectSocket.of(raw)
    assert direct is not None
    return direct


def test_what_is_sent_arrives_and_what_came_is_received_without_waiting() -> None:
    near, far = pair()
    with near, far:
        one, other = direct_of(near), direct_of(far)
        assert one.send(b"hello") == 5
        assert far.recv(100) == b"hello"
        assert one.receive(100) is None
        far.sendall(b"there")
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(anyio.wait_readable, one.file)
        assert one.receive(3) == b"the"
        assert one.receive(100) == b"re"
        other.close()
        assert far.send(b"its own descriptor stays") > 0
        one.close()


def test_a_socket_without_room_takes_a_part_and_then_nothing() -> None:
    near, far = pair()
    with near, far:
        direct = direct_of(near)
        taken = []
        while sent := direct.send(bytes(64 << 20)):
            taken.append(sent)
        assert 0 < sum(taken) < 64 << 20
        direct.close()


def test_a_broken_socket_takes_nothing_and_says_the_end_or_the_error_where_it_is_read() -> None:
    near, far = pair()
    with near, far:
        direct = direct_of(near)
        far.shutdown(socket.SHUT_WR)
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(anyio.wait_readable, direct.file)
        assert direct.receive(10) == b""
        near.shutdown(socket.SHUT_WR)
        assert direct.send(b"x") == 0
        direct.close()


class Pretended:
    """A socket of a simulation: its number is that of something else."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def getpeername(self) -> tuple[str, int]:
        return ("192.0.2.1", 7)


def test_what_is_no_connected_socket_has_none(tmp_path: object) -> None:
    near, far = pair()
    with near, far, socket.socket() as alone, open(f"{tmp_path}/file", "w") as file:
        for raw in (Pretended(near.fileno()), Pretended(file.fileno()), Pretended(-1), alone, object()):
            assert DirectSocket.of(raw) is None
    assert DirectSocket.of(near) is None


def test_the_errors_of_a_socket_that_is_read_are_told() -> None:
    near, far = pair()
    with near, far:
        direct = direct_of(near)
        direct.close()
        with pytest.raises(OSError):
            direct.receive(1)
