"""One connection of a RocketMQ client: read bytes, bytes to write, and the number of commands under way.

Answers of one round of reading go to the socket together, at the round's end and without a task's wake-up. A writer
task sends what the socket did not take, and the answers that come between rounds.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from penstock.direct import DirectSocket
from penstock.service.frame_connection import Peer
from remoting.frames import Command, encode
from remoting.logins import SignedLogins

READ_BYTES: Final = 256 << 10
UNSENT_BYTES_MAX: Final = 64 << 20
"""Maximum number of bytes that wait for one client; beyond it the client is disconnected."""
IDLE_S: Final = 120.0
"""How long a connection may be silent, as at RocketMQ: clients tell of themselves every 30 s."""
RUNNING_MAX: Final = 4096
"""Maximum number of commands of one connection under way; more wait in the socket."""

_log = logging.getLogger(__name__)


class Connection:
    """One client connection.

    Attributes:
        number: unique among the connections of the front.
        peer, peer_bytes: the other end; its address and port as eight bytes.
        logins: the users whose commands came by it.
        running: number of commands under way.
        scope: ends with the connection.
    """

    def __init__(self, stream: trio.abc.Stream, peer: Peer, peer_bytes: bytes, logins: SignedLogins) -> None:
        self.number = peer.id
        self.peer = peer
        self.peer_bytes = peer_bytes
        self.logins = logins
        self.running = 0
        self.scope = trio.CancelScope()
        self._heard_at = trio.current_time()
        self._stream = stream
        self._direct = DirectSocket.of(stream.socket) if isinstance(stream, trio.SocketStream) else None
        self._is_writing = False  # a write of the stream is under way
        self._is_in_round = False
        self._outbox: list[bytes] = []
        self._unsent = 0
        self._news = trio.Event()
        self._room = trio.Event()

    def put(self, command: Command) -> None:
        """Has a command written; a client for which too much waits already is disconnected."""
        if self._unsent > UNSENT_BYTES_MAX:
            _log.info("a remoting client was disconnected: it does not read its answers")
            self.scope.cancel()
            return
        data = encode(command)
        self._outbox.append(data)
        self._unsent += len(data)
        if not self._is_in_round:
            self._news.set()

    def end_in(self, seconds: float) -> None:
        """Has the connection end ``seconds`` from now, whenever it was to end before."""
        self.scope.deadline = trio.current_time() + seconds

    def is_silent(self, now: float) -> bool:
        """Whether the other end has been silent long enough to count as gone. ``now``: of the loop's clock."""
        return self._heard_at + IDLE_S < now

    def begin(self) -> None:
        """Counts a command that begins."""
        self.running += 1

    def end(self) -> None:
        """Counts a command that has ended."""
        self.running -= 1
        if self.running == RUNNING_MAX - 1:
            self._room.set()

    async def receive(self) -> bytes | bytearray:
        """Waits for room for another command and for data, and returns that; empty at the end of the stream."""
        while self.running >= RUNNING_MAX:
            self._room = trio.Event()
            await self._room.wait()
        data = await self._receive()
        self._heard_at = trio.current_time()
        return data

    async def _receive(self) -> bytes | bytearray:
        if self._direct is None:
            return await self._stream.receive_some(READ_BYTES)
        while True:
            await trio.lowlevel.wait_readable(self._direct.file)
            try:
                data = self._direct.receive(READ_BYTES)
            except OSError:
                return b""
            if data is not None:
                return data

    def begin_round(self) -> None:
        """Holds answers back until ``end_round``."""
        self._is_in_round = True

    def end_round(self) -> None:
        """Sends the answers of the round."""
        self._is_in_round = False
        if not self._outbox:
            return
        if self._direct is not None and not self._is_writing:
            data = self._outbox[0] if len(self._outbox) == 1 else b"".join(self._outbox)
            sent = self._direct.send(data)
            self._unsent -= sent
            if sent == len(data):
                self._outbox = []
                return
            self._outbox = [data[sent:]]
        self._news.set()

    async def write(self) -> None:
        """Writes the answers that ``end_round`` leaves, and those between rounds, until cancelled."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._outbox:
                data, self._outbox = b"".join(self._outbox), []
                self._is_writing = True
                await self._stream.send_all(data)
                self._is_writing = False
                self._unsent -= len(data)

    async def close(self) -> None:
        """Gives its descriptors back, also in a task that is cancelled."""
        if self._direct is not None:
            self._direct.close()
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)
