"""MQTT over WebSocket (RFC 6455): the HTTP request that opens it, then binary frames.

The frames are wsproto's, the request h11's; this module admits requests and handles frames.
Binary frames only, anything else closes with 1003 (MQTT-6.0.0-1), as soon as its header is read: the content of a text
frame is not looked at, UTF-8 or not. Packets may span frames and share them (MQTT-6.0.0-2): what they carry is one
stream. The client offers the sub-protocol ``mqtt`` (or ``mqttv3.1``) and the server selects it (MQTT-6.0.0-4). No
extension is offered, so nothing is ever unpacked. A request that opens no WebSocket is answered with the status that
says why: 400, 403 (a foreign page), 404, 405, 426 or 431.

A web page can open WebSockets from its reader's machine, behind every firewall; only the origin names the page's site
(RFC 6455, 10.2). So ``page`` says if the origin is neither this machine nor one that a listener names.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import h11
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits
from wsproto.utilities import LocalProtocolError, generate_accept_token

REQUEST_BYTES_MAX: Final = 16 * 1024
"""The size of the request, empty line included. It is judged by the stream alone, however that is cut into chunks."""
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
_SPACE: Final = 0x20
_NO_BITS: Final = RsvBits(False, False, False)
_NAMES: Final = {
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    426: b"Upgrade Required",
    431: b"Request Header Fields Too Large",
}


class _BinaryOnly(Extension):
    """Where wsproto asks about a frame's header, before it decodes what a text frame carries. It is never offered."""

    name = "binary-only"

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool:
        return False

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        return CloseReason.UNSUPPORTED_DATA if opcode is Opcode.TEXT else _NO_BITS


