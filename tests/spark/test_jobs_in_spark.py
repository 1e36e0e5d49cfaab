"""The catalog's jobs as streams: what batches give, streams give; restarts and repeated batches change nothing."""

from __future__ import annotations

import json
import time
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
from tests.patience import PATIENCE_S
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


def as_batch(spark: Any, servers: str, topic: str, name: str, own: dict[str, Any]) -> list[Row]:
    """What a job gives as a batch, as ``running`` hands it over."""
    job = job_of(name)
    source = running.source(job, spark.read, {"servers": servers, "subscribe": topic})
    filled = running.filled(job, RunOptions(servers, topic, given=own), spark)
    found = job.make(source, filled) if job.make else job.fold(source, None, filled).events  # type: ignore[misc]
    rows: list[Row] = running.batch_of([running.told(row) for row in found.toArrow().to_pylist()], 0)["rows"]
    return rows


def as_stream(spark: Any, options: RunOptions, name: str) -> list[Row]:
    """The rows that a job gives as a stream; of rows that change, the last ones."""
    job, told = job_of(name), list[Any]()
    done = running.run(job, options, spark, told.append)
    assert done.lag == 0
    shown = [row for one in told for row in one["rows"]]
    assert json.loads(json.dumps(shown)) == shown
    if job.mode == "update":
        shown = list({tuple(row[key] for key in job.keys): row for row in shown}.values())
    rows: list[Row] = running.batch_of(shown, 0)["rows"]
    return rows


@pytest.mark.parametrize(
    "names", [("last", "sessions"), pytest.param(("aggregates", "alerts", "downsample"), marks=pytest.mark.long)]
)
def test_each_job_gives_as_a_stream_what_it_gives_as_a_batch(spark: Any, cluster: Any, names: tuple[str, ...]) -> None:
    """All rows: the last readings are so late that the watermark passes all windows and sessions of the others."""
    rows = [row for row in made_of(11)[:250] if not row["error"]]  # one with an error is as late as it is stored
    topic = f"every-{names[0]}"
    send(cluster.servers, topic, [*sorted(rows, key=lambda row: row["event_time"]), *closing()])
    given: dict[str, Any] = {
        "aggregates": {},
        "last": {},
        "alerts": {"rule": ("temp > 24",)},
        "downsample": {},
        "sessions": {},
    }
    for name in names:
        own = given[name]
        changes = job_of(name).mode == "update"  # such a job sees its rows in several batches
        options = RunOptions(cluster.servers, topic, once=True, rows_per_batch=150 if changes else 10_000, given=own)
        expected = as_batch(spark, cluster.servers, topic, name, own)
        if not changes:
            expected = [row for row in expected if row["device"] != "end"]
        shown = as_stream(spark, options, name)
        assert shown == expected, name
        assert shown


@pytest.mark.long
def test_windows_of_top_talkers_are_whole_in_a_stream_once_later_messages_have_come(spark: Any, cluster: Any) -> None:
    """Their windows are of store time: messages come until the windows of the first ones are over."""
    send(cluster.servers, "talking", made_of(15)[:200])
    own = {"window": "1 second", "watermark": "1 millisecond", "top": 3}
    options = RunOptions(cluster.servers, "talking", once=True, given=own)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        send(cluster.servers, "talking", closing())
        shown = as_stream(spark, options, "talkers")
        expected = as_batch(spark, cluster.servers, "talking", "talkers", own)
        first = {row["window_start"] for row in expected if row["device"] != "end"}
        if first <= {row["window_start"] for row in shown}:
            break
        assert time.monotonic() < deadline
    last = max(row["window_start"] for row in shown)
    assert shown == [row for row in expected if row["window_start"] <= last]
    assert {row["rank"] for row in shown} == {1, 2, 3}


def test_a_stream_of_readings_is_joined_with_a_registry_of_each_kind(spark: Any, cluster: Any, tmp_path: Path) -> None:
    start = {"metric": "temp", "error": None, "value": 1.0, "event_time": FAR}
    send(cluster.servers, "joined", [start | {"device": name} for name in ("d1", "d2", "d3")])
    known = spark.createDataFrame([("d1", "Kiel"), ("d2", "Bonn")], "device STRING, site STRING")
    known.coalesce(1).write.option("header", "true").csv(str(tmp_path / "made"))
    (file,) = (tmp_path / "made").glob("*.csv")
    file.rename(tmp_path / "devices.csv")
    known.write.parquet(str(tmp_path / "devices"))
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    database = "jdbc:derby:memory:registry;create=true"
    known.write.format("jdbc").options(url=database, dbtable="devices").save()
    with Producer(servers=cluster.servers) as producer:
        for device, body in (("d1", b'{"site": "Kiel"}'), ("d2", b'{"site": "Bonn"}'), ("d3", b"{}"), ("d3", b"")):
            producer.send(Message("registry", body, mqtt_topic=f"registry/{device}", retain=True))
    for registry in (str(tmp_path / "devices.csv"), str(tmp_path / "devices"), f"{database}#devices", "topic:registry"):
        options = RunOptions(cluster.servers, "joined", once=True, given={"registry": registry})
        shown = as_stream(spark, options, "devices")
        found = {row["device"]: (row["known"], row.get("site", row.get("SITE"))) for row in shown}
        assert found == {"d1": (True, "Kiel"), "d2": (True, "Bonn"), "d3": (False, None)}, registry


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


@pytest.mark.long
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


@pytest.mark.long
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
