"""Runs a whole system in one process, deterministically: the same seed gives the same run, step by step.

Time is trio's mock clock and moves only when every task waits. The order in which ready tasks run, and all other
chance, comes from generators seeded with ``f"{seed}/{name}"``. ``Run.digest`` hashes every scheduling decision with its
time: equal digests mean equal runs. A scenario's log tells a person what happened.

trio's deterministic scheduling is a private switch of the pinned version; ``test_running.py`` shows that it works.
"""

from __future__ import annotations

import gc
import hashlib
import random
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from penstock.clock import Clock
from penstock.world import World
from tests.simulation.network import Network

T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000
_ADDRESS = re.compile(r"0x[0-9a-f]+")


class SimClock(Clock):
    """The clock of the run.

    Attributes:
        ahead_ms: how far the wall clock is ahead of the right time, which ``right_ms`` says.
        boot_id: of the machine.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.boot_id = "first"

    def monotonic(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return self.right_ms() + self.ahead_ms

    def right_ms(self) -> int:
        return EPOCH_MS + int(trio.current_time() * 1000)

    def boot(self) -> str:
        return self.boot_id


class Simulation:
    """What a scenario is given: seeded chance, worlds for services, a network, a log."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.clock = SimClock()
        self.network = Network(self.rng("network"))
        self.log: list[str] = []

    def rng(self, name: str) -> random.Random:
        """A generator of its own for each authority, so that one more question of one does not change the others."""
        return random.Random(f"{self.seed}/{name}")

    def world(
        self, name: str, blocking_s: tuple[float, float] = (0.0005, 0.01), clock: SimClock | None = None
    ) -> World:
        """The world of a service: blocking calls take simulated time, part of it before and part after their effect.
        ``clock``: of its machine, if that has one of its own."""
        rng = self.rng(f"{name}/blocking")

        async def offload(work: Callable[[], T]) -> T:
            await trio.sleep(rng.uniform(*blocking_s) / 2)
            result = work()
            await trio.sleep(rng.uniform(*blocking_s) / 2)
            return result

        return World(clock or self.clock, self.rng(name), offload, lambda: nullcontext(offload))

    def say(self, what: str) -> None:
        """A line in the log."""
        self.log.append(f"{trio.current_time():10.4f} {what}")


class Trace(trio.abc.Instrument):
    """Hashes every step of every task."""

    def __init__(self) -> None:
        self.steps = 0
        self._hash = hashlib.sha256()
        self._names: dict[str, str] = {}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        name = self._names.get(task.name)
        if name is None:
            name = self._names[task.name] = _ADDRESS.sub("", task.name)
        self._hash.update(f"{trio.current_time():.9f} {name}\n".encode())

    def digest(self) -> str:
        return self._hash.hexdigest()


class SchedulerChance(random.Random):
    """Chance of trio's scheduler: seeded for the run of this thread. Systems that other tests have in other threads of
    the process draw from the ``usual``, and so change nothing here."""

    def __init__(self, seed: str, usual: random.Random) -> None:
        super().__init__(seed)
        self._usual = usual
        self._thread = threading.get_ident()

    def random(self) -> float:
        return super().random() if threading.get_ident() == self._thread else self._usual.random()

    def getrandbits(self, count: int, /) -> int:
        return super().getrandbits(count) if threading.get_ident() == self._thread else self._usual.getrandbits(count)


class Run:
    """What became of a scenario. ``simulated_s``: how long it took by its own clock."""

    def __init__(self, simulation: Simulation, trace: Trace, result: Any, simulated_s: float) -> None:
        self.simulated_s = simulated_s
        self.log = simulation.log
        self.digest = trace.digest()
        self.steps = trace.steps
        self.result = result


@contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r  # type: ignore[attr-defined]
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[attr-defined]
    trio_run._r = SchedulerChance(f"{seed}/scheduler", before[1])  # type: ignore[attr-defined]
    gc.disable()  # what a collection ends would end at another step in another process
    try:
        yield
    finally:
        gc.enable()
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r = before  # type: ignore[attr-defined]


def simulate(seed: int, scenario: Callable[[Simulation], Awaitable[Any]]) -> Run:
    """Runs a scenario to its end."""
    simulation, trace = Simulation(seed), Trace()

    async def top() -> Any:
        trio.socket.set_custom_socket_factory(simulation.network)
        return await scenario(simulation)

    clock = MockClock(autojump_threshold=0)
    with _deterministic(seed):
        result = trio.run(top, clock=clock, instruments=[trace])
    return Run(simulation, trace, result, clock.current_time())
