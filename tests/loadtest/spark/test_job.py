from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import penstock.spark
from loadtest.spark import job, live
from loadtest.spark.job import COUNT, LIVE, SOAK, WINDOWS, WRITE, Job, Order, Run, expect
from loadtest.spark.messages import store, write_parquet
from tests.spark.test_history_in_spark import Kept

ORDER = Order("127.0.0.1:1", "t", 10, "/nowhere")


def test_what_was_not_stored_so_is_an_error_of_its_run() -> None:
    expect((1, 2), (1, 2))
    run = Job(ORDER, None).timed(Run(COUNT, "penstock", rows=10), lambda: expect((1, 2), (1, 3)))
    assert run.error == "found (1, 2), stored (1, 3)"
    assert run.seconds > 0


@pytest.mark.parametrize("scenario", [COUNT, WINDOWS])
def test_kafka_takes_part_where_it_is(scenario: str) -> None:
    assert "kafka" not in Job(ORDER, None).sources(scenario)
    assert "kafka" in Job(Order("127.0.0.1:1", "t", 10, "/nowhere", kafka="127.0.0.1:2"), None).sources(scenario)


@pytest.mark.spark
def test_a_small_order_of_all_scenarios_finds_all_that_was_stored(
    spark: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store(cluster.servers, "benchmarked", 1000)
    write_parquet(tmp_path / "parquet", 1000)
    scenarios = (COUNT, WINDOWS, WRITE, LIVE, SOAK)
    given = {"rounds": 1, "live_messages": 1, "soak_batches": 3, "scenarios": scenarios}
    order = Order(cluster.servers, "benchmarked", 1000, str(tmp_path / "parquet"), **given)  # type: ignore[arg-type]
    monkeypatch.setattr(penstock.spark, "session", lambda *_, **__: Kept(spark))
    monkeypatch.setattr(live, "PAUSE_S", 0.0)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asdict(order))))
    job.main()
    runs = [Run(**json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert {(run.scenario, run.source): run.error for run in runs} == {
        (COUNT, "penstock"): "",
        (COUNT, "penstock value"): "",
        (WINDOWS, "penstock"): "",
        (WINDOWS, "penstock readings"): "",
        (WINDOWS, "parquet"): "",
        (WRITE, "penstock"): "",
        (LIVE, "penstock"): "",
        (SOAK, "penstock"): "",
    }
    assert all(run.seconds > 0 and run.rows > 0 for run in runs)
