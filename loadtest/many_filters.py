"""What a message costs that matches one filter, while many others are open that it does not match.

A publisher and the subscriber of its topics are measured with ``FEW`` filters open, then with all of them, then with
``FEW`` again, all at the same server: so what changes meanwhile for other reasons shows on both sides. The others are
held by connections that do nothing else.
"""

from __future__ import annotations

from typing import Final

from loadtest import packets, proc
from loadtest.generator import Outcome, Publisher, Run, Subscriber, settle
from loadtest.packets import Ring
from loadtest.wires import TIMEOUT_S, Failed, Wire

FEW: Final = 10
NAMES: Final = 64
RING_PACKETS: Final = 4096
FILTERS_PER_CONNECTION: Final = 1000
SETTLES: Final = 10


class ManyFilters(Run):
    """One run."""

    def perform(self) -> Outcome:
        self._connect()
        self._hold("few", 1, FEW)
        self._quiet()
        first = self._measure()
        held = self._hold("many", FEW, self._order.filters)
        self._quiet()
        many = self._measure()
        for wire in held:
            wire.sock.close()
            del self._wires[wire]
        self._quiet()
        last = self._measure()
        few_us = (first.cpu_us + last.cpu_us) / 2
        if not few_us:
            raise Failed("the server used no processor time")
        many.figures = {"few_cpu_us": few_us, "many_cpu_us": many.cpu_us, "cost_ratio": many.cpu_us / few_us}
        many.figures["few_rate"] = (first.rate + last.rate) / 2
        many.checked = self._counted()
        return many

    def _quiet(self) -> None:
        """A hundred thousand filters take their time to open and to close."""
        for _ in range(SETTLES):
            settle(proc.tree(self._order.server_pid))

    def _connect(self) -> None:
        order = self._order
        names = [f"{number:02}" for number in range(NAMES)]
        filter, topic = f"many/{order.run}/0000000/+/state", f"many/{order.run}/0000000/{{}}/state"
        ring = Ring(topic, order.payload_bytes, RING_PACKETS, names)
        publisher = Publisher(self._open("pub", ["many"])[0], self._poll, order, ring)
        self._add(publisher)
        self._add(Subscriber(self._open("sub", ["many"], [filter])[0], self._poll, publisher))

    def _hold(self, role: str, first: int, end: int) -> list[Wire]:
        """Opens further filters of the same shape, by their numbers."""
        held = []
        for start in range(first, end, FILTERS_PER_CONNECTION):
            numbers = range(start, min(start + FILTERS_PER_CONNECTION, end))
            wire = self._open(role, [str(start)])[0]
            wire.sock.settimeout(TIMEOUT_S)
            wire.ask(packets.subscribe(*[f"many/{self._order.run}/{number:07}/+/state" for number in numbers]))
            wire.expect(packets.suback(len(numbers)), "SUBACK")
            wire.sock.setblocking(False)
            held.append(wire)
        return held
