"""Rows per minute and the day that each belongs to."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.telemetry.jobs.downsampling import downsampled


def test_each_row_says_its_day_and_readings_before_midnight_stay_on_theirs(frame: Any, made: Any) -> None:
    rows = [row for row in made(2) if not row["error"]]
    found = downsampled(frame(rows)).toArrow().to_pylist()
    counted = Counter[str]()
    for row in found:
        assert row["window_start"].strftime("%Y-%m-%d") == row["day"]
        counted[row["day"]] += row["count"]
    assert counted == Counter(row["event_time"].strftime("%Y-%m-%d") for row in rows)
    assert len(counted) == 2
