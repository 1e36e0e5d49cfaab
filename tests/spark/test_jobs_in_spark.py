"""The catalog's jobs as streams: what batches give, streams give; restarts and repeated batches change nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Message
from penstock.blocking import Producer, Reader
from penstock.errors import InternalError, InvalidConfig
from penstock.telemetry import running
from penstock.telemetry.catalog import job_of
from penstock.telemetry.outputs import Messages, Output, ParquetFolder
from penstock.telemetry.running import RunOptions
from tests.penstock.telemetry.jobs.conftest import made_of
from tests.penstock.telemetry.jobs.test_gaps import Model, in_order

FAR = datetime(2026, 3, 2, 12, tzinfo=UTC)
Row = dict[str, Any]


def send(servers: str, topic: str, rows: list[Row]) -> None:
    """Sends rows as devices would; those with an error are no JSON."""
    with Producer(servers=servers) as producer:
        messages = []
        for row in rows:
            said = {"value": row["value"], "time": round(row["event_time"].timestamp() * 1000)}
            body = b"{" if row["error"] else json.dumps(said).encode()
            name = f"{topic}/{row['device']}/{row['metric']}"
            messages.append(Message(topic, body, key=row["device"], mqtt_topic=name))
        producer.send_many(messages)


def closing(device: str = "end") -> list[Row]:
    """Readings so late in time that the watermark passes all others' windows."""
    row = {"device": device, "metric": "temp", "value": 1.0, "error": None}
    return [row | {"event_time": FAR + timedelta(seconds=at)} for at in range(3)]


def test_each_job_gives_as_a_stream_what_it_gives_as_a_batch(spark: Any, cluster: Any, tmp_path: Path) -> None:
    rows = sorted(made_of(11), key=lambda row: row["event_time"])
    send(cluster.servers, "every", rows)
    with Producer(servers=cluster.servers) as producer:
        for device, body in (("s11d1", b'{"site": "Kiel"}'), ("s11d2", b'{"site": "Bonn"}'), ("s11d2", b"")):
            producer.send(Message("registry", body, mqtt_topic=f"registry/{device}", retain=True))
    given: dict[str, Any] = {
        "aggregates": {},
        "alerts": {"rule": ("temp > 24",)},
        "sessions": {"watermark": "1 second"},
        "talkers": {},
        "devices": {"registry": "topic:registry"},
    }
    shown: list[Row] = []
    for name, own in given.items():
        job, told = job_of(name), []
        options = RunOptions(cluster.servers, "every", once=True, rows_per_batch=10_000, given=own)
        done = running.run(job, options, spark, told.append)
        assert (done.rows, done.lag) == (len(rows), 0)
        source = spark.read.format("penstock").options(servers=cluster.servers, subscribe="every")
        source = source.options(**({"columns": ",".join(job.reads)} if job.reads else {"payload": "readings"})).load()
        filled = running.filled(job, options, spark)
        batch = job.make(source, filled) if job.make else job.fold(source, None, filled).events  # type: ignore[misc]
        expected = running.batch_of([running.told(row) for row in batch.toArrow().to_pylist()], 0)["rows"]
        shown = running.batch_of([row for one in told for row in one["rows"]], 0)["rows"]
        assert json.loads(json.dumps(shown)) == shown
        if name in ("sessions", "talkers"):  # those that the watermark has passed
            assert [row for row in shown if row not in expected] == []
            assert bool(shown) == (name == "sessions")
        else:
            assert shown == expected
            assert shown
    sites = {row["device"]: (row["known"], row["site"]) for row in shown}
    assert (sites["s11d1"], sites["s11d2"]) == ((True, "Kiel"), (False, None))


class FailsOnce:
    """An output whose first write of a batch is done, and then dies."""

    def __init__(self, output: Output, batch: int) -> None:
        self._output = output
        self._batch = batch

    def check(self, spark: Any) -> None:
        self._output.check(spark)

    def write(self, rows: Any, batch: int) -> None:
        self._output.write(rows, batch)
        if batch == self._batch:
            self._batch = -1
            raise RuntimeError("the machine is gone")


