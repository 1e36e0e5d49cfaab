"""Sessions beside a loop over sorted readings."""

from __future__ import annotations

from typing import Any

from penstock.telemetry.jobs.sessions import COLUMNS, sessions

SEEDS = range(5)

PAUSE_S = 40


def test_a_pause_ends_a_session(frame: Any, made: Any) -> None:
    model: dict[str, list[list[dict[str, Any]]]] = {}
    for row in sorted(made(*SEEDS), key=lambda row: row["event_time"]):
        if row["error"]:
            continue
        of_device = model.setdefault(row["device"], [])
        if of_device and (row["event_time"] - of_device[-1][-1]["event_time"]).total_seconds() <= PAUSE_S:
            of_device[-1].append(row)
        else:
            of_device.append([row])
    found = sessions(frame(made(*SEEDS)), f"{PAUSE_S} seconds").toArrow()
    assert tuple(found.column_names) == COLUMNS
    expected = []
    for device, its in model.items():
        for one in its:
            first, last = one[0]["event_time"], one[-1]["event_time"]
            metrics = len({row["metric"] for row in one})
            expected.append((first, last, device, (last - first).total_seconds(), len(one), metrics))
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(expected)
    assert len(expected) > len(model)
