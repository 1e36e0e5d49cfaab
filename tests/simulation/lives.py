"""What worlds with an event loop share: a broker that dies and comes back on its disk, tasks of a host, moments."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

import broker.net.server
from broker.settings import BrokerSettings
from penstock.errors import StorageFailed
from tests.simulation.disk import SimDisk
from tests.simulation.mortal import MortalDisk
from tests.simulation.network import HOST
from tests.simulation.running import SimClock, Simulation

SECRET = bytes(range(32))


async def on_host(nursery: trio.Nursery, host: str, work: Callable[..., Any], *args: Any) -> Any:
    """Starts work in a task of a host; waits until it reports."""
    token = HOST.set(host)
    try:
        return await nursery.start(partial(work, *args))
    finally:
        HOST.reset(token)


class Moments:
    """Lets a fault wait for the next time that something of a kind happens."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._waited_for: dict[str, trio.Event] = {}

    def tell(self, what: str) -> None:
        """It happens now."""
        if (event := self._waited_for.pop(what, None)) is not None:
            event.set()

    async def just_after(self, what: str) -> None:
        """Waits until something of a kind happens once more, or a second: just after that a death hurts most."""
        with trio.move_on_after(1.0):
            await self._waited_for.setdefault(what, trio.Event()).wait()
            await trio.sleep(self._rng.uniform(0.0, 0.001))


class LivingBroker:
    """A broker on a disk that outlives it.

    Attributes:
        clock: of its machine.
        booted_wrong: its machine started on a wrong clock, which nobody can know.
        lives: when each of its lives began to serve and when it ended, in right milliseconds.
    """

    def __init__(
        self,
        simulation: Simulation,
        settings: BrokerSettings,
        clock: SimClock,
        moments: Moments,
        blocking_s: tuple[float, float],
    ) -> None:
        """``blocking_s``: how long its disk blocks; the quickest is synced by the loop."""
        self._sim = simulation
        self._settings = settings
        self.clock = clock
        self._blocking_s = blocking_s
        self._disk = SimDisk()
        self._disk.rng = simulation.rng(f"disk of {settings.name}")
        self._disk.on_call = moments.tell
        self._life = MortalDisk(self._disk)
        self._scope: trio.CancelScope | None = None
        self._boot_id = clock.boot_id
        self.booted_wrong = False
        self.lives: list[tuple[int, int]] = []

    async def live(self, *, task_status: trio.TaskStatus[None]) -> None:
        """One life of the broker."""
        name, number = self._settings.name, len(self.lives) + 1
        if self.clock.ahead_ms and self.clock.boot_id != self._boot_id:
            self.booted_wrong = True
        self._boot_id = self.clock.boot_id
        life = self._life = MortalDisk(self._disk)
        world = self._sim.world(f"{name} {number}", self._blocking_s, self.clock)
        run = partial(broker.net.server.run, self._settings, world, disk=life, secret=SECRET)
        try:
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(run)
                    self._sim.say(f"{name} runs, life {number}")
                    self.lives.append((self.clock.right_ms(), 1 << 62))
                    task_status.started()
        except* StorageFailed:
            assert life.dead, "a broker that gave up without a fault"

    def end(self, kind: str) -> None:
        """The broker dies: first its network and its disk, then its tasks, which can do no more harm."""
        assert self._scope is not None
        self._sim.network.kill(self._settings.host)
        self._life.die(power_lost=kind == "power")
        if kind == "power":
            self.clock.boot_id = f"after life {len(self.lives)}"
        self._scope.cancel()
        self.lives[-1] = (self.lives[-1][0], self.clock.right_ms())
        self._sim.say(f"{self._settings.name} is gone: {kind}")
