"""A link over TCP: one connection, many requests under way, many frames per write and per read. On asyncio and on trio.

A ``WireLink`` keeps the requests that wait for a reply and the frames not yet sent, both bounded (``Busy`` beyond). It
connects when the first request comes. A lost connection fails every waiting request with ``Unavailable`` (``unknown``
for those that had left) and is made again, after a back-off where the last one did not live long; until then requests
fail at once. It never repeats a request: only the caller knows whether that is right.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

import anyio
from anyio.abc import ByteStream, SocketAttribute

from penstock.client.credentials import (
    NO_CREDENTIALS,
    Credentials,
    credentials_of,
    login_refused,
    login_step,
    lost_unheard,
    no_tls,
)
from penstock.client.retry import BackOff, patience_s
from penstock.direct import DirectSocket
from penstock.errors import Busy, NotAuthorized, PenstockError, ProtocolError, TimedOut, Unavailable
from penstock.protocol import wire
from penstock.protocol.addresses import lost, no_server, split_address
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.request import Bytes, Reply, Request, Result
from penstock.protocol.requests.servers import LoginStep
from penstock.world import Clock, RealClock, Rng, new_rng

CONNECT_S: Final = 5.0
LOGIN_S: Final = 10.0
STEADY_S: Final = 10.0
"""A connection that lived this long was sound: the next one is made at once, with the back-off begun anew."""
UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
PENDING_MAX: Final = 200_000
READ_BYTES_MAX: Final = 256 * 1024
DIRECT_MAX: Final = 16
"""While more requests wait for their replies, those of one turn of the loop leave together."""

_R = TypeVar("_R", bound=Reply)
_Ts = TypeVarTuple("_Ts")


class Tasks(Protocol):
    """An anyio task group or a trio nursery, which starts a link's task."""

    def start_soon(self, work: Callable[[*_Ts], Coroutine[Any, Any, Any]], /, *args: *_Ts) -> Any: ...


