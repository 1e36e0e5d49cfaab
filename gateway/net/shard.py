"""One task that drives all sockets of its shard: each wake-up is one round over everything that is ready.

A round reads at most 64 KiB from each ready socket, hands each piece to its device, ends the round for all of them
together (one append per broker) and makes one write per socket that has output; a second one for acknowledgements,
which leave when the broker has answered (``Line.write_now``). There is never a task, a wake-up, a system call or a
request per packet.

- A ``Line`` is one socket with its output. Above ``output_bytes_max`` it is full: it is not read and gets nothing more
  until half of the output is gone.
- A line that closes leaves the poller first. One with a farewell is shut for writing and read to its end for a short
  while, because closing a socket with unread input would destroy the farewell.
- A client that connects or leaves costs as much as a hundred messages, and after a network fault thousands do at once.
  A round serves a bounded number of them; the other clients are served in every round.
- An unforeseen error while the packets of one connection are carried out ends that connection only. It is logged and
  counted (``failures``).
- On a wrapped socket (TLS, WebSocket, a load balancer's header) a ``Codec`` stands between socket and occupant: read
  bytes pass through it, and a round's output is encoded as one piece, under the same limits. A line that has said its
  farewell has no codec any more.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from gateway.fairness import FairQueue
from gateway.net.deadlines import Deadlines
from gateway.net.ends import Occupant, Output
from gateway.net.poller import BROKEN, ENDED, EVENTS_MAX, READ, WRITE, Poller
from gateway.net.rounds import Rounds, Stage
from gateway.transports.codec import Codec

CHUNK_BYTES: Final = 64 * 1024
SHORT_BYTES: Final = 479
"""A chunk of a client that mostly sends little at a time: what Python takes from its own heap, with a header of 33. A
long one costs a block of the system's, cut to size each time."""
CODED_BYTES: Final = 16 * 1024
"""A chunk where it is decoded, which costs more than reading it: so no line holds the others up for long."""
LINGER_S: Final = 2.0
MUCH_BYTES: Final = 64 * 1024
WRITE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes that go out at once to lines that each have ``MUCH_BYTES`` or more: some 20 ms."""
CROWD: Final = 128
"""Number of ready lines from which on others become ready while these are read: they join the same round, with the same
sync of the disk."""
_TOLD_MAX: Final = 8 * EVENTS_MAX
"""Number of lines looked at in one round. Lines that come or go only wait, so others behind thousands of them are
served in the same round."""
CHANGES_MAX: Final = 32
"""Number of lines that come or go in one round: some 3 ms compiled, three times as much plain."""
_CODED_CHANGE: Final = 8
"""How many times longer a handshake of TLS or WebSocket takes."""
_HELD_CHANGE: Final = 100
"""Number of ending subscriptions that take as long as a connection."""
_GOES: Final = BROKEN | ENDED
_recv: Final = socket.socket.recv
_send: Final = socket.socket.send

_log = logging.getLogger(__name__)


class Line(Output):
    """A socket of a shard: ``write``, ``set_reading`` and ``close`` are what its occupant may do. ``codec``: between
    the socket's bytes and the occupant's, ``None`` where they are the same."""

    __slots__ = (
        "_is_listed",
        "_mask",
        "_most",
        "_next",
        "_noted",
        "_out",
        "_own",
        "_reads",
        "_rest",
        "_shard",
        "_socket",
        "codec",
        "descriptor",
        "is_lingering",
        "occupant",
        "wants_close",
    )

    def __init__(self, shard: Shard, connected: socket.socket, codec: Codec | None = None) -> None:
        self._shard = shard
        self._socket = connected
        self.codec = codec
        self._next = b""  # the output of this round, and behind it, where there is more of it:
        self._out: list[bytes] | None = None
        self._own: list[bytes] | None = None  # what the codec has said by itself
        self._rest: memoryview | None = None
        self._mask = READ
        self._noted = 0
        self._most = SHORT_BYTES if codec is None else CODED_BYTES
        self._reads = True
        self._is_listed = False
        self.descriptor = connected.fileno()
        self.unsent = 0
        self.is_full = False
        self.is_lingering = False
        self.wants_close = False
        self.occupant: Occupant | None = None

    # ------------------------------------------------------------ for the occupant

    def write(self, data: bytes) -> None:
        if not self._next:
            self._next = data
        elif self._out is None:
            self._out = [data]
        else:
            self._out.append(data)
        self.unsent += len(data)
        if self.unsent > self._shard.output_bytes_max:
            self.is_full = True
        if not self._is_listed:
            self._is_listed = True
            self._shard.list_output(self)

    def write_now(self, data: bytes) -> None:
        if not self._is_listed and self._rest is None and self.codec is None:
            try:
                count = _send(self._socket, data)
            except OSError:  # full or broken: the round's end finds out
                count = 0
            if count == len(data):
                return
            data = data[count:]
        self.write(data)

    def set_reading(self, reads: bool) -> None:
        self._reads = reads
        self._arm()

    def has_unread(self) -> bool:
        try:
            return len(_recv(self._socket, 1, socket.MSG_PEEK)) > 0
        except OSError:  # nothing is there, or nothing will ever be
            return False

    def close(self) -> None:
        self.occupant = None
        self.wants_close = True
        if not self._is_listed:
            self._is_listed = True
            self._shard.list_output(self)

    # ------------------------------------------------------------ for the shard

    @property
    def is_noted(self) -> bool:
        """Whether it waits for its turn to come or go."""
        return self._noted != 0

    def note(self, mask: int) -> None:
        """Notes the poller's report until the line has its turn."""
        self._noted |= mask

    def take_noted(self) -> int:
        """All that was told while it waited."""
        noted, self._noted = self._noted, 0
        return noted

    @property
    def cost(self) -> int:
        """The cost of its coming or going, in plain connections."""
        held = self.occupant.holdings() // _HELD_CHANGE if self.occupant is not None else 0
        return (1 if self.codec is None else _CODED_CHANGE) + held

    def read(self, mask: int) -> bytes | None:
        """What there is, at most a chunk; empty at the end, ``None`` where nothing is there after all. Where
        there may be more, the poller will tell again."""
        most = self._most
        try:
            chunk = _recv(self._socket, most)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        if len(chunk) == most or (mask & ENDED and chunk):
            if most == SHORT_BYTES:
                chunk += self._more()
            self._shard.poller.change(self.descriptor, self._mask)
        elif most == CHUNK_BYTES and len(chunk) < SHORT_BYTES // 2:
            self._most = SHORT_BYTES
        return chunk

    def _more(self) -> bytes:
        """The rest of a chunk, as from now on long ones are read; nothing where that is the end, or fails."""
        self._most = CHUNK_BYTES
        try:
            return _recv(self._socket, CHUNK_BYTES - SHORT_BYTES)
        except OSError:
            return b""

    def send_output(self) -> bool:
        """One write (two after a partial one). False if the connection is broken."""
        self._is_listed = False
        try:
            if self._rest is not None:
                self._rest = self._sent(self._rest)
            if self._rest is None and (self._next or self.codec is not None):
                data = self._gathered()
                if self.codec is not None:
                    data = self._coded(self.codec, data)
                if data:
                    self._rest = self._sent(data)
        except OSError:
            return False
        self.is_full = self.unsent > self._shard.output_bytes_max // (2 if self.is_full else 1)
        self._arm()
        return True

    def _gathered(self) -> bytes:
        """The output since the last write."""
        data, self._next = self._next, b""
        if self._out is not None:
            data = b"".join([data, *self._out])
            self._out = None
        return data

    def tell(self, own: bytes) -> None:
        """Output of the codec itself."""
        if own:
            if self._own is None:
                self._own = []
            self._own.append(own)
            self.unsent += len(own)
            self.is_full = self.is_full or self.unsent > self._shard.output_bytes_max
            if not self._is_listed:
                self._is_listed = True
                self._shard.list_output(self)

    def _coded(self, codec: Codec, data: bytes) -> bytes:
        """The bytes for the socket: the codec's own output, the occupant's encoded, and a farewell if it closes."""
        coded = codec.encode(data) if data else b""
        if self.wants_close and not self.is_lingering:
            coded += codec.close()
        self.unsent += len(coded) - len(data)
        if self._own:
            coded = b"".join([*self._own, coded])
            self._own = None
        return coded

    def _sent(self, data: bytes | memoryview) -> memoryview | None:
        """Sends what the socket takes; what is left."""
        try:
            count = _send(self._socket, data)
        except BlockingIOError:
            count = 0
        self.unsent -= count
        return memoryview(data)[count:] if count < len(data) else None

    def _arm(self) -> None:
        mask = (READ if self.is_lingering or (self._reads and not self.is_full) else 0) | (
            WRITE if self._rest is not None else 0
        )
        if mask != self._mask and self.descriptor >= 0:
            self._mask = mask
            self._shard.poller.change(self.descriptor, mask)

    def linger(self) -> None:
        """Nothing more is sent; what the client still sends is thrown away until it closes too."""
        self.is_lingering = True
        self.codec = None  # nothing is encoded or decoded any more
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.shut()
        else:
            self._arm()

    def shut(self) -> None:
        """Gives the descriptor back; it is out of the poller before it can be reused."""
        if self.descriptor >= 0:
            self._shard.forget(self)
            self.descriptor = -1
            self._next = b""
            self._out = self._own = None
            self._rest = None
            self.codec = None  # remaining references to the line hold no large buffers
            self._socket.close()


