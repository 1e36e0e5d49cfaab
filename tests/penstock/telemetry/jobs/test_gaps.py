"""Gaps beside a loop that goes through the readings of each device, in one batch and in several."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.telemetry.jobs.gaps import COLUMNS, LEARNED_FROM, MEMORY, gaps, next_gaps

SEEDS = range(2)

TIMES = 4.0
Row = dict[str, Any]


class Model:
    """What is known of each device and metric."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str], Row] = {}

    def batch(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        """Feeds one batch; returns its gaps."""
        told: list[tuple[Any, ...]] = []
        for row in sorted(rows, key=lambda row: (row["event_time"], row["queue"], row["offset"])):
            if row["error"]:
                continue
            key, at = (row["device"], row["metric"]), row["event_time"]
            state = self.states.setdefault(key, {"last": at, "intervals": 0, "usual": 0.0, "told": False})
            since = (at - state["last"]).total_seconds()
            if since <= 0:
                continue
            counted = since
            if state["intervals"] >= LEARNED_FROM and since > TIMES * state["usual"]:
                counted = TIMES * state["usual"]
                told.append((*key, state["last"], at, since, pytest.approx(state["usual"])))
            state["intervals"] += 1
            state["usual"] += (counted - state["usual"]) / min(state["intervals"], MEMORY)
            state |= {"last": at, "told": False}
        now = max(state["last"] for state in self.states.values())
        for key, state in self.states.items():
            since = (now - state["last"]).total_seconds()
            if state["intervals"] >= LEARNED_FROM and since > TIMES * state["usual"] and not state["told"]:
                told.append((*key, state["last"], None, since, pytest.approx(state["usual"])))
                state["told"] = True
        return told


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (*row[:3], str(row[3])))


def rows_of(found: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.toArrow().to_pylist()]


def test_all_gaps_of_a_batch_are_found(frame: Any, made: Any) -> None:
    found = gaps(frame(made(*SEEDS)), TIMES)
    assert tuple(found.columns) == COLUMNS
    expected = Model().batch(made(*SEEDS))
    assert in_order(rows_of(found)) == in_order(expected)
    assert {row[3] is None for row in expected} == {True, False}


def test_batch_by_batch_each_gap_is_told_once_and_once_more_with_its_end(spark: Any, frame: Any, made: Any) -> None:
    rows = sorted(made(*SEEDS), key=lambda row: row["event_time"])
    model, state = Model(), None
    for part in (rows[:90], rows[90:150], rows[150:]):
        batch = next_gaps(frame(part), state, TIMES)
        assert in_order(rows_of(batch.events)) == in_order(model.batch(part))
        state = spark.createDataFrame(batch.state.collect(), batch.state.schema)