class WireLink:
    """A ``Link`` to one address. ``run`` must run in a task for as long as the link is used.

    Everything happens in the event loop's thread; callbacks must not wait or raise.
    """

    def __init__(
        self,
        address: str,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        back_off: BackOff | None = None,
        on_lost: Callable[[str], None] | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        """``on_lost`` gets the address when a connection has ended, even if no request waited for it.
        ``credentials``: for the login of each connection."""
        self.address = address
        self._on_lost = on_lost or _nobody
        self._host, self._port = split_address(address)
        self._credentials = credentials
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._back_off = back_off or BackOff()
        self._pending: dict[int, tuple[type[Request], OnResult]] = {}
        self._outbox: list[Bytes] = []
        self._unsent = 0
        self._next_id = 1
        self._left_id = 0  # requests up to this id have left or are leaving
        self._work = anyio.Event()
        self._down: PenstockError | None = None  # why requests fail at once, just now
        self._attempt: anyio.CancelScope | None = None
        self._was_connected = self._is_heard = False
        self._direct: DirectSocket | None = None
        self._is_writing = False  # the stream is

    # -- Link

    def submit(self, request: Request, on_result: OnResult) -> None:
        refusal = self._down or self._too_much()
        if refusal is not None:
            on_result(refusal)
            return
        try:
            parts = wire.encode_request(self._next_id, request)
        except PenstockError as error:
            on_result(error.as_result())
            return
        self._pending[self._next_id] = (type(request), on_result)
        self._next_id += 1
        self._outbox += parts
        self._unsent += sum(map(len, parts))

    def flush(self) -> None:
        if not self._outbox:
            return
        if self._direct is not None and not self._is_writing and len(self._pending) <= DIRECT_MAX:
            data = self._take_outbox()
            sent = self._direct.send(data)
            self._unsent -= sent
            if sent == len(data):
                return
            self._outbox.append(data[sent:])
        self._work.set()

    def _take_outbox(self) -> bytes:
        parts, self._outbox = self._outbox, []
        self._left_id = self._next_id - 1
        return wire.join(parts)

    def _too_much(self) -> PenstockError | None:
        if self._unsent > UNSENT_BYTES_MAX or len(self._pending) >= PENDING_MAX:
            return Busy(f"{len(self._pending)} requests to {self.address} are waiting, {self._unsent} bytes unsent")
        return None

    def give_up(self) -> None:
        """Fails all waiting requests and ends the connection: the server has left this address."""
        self._fail_all(Unavailable(f"the server at {self.address} is gone"))
        if self._attempt is not None:
            self._attempt.cancel()

    # -- the connection

    async def run(self) -> None:
        """Connects, sends and receives until cancelled; every request still waiting then fails."""
        attempt = 0
        try:
            while True:
                await self._work.wait()
                connected_at = self._clock.monotonic()
                error = await self._connect_and_serve()
                attempt = 1 if self._clock.monotonic() - connected_at >= STEADY_S else attempt + 1
                self._down = _for_unsent(error)
                self._fail_all(error)
                self._work = anyio.Event()
                if self._was_connected:
                    self._on_lost(self.address)
                await anyio.sleep(self._back_off.wait_s(attempt, self._rng) if attempt > 1 else 0)
                self._down = None
        finally:
            self._down = Unavailable(f"the link to {self.address} is closed")
            self._fail_all(self._down)

    async def _connect_and_serve(self) -> PenstockError:
        """One connection from beginning to end; why it ended."""
        self._was_connected = self._is_heard = False
        with anyio.CancelScope() as self._attempt:
            try:
                with anyio.fail_after(CONNECT_S):
                    stream = await self._connect()
            except TimeoutError:
                return Unavailable(f"no connection to {self.address} within {CONNECT_S:g} s")
            except ssl.SSLError as error:
                return no_tls(self.address, error)
            except OSError as error:
                return no_server(self.address, error)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return no_tls(self.address, ssl.SSLError("the server closed the connection in the handshake"))
            raw = stream.extra(SocketAttribute.raw_socket)
            _notice_dead_hosts(raw)
            self._was_connected = True
            async with stream:
                reader = wire.FrameReader()
                refusal = await self._log_in(stream, reader)
                if refusal is not None:
                    return refusal
                self._is_heard = self._credentials.logs_in
                direct = self._direct = DirectSocket.of(raw) if self._credentials.tls is None else None
                try:
                    return await self._serve(stream, reader)
                finally:
                    self._direct, self._is_writing = None, False
                    if direct is not None:
                        direct.close()
        return lost(self.address, "it was given up")

    async def _connect(self) -> ByteStream:
        tls = self._credentials.tls
        if tls is None:
            return await anyio.connect_tcp(self._host, self._port)
        return await anyio.connect_tcp(
            self._host, self._port, ssl_context=tls, tls_hostname=self._host, tls_standard_compatible=False
        )

    async def _log_in(self, stream: ByteStream, reader: wire.FrameReader) -> PenstockError | None:
        """Logs in, if there are credentials. Returns the error of a refused login."""
        if not self._credentials.logs_in:
            return None
        steps = self._credentials.steps(self._host)
        try:
            with anyio.fail_after(LOGIN_S):
                request = next(steps)
                while True:
                    await stream.send(wire.join(wire.encode_request(self._next_id, request)))
                    self._next_id += 1
                    request = steps.send(await _login_step(stream, reader))
        except StopIteration:
            return None
        except TimeoutError:
            return Unavailable(f"{self.address} did not answer a login within {LOGIN_S:g} s")
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            reason = "it was closed instead of answering a login"
            return lost_unheard(self.address, reason, self._credentials).with_fate(False)
        except PenstockError as error:
            return login_refused(self.address, error, self._credentials)

    async def _serve(self, stream: ByteStream, reader: wire.FrameReader) -> PenstockError:
        ended: list[PenstockError] = []
        async with anyio.create_task_group() as tasks:

            async def until_it_ends(work: Callable[[ByteStream], Awaitable[None]]) -> None:
                try:
                    await work(stream)
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                    broken = "the server closed it" if isinstance(error, anyio.EndOfStream) else "it broke"
                    ended.append(
                        lost(self.address, broken)
                        if self._is_heard
                        else lost_unheard(self.address, broken, self._credentials)
                    )
                except PenstockError as error:
                    ended.append(lost(self.address, error.message))
                    ended[-1].__cause__ = error
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_it_ends, partial(self._read, reader))
            tasks.start_soon(until_it_ends, self._write)
        return ended[0]

    async def _write(self, stream: ByteStream) -> None:
        while True:
            if not self._outbox:
                self._work = anyio.Event()
                await self._work.wait()
            data = self._take_outbox()
            self._is_writing = True
            await stream.send(data)
            self._is_writing = False
            self._unsent -= len(data)

    async def _read(self, reader: wire.FrameReader, stream: ByteStream) -> None:
        while True:
            for frame in reader.receive(await stream.receive(READ_BYTES_MAX)):
                waiting = self._pending.pop(frame.request_id, None)
                self._is_heard = True
                if waiting is not None:
                    asked, on_result = waiting
                    on_result(_result(frame, asked))
                elif frame.request_id == 0:
                    raise wire.last_word(frame)

    def _fail_all(self, error: PenstockError) -> None:
        """Ends every waiting request; those that never left are known not to have been carried out."""
        waiting, self._pending = self._pending, {}
        self._outbox.clear()
        self._unsent = 0
        unsent = _for_unsent(error)
        left = error if error.unknown else lost(self.address, error.message)
        for request_id, (_asked, on_result) in waiting.items():
            on_result(left if request_id <= self._left_id else unsent)


