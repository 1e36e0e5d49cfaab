"""What the load generator's bytes travel in: plain TCP, TLS or WebSocket, the client's side of each.

A ``Wire`` is one connected socket. While a connection is set up it blocks (``ask``, ``expect``); under load its owner
uses ``encode`` and ``decode`` around calls of its own. Whole batches are encoded as one TLS write or one WebSocket
frame, so that this costs the generator little; what comes is taken apart as the server made it.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
from typing import Final, Protocol

TIMEOUT_S: Final = 20.0
TCP: Final = "tcp"
TLS: Final = "tls"
WS: Final = "ws"
READ_BYTES: Final = 256 * 1024
_REQUEST: Final = (
    "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
_BINARY: Final = 0x82
_MASKED: Final = 0x80


class Failed(Exception):
    """The run gives no number; the message says why."""


class Inbox:
    """Reads into one large buffer, again and again. ``recv`` makes a buffer of the size asked for each time: where that
    is a mapping of its own (over 128 KiB with glibc) it costs several times what the read does."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(READ_BYTES))

    def read(self, sock: socket.socket) -> bytes:
        """What has come, at most ``READ_BYTES``; empty at the end. Raises ``OSError``."""
        count = sock.recv_into(self._buffer)  # by itself: compiled, the bounds of a slice are worked out twice
        return bytes(self._buffer[:count])


class Codec(Protocol):
    """Between the bytes of MQTT and those of the socket."""

    def encode(self, data: bytes) -> bytes: ...

    def decode(self, data: bytes) -> bytes: ...


class Plain:
    """Nothing between."""

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


class Tls:
    """TLS; the server's certificate is not checked, which is not what is measured."""

    def __init__(self, sock: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(self._out.read())
                self._in.write(_some(sock, "in the TLS handshake"))
        sock.sendall(self._out.read())

    def encode(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()

    def decode(self, data: bytes) -> bytes:
        self._in.write(data)
        parts = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)


class WebSocket:
    """Binary frames; one per batch, masked."""

    def __init__(self, sock: socket.socket) -> None:
        sock.sendall(_REQUEST.format(key=base64.b64encode(os.urandom(16)).decode()).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += _some(sock, "instead of opening a WebSocket")
        status, _, self._rest = head.partition(b"\r\n\r\n")
        if not status.startswith(b"HTTP/1.1 101"):
            raise Failed(f"the server opens no WebSocket: {status[:80]!r}")
        self._mask = os.urandom(4)

    def encode(self, data: bytes) -> bytes:
        size = len(data)
        if size < 126:
            head = bytes([_BINARY, _MASKED | size])
        elif size < 1 << 16:
            head = bytes([_BINARY, _MASKED | 126]) + size.to_bytes(2, "big")
        else:
            head = bytes([_BINARY, _MASKED | 127]) + size.to_bytes(8, "big")
        mask = int.from_bytes((self._mask * (size // 4 + 1))[:size], "little")
        masked = (int.from_bytes(data, "little") ^ mask).to_bytes(size, "little")
        return head + self._mask + masked

    def decode(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
        parts, at, end = [], 0, len(data)
        while end - at >= 2:
            size, body = data[at + 1], at + 2
            if size == 126:
                size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif size == 127:
                size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if body + size > end:
                break
            if data[at] & 0x0F > 2:
                raise Failed(f"the server sent a WebSocket frame that carries no data: {data[at : at + 8].hex(' ')}")
            parts.append(data[body : body + size])
            at = body + size
        self._rest = data[at:]
        return b"".join(parts)


class Wire:
    """A connected socket and what travels on it."""

    __slots__ = ("codec", "sock")

    def __init__(self, host: str, port: int, kind: str = TCP, buffer_bytes: int = 0, source: str = "") -> None:
        """``source``: the address that it comes from, if not the system's choice."""
        origin = (source, 0) if source else None
        self.sock = socket.create_connection((host, port), timeout=TIMEOUT_S, source_address=origin)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if buffer_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.codec: Codec = Tls(self.sock) if kind == TLS else WebSocket(self.sock) if kind == WS else Plain()

    def ask(self, data: bytes) -> None:
        """Sends while it is set up."""
        self.sock.sendall(self.codec.encode(data))

    def expect(self, wanted: bytes, what: str) -> None:
        """Waits for exactly these bytes, of which nothing comes before its time."""
        got = b""
        while len(got) < len(wanted):
            got += self.codec.decode(_some(self.sock, f"instead of a {what}", len(wanted) - len(got), self.codec))
        if got != wanted:
            raise Failed(f"another {what} than expected: {got.hex(' ')}")

    def receive(self) -> bytes:
        """What comes next; with TLS or WebSocket that may be nothing yet."""
        return self.codec.decode(_some(self.sock, "instead of a message"))


def _some(sock: socket.socket, when: str, most: int = READ_BYTES, codec: Codec | None = None) -> bytes:
    """What comes next; no more than is wanted where bytes are what they look like."""
    data = sock.recv(most if codec is None or type(codec) is Plain else READ_BYTES)
    if not data:
        raise Failed(f"the server closed the connection {when}")
    return data
