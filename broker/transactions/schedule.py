"""The schedule of checks of halves. In memory: a start makes it again, spread over a while. Pure.

A half is due some seconds after it began, then after twice as long each time, up to ten minutes. A jitter of a fifth
either way spreads halves that began together.
"""

from __future__ import annotations

import zlib
from typing import Final

from broker.kernel.deadlines import Deadlines

CHECK_AFTER_MAX_S: Final = 600.0
JITTER: Final = 0.2
RAMP_S: Final = 60.0
"""What is due at a start is spread over this time."""


class Schedule:
    """Due times of halves, and per group those that are due."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._groups: dict[int, str] = {}
        self._due: Deadlines[int] = Deadlines()
        self._ready: dict[str, dict[int, None]] = {}
        self._ready_since: Deadlines[int] = Deadlines()

    def delay_s(self, id: int, rounds: int) -> float:
        """How long after its last round a half is due again."""
        spread = zlib.crc32(b"%d %d" % (id, rounds)) / 0xFFFFFFFF * 2 - 1
        return float(min(self._first_s * 2.0**rounds, CHECK_AFTER_MAX_S) * (1 + JITTER * spread))

    def put(self, id: int, group: str, due_s: float) -> None:
        """A half is due at a time; it is due then only."""
        self._unready(id)
        self._groups[id] = group
        self._due.set(id, due_s)

    def drop(self, id: int) -> None:
        """A half is not due any more."""
        self._unready(id)
        self._due.cancel(id)
        self._groups.pop(id, None)

    def _unready(self, id: int) -> None:
        if id in self._ready_since:
            self._ready_since.cancel(id)
            group = self._groups[id]
            del self._ready[group][id]
            if not self._ready[group]:
                del self._ready[group]

    def advance(self, now: float) -> list[tuple[int, str]]:
        """Halves that have come due since the last call, with their groups."""
        due: list[tuple[int, str]] = []
        for id in self._due.due(now):
            group = self._groups[id]
            self._ready.setdefault(group, {})[id] = None
            self._ready_since.set(id, self._due.get(id))
            due.append((id, group))
        return due

    def ready(self, group: str) -> list[int]:
        """Halves of a group that are due, the longest first."""
        return list(self._ready.get(group, ()))

    def overdue(self, since: float, count_max: int) -> list[int]:
        """Halves that were due before a time and that no producer has taken, the longest first."""
        late = self._ready_since.passed(since)
        return sorted(late, key=lambda id: (self._ready_since.get(id), id))[:count_max]
