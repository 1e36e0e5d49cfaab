"""What others feel of a herd: one client's round trips while thousands come at once, and while all of them are cut off.

The herd is a process of its own, with sockets that are open already. It says all its CONNECTs, at once or byte by byte,
and waits for the CONNACKs; where each of it has filters, it subscribes to these, one client after the other; where
there are retained messages, the first of it is sent all of them; then it ends, and the system closes everything that it
had, as a network does that fails. The neighbour has one QoS 1 message in flight all the
while, every ``PAUSE_S``, and every PUBACK is compared with what must come. It has the core of the herd, which is less
important there.

A herd that is ``idle`` only opens its sockets, and holds them. Its neighbour comes from another address, and connects
anew for every message: what such a herd could take from others is the room for those who have not said yet who they
are.
"""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
import time
from typing import Final

from loadtest import packets, proc
from loadtest.cores import pin
from loadtest.generator import Order, Outcome, Run, settle
from loadtest.packets import Ring
from loadtest.wires import Failed, Wire

PAUSE_S: Final = 0.002
QUIET_S: Final = 1.0
GOING_S: Final = 3.0
"""So long the neighbour looks on when the herd has been cut off."""
STAY_S: Final = 2.0
"""So long an idle herd stays when all of it is there."""
ELSEWHERE: Final = "127.0.0.2"
"""Where the neighbour of an idle herd comes from."""
SPARE_FILES: Final = 1000
"""Descriptors of a process that are left for its other needs."""
RING_PACKETS: Final = 4096
_RETAINED_AT_ONCE: Final = 1000
_KEPT: Final = bytes(64)
_PATIENCE: Final = 10
"""Added to what the herd's process gives way (``nice``)."""


class Neighbour(Run):
    """One client beside a herd of ``sessions``, each with so many ``filters``."""

    def perform(self) -> Outcome:
        order = self._order
        trips = Visits(order) if order.idle else self._trips()
        quiet = trips.for_a_while(QUIET_S)
        herd = Herd(order)
        try:
            herd.expect(b"open\n", "did not connect")
            start = time.perf_counter()
            herd.go_on()
            coming = trips.until(herd)
            seconds = time.perf_counter() - start
            herd.expect(b"in\n", "was not let in")
            if order.idle:
                coming += trips.for_a_while(STAY_S)
        finally:
            herd.end()
        going = trips.for_a_while(GOING_S)
        settle(proc.tree(order.server_pid))
        return Outcome(
            messages=trips.count,
            seconds=seconds,
            rate=order.sessions / seconds,
            checked=trips.count + order.sessions + order.messages,
            figures={
                "quiet_ms": max(quiet) * 1e3,
                "coming_ms": max(coming) * 1e3,
                "going_ms": max(going) * 1e3,
                "coming_s": seconds,
            },
        )

    def _trips(self) -> Trips:
        wire = self._open("near", ["near"])[0]
        wire.sock.setblocking(True)
        return Trips(wire, Ring("near", self._order.payload_bytes, RING_PACKETS))


class Trips:
    """Round trips of a client, one after the other. ``count``: how many there were."""

    def __init__(self, wire: Wire | None, ring: Ring) -> None:
        self._wire = wire
        self._ring = ring
        self.count = 0

    def for_a_while(self, seconds: float) -> list[float]:
        """Seconds that each took."""
        until, taken = time.perf_counter() + seconds, [self._trip()]
        while time.perf_counter() < until:
            taken.append(self._trip())
        return taken

    def until(self, herd: Herd) -> list[float]:
        """The same, until the herd has something to say."""
        taken = [self._trip()]
        while not herd.has_spoken():
            taken.append(self._trip())
        return taken

    def _trip(self) -> float:
        start = time.perf_counter()
        self._go()
        taken = time.perf_counter() - start
        self.count += 1
        time.sleep(PAUSE_S)
        return taken

    def _go(self) -> None:
        assert self._wire is not None
        self._publish(self._wire)

    def _publish(self, wire: Wire) -> None:
        wire.ask(self._ring.cut(self._ring.packets, self._ring.size, self.count, 1))
        wire.expect(self._ring.cut(self._ring.acks, 4, self.count, 1), "PUBACK")


class Visits(Trips):
    """The same with a connection for each, from elsewhere."""

    def __init__(self, order: Order) -> None:
        super().__init__(None, Ring("near", order.payload_bytes, RING_PACKETS))
        self._order = order

    def _go(self) -> None:
        wire = Wire(self._order.host, self._order.port, self._order.wire, source=ELSEWHERE)
        try:
            wire.ask(packets.connect("near"))
            wire.expect(packets.CONNACK_OK, "CONNACK")
            self._publish(wire)
            wire.ask(packets.DISCONNECT)
        finally:
            wire.sock.close()


