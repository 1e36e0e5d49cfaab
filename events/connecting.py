"""Connections to HTTP targets: a name is resolved once, and only an address that was judged is connected to.

So a name that has another address between the check and the connection changes nothing. A connection is kept for the
next request if the answer was read to its end. ``h11`` makes and reads the bytes; a request is one write.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import SplitResult

import h11
import trio

from events.addresses import AllowedAddresses
from events.delivery import Failed

ADDRESSES_MAX: Final = 4
IDLE_MAX: Final = 64
"""Unused connections that are kept for each target's host and port."""
IDLE_S: Final = 20.0
HEAD_BYTES_MAX: Final = 64 * 1024
_CHUNK: Final = 64 * 1024
Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Place(NamedTuple):
    """The address of an HTTP API."""

    host: str
    port: int
    is_secure: bool

    @classmethod
    def of(cls, parts: SplitResult) -> Place:
        """The place of a checked URL."""
        is_secure = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if is_secure else 80), is_secure)


class HttpAnswer(NamedTuple):
    """``headers``: names in lower case. ``body``: as far as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes


class HostNames:
    """Looks up the addresses of names, each name by at most one thread at a time, which is none of those that others
    need: a name server that does not answer holds up only the targets of its names."""

    def __init__(self) -> None:
        self._threads: dict[str, trio.CapacityLimiter] = {}

    async def addresses_of(self, host: str, port: int) -> list[str]:
        """The addresses, best first. Raises ``OSError`` and ``UnicodeError``."""
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            pass
        limiter = self._threads.setdefault(host, trio.CapacityLimiter(1))
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        rows = await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=limiter)  # noqa: TID251
        return list(dict.fromkeys([str(row[4][0]) for row in rows]))


LookUp = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a name, for a port."""


class Connector:
    """Opens connections to allowed addresses."""

    def __init__(self, allowed: AllowedAddresses, look_up: LookUp | None = None) -> None:
        self._allowed = allowed
        self._look_up = look_up or HostNames().addresses_of
        self._context = ssl.create_default_context()

    async def connect(self, place: Place) -> Stream:
        """A connection, over TLS where the place wants it. Raises ``OSError``, ``trio.BrokenResourceError``, and
        ``Failed``, finally, where no address is allowed."""
        host = place.host
        try:
            addresses = await self._look_up(host, place.port)
        except (OSError, UnicodeError) as error:
            raise Failed(f"{host} cannot be resolved: {error}") from None
        allowed = [one for one in addresses if self._allowed.allows(one)][:ADDRESSES_MAX]
        if not allowed:
            told = ", ".join(addresses[:ADDRESSES_MAX])
            raise Failed(f"{host} is at {told}, which private_targets does not list", is_final=True)
        for at, address in enumerate(allowed):
            try:
                stream = await trio.open_tcp_stream(address, place.port)
            except OSError:
                if at + 1 == len(allowed):
                    raise
            else:
                return await self._secured(stream, host) if place.is_secure else stream
        raise AssertionError("an address was there")

    async def _secured(self, stream: trio.SocketStream, host: str) -> Stream:
        secure = trio.SSLStream(stream, self._context, server_hostname=host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secure


class _Connection:
    """One connection and the state of HTTP on it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self.idle_since = 0.0

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come since the last answer: neither its end nor bytes that nothing asked for."""
        stream = self._stream
        below = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
        return not below.socket.is_readable()

    async def exchange(self, request: h11.Request, body: bytes, answer_bytes_max: int) -> HttpAnswer:
        http = self._http
        sent = [http.send(request), http.send(h11.Data(data=body)), http.send(h11.EndOfMessage())]
        with contextlib.suppress(trio.BrokenResourceError):  # it may have answered before it closed
            await self._stream.send_all(b"".join([one for one in sent if one]))
        status, headers, answer = 0, dict[str, str](), bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await self._stream.receive_some(_CHUNK)))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                answer += event.data
                if len(answer) > answer_bytes_max:
                    return HttpAnswer(status, headers, bytes(answer[:answer_bytes_max]))  # the rest is not read
            elif not isinstance(event, h11.InformationalResponse):
                return HttpAnswer(status, headers, bytes(answer))

    def renew(self) -> bool:
        """Makes ready for the next request; false where there can be none."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def close(self) -> None:
        with trio.CancelScope(shield=True):  # it does not wait, but says that it was cancelled
            await trio.aclose_forcefully(self._stream)


class TargetConnections:
    """Connections to targets, kept for the next request: the last one used is the next."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._idle: dict[Place, list[_Connection]] = {}

    async def exchange(
        self, place: Place, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, bytes_max: int
    ) -> HttpAnswer:
        """The answer to a request, of whose body at most ``bytes_max`` are read.

        Args:
            target: path and query.
            headers: ``host`` and ``content-length`` among them.

        Raises:
            OSError, trio.BrokenResourceError, h11.RemoteProtocolError: there is no answer that can be understood.
            h11.LocalProtocolError: what would be sent is no HTTP.
            Failed: no address of the place is allowed.
        """
        request = h11.Request(method=method, target=target, headers=list(headers))
        connection = await self._taken(place)
        is_whole = False
        try:
            answer = await connection.exchange(request, body, bytes_max)
            is_whole = connection.renew()
            return answer
        finally:
            idle = self._idle.setdefault(place, [])
            if is_whole and len(idle) < IDLE_MAX:
                connection.idle_since = trio.current_time()
                idle.append(connection)
            else:
                await connection.close()

    async def _taken(self, place: Place) -> _Connection:
        idle = self._idle.get(place, [])
        while idle:
            connection = idle.pop()
            if connection.is_silent and trio.current_time() - connection.idle_since < IDLE_S:
                return connection
            await connection.close()
        return _Connection(await self._connector.connect(place))

    async def close(self) -> None:
        """Closes kept connections."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().close()
