"""Windowed aggregates beside plain Python's statistics."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean, stdev
from typing import Any

import pytest

from penstock.telemetry.jobs.aggregates import aggregates, columns

SEEDS = range(5)


def window_of(row: dict[str, Any]) -> tuple[int, str, str]:
    return int(row["event_time"].timestamp()) // 60 * 60, row["device"], row["metric"]


def rank(values: list[float], percent: int) -> float:
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def test_each_window_has_the_figures_of_its_readings(frame: Any, made: Any) -> None:
    values, refused = defaultdict(list), defaultdict(int)
    for row in made(*SEEDS):
        values[window_of(row)] += [] if row["error"] else [row["value"]]
        refused[window_of(row)] += bool(row["error"])
    found = aggregates(frame(made(*SEEDS)), "1 minute", percentiles=(5, 50, 99)).toArrow()
    assert tuple(found.column_names) == columns((5, 50, 99))
    seen = {}
    for row in found.to_pylist():
        assert (row["window_end"] - row["window_start"]).total_seconds() == 60
        seen[window_of(row | {"event_time": row["window_start"]})] = tuple(list(row.values())[4:])
    model = {
        key: (
            len(some),
            pytest.approx(fmean(some)) if some else None,
            min(some, default=None),
            max(some, default=None),
            pytest.approx(stdev(some)) if len(some) > 1 else None,
            *[rank(some, percent) if some else None for percent in (5, 50, 99)],
            refused[key],
        )
        for key, some in values.items()
    }
    assert seen == model
