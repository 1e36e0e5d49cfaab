"""Gateways and clients at a broker whose disk is full for a while, fails, and whose wall clock jumps.

The world of ``tests/simulation/gateways.py`` with more that can happen to the broker, and with clients that take
retained messages away again. What must be true in the end is the same: whoever was told that something is stored was
told the truth, and what was refused or left open turns up once where once was promised.
"""

from __future__ import annotations

import errno
from typing import Final

from gateway.mqtt.packets import Publish
from penstock.errors import StorageFailed
from penstock.protocol.requests.topics import CreateTopic
from tests.simulation.gateways import Device, Line, PatientLine, World

HARDSHIPS: Final = ("full", "sync", "write", "jump", "queues")


class Eraser(Device):
    """A client that also takes retained messages away."""

    def _publish(self, line: Line) -> None:
        super()._publish(line)
        rng = self.world.rng
        if rng.random() < 0.2 and len(self.open) < 10:
            message = Publish(rng.choice(self.world.topics), b"", rng.choice((1, 2)), True, False, self._id())
            self.open[message.packet_id] = (message, False)
            line.send(message)


class Hardships(World):
    """A world with a broker that has a hard time."""

    kind = Eraser
    line = PatientLine  # what waits for room is followed by nothing more of its client
    set_ms = 1_700_000_000_000
    """What the broker's wall clock shows at 0 s."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._full_until = 0.0
        self.broker.clock.set_ms = self.set_ms
        self._disk.half_written = self.rng.choice((0.0, 0.5, 1.0))

    # ------------------------------------------------------------ what can happen

    def fault(self) -> None:
        if self.rng.random() < 0.6:
            super().fault()
            return
        kind = self.rng.choice(HARDSHIPS)
        self.faults[kind] += 1
        self.note(f"fault: {kind}")
        if kind == "full":
            self._full_until = self.clock.now_s + self.rng.choice((0.3, 2.0, 8.0))
            self._disk.capacity = self._disk.used() + self.rng.choice((0, 0, 100, 1000, 9000))
        elif kind == "sync":
            self._disk.fail("sync", errno.EIO)
        elif kind == "write":
            self._disk.fail("pwrite", self.rng.choice((errno.EIO, errno.ENOSPC)), self.rng.randint(0, 3))
        elif kind == "jump":
            self.set_ms += self.rng.choice((-86_400_000, -5_000, 5_000, 86_400_000))
            self.broker.clock.set_ms = self.set_ms
        else:
            topic = self.rng.choice(("t", "u"))
            if self.broker.state.topics.get(topic) is not None:
                self.broker.submit(CreateTopic(topic, self.rng.randint(4, 9)))

    def step(self, *, faults: bool) -> None:
        if self.clock.now_s >= self._full_until or not faults:
            self._disk.capacity = None
        super().step(faults=faults)

    def pass_time(self, seconds: float) -> None:
        try:
            super().pass_time(seconds)
        except StorageFailed:
            self.fail_over()

    def sync(self) -> None:
        try:
            super().sync()
        except StorageFailed:
            self.fail_over()

    def fail_over(self) -> None:
        """The broker ends, and is started again."""
        power = self.rng.random() < 0.3
        self.note(f"the broker has ended by itself{' and the power is lost' if power else ''}")
        self.restart_broker(power=power)

    def restart_broker(self, *, power: bool) -> None:
        capacity, self._disk.capacity = self._disk.capacity, None
        super().restart_broker(power=power)
        self._disk.capacity = capacity
        self.broker.clock.set_ms = self.set_ms

    # ------------------------------------------------------------ what must be true

    def stored(self) -> list[bytes]:
        return [body for body in super().stored() if body]
