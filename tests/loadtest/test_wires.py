"""The client's side of WebSocket, against an independent server's; TLS and both together with a server are in
``test_bench.py``."""

from __future__ import annotations

import socket

import pytest
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, Ping

from loadtest.wires import Failed, Plain, WebSocket

SIZES = [1, 2, 125, 126, 300, 65_535, 65_536, 100_000]


def opened(answer: bytes = b"HTTP/1.1 101 Switching Protocols\r\n\r\n") -> tuple[WebSocket, bytes]:
    """A client's end whose request was answered so, and the request."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer)
        made = WebSocket(ours)
        return made, theirs.recv(4096)


def test_the_request_asks_for_mqtt() -> None:
    _, request = opened()
    lines = request.decode().split("\r\n")
    assert lines[0] == "GET /mqtt HTTP/1.1"
    assert "Sec-WebSocket-Protocol: mqtt" in lines
    assert lines[-2:] == ["", ""]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_encoded_is_one_masked_frame(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    server = Connection(ConnectionType.SERVER)
    server.receive_data(opened()[0].encode(data))
    events = list(server.events())
    assert all(type(event) is BytesMessage for event in events)
    assert b"".join([event.data for event in events]) == data  # type: ignore[attr-defined]
    assert server.state is ConnectionState.OPEN


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000, 1 << 20])
def test_frames_are_taken_apart_however_they_are_cut(piece: int) -> None:
    server = Connection(ConnectionType.SERVER)
    stream = b"".join([server.send(BytesMessage(bytes([size & 0xFF]) * size)) for size in SIZES[:5]])
    made = opened()[0]
    got = b"".join([made.decode(stream[at : at + piece]) for at in range(0, len(stream), piece)])
    assert got == b"".join([bytes([size & 0xFF]) * size for size in SIZES[:5]])


def test_frames_that_carry_no_data_and_refusals_end_the_run() -> None:
    ping = Connection(ConnectionType.SERVER).send(Ping(b"x"))
    with pytest.raises(Failed, match="carries no data"):
        opened()[0].decode(ping)
    with pytest.raises(Failed, match=r"opens no WebSocket: b'HTTP/1[.]1 404"):
        opened(b"HTTP/1.1 404 Not Found\r\n\r\n")


def test_plain_bytes_are_what_they_are() -> None:
    assert (Plain().encode(b"x"), Plain().decode(b"y")) == (b"x", b"y")
