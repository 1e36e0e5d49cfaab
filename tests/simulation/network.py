"""A network of a few hosts in one process: TCP sockets whose bytes take time, arrive in pieces, and can be cut off.

Product code is not changed: trio and anyio get these sockets from trio's socket factory. The host that a task runs on
is a context variable, inherited by the tasks that it starts. Bytes of a connection arrive in order, each piece after a
latency of its own; a receiver that does not read stops its sender at 64 KiB. A host that dies resets its connections;
a cut link delays everything, connecting included, until it is healed. All chance comes from one seeded generator.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections import deque
from contextvars import ContextVar
from typing import Any

import trio

HOST: ContextVar[str] = ContextVar("HOST")
WINDOW_BYTES = 64 * 1024
PIECE_BYTES = 8 * 1024


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Network(trio.abc.SocketFactory):
    """Hosts are addresses such as "10.0.0.1"; they exist as soon as somebody names them."""

    def __init__(self, rng: random.Random, latency_s: tuple[float, float] = (0.0001, 0.003)) -> None:
        self.rng = rng
        self.latency_s = latency_s
        self.listeners: dict[tuple[str, int], SimSocket] = {}
        self._sockets: dict[SimSocket, None] = {}
        self._cuts: dict[frozenset[str], trio.Event] = {}
        self._ports = 40_000

    def socket(
        self,
        family: socket.AddressFamily | int = socket.AF_INET,
        type: socket.SocketKind | int = socket.SOCK_STREAM,
        proto: int = 0,
    ) -> SimSocket:
        return self.make(HOST.get())

    def make(self, host: str) -> SimSocket:
        made = SimSocket(self, host)
        self._sockets[made] = None
        return made

    def forget(self, one: SimSocket) -> None:
        self._sockets.pop(one, None)

    def free_port(self) -> int:
        self._ports += 1
        return self._ports

    def latency(self) -> float:
        return self.rng.uniform(*self.latency_s)

    def kill(self, host: str) -> None:
        """All connections of a host break, its listeners are gone."""
        for one in [one for one in self._sockets if one.host == host]:
            one.reset()

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between two hosts until ``heal``."""
        self._cuts.setdefault(frozenset((one, other)), trio.Event())

    def heal(self, one: str, other: str) -> None:
        healed = self._cuts.pop(frozenset((one, other)), None)
        if healed is not None:
            healed.set()

    async def until_passing(self, one: str, other: str) -> None:
        while (cut := self._cuts.get(frozenset((one, other)))) is not None:
            await cut.wait()


