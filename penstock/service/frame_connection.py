"""One connection of a server of frames: its reader, its writer and the replies between them.

The reader takes requests as long as there is room for their replies, of this connection (``FrameLimits``) and of all
connections (``NativeRoom``). Further requests wait as bytes, in order, and the connection is not read. A reply without
room, to a request that changes nothing (``Request.is_repeatable``), is dropped and the request repeated in its turn. So
a peer with small requests is served, however large the replies of others are.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import trio

from penstock.direct import DirectSocket
from penstock.errors import Busy, InternalError, PenstockError, ProtocolError
from penstock.protocol import wire
from penstock.protocol.link import Link
from penstock.protocol.requests.request import Bytes, Request, Result
from penstock.service.native_room import PENDING_MAX, PENDING_RESERVE, NativeRoom

READ_BYTES_MAX: Final = 256 * 1024
ALONE_FROM_BYTES: Final = 64 * 1024
"""A part of this size is written by itself."""
FRAME_BYTES_PER_S: Final = 64 * 1024
"""While others wait for room, a frame comes at least so quickly, but for some seconds."""
EXEMPT_S: Final = 10.0
"""Those seconds of a connection that reads beyond the bound; of others they are ``half_frame_s``."""

_log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """The peer of a connection; ``id`` is unique for one call of ``serve_frames``. ``certificate``: the name in its
    certificate, which ends at ``ends_s`` (seconds since 1970); empty without one. ``is_private``: whether the
    connection cannot be overheard, because it has TLS or stays within this machine."""

    id: int
    address: str
    certificate: str = ""
    ends_s: float = math.inf
    is_private: bool = True

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.address.rpartition(":")[0] or self.address


class Session(Link, Protocol):
    """Session of one connection at a service. In the same process it is the link itself. None of these may
    wait or raise."""

    def hold(self) -> None:
        """Much waits to be sent: until ``release`` nothing that waits for something to happen is to be answered."""
        ...

    def release(self) -> None:
        """Notes that there is room again."""
        ...

    def close(self) -> None:
        """The connection is gone: replies are dropped."""
        ...


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """Limits of what the peers of a server may take.

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


