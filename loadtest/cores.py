"""Which core the servers get, and which the generator, where there are two or more.

A disk says by an interrupt that it is done, often always to the same core. Who waits on that one is woken at once; to
another core the news has to be passed on, which costs a sync a fifth of its time, and whoever runs on the first is
stopped for it. So the servers get the core on which a sync takes least, all of them the same, and the generator one
where nothing of that is its burden.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FREE: Final = -1
"""No core in particular."""
BLOCK_BYTES: Final = 4096
BLOCKS: Final = 64
TURNS: Final = 4
SYNCS: Final = 50
"""Syncs per core and turn."""
CORES_MAX: Final = 8
"""So many cores are looked at: on a slow disk each takes seconds."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Who has which core. ``sync_us``: microseconds of an fdatasync of 4 KiB by core, medians."""

    server: int = FREE
    generator: int = FREE
    sync_us: dict[int, float] = field(default_factory=dict)


def choose(folder: Path) -> Cores:
    """Measures syncs of a file in ``folder`` on the cores that this process may use, the first of them. With one core
    nobody is kept anywhere. Raises ``OSError``: the file cannot be written."""
    mine = sorted(os.sched_getaffinity(0))[:CORES_MAX]
    sync_us = _sync_us(folder / "probe", mine)
    if len(mine) < 2:
        return Cores(sync_us=sync_us)
    server = min(mine, key=lambda core: sync_us[core])
    return Cores(server, next(core for core in mine if core != server), sync_us)


def pin(core: int) -> None:
    """Keeps this process, and those that it starts, on one core; ``FREE``: nothing happens. Raises ``OSError``: there
    is no such core."""
    if core != FREE:
        os.sched_setaffinity(0, {core})


def _sync_us(path: Path, cores: list[int]) -> dict[int, float]:
    """The median per core of syncs after blocks were written anew in place, as in a log with zeros ahead of it."""
    before = os.sched_getaffinity(0)
    taken: dict[int, list[float]] = {core: [] for core in cores}
    with path.open("wb", buffering=0) as file:
        file.write(bytes(BLOCK_BYTES * BLOCKS))
        os.fsync(file.fileno())
        try:
            for core in cores * TURNS:
                os.sched_setaffinity(0, {core})
                for number in range(SYNCS):
                    os.pwrite(file.fileno(), number.to_bytes(BLOCK_BYTES, "big"), number * BLOCK_BYTES)
                    start = time.perf_counter()
                    os.fdatasync(file.fileno())
                    taken[core].append(time.perf_counter() - start)
        finally:
            os.sched_setaffinity(0, before)
    path.unlink()
    return {core: statistics.median(times) * 1e6 for core, times in taken.items()}
