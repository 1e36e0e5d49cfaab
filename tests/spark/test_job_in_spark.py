"""The telemetry job in a real Spark: its numbers, and what becomes of bad payloads."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from penstock import Message
from penstock.blocking import Producer
from penstock.errors import OffsetOutOfRange
from penstock.telemetry import job
from penstock.telemetry.job import JobOptions
from penstock.telemetry.windows import WINDOW_COLUMNS, windows

START_MS = 1_699_999_990_000  # a window begins here
BAD = [b"null", b'{"value":1}{"value":2}', b"[" * 5000, b"\xff"]

Key = tuple[int, str, str]


def made_readings() -> list[tuple[str, str, int, float]]:
    """Device, metric, time, value: every 700 ms one, three devices, two metrics."""
    return [(f"d{at % 3}", ("temp", "hum")[at % 2], START_MS + 700 * at, at * 0.5) for at in range(200)]


def send_readings(servers: str, topic: str) -> None:
    with Producer(servers=servers) as producer:
        messages = [
            Message(
                topic,
                json.dumps({"value": value, "time": at}).encode(),
                key=device,
                mqtt_topic=f"{topic}/{device}/{metric}",
            )
            for device, metric, at, value in made_readings()
        ]
        messages += [Message(topic, body, key="d1", mqtt_topic=f"{topic}/d1/temp") for body in BAD]
        producer.send_many(messages)


def expected() -> dict[Key, tuple[float, ...]]:
    values: dict[Key, list[float]] = defaultdict(list)
    for device, metric, at, value in made_readings():
        values[(at // 10_000 * 10_000, device, metric)].append(value)
    return {key: (len(some), fmean(some), min(some), max(some)) for key, some in values.items()}


def figures(rows: list[dict[str, Any]]) -> dict[Key, tuple[float, ...]]:
    """The last word on each window."""
    return {
        (int(row["window_start"].timestamp() * 1000), row["device"], row["metric"]): (
            row["count"],
            pytest.approx(row["mean"]),
            row["min"],
            row["max"],
        )
        for row in rows
        if row["count"]
    }


def test_stream_and_batch_give_the_numbers_that_plain_python_gives(spark: Any, cluster: Any, tmp_path: Path) -> None:
    send_readings(cluster.servers, "numbers")
    options = JobOptions(servers=cluster.servers, topic="numbers", once=True, rows_per_batch=60, watermark="1h")
    seen: list[dict[str, Any]] = []
    frame = windows(job.readings(options, spark), "10 seconds", "1 hour")
    writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path))
    writer = writer.foreachBatch(lambda batch, number: seen.extend(batch.toArrow().to_pylist()))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert figures(seen) == expected()
    assert len(seen) > len(figures(seen))  # several batches changed the same window

    given = {"servers": cluster.servers, "subscribe": "numbers", "payload": "readings"}
    batch = windows(spark.read.format("penstock").options(**given).load()).toArrow()
    assert tuple(batch.column_names) == WINDOW_COLUMNS
    assert figures(batch.to_pylist()) == expected()
    assert sum(row["refused"] for row in batch.to_pylist()) == len(BAD)


def test_the_job_tells_its_batches_keeps_finished_windows_and_puts_bad_payloads_aside(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    send_readings(cluster.servers, "aside")
    out = tmp_path / "out"
    options = JobOptions(servers=cluster.servers, topic="aside", once=True, out=out, window="10s", watermark="10s")
    told: list[Any] = []
    job.run(options, spark, told.append)
    assert sum(batch["refused"] for batch in told) == len(BAD)
    assert {row["device"] for batch in told for row in batch["rows"]} == {"d0", "d1", "d2"}
    assert json.loads(json.dumps(told)) == told

    aside = spark.read.parquet(str(out / "refused")).toArrow().to_pylist()
    assert sorted(row["payload"] for row in aside) == sorted(BAD)
    assert {(row["device"], row["topic"]) for row in aside} == {("d1", "aside")}
    assert all(row["error"] for row in aside)

    kept = spark.read.parquet(str(out / "windows")).toArrow().to_pylist()
    assert len(kept) == len(figures(kept)) > 0  # only finished windows, each once
    assert figures(kept).items() <= expected().items()

    assert sorted(one.name for one in (out / "checkpoint").iterdir()) == ["refused", "shown", "windows"]


@pytest.mark.long
def test_the_same_run_once_more_over_its_checkpoint_adds_nothing(spark: Any, cluster: Any, tmp_path: Path) -> None:
    send_readings(cluster.servers, "twice")
    options = JobOptions(servers=cluster.servers, topic="twice", once=True, out=tmp_path, watermark="10s")
    told: list[Any] = []
    job.run(options, spark, told.append)
    files, batches = sorted(tmp_path.rglob("*.parquet")), len(told)
    assert files
    job.run(options, spark, told.append)
    assert (sorted(tmp_path.rglob("*.parquet")), len(told)) == (files, batches)


@pytest.mark.long
def test_a_job_that_lost_data_ends_with_our_error(spark: Any, queues: Any, tmp_path: Path) -> None:
    queues.put("telemetry", 0, 5)
    options = JobOptions(servers=queues.address, once=True, checkpoint=tmp_path)
    job.run(options, spark, lambda batch: None)
    queues.put("telemetry", 0, 5)
    queues.remove_before("telemetry", 0, 8)
    with pytest.raises(OffsetOutOfRange, match="begins at 8 now; offset 5"):
        job.run(options, spark, lambda batch: None)
