"""A history of a log's end, which tells how long a node has been behind."""

from __future__ import annotations

from typing import Final, NamedTuple

STEP_S: Final = 0.1
"""Ends that follow each other faster are noted once."""
KEPT_MAX: Final = 2_000
"""With more ends, every second one of the older half is forgotten: old times are less exact."""


class _EndAt(NamedTuple):
    end: int
    at: float


class EndTimes:
    """The ends of a log that grows."""

    def __init__(self) -> None:
        self._ends: list[_EndAt] = []

    def note(self, end: int, now: float) -> None:
        """The log ends there now."""
        ends = self._ends
        if ends and (end <= ends[-1].end or now - ends[-1].at < STEP_S):
            return
        ends.append(_EndAt(end, now))
        if len(ends) > KEPT_MAX:
            half = len(ends) // 2
            del ends[1:half:2]

    def behind_s(self, durable: int, end: int, now: float) -> float:
        """How long a node whose disk has the log up to ``durable`` has lacked the rest up to the ``end``; 0 where that
        is nothing, or was written just now."""
        if durable >= end:
            return 0.0
        return next((now - one.at for one in self._ends if one.end > durable), 0.0)