def test_gaps_are_told_once_though_the_job_is_restarted_and_a_batch_repeated(
    spark: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sorted(made_of(12), key=lambda row: row["event_time"])
    parts = (rows[:100], rows[100:170], rows[170:])
    options = RunOptions(
        cluster.servers, "silent", once=True, out=(str(tmp_path),), given={"times": 4.0}, rows_per_batch=10_000
    )
    output = FailsOnce(ParquetFolder(f"{tmp_path}/gaps"), 1)
    monkeypatch.setattr(running, "outputs_of", lambda job, options: [output])
    model, expected = Model(), []
    for at, part in enumerate(parts):
        send(cluster.servers, "silent", part)
        expected += model.batch([row | {"queue": 0, "offset": at} for at, row in enumerate(part)])
        if at == 1:
            with pytest.raises(InternalError):
                running.run(job_of("gaps"), options, spark, lambda batch: None)
        running.run(job_of("gaps"), options, spark, lambda batch: None)
    kept = spark.read.parquet(f"{tmp_path}/gaps").drop("batch").toArrow().to_pylist()
    assert in_order([tuple(row.values()) for row in kept]) == in_order(expected)
    assert len({row[3] is None for row in expected}) == 2


def test_an_alert_reaches_its_device_once_and_a_job_never_reads_what_it_writes(
    spark: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = {"device": "boiler", "metric": "temp", "error": None}
    values = (20.0, 91.0, 95.0, 20.0, 92.0)
    rows = [start | {"value": value, "event_time": FAR + timedelta(seconds=at)} for at, value in enumerate(values)]
    send(cluster.servers, "hot", rows)
    own = {"given": {"rule": ("temp > 90",)}, "once": True}
    options = RunOptions(cluster.servers, "hot", out=("mqtt:alarm/{device}/{metric}",), checkpoint=str(tmp_path), **own)
    output = FailsOnce(Messages("alarm/{device}/{metric}", cluster.servers, to_devices=True), 0)
    with monkeypatch.context() as patched:
        patched.setattr(running, "outputs_of", lambda job, options: [output])
        with pytest.raises(InternalError):
            running.run(job_of("alerts"), options, spark, lambda batch: None)
    running.run(job_of("alerts"), options, spark, lambda batch: None)
    with Reader("alarm", servers=cluster.servers, until_end=True) as reader:
        received = list(reader.messages())
    assert [(one.mqtt_topic, json.loads(one.body)["value"]) for one in received] == [
        ("alarm/boiler/temp", 91.0),
        ("alarm/boiler/temp", 92.0),
    ]
    for out, sentence in (("mqtt:hot/{device}", "would read what it writes"), ("topic:elsewhere", "--checkpoint")):
        with pytest.raises(InvalidConfig, match=sentence):
            running.run(job_of("alerts"), RunOptions(topic="hot", out=(out,), **own), spark, print)  # type: ignore[arg-type]


def test_final_rows_are_kept_by_day_and_what_comes_later_is_counted(spark: Any, cluster: Any, tmp_path: Path) -> None:
    rows = [row for row in made_of(13) if not row["error"]]
    options = RunOptions(cluster.servers, "small", once=True, out=(str(tmp_path),), rows_per_batch=10_000)
    for part in (rows, closing(), rows[:5]):
        send(cluster.servers, "small", part)
        done = running.run(job_of("downsample"), options, spark, lambda batch: None)
    assert 1 <= done.late <= 5
    days = {path.name for path in (tmp_path / "downsample").iterdir() if path.is_dir()}
    assert days == {"day=2026-03-01", "day=2026-03-02"}
    kept = spark.read.parquet(str(tmp_path / "downsample")).where("device <> 'end'").toArrow().to_pylist()
    assert sum(row["count"] for row in kept) == len(rows)
    other = replace(options, checkpoint=str(tmp_path / "other"))  # whose batches begin at 0 again
    with pytest.raises(InvalidConfig, match="has the rows of a job with another checkpoint"):
        running.run(job_of("downsample"), other, spark, lambda batch: None)
