"""When each half is to be checked next. Volatile: a start makes it anew, spread over a while. Pure.

A half is due some seconds after it began, then after twice as long each time, up to ten minutes, with a jitter of a
fifth either way so that halves that began together are not checked together.
"""

from __future__ import annotations

import heapq
import zlib
from typing import Final

CHECK_AFTER_MAX_S: Final = 600.0
JITTER: Final = 0.2
RAMP_S: Final = 60.0
"""What is due at a start is spread over this time."""
SPARE: Final = 1024


class Schedule:
    """Due times of halves, and per group those that are due."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._due_s: dict[int, tuple[float, str]] = {}
        self._heap: list[tuple[float, int]] = []
        self._ready: dict[str, dict[int, None]] = {}

    def delay_s(self, id: int, rounds: int) -> float:
        """How long after its last round a half is due again."""
        spread = zlib.crc32(b"%d %d" % (id, rounds)) / 0xFFFFFFFF * 2 - 1
        return float(min(self._first_s * 2.0**rounds, CHECK_AFTER_MAX_S) * (1 + JITTER * spread))

    def put(self, id: int, group: str, due_s: float) -> None:
        """A half is due at a time; it is due then only."""
        self._unready(id)
        self._due_s[id] = (due_s, group)
        heapq.heappush(self._heap, (due_s, id))
        if len(self._heap) > 2 * len(self._due_s) + SPARE:
            self._heap = [(due, id) for id, (due, _) in self._due_s.items()]
            heapq.heapify(self._heap)

    def drop(self, id: int) -> None:
        """A half is not due any more."""
        self._unready(id)
        self._due_s.pop(id, None)

    def _unready(self, id: int) -> None:
        known = self._due_s.get(id)
        if known is not None and (ready := self._ready.get(known[1])):
            ready.pop(id, None)
            if not ready:
                del self._ready[known[1]]

    def advance(self, now: float) -> list[tuple[int, str]]:
        """Halves that have come due since the last call, with their groups."""
        due: list[tuple[int, str]] = []
        while self._heap and self._heap[0][0] <= now:
            due_s, id = heapq.heappop(self._heap)
            known = self._due_s.get(id)
            if known is not None and known[0] == due_s:
                self._ready.setdefault(known[1], {})[id] = None
                due.append((id, known[1]))
        return due

    def ready(self, group: str) -> list[int]:
        """Halves of a group that are due, the longest first."""
        return list(self._ready.get(group, ()))

    def overdue(self, since: float, count_max: int) -> list[int]:
        """Halves that were due before a time and that no producer has taken, the longest first."""
        late = [id for ready in self._ready.values() for id in ready if self._due_s[id][0] <= since]
        return sorted(late, key=lambda id: (self._due_s[id], id))[:count_max]
