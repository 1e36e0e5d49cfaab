"""Deadlines of the broker's themes.

A theme keeps its deadlines in a heap and asks at each tick for those that are due. Putting one off is an assignment:
the heap moves it when its old time has come. Cancelling is as cheap. Dead entries are swept out, so memory follows the
number of live deadlines. Times are floats of any one clock. Equal calls give an equal order. Pure: no task, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

NEVER: Final = math.inf
SPARE: Final = 1024
"""Cancelled deadlines are swept out when they outnumber the live ones by more than this."""


@mypyc_attr(acyclic=True, allow_interpreted_subclasses=True)
class Deadline:
    """A time at which something is due, for classes whose objects have one.

    Attributes:
        due: when; ``NEVER`` once it was cancelled or has passed.
        queued: the heap's own: the time by which it stands there, never after ``due``.
    """

    __slots__ = ("due", "queued")

    def __init__(self, due: float) -> None:
        self.due = due
        self.queued = due

    def __lt__(self, other: Deadline) -> bool:
        return self.queued < other.queued

    def __hash__(self) -> int:  # compiled, what can be compared has none otherwise
        return id(self) >> 4


D = TypeVar("D", bound=Deadline)
K = TypeVar("K")


class DeadlineHeap(Generic[D]):
    """Deadlines that are objects of their own; each is armed once."""

    def __init__(self) -> None:
        self._heap: list[D] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def arm(self, one: D) -> None:
        """From now on it is watched for, unless it is never due."""
        if one.due < NEVER:
            heappush(self._heap, one)
            self._count += 1

    def put_off(self, one: D, due: float) -> None:
        """It is due later. Raises ``ValueError`` where that is earlier: cancel it and arm another."""
        if not one.due <= due < NEVER:
            raise ValueError(f"a deadline at {one.due} is not put off to {due}")
        one.due = due

    def cancel(self, one: D) -> None:
        """It is not due any more."""
        if one.due == NEVER:
            return
        one.due = NEVER
        self._count -= 1
        if len(self._heap) > 2 * self._count + SPARE:
            live = [other for other in self._heap if other.due < NEVER]
            for other in live:
                other.queued = other.due
            heapify(live)
            self._heap = live

    @property
    def next_due(self) -> float:
        """When the first is due; ``NEVER`` without any."""
        while self._heap and self._heap[0].queued < self._heap[0].due:
            self._move_first()
        return self._heap[0].due if self._heap else NEVER

    def due(self, now: float) -> Iterable[D]:
        """Those that are due, the earliest first. Each is taken out when the next is asked for, unless it was put off
        by then: what could not be seen to is due again."""
        return self._due(now) if self.has_come(now) else ()

    def has_come(self, now: float) -> bool:
        """Whether one may be due."""
        return len(self._heap) > 0 and self._heap[0].queued <= now

    def _due(self, now: float) -> Iterator[D]:
        while self._heap and self._heap[0].queued <= now:
            one = self._heap[0]
            due = one.due
            if due > now:
                self._move_first()
                continue
            yield one
            if one.due == due:
                self.cancel(one)

    def passed(self, now: float) -> list[D]:
        """The due entries, in no order; they stay."""
        found: list[D] = []
        places = [0]
        for place in places:  # of a heap only those branches whose beginning is due
            if place < len(self._heap) and self._heap[place].queued <= now:
                if self._heap[place].due <= now:
                    found.append(self._heap[place])
                places += (2 * place + 1, 2 * place + 2)
        return found

    def _move_first(self) -> None:
        one = self._heap[0]
        if one.due == NEVER:
            heappop(self._heap)
        else:
            one.queued = one.due
            heapreplace(self._heap, one)


@mypyc_attr(acyclic=True)
class _Keyed(Deadline):
    """The deadline of a key."""

    __slots__ = ("key",)

    def __init__(self, key: Any, due: float) -> None:
        super().__init__(due)
        self.key = key


class Deadlines(Generic[K]):
    """Deadlines by key: one of each."""

    def __init__(self) -> None:
        self._heap: DeadlineHeap[_Keyed] = DeadlineHeap()
        self._of: dict[K, _Keyed] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, key: K) -> bool:
        return key in self._of

    def get(self, key: K) -> float:
        """The deadline of a key; ``NEVER`` if it has none."""
        one = self._of.get(key)
        return NEVER if one is None else one.due

    def set(self, key: K, due: float) -> None:
        """A key is due at a time, and then only; ``NEVER`` cancels it."""
        one = self._of.get(key)
        if one is not None and one.due <= due < NEVER:
            one.due = due
            return
        self.cancel(key)
        if due < NEVER:
            one = self._of[key] = _Keyed(key, due)
            self._heap.arm(one)

    def cancel(self, key: K) -> None:
        """A key is not due any more, if it was."""
        one = self._of.pop(key, None)
        if one is not None:
            self._heap.cancel(one)

    @property
    def next_due(self) -> float:
        """When the first is due; ``NEVER`` without any."""
        return self._heap.next_due

    def due(self, now: float) -> Iterable[K]:
        """Keys that are due, the earliest first. Each is taken out when the next is asked for, unless it was set anew
        by then: what could not be seen to is due again."""
        return self._due(now) if self._heap.has_come(now) else ()

    def _due(self, now: float) -> Iterator[K]:
        for one in self._heap.due(now):
            due = one.due
            yield one.key
            if one.due == due:
                del self._of[one.key]

    def passed(self, now: float) -> list[K]:
        """Keys that are due, in no order; they stay."""
        return [one.key for one in self._heap.passed(now)]
