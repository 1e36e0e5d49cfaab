"""Durations as histograms of Prometheus, in plain integers.

An observation costs one search among the bounds; names and text are made for a scrape. A bucket keeps the last
observation that was part of a trace: its exemplar, which OpenMetrics has beside the count.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
"""Upper bounds of the buckets, in seconds."""


class Exemplar(NamedTuple):
    """One observation of a bucket, in seconds, and the id of the trace that it was part of."""

    trace_id: str
    seconds: float


class ExemplifiedCount(float):
    """The count of a bucket that has an exemplar."""

    exemplar: Exemplar

    def __new__(cls, count: float, exemplar: Exemplar) -> ExemplifiedCount:
        made = super().__new__(cls, count)
        made.exemplar = exemplar
        return made


class Histogram:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self._exemplars: dict[int, Exemplar] = {}  # by the number of the bucket
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float, trace_id: str = "") -> None:
        """Counts one duration. ``trace_id``: of the trace that it was part of."""
        bucket = bisect_left(BOUNDS_S, seconds)
        self._counts[bucket] += 1
        self._sum_s += seconds
        if trace_id:
            self._exemplars[bucket] = Exemplar(trace_id, seconds)

    def figures(self, family: str) -> dict[str, float]:
        """Its figures: cumulative buckets, the sum of seconds, and the count."""
        found: dict[str, float] = {}
        below = 0
        for number, (bound, count) in enumerate(zip((*BOUNDS_S, float("inf")), self._counts, strict=True)):
            below += count
            exemplar = self._exemplars.get(number)
            told = below if exemplar is None else ExemplifiedCount(below, exemplar)
            found[f'{family}_bucket{{le="{"+Inf" if bound == float("inf") else repr(bound)}"}}'] = told
        return found | {f"{family}_sum": self._sum_s, f"{family}_count": below}
