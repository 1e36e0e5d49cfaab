"""Deadlines of a gateway: keep-alive checks, session ends, delayed wills, connect time-outs.

Time is cut into buckets of one second, so adding costs the same however many wait. Nothing is ever removed: when a
bucket is due, its owner checks whether the thing still is (a client that spoke since then is added again). An item
comes out no earlier than its time, and at most one second and one tick later.

Callers that add things that may be gone long before they are due check them once in ``LOOK_S`` seconds, so that gone
things are forgotten soon.
"""

from __future__ import annotations

from math import ceil
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LOOK_S: Final = 60.0


class Deadlines(Generic[T]):
    """Items by the second in which they are due, in the order in which they were added."""

    __slots__ = ("_buckets", "_done")

    def __init__(self) -> None:
        self._buckets: dict[int, list[T]] = {}
        self._done = -1

    def add(self, due: float, item: T) -> None:
        """``due`` is on the clock that ``take`` is called with; a time that has passed is due at the next ``take``."""
        second = max(ceil(due), self._done + 1)
        bucket = self._buckets.get(second)
        if bucket is None:
            self._buckets[second] = [item]
        else:
            bucket.append(item)

    def take(self, now: float) -> list[T]:
        """Removes and returns all that is due, oldest second first."""
        last = int(now)
        if last <= self._done:
            return []
        if last - self._done < len(self._buckets):
            seconds = [second for second in range(self._done + 1, last + 1) if second in self._buckets]
        else:
            seconds = sorted(second for second in self._buckets if second <= last)
        self._done = last
        return [item for second in seconds for item in self._buckets.pop(second)]

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))