class WebSocketCodec:
    """The server's side of one WebSocket connection. ``path``: where it is; ``origins``: pages that may open it, all if
    there are none."""

    __slots__ = ("_frames", "_http", "_origins", "_out", "_path", "_room", "address", "certificate", "over", "page")

    def __init__(self, path: str, origins: Iterable[str] = ()) -> None:
        self._path = path.encode()
        self._origins = frozenset(origin.encode() for origin in origins)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._room = REQUEST_BYTES_MAX
        self._frames: Connection | None = None
        self._out = b""
        self.over = ""
        self.address: str | None = None
        self.certificate: str | None = None
        self.page = ""

    def decode(self, data: bytes) -> bytes:
        if self.over:
            return b""
        if self._frames is None:
            data = self._take_request(data)
        return self._take_frames(self._frames, data) if self._frames is not None and data else b""

    def output(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def encode(self, data: bytes) -> bytes:
        if self._frames is None or self._frames.state is not ConnectionState.OPEN:
            return b""
        return self._frames.send(BytesMessage(data))

    def close(self) -> bytes:
        if self._frames is not None and self._frames.state is ConnectionState.OPEN:
            self._out += self._frames.send(CloseConnection(CloseReason.NORMAL_CLOSURE))
        return self.output()

    # ------------------------------------------------------------ the request

    def _take_request(self, data: bytes) -> bytes:
        """Answers the request if it is whole; returns the bytes behind it."""
        if (
            data and self._room == REQUEST_BYTES_MAX and data[0] <= _SPACE
        ):  # h11 has several words for this, by the chunk
            self._refuse(400, "no request")
            return b""
        head, rest = data[: self._room], data[self._room :]
        self._room -= len(head)
        try:
            self._http.receive_data(head)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None  # a frame of h11 that it came through has it too: a circle, with all of this
            self._refuse(error.error_status_hint if error.error_status_hint in _NAMES else 400, str(error))
            return b""
        if event is h11.NEED_DATA:
            if not self._room:
                self._refuse(431, f"the request has more than {REQUEST_BYTES_MAX} bytes")
            return b""
        if not isinstance(event, h11.Request):
            self._refuse(400, "no request")
            return b""
        refusal = self._unfit(event)
        if refusal:
            self._refuse(*refusal)
            return b""
        headers = dict(event.headers)
        offered = _words(event, b"sec-websocket-protocol")
        chosen = next(one for one in SUBPROTOCOLS if one.encode() in offered)
        origin = headers.get(b"origin", b"").decode("latin-1")
        self.page = "" if self._origins or not origin or _is_own(origin) else origin
        self._frames = Connection(ConnectionType.SERVER, [_BinaryOnly()])
        token = generate_accept_token(headers[b"sec-websocket-key"])
        self._out = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + token + b"\r\nSec-WebSocket-Protocol: " + chosen.encode() + b"\r\n\r\n"
        )
        return self._http.trailing_data[0] + rest

    def _unfit(self, request: h11.Request) -> tuple[int, str] | None:
        """Status and reason for a request that opens nothing, ``None`` if it does."""
        headers = dict(request.headers)
        if _path(request.target) != self._path:
            return 404, "there is nothing at this path"
        if request.method != b"GET":
            return 405, "the method is not GET"
        asked = [word.lower() for word in _words(request, b"upgrade")]
        if b"websocket" not in asked or b"upgrade" not in [w.lower() for w in _words(request, b"connection")]:
            return 426, "this is a place for WebSocket only"
        if headers.get(b"sec-websocket-version") != b"13":
            return 426, "the version of WebSocket is not 13"
        if request.http_version != b"1.1" or not _is_key(request):
            return 400, "no proper WebSocket request"
        if self._origins and b"origin" in headers and headers[b"origin"] not in self._origins:
            return 403, "the origin is not allowed"
        if not {one.encode() for one in SUBPROTOCOLS} & set(_words(request, b"sec-websocket-protocol")):
            return 400, "the sub-protocol mqtt is not offered"
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return 400, "the request has a body"
        return None

    def _refuse(self, status: int, reason: str) -> None:
        self.over = f"HTTP {status}: {reason}"
        body = reason.encode() + b"\n"
        more = {426: b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", 405: b"Allow: GET\r\n"}.get(status, b"")
        self._out = (
            b"HTTP/1.1 %d %s\r\n" % (status, _NAMES[status])
            + more
            + b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n" % len(body)
            + (b"Connection: Upgrade, close\r\n\r\n" if status == 426 else b"Connection: close\r\n\r\n")
            + body
        )

    # ------------------------------------------------------------ frames

    def _take_frames(self, frames: Connection, data: bytes) -> bytes:
        frames.receive_data(data)
        parts: list[bytes] = []
        for event in frames.events():
            if isinstance(event, BytesMessage):
                parts.append(bytes(event.data))
            elif isinstance(event, Ping):
                self._out += frames.send(event.response())
            elif isinstance(event, CloseConnection):
                self._fail(frames, _own(event) if frames.state is ConnectionState.OPEN else event.response())
            else:
                assert isinstance(event, Pong)
            if self.over:
                break
        return b"".join(parts)

    def _fail(self, frames: Connection, farewell: CloseConnection) -> None:
        self.over = farewell.reason or f"closed with {int(farewell.code)}"
        with contextlib.suppress(LocalProtocolError):  # it is closed on both sides already
            self._out += frames.send(farewell)


def _own(farewell: CloseConnection) -> CloseConnection:
    """The answer to a client of which wsproto reads no more."""
    if farewell.code == CloseReason.UNSUPPORTED_DATA:  # by ``_BinaryOnly``, for which wsproto has no words
        return CloseConnection(CloseReason.UNSUPPORTED_DATA, "binary frames only")
    return farewell


def _is_own(origin: str) -> bool:
    """Whether a page comes from this machine."""
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _path(target: bytes) -> bytes:
    """The path of a request, also if its target is the whole address (RFC 9112, 3.2.2)."""
    target = target.partition(b"?")[0]
    if target.lower().startswith((b"http://", b"https://")):
        target = b"/" + target.partition(b"//")[2].partition(b"/")[2]
    return target


def _words(request: h11.Request, name: bytes) -> list[bytes]:
    """All members of the lists that the headers of a name have."""
    return [word.strip() for header, value in request.headers if header == name for word in value.split(b",")]


def _is_key(request: h11.Request) -> bool:
    keys = [value for header, value in request.headers if header == b"sec-websocket-key"]
    return len(keys) == 1 and len(keys[0]) == 24 and keys[0].endswith(b"==")
