"""Durations as histograms of Prometheus, in plain integers.

An observation costs one search among the bounds; names and text are made for a scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
"""Upper bounds of the buckets, in seconds."""


class Histogram:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one duration."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def figures(self, family: str) -> dict[str, float]:
        """Its figures: cumulative buckets, the sum of seconds, and the count."""
        found: dict[str, float] = {}
        below = 0
        for bound, count in zip((*BOUNDS_S, float("inf")), self._counts, strict=True):
            below += count
            found[f'{family}_bucket{{le="{"+Inf" if bound == float("inf") else repr(bound)}"}}'] = below
        return found | {f"{family}_sum": self._sum_s, f"{family}_count": below}