class Herd:
    """The process of those who come and go."""

    def __init__(self, order: Order) -> None:
        where = [order.host, str(order.port), order.wire]
        numbers = (order.sessions, order.filters, order.messages, int(order.slow), int(order.idle), order.core)
        where += [str(number) for number in numbers]
        command = [sys.executable, "-c", "from loadtest.neighbour import main; main()", *where]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._say, self._hear = self._process.stdin, self._process.stdout

    def has_spoken(self) -> bool:
        """Whether it has said something, or has ended."""
        return bool(select.select([self._hear], [], [], 0)[0])

    def expect(self, word: bytes, otherwise: str) -> None:
        """Waits for what it says."""
        said = self._hear.readline()
        if said != word:
            raise Failed(f"the herd {otherwise}: {said.decode().strip()}")

    def go_on(self) -> None:
        """It may say its CONNECTs."""
        self._say.write(b"\n")
        self._say.flush()

    def end(self) -> None:
        """All its connections are cut off."""
        self._process.kill()
        self._process.wait()
        self._say.close()
        self._hear.close()


def sockets_within_limit(count: int) -> int:
    """So many sockets, or fewer where a process may not open so many files."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return count if most == resource.RLIM_INFINITY else min(count, max(1, most - SPARE_FILES))


def be_idle(host: str, port: int, count: int) -> None:
    """Opens the connections when it is told to, says nothing on any, and waits to be killed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("open", flush=True)
    sys.stdin.readline()
    wires = [Wire(host, port) for _ in range(count)]
    print("in", flush=True)
    sys.stdin.readline()
    for one in wires:
        one.sock.close()


def be_herd(host: str, port: int, wire: str, count: int, filters: int, messages: int, slow: bool) -> None:
    """Opens the connections, says the CONNECTs when it is told to, subscribes, and waits to be killed."""
    if messages:
        _retain(Wire(host, port, wire), messages)
    wires = [Wire(host, port, wire) for _ in range(count)]
    print("open", flush=True)
    sys.stdin.readline()
    _connect(wires, slow)
    if messages:
        _receive_retained(wires[0], messages)
    for number, one in enumerate(wires if filters else ()):
        one.ask(packets.subscribe(*[f"herd/{number}/{at}/+" for at in range(filters)]))
        one.expect(packets.suback(filters), "SUBACK")
    print("in", flush=True)
    sys.stdin.readline()


def _connect(wires: list[Wire], slow: bool) -> None:
    hellos = [packets.connect(f"herd-{number}") for number in range(len(wires))]
    step = 1 if slow else max(map(len, hellos))
    for at in range(0, max(map(len, hellos)), step):
        for one, hello in zip(wires, hellos, strict=True):
            if at < len(hello):
                one.ask(hello[at : at + step])
    for one in wires:
        one.expect(packets.CONNACK_OK, "CONNACK")


def _topic(number: int) -> str:
    return f"kept/{number % 1000:03}/{number:06}"


def _retain(wire: Wire, count: int) -> None:
    """Stores so many retained messages."""
    wire.ask(packets.connect("herd-keeper"))
    wire.expect(packets.CONNACK_OK, "CONNACK")
    for start in range(0, count, _RETAINED_AT_ONCE):
        some = range(start, min(start + _RETAINED_AT_ONCE, count))
        wire.ask(b"".join([packets.retain(_topic(one), one - start + 1, _KEPT) for one in some]))
        acks = b"".join([b"\x40\x02" + (one - start + 1).to_bytes(2, "big") for one in some])
        wire.expect(acks, "PUBACK")


def _receive_retained(wire: Wire, count: int) -> None:
    """Subscribes, and takes each retained message once, in whatever order they come."""
    wire.ask(packets.subscribe("kept/#", qos=0))
    wire.expect(b"\x90\x03\x00\x01\x00", "SUBACK")
    missing = {packets.retained(_topic(number), _KEPT) for number in range(count)}
    size, rest = len(next(iter(missing))), b""
    while missing:
        rest += wire.receive()
        for at in range(0, len(rest) - size + 1, size):
            one = rest[at : at + size]
            if one not in missing:
                raise Failed(f"not a retained message, or one that came before: {one[:40]!r}")
            missing.discard(one)
        rest = rest[len(rest) // size * size :]


def main() -> None:
    """Is a herd: ``HOST PORT WIRE COUNT FILTERS MESSAGES SLOW IDLE CORE`` are the arguments."""
    host, port, wire, count, filters, messages, slow, idle, core = sys.argv[1:]
    pin(int(core))
    os.nice(_PATIENCE)
    try:
        if idle == "1":
            be_idle(host, int(port), int(count))
            return
        be_herd(host, int(port), wire, int(count), int(filters), int(messages), slow == "1")
    except (Failed, OSError) as error:
        print(error, flush=True)
