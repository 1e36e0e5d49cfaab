"""Last values beside a dictionary that is overwritten."""

from __future__ import annotations

from typing import Any

from penstock.telemetry.jobs.last_values import COLUMNS, last_values

SEEDS = range(5)


def test_the_latest_event_time_wins_and_then_the_place_in_the_log(frame: Any, made: Any) -> None:
    good = [row for row in made(*SEEDS) if not row["error"]]
    good += [row | {"offset": row["offset"] + 1_000, "value": -1.0} for row in good[:40]]  # the same times again
    model = {}
    for row in sorted(good, key=lambda row: (row["event_time"], row["queue"], row["offset"])):
        key = row["device"], row["metric"]
        model[key] = (row["event_time"], row["value"], model.get(key, (0, 0, 0))[2] + 1)
    found = last_values(frame(good + [row for row in made(*SEEDS) if row["error"]])).toArrow()
    assert tuple(found.column_names) == COLUMNS
    seen = {(row["device"], row["metric"]): tuple(list(row.values())[2:]) for row in found.to_pylist()}
    assert seen == model
