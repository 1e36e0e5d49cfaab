"""The memory of a service process: what the allocator returns to the system and when, and how often the garbage
collector runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Final

import trio

from penstock.clock import Clock, RealClock

COLLECT_AFTER: Final = (1_000, 10, 2)
"""Net allocations between collections of the youngest objects, and collections of one age between those of the next.
With Python's own, a gateway of many busy connections collects dozens of times a second, for next to nothing. A full one
looks at objects made since the last (``Sparing``): some 33,000 objects, in 3 to 4 ms. Of five times as many each took
longer, since they no longer fit the processor's caches: 40 ms."""

LOOK_AT_ALL_EVERY_S: Final = 600.0
"""How often a full collection looks at all objects, however old they are."""

MAPPED_BYTES: Final = 2 << 20
"""Blocks from this size on go back to the system when they are freed. Reads and batches are smaller, so that blocks
that are needed again at once stay."""
SPARE_BYTES: Final = 4 << 20
"""Bytes of the heap's free end that stay."""

GIVE_BACK_EVERY_S: Final = 2.0
GIVE_BACK_SHARE: Final = 0.001
"""The largest share of its time that a process spends on that."""

_M_TRIM_THRESHOLD: Final = -1  # as in malloc.h
_M_MMAP_THRESHOLD: Final = -3


def bound_heap() -> None:
    """To be called before anything large is there. Sealing an index takes arrays of some MiB for a moment. glibc, once
    it has seen such a block freed, cuts the next ones from its heap, where small ones behind them hold the room: up to
    30 MiB stayed so, or not, as it happened. Fixed thresholds (``mallopt``) end that; other libraries have none."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, SPARE_BYTES)


async def give_back() -> None:
    """Returns free memory of the heap to the system, every other second and for ever. glibc does so by itself only
    with the heap's free end. Where 10,000 queues have grown together and are then sealed, most of what they had lies
    between live objects: 20 MiB without use."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return  # another library than glibc
    pause_s = GIVE_BACK_EVERY_S
    while True:
        await trio.sleep(pause_s)
        began = trio.current_time()
        trim(0)
        pause_s = max(GIVE_BACK_EVERY_S, (trio.current_time() - began) / GIVE_BACK_SHARE)


class Sparing:
    """Listener to the garbage collector's collections: what a full one has left is not looked at by the next ones.

    What 100,000 open filters consist of stays, but a full collection looks at all of it: the loop stood still for a
    tenth of a second, every few seconds under load. What goes is freed by its reference count, spared or not; only a
    circle among what was spared waits for the collection that looks at everything (``LOOK_AT_ALL_EVERY_S``)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_at_all = clock.monotonic()

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "stop":
            gc.freeze()
        elif self._clock.monotonic() - self._looked_at_all >= LOOK_AT_ALL_EVERY_S:
            self._looked_at_all = self._clock.monotonic()
            gc.unfreeze()


def settle() -> None:
    """To be called when a service has started and before it serves clients. What it has by then (code, indexes and
    facts of the recovered log) mostly stays to the end, so the garbage collector need not look at it in each full
    collection, for which the event loop stands still; what of it goes is freed by its reference count all the same. The
    same holds for later objects that stay (``Sparing``). Cycles are rare here, so young objects are looked at less
    often than Python would."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    if not any(isinstance(one, Sparing) for one in gc.callbacks):
        gc.callbacks.append(Sparing(RealClock()))