class Shard(Stage):
    """The lines of one task. ``failures`` counts connections that an unforeseen error has ended."""

    def __init__(self, poller: Poller, rounds: Rounds, output_bytes_max: int) -> None:
        self.poller = poller
        self.output_bytes_max = output_bytes_max
        self.failures = 0
        self._rounds = rounds
        self._lines: list[Line | None] = []  # by descriptor: the system gives out the lowest that is free
        self._count = 0
        self._listed: list[Line] = []
        self._changes: FairQueue[Line, None] = FairQueue(CHANGES_MAX)  # those that come or go and wait for their turn
        self._is_in_round = False
        self._lingering: Deadlines[Line] = Deadlines()
        rounds.sent_by(self)

    def __len__(self) -> int:
        return self._count

    @property
    def waiting(self) -> int:
        """How many of those that come or go wait for their turn."""
        return len(self._changes)

    def add(self, connected: socket.socket, codec: Codec | None = None) -> Line:
        """Takes in a connected, non-blocking socket."""
        line = Line(self, connected, codec)
        while len(self._lines) <= line.descriptor:
            self._lines.append(None)
        self._lines[line.descriptor] = line
        self._count += 1
        self.poller.add(line.descriptor, READ)
        return line

    def limit_output(self, bytes_max: int) -> None:
        """Sets the bytes that each line may leave untaken."""
        self.output_bytes_max = bytes_max

    def list_output(self, line: Line) -> None:
        if not self._listed and not self._is_in_round:
            self.poller.wake()
        self._listed.append(line)

    def forget(self, line: Line) -> None:
        self.poller.remove(line.descriptor)
        self._changes.drop(line)
        self._lines[line.descriptor] = None
        self._count -= 1

    async def run(self) -> None:
        """Serves until it is cancelled."""
        while True:
            if not self.poller.wait_here():
                await self.poller.wait()
            self.round()

    def round(self) -> None:
        """One pass over all that is ready."""
        ready = self.poller.poll()
        self._is_in_round = True
        self._rounds.begin()
        served = told = 0
        while True:
            served += self._serve_all(ready)
            told += len(ready)
            if len(ready) < CROWD or served >= EVENTS_MAX or told >= _TOLD_MAX:
                break
            ready = self.poller.poll()
        if self._changes:
            self._take_changes()
        self._rounds.finish()
        self.write_out()
        self._is_in_round = False

    def _serve_all(self, ready: list[tuple[int, int]]) -> int:
        """Serves all but those that come or go, which wait for their turn. How many it has served."""
        served = 0
        for descriptor, mask in ready:
            line = self._lines[descriptor] if descriptor < len(self._lines) else None
            if line is None:
                continue
            if self._is_change(line, mask):
                if not line.is_noted:
                    self._changes.add(line, None)
                line.note(mask)
            else:
                self._serve(line, mask)
                served += 1
        return served

    def tick(self, now: float) -> None:
        """Gives up on farewells that the clients have not read to their end."""
        for line in self._lingering.take(now):
            line.shut()

    def _is_change(self, line: Line, mask: int) -> bool:
        """Whether the line comes or goes: the poller reports it once, so its other reports wait too."""
        if mask & _GOES or line.is_noted:
            return True
        return line.occupant is not None and line.occupant.is_new()

    def _take_changes(self) -> None:
        """Serves those that have waited longest."""
        self._changes.begin(CHANGES_MAX)
        while (taken := self._changes.take()) is not None:
            line = taken[0]
            self._changes.charge(line, line.cost)
            self._serve(line, line.take_noted())
        if self._changes:
            self.poller.wake()

    def _serve(self, line: Line, mask: int) -> None:
        occupant = line.occupant
        if mask & WRITE:
            self._drain(line)
        if mask & READ:
            chunk = line.read(mask)
            if chunk and occupant is not None:
                try:
                    if line.codec is None:
                        occupant.receive(chunk)
                    else:
                        self._decode(line, line.codec, occupant, chunk)
                except Exception:
                    self.failures += 1
                    _log.exception("an unforeseen error; the connection that brought it is closed")
                    self._break(line)
            elif chunk == b"":
                self._break(line)
        elif mask & BROKEN:
            self._break(line)

    def _decode(self, line: Line, codec: Codec, occupant: Occupant, chunk: bytes) -> None:
        """Hands over what the chunk carries. What is over for the codec is over for the occupant, and the codec's last
        words are still sent."""
        data = codec.decode(chunk)
        line.tell(codec.output())
        if data:
            occupant.receive(data)
        if codec.over:
            last = line.occupant
            line.close()
            if last is not None:
                last.broken()

    def _drain(self, line: Line) -> None:
        was_full = line.is_full
        if not line.send_output():
            self._break(line)
        elif was_full and not line.is_full and line.occupant is not None:
            line.occupant.writable()

    def _part(self, line: Line) -> None:
        if not line.is_lingering:
            line.linger()
            self._lingering.add(self._rounds.now + LINGER_S, line)

    def _break(self, line: Line) -> None:
        occupant, line.occupant = line.occupant, None
        line.shut()
        if occupant is not None:
            occupant.broken()

    def flush(self) -> None:
        """Writes out in the middle of this shard's own round; the others' lines are not its to write."""
        if self._is_in_round:
            self.write_out()

    def write_out(self) -> None:
        """One write per line with output; then the lines that asked for it close. Of lines with very much some have
        their turn in the next round, after others were read."""
        listed, self._listed = self._listed, []
        room = WRITE_BYTES_MAX
        for line in listed:
            if line.descriptor < 0:
                continue
            if line.unsent > MUCH_BYTES:
                if room <= 0:
                    self._listed.append(line)
                    continue
                room -= line.unsent
            self._drain(line)
            if line.wants_close:  # what it has not taken by now it will not get
                self._part(line)
        if self._listed:
            self.poller.wake()

    def close(self) -> None:
        """Shuts every line without a word and gives up the poller."""
        for line in self._lines:
            if line is not None:
                line.occupant = None
                line.shut()
        self.poller.close()
