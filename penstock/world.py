"""The one seam to time, chance and threads.

A core gets everything that it needs of the outside world as an argument made here. So the whole system also runs in a
deterministic simulation, with the ``World`` of ``tests/simulation``. The disk has a seam of its own
(``broker/store/disk.py``); the network's seam is trio's socket factory. No other module may import ``time``,
``random``, ``secrets``, ``uuid`` or ``threading`` (ruff's banned-api table in pyproject.toml).
"""

from __future__ import annotations

import queue
import random
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from penstock.clock import Clock as Clock
from penstock.clock import RealClock as RealClock
from penstock.guarded_clock import GuardedClock

T = TypeVar("T")

HAND_BACK_S = 0.0005
"""How long a thread whose blocking call has returned waits at most for a busy event loop."""

Rng = random.Random
"""A source of chance, for annotations: only this module may import ``random``."""


class Offload(Protocol):
    """Runs a blocking call without stopping the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class World:
    """The outside world of a service."""

    clock: Clock
    rng: random.Random
    offload: Offload
    own_thread: Callable[[], AbstractAsyncContextManager[Offload]]
    """An ``Offload`` for who uses it again and again: its calls run one after the other."""


async def _trio_thread(work: Callable[[], T]) -> T:
    import trio  # only servers offload; the client library must import this module without trio

    return await trio.to_thread.run_sync(work)


@asynccontextmanager
async def _own_thread() -> AsyncIterator[Offload]:
    """A thread that lives as long as the context: handing work over and back costs half of what a call of
    ``trio.to_thread`` does. A call that was begun is waited for, cancelled or not."""
    import outcome
    import trio

    sys.setswitchinterval(HAND_BACK_S)
    token = trio.lowlevel.current_trio_token()
    jobs: queue.SimpleQueue[tuple[Callable[[], Any], trio.lowlevel.Task] | None] = queue.SimpleQueue()

    def work_off() -> None:
        while (job := jobs.get()) is not None:
            token.run_sync_soon(trio.lowlevel.reschedule, job[1], outcome.capture(job[0]))

    async def offload(work: Callable[[], T]) -> T:
        jobs.put((work, trio.lowlevel.current_task()))
        done: T = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return done

    thread = threading.Thread(target=work_off, name="penstock", daemon=True)
    thread.start()
    try:
        yield offload
    finally:
        jobs.put(None)
        thread.join()


def real_world() -> World:
    """The world of a running process."""
    return World(RealClock(), random.Random(secrets.randbits(64)), _trio_thread, _own_thread)


def guarded(world: World) -> tuple[World, GuardedClock]:
    """The same world with a guarded clock, and that clock. Services of one process share one."""
    if isinstance(world.clock, GuardedClock):
        return world, world.clock
    clock = GuardedClock(world.clock)
    return replace(world, clock=clock), clock


def new_secret() -> bytes:
    """32 unpredictable bytes, for a key."""
    return secrets.token_bytes(32)


def new_rng() -> random.Random:
    """An unpredictable generator, for client ids and jitter outside services."""
    return random.Random(secrets.randbits(64))


def mutex() -> AbstractContextManager[Any]:
    """A lock that one thread at a time holds; the others stand still meanwhile."""
    return threading.Lock()


def worker_threads(count: int) -> Executor:
    """Up to ``count`` threads, for handlers of blocking consumers."""
    return ThreadPoolExecutor(count, thread_name_prefix="penstock-handler")


def in_background(work: Callable[[], object]) -> None:
    """Runs a call in a thread that ends with the program at the latest: for work that has no waiter."""
    threading.Thread(target=work, daemon=True).start()


def pause(wait_s: float) -> None:
    """Stops this thread: for code without an event loop, between attempts."""
    time.sleep(wait_s)


def seeded_rng(seed: int | str) -> Rng:
    """A generator that gives the same numbers for the same seed."""
    return random.Random(seed)
