"""What worlds with an event loop share: a broker that dies and comes back on its disk, tasks of a host, moments."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

import broker.net.server
from broker.net.running import RunningBroker
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
        self._where = 0

    def tell(self, what: str, where: int = 0) -> None:
        """It happens now, at the broker with this number."""
        if (event := self._waited_for.pop(what, None)) is not None:
            self._where = where
            event.set()

    async def just_after(self, what: str) -> int | None:
        """Waits until something of a kind happens once more, or a second: just after that a death hurts most. Returns
        where it happened."""
        with trio.move_on_after(1.0):
            await self._waited_for.setdefault(what, trio.Event()).wait()
            where = self._where
            await trio.sleep(self._rng.uniform(0.0, 0.001))
            return where
        return None


class LivingBroker:
    """A broker on a disk that outlives it.

    Attributes:
        clock: of its machine.
        running: its present, or its last, life.
        booted_wrong: its machine started on a wrong clock, which nobody can know.
        began_at: where the log ended when each of its lives began.
        back_ms: the right times at which it began to serve, or had room again.
    """

    def __init__(
        self,
        simulation: Simulation,
        settings: BrokerSettings,
        clock: SimClock,
        moments: Moments,
        blocking_s: tuple[float, float],
        number: int = 0,
    ) -> None:
        """``blocking_s``: how long its disk blocks; the quickest is synced by the loop. ``number``: of the broker."""
        self._sim = simulation
        self._settings = settings
        self.clock = clock
        self._blocking_s = blocking_s
        self._disk = SimDisk()
        self._disk.rng = simulation.rng(f"disk of {settings.name}")
        self._disk.on_call = lambda what: moments.tell(what, number)
        self._life = MortalDisk(self._disk)
        self._scope: trio.CancelScope | None = None
        self._boot_id = clock.boot_id
        self.running: RunningBroker | None = None
        self.booted_wrong = False
        self.began_at: list[int] = []
        self.back_ms: list[int] = []

    @property
    def start(self) -> int:
        """Where the log begins."""
        assert self.running is not None
        return self.running.lead._store.start

    def fill(self, room_bytes: int) -> None:
        """Its disk has so much room left."""
        self._disk.capacity = self._disk.used() + room_bytes

    def empty(self) -> None:
        """Its disk has all the room that it wants."""
        self._disk.capacity = None
        self.back_ms.append(self.clock.right_ms())

    async def live(self, *, task_status: trio.TaskStatus[None]) -> None:
        """One life of the broker."""
        name, number = self._settings.name, len(self.began_at) + 1
        if self.clock.ahead_ms and self.clock.boot_id != self._boot_id:
            self.booted_wrong = True
        self._boot_id = self.clock.boot_id
        life = self._life = MortalDisk(self._disk)
        world = self._sim.world(f"{name} {number}", self._blocking_s, self.clock)
        run = partial(broker.net.server.run, self._settings, world, disk=life, secret=SECRET)
        try:
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as nursery:
                    self.running = running = await nursery.start(run)
                    self._sim.say(f"{name} runs, life {number}")
                    self.back_ms.append(self.clock.right_ms())
                    self.began_at.append(running.lead._store.written)
                    task_status.started()
        except* StorageFailed:
            assert life.dead, "a broker that gave up without a fault"

    def end(self, kind: str) -> None:
        """The broker dies: first its network and its disk, then its tasks, which can do no more harm."""
        assert self._scope is not None
        self.empty()
        self._sim.network.kill(self._settings.host)
        self._life.die(power_lost=kind == "power")
        if kind == "power":
            self.clock.boot_id = f"after life {len(self.began_at)}"
        self._scope.cancel()
        self._sim.say(f"{self._settings.name} is gone: {kind}")
