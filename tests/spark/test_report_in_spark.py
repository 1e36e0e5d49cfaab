"""A day's figures beside plain Python, and the command that writes them down."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock.spark
from penstock.cli.root import root
from penstock.telemetry.day import STEP_MINUTES, figures
from penstock.telemetry.jobs.alerts import rule_of
from tests.penstock.telemetry.jobs.conftest import START, made_of
from tests.spark.test_history_in_spark import Kept

DAY_S = 86_400
SCHEMA = (
    "device STRING, metric STRING, event_time TIMESTAMP, value DOUBLE, error STRING, topic STRING, queue INT,"
    " offset BIGINT"
)


def test_the_figures_of_a_day_are_those_of_its_readings(spark: Any) -> None:
    rows = [row for seed in range(2) for row in made_of(seed)]
    day = (START + timedelta(days=1)).date()
    found = figures(spark.createDataFrame(rows, SCHEMA), day, "telemetry", rules=[rule_of("temp > 24")])
    rows = [row for row in rows if row["event_time"].date() == day]
    good = [row for row in rows if not row["error"]]
    assert (found.readings, found.refused) == (len(good), len(rows) - len(good))
    assert (found.devices, found.metrics) == (len({row["device"] for row in good}), 2)
    rates = Counter[datetime]()
    values = defaultdict(list)
    for row in good:
        at = row["event_time"]
        step = at.replace(minute=at.minute // STEP_MINUTES * STEP_MINUTES, second=0, microsecond=0)
        rates[step] += 1
        values[(row["metric"], step)].append(row["value"])
    assert {row["at"]: row["readings"] for row in found.rates if row["readings"]} == rates
    assert {(row["metric"], row["at"]): (row["min"], row["max"]) for row in found.values} == {
        key: (min(some), max(some)) for key, some in values.items()
    }
    readings = Counter(row["device"] for row in good)
    best = sorted(readings.items(), key=lambda item: (-item[1], item[0]))[:20]
    assert [(row["device"], row["readings"]) for row in found.busiest] == best
    assert len(found.gaps) == min(found.gaps_all, 50) > 0
    assert [row["silent_s"] for row in found.gaps] == sorted((row["silent_s"] for row in found.gaps), reverse=True)
    assert found.alerts_all >= len(found.alerts) > 0


def test_the_command_writes_one_file_for_each_day(
    spark: Any, cluster: Any, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = START.timestamp()
    times = [at + value for value in range(30)] + [at + DAY_S + value for value in range(20)]
    bodies = [json.dumps({"value": value, "time": time}).encode() for value, time in enumerate(times)]
    send("reported", [*bodies, b"{"], mqtt_topic="reported/d1/temp", key="d1")
    monkeypatch.setattr(penstock.spark, "session", lambda **_: Kept(spark))
    for day, readings in enumerate((30, 20)):
        file = tmp_path / f"{day}.html"
        date = (START + timedelta(days=day)).date()
        arguments = ["report", str(date), "--topic", "reported", "--late", "9999d", "--out", str(file)]
        result = CliRunner().invoke(root, ["--server", cluster.servers, *arguments])
        assert result.exit_code == 0, result.output
        assert result.stdout == f"{file}\n"
        assert f"<b>{readings}</b>readings" in file.read_text()
