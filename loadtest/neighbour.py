"""What others feel of a herd: one client's round trips while thousands come at once, and while all of them are cut off.

The herd is a process of its own, with sockets that are open already. It says all its CONNECTs at once and waits for the
CONNACKs; where each of it has filters, it subscribes to these, one client after the other; then it ends, and the system
closes everything that it had, as a network does that fails. The neighbour has one QoS 1 message in flight all the
while, every ``PAUSE_S``, and every PUBACK is compared with what must come. It has the core of the herd, which is less
important there.
"""

from __future__ import annotations

import os
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
RING_PACKETS: Final = 4096
_PATIENCE: Final = 10
"""Added to what the herd's process gives way (``nice``)."""


class Neighbour(Run):
    """One client beside a herd of ``sessions``, each with so many ``filters``."""

    def perform(self) -> Outcome:
        order = self._order
        wire = self._open("near", ["near"])[0]
        wire.sock.setblocking(True)
        trips = Trips(wire, Ring("near", order.payload_bytes, RING_PACKETS))
        quiet = trips.for_a_while(QUIET_S)
        herd = Herd(order)
        try:
            herd.expect(b"open\n", "did not connect")
            start = time.perf_counter()
            herd.go_on()
            coming = trips.until(herd)
            seconds = time.perf_counter() - start
            herd.expect(b"in\n", "was not let in")
        finally:
            herd.end()
        going = trips.for_a_while(GOING_S)
        settle(proc.tree(order.server_pid))
        return Outcome(
            messages=trips.count,
            seconds=seconds,
            rate=order.sessions / seconds,
            checked=trips.count + order.sessions,
            figures={
                "quiet_ms": max(quiet) * 1e3,
                "coming_ms": max(coming) * 1e3,
                "going_ms": max(going) * 1e3,
                "coming_s": seconds,
            },
        )


class Trips:
    """Round trips of a client, one after the other. ``count``: how many there were."""

    def __init__(self, wire: Wire, ring: Ring) -> None:
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
        self._wire.ask(self._ring.cut(self._ring.packets, self._ring.size, self.count, 1))
        self._wire.expect(self._ring.cut(self._ring.acks, 4, self.count, 1), "PUBACK")
        taken = time.perf_counter() - start
        self.count += 1
        time.sleep(PAUSE_S)
        return taken


class Herd:
    """The process of those who come and go."""

    def __init__(self, order: Order) -> None:
        where = [order.host, str(order.port), order.wire]
        where += [str(number) for number in (order.sessions, order.filters, order.core)]
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


def be_herd(host: str, port: int, wire: str, count: int, filters: int) -> None:
    """Opens the connections, says the CONNECTs when it is told to, subscribes, and waits to be killed."""
    wires = [Wire(host, port, wire) for _ in range(count)]
    print("open", flush=True)
    sys.stdin.readline()
    for number, one in enumerate(wires):
        one.ask(packets.connect(f"herd-{number}"))
    for one in wires:
        one.expect(packets.CONNACK_OK, "CONNACK")
    for number, one in enumerate(wires if filters else ()):
        one.ask(packets.subscribe(*[f"herd/{number}/{at}/+" for at in range(filters)]))
        one.expect(packets.suback(filters), "SUBACK")
    print("in", flush=True)
    sys.stdin.readline()


def main() -> None:
    """Is a herd: ``HOST PORT WIRE COUNT FILTERS CORE`` are the arguments."""
    host, port, wire, count, filters, core = sys.argv[1:]
    pin(int(core))
    os.nice(_PATIENCE)
    try:
        be_herd(host, int(port), wire, int(count), int(filters))
    except (Failed, OSError) as error:
        print(error, flush=True)