class FrameConnection:
    """One connection. ``serve`` runs it to its end.

    ``_unsent`` counts the bytes of ``_outbox`` and of the write under way. The writer sleeps on ``_work`` when the
    outbox is empty; the reader sleeps on ``_taken`` while a request that it has read waits for room. Few bytes go to
    the socket at once, once all is answered that waits for an answer, and the writer sleeps on (``_send_now``).
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        session: Session,
        limits: FrameLimits,
        room: NativeRoom,
        frames: wire.FrameReader | None = None,
    ) -> None:
        """``frames``: cuts received bytes into frames."""
        self._stream = stream
        self._direct = DirectSocket.of(stream.socket) if isinstance(stream, trio.SocketStream) else None
        self._is_writing = False  # the stream is
        self._is_taking = False
        self._awaited = 0  # requests without an answer that are not repeatable, as most that park are
        self._session = session
        self._limits = limits
        self._all = room
        self._frames = frames or wire.FrameReader()
        self._incoming: Iterator[wire.RawFrame] = iter(())
        self._next: tuple[int, Request] | None = None  # it waits for room; behind it is the rest of what was read
        self._again: deque[tuple[int, Request]] = deque()  # their replies had no room
        self._outbox: list[Bytes] = []
        self._unsent = 0
        self._pending = 0
        self._work = trio.Event()
        self._room = trio.Event()
        self._taken = trio.Event()
        self._all_taken = True
        self._is_queued = False  # it waits for its turn to take a request
        self._holds = False  # the session holds what is parked
        self._ending = False  # no more will be read: the writer sends what there is and returns
        self._scope: trio.CancelScope | None = None
        self._unfinished = self._untaken = 0  # what counts in the pools of all connections
        self._frame_began = self._exempt_until = 0.0
        self._has_ended_frame = False  # what was read last

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
            self._leave_pools()
            if self._direct is not None:
                self._direct.close()
            await trio.aclose_forcefully(self._stream)

    def _leave_pools(self) -> None:
        pools, self._next, self._incoming = self._all, None, iter(())
        self._again.clear()
        pools.pending -= self._pending
        self._pending = 0
        pools.unfinished.leave(self)
        pools.untaken.leave(self)
        unfinished, untaken, self._unfinished, self._untaken = self._unfinished, self._untaken, 0, 0
        pools.unfinished.change(-unfinished)
        pools.untaken.change(-untaken)

    # -- reading

    async def _read(self) -> None:
        while not self._ending:
            while self._unsent > self._limits.unsent_bytes_soft:
                self._room = trio.Event()
                await self._room.wait()
            data = await self._receive()
            if not data:
                return
            self._count_unfinished(self._frames.held + len(data))
            self._has_ended_frame = not self._frames.held
            self._incoming = self._frames.receive(data)
            del data  # the iterator holds it, as long as something of it is not taken
            self._all_taken = False
            self._take()
            if self._has_ended_frame:  # what is left is of another frame than before, or nothing
                self._frame_began = trio.current_time()
                if self._all.unfinished.exempt is self:
                    self._all.unfinished.leave(self)
            if not self._all_taken:
                self._taken = trio.Event()
                await self._taken.wait()
            self._count_unfinished(self._frames.held)

    def _count_unfinished(self, held: int) -> None:
        counted = max(0, held - self._all.reserve_bytes)
        more, self._unfinished = counted - self._unfinished, counted
        if more:
            self._all.unfinished.change(more)

    async def _receive(self) -> bytes | bytearray:
        size = await self._room_to_read()
        if self._is_too_slow():
            self._put(wire.encode_error(0, ProtocolError("a frame came too slowly, and others wait for its room")))
            return b""
        limit_s = self._limits.half_frame_s if self._frames.held else math.inf
        if self._all.unfinished.exempt is self:
            limit_s = min(limit_s, self._exempt_until - trio.current_time())
        try:
            if limit_s == math.inf:
                return await self._receive_some(size)
            with trio.move_on_after(limit_s):
                return await self._receive_some(size)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""
        self._put(wire.encode_error(0, ProtocolError(f"the rest of a frame did not come within {limit_s:.0f} s")))
        return b""

    async def _receive_some(self, size: int) -> bytes | bytearray:
        if self._direct is None:
            return await self._stream.receive_some(size)
        while True:
            await trio.lowlevel.wait_readable(self._direct.file)
            try:
                data = self._direct.receive(size)
            except OSError:
                return b""
            if data is not None:
                return data

    def _is_too_slow(self) -> bool:
        """Whether a frame keeps others waiting for room for longer than any sound connection takes to send it."""
        if self._all.unfinished.exempt is self:
            return trio.current_time() >= self._exempt_until
        if not self._unfinished or not self._all.unfinished.waiting:
            return False
        allowed_s = self._limits.half_frame_s + self._frames.held / FRAME_BYTES_PER_S
        return trio.current_time() - self._frame_began > allowed_s

    async def _room_to_read(self) -> int:
        """Takes room for the next read and returns it: as much as there is, at least the rest of the reserve."""
        pool, held = self._all.unfinished, self._frames.held
        size = min(READ_BYTES_MAX, max(self._all.reserve_bytes - held, self._frames.missing))
        while True:
            self._count_unfinished(held)  # the reserve may be another by now
            more = max(0, held + size - self._all.reserve_bytes) - self._unfinished
            if pool.fits(more) or pool.exempt is self:
                self._count_unfinished(held + size)
                pool.serve()
                return size
            if held < self._all.reserve_bytes:
                size = self._all.reserve_bytes - held
                continue
            if not pool.is_full:
                size = pool.most - pool.used
                continue
            turn, since = trio.Event(), trio.current_time()
            pool.wait(self, turn.set)
            pool.serve()
            await turn.wait()
            now = trio.current_time()
            self._frame_began += now - since
            if pool.exempt is self:
                self._exempt_until = now + EXEMPT_S + self._frames.missing / FRAME_BYTES_PER_S

    # -- taking requests

    def _take(self, is_turn: bool = False) -> None:
        """Carries out received requests, as long as there is room for the replies; one request in any case if it is
        this connection's turn."""
        self._is_taking = True
        try:
            while self._next is not None or self._find_next():
                assert self._next is not None
                if not is_turn and not self._has_room(self._next[1]):
                    return
                is_turn = False
                (request_id, request), self._next = self._next, None
                self._submit(request_id, request)
            self._set_taken()
        except ProtocolError as error:
            self._put(wire.encode_error(0, error))
            self._ending = True
            self._set_taken()
        finally:
            self._session.flush()
            self._is_taking = False
            if self._outbox:
                self._send_now()

    def _set_taken(self) -> None:
        self._all_taken = True
        self._taken.set()

    def _find_next(self) -> bool:
        """Makes the next request that can be carried out ``_next``. Raises ``ProtocolError`` for damage."""
        for frame in self._incoming:
            self._has_ended_frame = True
            request_id = frame.request_id
            try:
                request = wire.decode_request(frame)
            except PenstockError as error:
                self._put(wire.encode_error(request_id, error))
                continue
            if self._is_busy():
                busy = Busy(f"{self._pending} requests of this connection are waiting")
                self._put(wire.encode_error(request_id, busy))
                continue
            self._next = (request_id, request)
            return True
        return False

    def _is_busy(self) -> bool:
        pending = self._pending
        return pending >= self._limits.pending_max or (pending >= PENDING_RESERVE and self._all.pending >= PENDING_MAX)

    def _has_room(self, request: Request) -> bool:
        """Whether there is room for the reply; if not, ``_take`` is called when there is."""
        if self._unsent > self._limits.unsent_bytes_soft:  # a few bytes may ask for megabytes, many times
            return False
        if not self._all.untaken.is_full:
            return True
        reserve = self._all.reserve_bytes
        if self._unsent <= reserve and (request.is_repeatable or request.reply_bytes() <= reserve):
            return True
        self._queue_up()
        return False

    def _queue_up(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._all.untaken.wait(self, self._on_turn)

    def _on_turn(self) -> None:
        """Takes the turn: there is room for one more reply, among all connections."""
        self._is_queued = False
        if self._unsent > self._limits.unsent_bytes_soft:
            return  # it is asked again when its own are fewer
        if self._again:
            request_id, request = self._again.popleft()
            self._hand_over(request_id, request)
            self._session.flush()
        elif self._next is not None:
            self._take(is_turn=True)
        if self._again or self._next is not None:
            self._queue_up()

    def _go_on(self) -> None:
        """Replies have left."""
        if self._unsent > self._limits.unsent_bytes_soft or self._is_queued:
            return
        if self._again:
            self._queue_up()
            self._all.untaken.serve()
        if self._next is not None:
            self._take()

    def _submit(self, request_id: int, request: Request) -> None:
        self._pending += 1
        self._all.pending += 1
        self._awaited += not request.is_repeatable
        self._hand_over(request_id, request)

    def _hand_over(self, request_id: int, request: Request) -> None:
        def on_result(result: Result) -> None:
            if self._scope is not None:
                self._answer(request_id, request, result)

        try:
            self._session.submit(request, on_result)
        except Exception as error:  # a defect of the service: this request alone fails
            _log.exception("%s failed", type(request).__name__)
            on_result(InternalError(f"{type(request).__name__} failed: {type(error).__name__}"))

    # -- writing

    def _answer(self, request_id: int, request: Request, result: Result) -> None:
        parts = wire.encode_result(request_id, result)
        if request.is_repeatable and self._all.untaken.is_full and not self._is_in_reserve(parts):
            self._again.append((request_id, request))
            self._queue_up()
            return
        self._pending -= 1
        self._all.pending -= 1
        self._awaited -= not request.is_repeatable
        self._put(parts)

    def _is_in_reserve(self, parts: list[Bytes]) -> bool:
        return self._unsent + sum(map(len, parts)) <= self._all.reserve_bytes

    def _put(self, parts: list[Bytes]) -> None:
        if self._scope is None:
            return
        self._outbox += parts
        self._unsent += sum(map(len, parts))
        self._count_untaken()
        if self._unsent > self._limits.unsent_bytes_max:
            self._scope.cancel()
        if not self._holds and self._has_much_unsent():
            self._holds = True
            self._session.hold()
        if self._is_taking:
            return  # it sends all when it has taken what there is
        if self._awaited:
            self._work.set()
        else:
            self._send_now()

    def _send_now(self) -> None:
        """Sends what the socket takes, if it is little and nothing waits for its room; the rest is the writer's."""
        is_free = self._direct is not None and not self._is_writing and not self._holds
        if is_free and self._unsent < ALONE_FROM_BYTES and self._next is None and not self._again:
            assert self._direct is not None
            data = wire.join(self._outbox)
            sent = self._direct.send(data)
            self._unsent -= sent
            self._count_untaken()
            if sent == len(data):
                self._outbox = []
                return
            self._outbox = [data[sent:]]
        self._work.set()

    def _has_much_unsent(self) -> bool:
        """Whether nothing that is parked is to be answered now."""
        if self._untaken and self._all.untaken.is_full:
            return True
        return self._unsent > self._limits.unsent_bytes_soft

    def _count_untaken(self) -> None:
        counted = max(0, self._unsent - self._all.reserve_bytes)
        more, self._untaken = counted - self._untaken, counted
        if more:
            self._all.untaken.change(more)

    async def _write(self) -> None:
        try:
            while True:
                if not self._outbox:
                    if self._ending and self._next is None and not self._again:
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
        self._is_writing = True
        for data in _writes(parts):
            with trio.fail_after(self._limits.write_s):
                await self._stream.send_all(data)
            self._unsent -= len(data)
            self._count_untaken()
        self._is_writing = False
        if self._holds and not self._has_much_unsent():
            self._holds = False
            self._session.release()
        self._room.set()
        self._go_on()


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
