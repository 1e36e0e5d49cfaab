"""Decoders in a real Spark: as a function on frames and as an option, and what could not be decoded written aside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

from penstock import Message
from penstock.blocking import Producer
from penstock.errors import InvalidConfig
from penstock.spark.decoders import dead_letters, decode, infer, metrics, split

BAD = [b"null", b"\xff", b'{"temp": "hot"}']


def rows(spark: Any, cluster: Any, topic: str, **options: str) -> Any:
    return spark.read.format("penstock").options(servers=cluster.servers, subscribe=topic, **options).load()


def test_json_is_decoded_alike_as_a_function_and_as_an_option(spark: Any, cluster: Any, send: Any) -> None:
    send("said", [json.dumps({"temp": at / 2, "more": {"on": True}}).encode() for at in range(100)] + BAD)
    raw = rows(spark, cluster, "said")
    text = infer(raw.where("value NOT LIKE '%hot%'"), "json")
    assert text == "temp DOUBLE, more STRUCT<on BOOLEAN>"
    good, bad = split(decode(raw, "json", text))
    assert good.columns == ["key", "topic", "queue", "offset", "timestamp", "data"]
    total = good.selectExpr("sum(data.temp) AS temp", "count(*) AS n", "every(data.more.on) AS everyone").first()
    assert tuple(total) == (sum(range(100)) / 2, 100, True)
    assert sorted(bytes(row.payload) for row in bad.collect()) == sorted(BAD)

    option = rows(spark, cluster, "said", payload="json", payloadSchema=text)
    assert option.columns == decode(raw, "json", text).columns
    assert {tuple(row) for row in split(option)[0].collect()} == {tuple(row) for row in good.collect()}


@pytest.mark.long
def test_a_stream_puts_aside_what_it_cannot_decode(spark: Any, cluster: Any, send: Any, tmp_path: Path) -> None:
    send("packed", [msgpack.packb({"temp": at}) for at in range(10)] + BAD)
    source = {"servers": cluster.servers, "subscribe": "packed", "startingOffsets": "earliest"}
    stream = spark.readStream.format("penstock").options(**source).load()
    _, bad = split(decode(stream, "msgpack", "temp BIGINT"))
    writer = dead_letters(bad).writeStream.format("penstock").options(servers=cluster.servers, topic="packed-dlq")
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    letters = rows(spark, cluster, "packed-dlq", columns="value,properties").collect()
    assert sorted(bytes(row.value) for row in letters) == sorted(BAD)
    assert {row.properties["DLQ_TOPIC"] for row in letters} == {"packed"}
    assert all(row.properties["DLQ_REASON"] and int(row.properties["DLQ_OFFSET"]) >= 0 for row in letters)


def test_a_schema_in_sql_is_an_option_of_the_table(spark: Any, cluster: Any, send: Any) -> None:
    send("viewed-json", [b'{"temp": 21.5}'])
    options = f"subscribe 'viewed-json', servers '{cluster.servers}', payload 'json', payloadSchema 'temp DOUBLE'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW viewed_json USING penstock OPTIONS ({options})")
    assert spark.sql("SELECT data.temp AS temp FROM viewed_json").first().temp == 21.5


def test_a_column_that_is_missing_or_taken_is_told(spark: Any) -> None:
    frame = spark.range(1).selectExpr("'x' AS value", "1 AS data")
    with pytest.raises(InvalidConfig, match="the column data is there already"):
        decode(frame, "json", "a INT")
    with pytest.raises(InvalidConfig, match="there is no column 'body'"):
        decode(frame, "json", "a INT", column="body")
    with pytest.raises(InvalidConfig, match="has a schema of its own"):
        infer(frame, "avro")


def test_sparkplugs_metrics_have_their_names_in_batches_and_over_the_batches_of_a_stream(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "penstock" / "spark" / "decoders"))
    from sparkplug_messages import metric, payload

    bodies = [("NBIRTH", payload(metric("bdSeq", 0, 8, long=1), metric("temp", 7, 3, int=20), seq=0))]
    bodies += [("NDATA", payload(metric(alias=7, int=-at), seq=at)) for at in range(1, 10)]
    bodies += [("NDEATH", payload(metric("bdSeq", datatype=8, long=1)))]
    with Producer(servers=cluster.servers) as producer:
        producer.send_many(
            [Message("plant", body, key="edge1", mqtt_topic=f"spBv1.0/plant/{kind}/edge1") for kind, body in bodies]
        )
    options = {"servers": cluster.servers, "subscribe": "plant", "payload": "sparkplug"}
    batch = metrics(spark.read.format("penstock").options(**options).load())
    expected = [("bdSeq", 1.0, True), ("temp", 20.0, True)]
    expected += [("temp", float(-at), True) for at in range(1, 10)] + [(None, None, False)]

    def found(rows: Any) -> list[tuple[Any, ...]]:
        rows = sorted(rows, key=lambda row: (row.offset, row.metric or ""))
        return [(row.metric, row.value, row.online) for row in rows]

    assert found(batch.collect()) == expected

    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    stream = metrics(spark.readStream.format("penstock").options(**options).load())
    seen: list[Any] = []
    writer = stream.writeStream.foreachBatch(lambda frame, number: seen.extend(frame.collect()))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert found(seen) == expected
    assert len(query.recentProgress) > 1
