"""Writing from a real Spark: what only Spark's own behaviour can prove right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException


def stored(spark: Any, cluster: Any, topic: str, columns: str = "value") -> Counter[Any]:
    frame = spark.read.format("penstock").options(servers=cluster.servers, subscribe=topic, columns=columns).load()
    return Counter(tuple(row) for row in frame.collect())


def values(count: int) -> Counter[Any]:
    return Counter({(b"%d" % at,): 1 for at in range(count)})


def test_a_frame_is_stored_with_all_its_columns(spark: Any, cluster: Any) -> None:
    frame = spark.range(5000).selectExpr(
        "CAST(id AS STRING) AS value",
        "CAST(id % 7 AS STRING) AS key",
        "concat('out/d', id % 2) AS mqtt_topic",
        "map('site', 'Kiel') AS properties",
        "'warm' AS tags",
        "CAST(0 AS TINYINT) AS qos",
    )
    frame.repartition(3).write.format("penstock").options(servers=cluster.servers, topic="out").mode("append").save()
    found = stored(spark, cluster, "out", "value,key,mqtt_topic,tags,qos")
    assert found == Counter({(b"%d" % at, b"%d" % (at % 7), f"out/d{at % 2}", "warm", 0): 1 for at in range(5000)})


def test_a_write_with_an_id_adds_nothing_twice(spark: Any, cluster: Any) -> None:
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):
        frame.write.format("penstock").options(servers=cluster.servers, topic="once", writeId="w1").mode(
            "append"
        ).save()
    assert stored(spark, cluster, "once") == values(1000)


def test_a_batch_that_spark_repeats_is_stored_once(spark: Any, cluster: Any, send: Any, tmp_path: Path) -> None:
    """The driver dies between a sink's write and Spark's commit: its note of the commit is not there."""
    send("from", [b"%d" % at for at in range(1000)])
    source = {"servers": cluster.servers, "subscribe": "from", "startingOffsets": "earliest"}
    frame = spark.readStream.format("penstock").options(**source, maxOffsetsPerTrigger="300").load()

    def run() -> int:
        writer = frame.select("key", "value").writeStream.format("penstock")
        writer = writer.options(servers=cluster.servers, topic="to", checkpointLocation=str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return len(query.recentProgress)

    assert run() > 1
    commits = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    commits[-1].unlink()
    assert run() == 1
    assert stored(spark, cluster, "to") == values(1000)


@pytest.mark.long
def test_changed_aggregates_go_to_devices_once_though_their_batch_is_repeated(
    spark: Any, cluster: Any, send: Any, tmp_path: Path
) -> None:
    send("heat", [b"21", b"23"], mqtt_topic="heat/d7/temperature")
    source = {"servers": cluster.servers, "subscribe": "heat", "columns": "mqtt_topic,value"}
    frame = spark.readStream.format("penstock").options(**source, startingOffsets="earliest").load()
    readings = frame.selectExpr("split(mqtt_topic, '/')[1] AS device", "CAST(CAST(value AS STRING) AS DOUBLE) AS value")
    means = readings.groupBy("device").avg("value")
    out = means.selectExpr("concat('means/', device) AS mqtt_topic", "CAST(`avg(value)` AS STRING) AS value")

    def write(batch: Any, number: int) -> None:
        options = {"servers": cluster.servers, "writeId": "means", "writeBatch": str(number)}
        batch.write.format("penstock").options(**options).mode("append").save()

    for again in range(2):
        writer = out.writeStream.outputMode("update").foreachBatch(write)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        if not again:
            (tmp_path / "commits" / "0").unlink()
    assert stored(spark, cluster, "means", "mqtt_topic,value") == Counter({("means/d7", b"22.0"): 1})


def test_what_cannot_be_written_is_told_in_one_sentence(spark: Any, cluster: Any, tmp_path: Path) -> None:
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    to = {"servers": cluster.servers, "topic": "t"}
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    mistakes = {
        "no topic: nothing was written": lambda: frame.write.format("penstock").mode("append").save(),
        "a topic is a log": lambda: frame.write.format("penstock").options(**to).mode("overwrite").save(),
        "did you mean topic?": lambda: frame.write.format("penstock").option("topc", "t").mode("append").save(),
        "ErrorIfExists": lambda: frame.write.format("penstock").options(**to).save(),
        "a/b": lambda: (
            frame.selectExpr("value", "'a/b' AS topic")
            .write.format("penstock")
            .mode("append")
            .options(servers=cluster.servers)
            .save()
        ),
        "a write has no option": lambda: (
            stream.writeStream.format("penstock")
            .options(**to, subscribe="t", checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        ),
    }
    for said, mistake in mistakes.items():
        with pytest.raises(PySparkException) as raised:
            mistake()
        assert said in str(raised.value)
        assert "Traceback" not in str(raised.value)