class Direction:
    """Bytes on their way from one socket to another."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[float, bytes]] = deque()  # when it arrives, what; b"" is the end
        self.under_way = 0
        self.changed = trio.Event()
        self.broken = False

    def stir(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class SimSocket(trio.socket.SocketType):
    """One end of a connection, or a listener."""

    def __init__(self, network: Network, host: str) -> None:
        self._network = network
        self.host = host
        self._address = (host, 0)
        self._peer: SimSocket | None = None
        self._in, self._out = Direction(), Direction()
        self._accepting: deque[SimSocket] = deque()
        self._listening = False
        self._open = True
        self._did_shutdown = False

    # -- what trio and anyio look at

    @property
    def _sock(self) -> SimSocket:
        return self

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET

    @property
    def type(self) -> socket.SocketKind:
        return socket.SOCK_STREAM

    @property
    def proto(self) -> int:
        return 0

    @property
    def did_shutdown_SHUT_WR(self) -> bool:
        return self._did_shutdown

    def fileno(self) -> int:
        return 1 if self._open else -1

    def setsockopt(self, *_: Any) -> None:
        self._check()

    def getsockopt(self, level: int, option: int, *_: Any) -> Any:
        return int(self._listening and option == socket.SO_ACCEPTCONN)

    def getsockname(self) -> Any:
        return self._address

    def getpeername(self) -> Any:
        if self._peer is None:
            raise _error(errno.ENOTCONN)
        return self._peer._address

    def _check(self) -> None:
        if not self._open:
            raise _error(errno.EBADF)

    # -- listening

    async def bind(self, address: Any) -> None:
        await trio.lowlevel.checkpoint()
        self._address = (self.host, address[1] or self._network.free_port())

    def listen(self, backlog: int = 0) -> None:
        if self._address in self._network.listeners:
            raise _error(errno.EADDRINUSE)
        self._listening = True
        self._network.listeners[self._address] = self

    async def accept(self) -> Any:
        await trio.lowlevel.checkpoint()
        while not self._accepting:
            self._check()
            await self._in.changed.wait()
        one = self._accepting.popleft()
        return one, one.getpeername()

    # -- connecting

    async def connect(self, address: Any) -> None:
        network = self._network
        await trio.sleep(network.latency())
        await network.until_passing(self.host, address[0])
        listener = network.listeners.get((address[0], address[1]))
        if listener is None:
            raise _error(errno.ECONNREFUSED)
        other = network.make(listener.host)
        self._address, other._address = (self.host, network.free_port()), listener._address
        self._peer, other._peer = other, self
        other._in, other._out = self._out, self._in
        listener._accepting.append(other)
        listener._in.stir()
        await trio.sleep(network.latency())

    # -- bytes

    async def send(self, data: Any, flags: int = 0) -> int:
        await trio.lowlevel.checkpoint()
        out = self._out
        while True:
            self._check()
            if out.broken:
                raise _error(errno.EPIPE)
            room = WINDOW_BYTES - out.under_way
            if room > 0:
                break
            await out.changed.wait()
        piece = bytes(data[: min(room, self._network.rng.randint(1, PIECE_BYTES))])
        self._put(piece)
        return len(piece)

    def _put(self, piece: bytes) -> None:
        last = self._out.pieces[-1][0] if self._out.pieces else 0.0
        self._out.pieces.append((max(last, trio.current_time() + self._network.latency()), piece))
        self._out.under_way += len(piece)
        self._out.stir()

    async def recv(self, size: int, flags: int = 0) -> bytes:
        await trio.lowlevel.checkpoint()
        into = self._in
        assert self._peer is not None
        while True:
            self._check()
            if into.broken:
                raise _error(errno.ECONNRESET)
            if not into.pieces:
                await into.changed.wait()
            elif into.pieces[0][0] > trio.current_time():
                with trio.move_on_at(into.pieces[0][0]):
                    await into.changed.wait()
            else:
                await self._network.until_passing(self.host, self._peer.host)
                if not into.broken and self._open:
                    return self._take(size)

    def _take(self, size: int) -> bytes:
        into, taken = self._in, []
        while into.pieces and into.pieces[0][0] <= trio.current_time() and size > 0:
            at, piece = into.pieces.popleft()
            if not piece:
                if taken:
                    into.pieces.appendleft((at, piece))
                break
            taken.append(piece[:size])
            if len(piece) > size:
                into.pieces.appendleft((at, piece[size:]))
            size -= len(taken[-1])
        data = b"".join(taken)
        if not data:
            into.pieces.appendleft((0.0, b""))  # the end stays the end
        into.under_way -= len(data)
        into.stir()
        return data

    # -- ending

    def shutdown(self, how: int) -> None:
        self._check()
        self._did_shutdown = True
        self._put(b"")

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._listening:
            del self._network.listeners[self._address]
            for waiting in self._accepting:
                waiting.reset()
        elif self._peer is not None and not self._did_shutdown and not self._out.broken:
            self._put(b"")
        self._in.stir()
        self._out.stir()
        self._network.forget(self)

    def reset(self) -> None:
        """The host dies: nothing that was under way arrives."""
        for direction in (self._in, self._out):
            direction.broken = True
            direction.pieces.clear()
            direction.stir()
        if self._listening and self._open:
            del self._network.listeners[self._address]
            self._listening = False
        self._network.forget(self)
