"""Alerts beside a loop, in one batch and in several."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry.jobs.alerts import COLUMNS, LEARNED_FROM, Rule, alerts, next_alerts, rule_of

SEEDS = range(2)

RULES = [Rule("temp", ">", 30), Rule("hum", "<", 20), Rule("*", "zscore", 2.5)]
Row = dict[str, Any]


class Model:
    """The values that each device and metric sent, and which rules hold."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.holding: set[tuple[str, str, str]] = set()

    def batch(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        """Feeds one batch; returns its alerts."""
        told = []
        for row in sorted(rows, key=lambda row: (row["event_time"], row["queue"], row["offset"])):
            if row["error"]:
                continue
            key, value = (row["device"], row["metric"]), row["value"]
            for rule in RULES:
                if rule.metric not in ("*", row["metric"]):
                    continue
                score = self.score(key, value) if rule.sign == "zscore" else None
                holds = {">": value > rule.bound, "<": value < rule.bound, "zscore": abs(score or 0) > rule.bound}
                about = (*key, rule.text)
                if holds[rule.sign] and about not in self.holding:
                    told.append((*about, row["event_time"], value, None if score is None else pytest.approx(score)))
                (self.holding.add if holds[rule.sign] else self.holding.discard)(about)
            self.values[key].append(value)
        return told

    def score(self, key: tuple[str, str], value: float) -> float | None:
        earlier = self.values[key]
        if len(earlier) < LEARNED_FROM:
            return None
        mean = sum(earlier) / len(earlier)
        return (value - mean) / math.sqrt(sum((one - mean) ** 2 for one in earlier) / len(earlier))


def rows_of(found: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values())[:-1] for row in found.toArrow().to_pylist()), key=lambda row: row[:4])


def test_an_alert_is_told_when_a_rule_begins_to_hold(spark: Any, frame: Any, made: Any) -> None:
    rows = sorted(made(*SEEDS), key=lambda row: row["event_time"])
    found = alerts(frame(rows), RULES)
    assert tuple(found.columns) == COLUMNS
    expected = sorted(Model().batch(rows), key=lambda row: row[:4])
    assert rows_of(found) == expected
    assert {row[2] for row in expected} == {"temp > 30", "hum < 20", "* zscore 2.5"}
    model, state = Model(), None
    for part in (rows[:120], rows[120:]):
        batch = next_alerts(frame(part), state, RULES)
        assert rows_of(batch.events) == sorted(model.batch(part), key=lambda row: row[:4])
        state = spark.createDataFrame(batch.state.collect(), batch.state.schema)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("temp > 80", Rule("temp", ">", 80)),
        ("a/b<-3.5", Rule("a/b", "<", -3.5)),
        (" * zscore 4 ", Rule("*", "zscore", 4)),
    ],
)
def test_a_rule_is_read(text: str, rule: Rule) -> None:
    assert rule_of(text) == rule


@pytest.mark.parametrize("text", ["", "temp", "temp > hot", "temp == 3", "temp > nan", "> 3"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is no rule.*write"):
        rule_of(text)