def _for_unsent(error: PenstockError) -> PenstockError:
    """The error of requests that were not sent: they may be tried again, unless the login was refused."""
    return error.as_result() if isinstance(error, NotAuthorized) else Unavailable(error.message, hint=error.hint)


async def _login_step(stream: ByteStream, reader: wire.FrameReader) -> LoginStep:
    """The next answer in a login. Raises what the server answers instead."""
    while True:
        for frame in reader.receive(await stream.receive(READ_BYTES_MAX)):
            return login_step(frame)


def _result(frame: wire.RawFrame, asked: type[Request]) -> Result:
    try:
        return wire.decode_result(frame, asked)
    except ProtocolError as error:
        error.unknown = True  # something was answered: the request was carried out or refused
        return error


def _nobody(address: str) -> None:
    """Ignores the event."""


def _notice_dead_hosts(raw: socket.socket) -> None:
    """The kernel probes a silent peer, so that a request to a host that vanished does not wait for ever."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, name):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class WireLinks:
    """``Links`` over TCP: one link per address, each with its task in ``tasks``."""

    def __init__(
        self,
        tasks: Tasks,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        credentials: Credentials | None = None,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        """``credentials``: for the logins of connections; left out: those of the environment. Raises
        ``InvalidConfig`` for bad ones there."""
        self._tasks = tasks
        self._credentials = credentials_of() if credentials is None else credentials
        self._clock = clock
        self._rng = rng
        self._links: dict[str, WireLink] = {}
        self.on_lost: Callable[[str], None] = on_lost or _nobody
        """Handles the end of a connection to the address."""

    def link(self, address: str) -> Link:
        """The link to an address; never waits. Raises ``InvalidConfig`` for what is no address."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = WireLink(
                address,
                clock=self._clock,
                rng=self._rng,
                on_lost=lambda lost: self.on_lost(lost),
                credentials=self._credentials,
            )
            self._tasks.start_soon(link.run)
        return link

    def give_up(self, address: str) -> None:
        """Ends requests that wait at an address, at once."""
        link = self._links.get(address)
        if link is not None:
            link.give_up()


async def call(link: Link, request: Request, timeout_s: float | None = None) -> Reply:
    """Sends one request and waits for its reply.

    Args:
        link: the way to the server.
        request: what to ask.
        timeout_s: the deadline; without one 10 s, and what a long poll waits at the server on top.

    Raises:
        TimedOut: the deadline passed first; the outcome of a write is unknown.
        PenstockError: what the server or the link answered.
    """
    done = anyio.Event()
    results: list[Result] = []

    def on_result(result: Result) -> None:
        results.append(result)
        done.set()

    link.submit(request, on_result)
    link.flush()
    limit_s = patience_s(request, timeout_s)
    with anyio.move_on_after(limit_s):
        await done.wait()
    if not results:
        raise TimedOut(f"no answer to {type(request).__name__} within {limit_s:g} s")
    if isinstance(results[0], PenstockError):
        raise results[0]
    return results[0]


async def ask(link: Link, request: Request, kind: type[_R], timeout_s: float | None = None) -> _R:
    """``call`` for a caller that names the type of the reply."""
    reply = await call(link, request, timeout_s)
    assert isinstance(reply, kind), f"{type(request).__name__} is answered by {kind.__name__}"
    return reply
