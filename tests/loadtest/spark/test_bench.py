from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest import __main__ as command
from loadtest.servers import Missing, Penstock
from loadtest.spark import bench
from loadtest.spark.bench import DEMANDS, Measured, Plan, measure, reached
from loadtest.spark.job import COUNT, LIVE, WRITE, Run
from loadtest.spark.kafka import Kafka

BY_PLACE = {(one.scenario, one.source, one.beside): one for one in DEMANDS}


class Absent(Kafka):
    def command(self) -> list[str]:
        raise Missing("kafka is not there")


def measured(*runs: Run) -> Measured:
    return Measured(Plan(), runs=list(runs))


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    seconds = {"penstock": (1.0, 9.0, 3.0), "kafka": (2.0, 3.0, 3.0)}
    runs = [Run(COUNT, source, at, one) for source, some in seconds.items() for at, one in enumerate(some)]
    assert reached(measured(*runs), BY_PLACE[COUNT, "penstock", "kafka"]) == 1.0
    assert reached(measured(*runs[:3]), BY_PLACE[COUNT, "penstock", "kafka"]) is None
    runs[-1].error = "lost"
    assert reached(measured(*runs), BY_PLACE[COUNT, "penstock", "kafka"]) is None


def test_a_figure_is_a_field_a_rate_or_what_a_scenario_has_besides() -> None:
    writing = Run(WRITE, "penstock", 1, 4.0, 1_000_000)
    assert reached(measured(writing), BY_PLACE[WRITE, "penstock", ""]) == 250_000
    living = Run(LIVE, "penstock", 1, figures={"p50_s": 0.2})
    assert reached(measured(living), BY_PLACE[LIVE, "penstock", ""]) == 0.2


@pytest.mark.endtoend
@pytest.mark.slow
def test_a_run_starts_the_servers_and_tells_what_is_missing_and_what_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a Java that does not start; what the measured program does in one that starts is in test_job.py."""
    monkeypatch.setattr(bench, "OURS", (Penstock,))
    monkeypatch.setattr(bench, "Kafka", Absent)
    java = tmp_path / "jvm" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\n[ "$1" = -version ] || exit 1\necho \'version "17"\' >&2\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm"))
    monkeypatch.delenv("SPARK_HOME", raising=False)  # of a session that runs in this process
    done = measure(Plan(count=1000, rounds=1, scenarios=(COUNT,)), lambda word: None)
    (run,) = done.runs
    assert run.error.startswith("the program ended with status 1: penstock.errors.InvalidConfig: Java at "), run.error
    assert done.server.startswith("penstock")
    assert done.missing == {"kafka": "kafka is not there"}
    monkeypatch.setattr(command.spark, "measure", lambda plan, tell: done)
    file = tmp_path / "runs.json"
    assert command.main(["spark", "--scenarios", COUNT, "--json", str(file)]) == 1
    assert len(json.loads(file.read_text())["runs"]) == 1
    assert "kafka takes no part: kafka is not there" in capsys.readouterr().out
