"""Serves frames on listening sockets: the connection handling that name server and broker share.

One reader and one writer per connection. All frames of one read are handed to the session as one batch; all replies
that are ready leave with one write. It keeps, per connection, an incomplete frame and the replies not yet sent, both
bounded: while more than ``unsent_bytes_soft`` wait it takes no further request, also none that it has read, and has the
session hold what is parked; and it drops a peer that does not read at all. It knows nothing of what requests mean, and
no peer's bytes, however wrong, reach another connection or end the server.

Rules: damage in the framing gets one error frame with id 0 and the connection is closed; a frame whose request is
unknown or whose fields are wrong gets an error reply and the connection lives.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, cast

import trio

from penstock import wire
from penstock.accepting import Doorkeeper, PatientListener
from penstock.addresses import SOME_SERVER, cannot_listen
from penstock.errors import Busy, InternalError, PenstockError, ProtocolError
from penstock.link import Link
from penstock.requests.request import Bytes, Result

READ_BYTES_MAX: Final = 256 * 1024
ALONE_FROM_BYTES: Final = 64 * 1024
"""A part of this size is written by itself."""

_log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """Who is at the other end; ``id`` is unique for one call of ``serve_frames``."""

    id: int
    address: str


class Session(Link, Protocol):
    """What a service keeps for one connection. For who is in the same process it is the link itself. None of these may
    wait or raise."""

    def hold(self) -> None:
        """Much waits to be sent: until ``release`` nothing that waits for something to happen is to be answered."""
        ...

    def release(self) -> None:
        """There is room again."""
        ...

    def close(self) -> None:
        """The connection is gone: replies would reach nobody."""
        ...


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """What one server lets its peers take.

    Attributes:
        connections_max: further peers are answered ``Busy`` and closed.
        pending_max: requests of one connection that may wait for their reply; more are answered ``Busy``.
        unsent_bytes_soft: while more wait to be sent to a peer, none of its requests is taken or, if parked, answered.
        unsent_bytes_max: a peer for which more than this waits is dropped.
        half_frame_s: how long the rest of an incomplete frame may take.
        write_s: how long one write may take before the peer counts as dead.
    """

    connections_max: int = 10_000
    pending_max: int = 200_000
    unsent_bytes_soft: int = 4 * 1024 * 1024
    unsent_bytes_max: int = 64 * 1024 * 1024
    half_frame_s: float = 60.0
    write_s: float = 60.0


async def open_listeners(host: str, port: int, who: str = SOME_SERVER) -> list[trio.SocketListener]:
    """Listening sockets of a server, ``who`` (``"the broker"``), for an address; port 0 takes any free one.

    Raises:
        AddressInUse: the port is taken.
        InvalidConfig: the host is no address of this machine, or the port needs rights that we do not have.
    """
    try:
        return list(await trio.open_tcp_listeners(port, host=host))
    except (OSError, UnicodeError) as error:
        raise cannot_listen(host, port, error, who) from None


def listening_address(listeners: Sequence[trio.SocketListener]) -> tuple[str, int]:
    """Host and port on which the first listener accepts."""
    name = cast("tuple[str, int]", listeners[0].socket.getsockname())
    return name[0], name[1]


async def serve_frames(
    listeners: Sequence[trio.abc.Listener[Any]],
    open_session: Callable[[Peer], Session],
    limits: FrameLimits = FrameLimits(),
    door: Doorkeeper | None = None,
) -> None:
    """Serves every connection until cancelled; closes the listeners and all connections at the end. ``door`` is told
    what keeps it from accepting."""
    door = door or Doorkeeper("this server")
    ids = itertools.count(1)
    live = 0

    async def serve(stream: trio.abc.Stream) -> None:
        nonlocal live
        if live >= limits.connections_max:
            await _refuse(stream, f"this server has its {limits.connections_max} connections")
            return
        if not door.lets_in(stream):
            await _refuse(stream, "this server has no descriptor to spare")
            return
        live += 1
        try:
            session = open_session(Peer(next(ids), _address_of(stream)))
            await _Connection(stream, session, limits).serve()
        finally:
            live -= 1

    await trio.serve_listeners(serve, [PatientListener(one, door) for one in listeners])


async def _refuse(stream: trio.abc.Stream, why: str) -> None:
    error = Busy(why, hint="close some or try again later")
    with trio.move_on_after(1.0):
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_all(wire.join(wire.encode_error(0, error)))
    await trio.aclose_forcefully(stream)


def _address_of(stream: trio.abc.Stream) -> str:
    if not isinstance(stream, trio.SocketStream):
        return "memory"
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer whose host died is noticed in the end
        name = stream.socket.getpeername()
    except OSError:
        return "gone"
    return f"{name[0]}:{name[1]}"


class _Connection:
    """One connection's reader, writer and the replies between them.

    ``unsent`` counts the bytes of ``outbox`` and of the write under way. The writer sleeps on ``work`` when the outbox
    is empty; the reader sleeps on ``room`` while too much is unsent.
    """

    def __init__(self, stream: trio.abc.Stream, session: Session, limits: FrameLimits) -> None:
        self._stream = stream
        self._session = session
        self._limits = limits
        self._frames = wire.FrameReader()
        self._outbox: list[Bytes] = []
        self._unsent = 0
        self._pending = 0
        self._work = trio.Event()
        self._room = trio.Event()
        self._holds = False  # the session holds what is parked
        self._ending = False  # no more will be read: the writer sends what there is and returns
        self._scope: trio.CancelScope | None = None

    async def serve(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._write)
                await self._read()
                self._ending = True
                self._work.set()
        finally:
            self._scope = None
            self._session.close()
            await trio.aclose_forcefully(self._stream)

    # -- reading

    async def _read(self) -> None:
        while True:
            if self._unsent > self._limits.unsent_bytes_soft:
                await self._wait_for_room()
            data = await self._receive()
            if not data:
                return
            try:
                for frame in self._frames.receive(data):
                    if self._unsent > self._limits.unsent_bytes_soft:  # a few bytes may ask for megabytes, many times
                        self._session.flush()
                        await self._wait_for_room()
                    self._accept(frame)
            except ProtocolError as error:
                self._put(wire.encode_error(0, error))
                return
            finally:
                self._session.flush()

    async def _wait_for_room(self) -> None:
        while self._unsent > self._limits.unsent_bytes_soft:
            self._room = trio.Event()
            await self._room.wait()

    async def _receive(self) -> bytes | bytearray:
        limit_s = self._limits.half_frame_s if self._frames.incomplete else math.inf
        try:
            with trio.move_on_after(limit_s):
                return await self._stream.receive_some(READ_BYTES_MAX)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""
        self._put(wire.encode_error(0, ProtocolError(f"the rest of a frame did not come within {limit_s:g} s")))
        return b""

    def _accept(self, frame: wire.RawFrame) -> None:
        request_id = frame.request_id
        try:
            request = wire.decode_request(frame)
        except PenstockError as error:
            self._put(wire.encode_error(request_id, error))
            return
        if self._pending >= self._limits.pending_max:
            self._put(wire.encode_error(request_id, Busy(f"{self._pending} requests of this connection are waiting")))
            return
        self._pending += 1

        def on_result(result: Result) -> None:
            self._pending -= 1
            self._put(wire.encode_result(request_id, result))

        try:
            self._session.submit(request, on_result)
        except Exception as error:  # a defect of the service: this request fails, nobody else's
            _log.exception("%s failed", type(request).__name__)
            on_result(InternalError(f"{type(request).__name__} failed: {type(error).__name__}"))

    # -- writing

    def _put(self, parts: list[Bytes]) -> None:
        if self._scope is None:
            return
        self._outbox += parts
        self._unsent += sum(map(len, parts))
        if self._unsent > self._limits.unsent_bytes_max:
            self._scope.cancel()
        if self._unsent > self._limits.unsent_bytes_soft and not self._holds:
            self._holds = True
            self._session.hold()
        self._work.set()

    async def _write(self) -> None:
        try:
            while True:
                if not self._outbox:
                    if self._ending:
                        return
                    self._work = trio.Event()
                    await self._work.wait()
                await self._write_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            if self._scope is not None:
                self._scope.cancel()

    async def _write_all(self) -> None:
        """One write of everything that is ready, but for large parts."""
        parts, self._outbox = self._outbox, []
        for data in _writes(parts):
            with trio.fail_after(self._limits.write_s):
                await self._stream.send_all(data)
            self._unsent -= len(data)
        self._room.set()
        if self._holds and self._unsent <= self._limits.unsent_bytes_soft:
            self._holds = False
            self._session.release()


def _writes(parts: list[Bytes]) -> Iterator[Bytes]:
    """Small parts joined, large ones as they are: a system call costs less than a copy of them."""
    small: list[Bytes] = []
    for part in parts:
        if len(part) < ALONE_FROM_BYTES:
            small.append(part)
            continue
        if small:
            yield wire.join(small)
            small = []
        yield part
    if small:
        yield wire.join(small)
