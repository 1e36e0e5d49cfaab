"""Decoders in a real Spark: as a function on frames and as an option, and what could not be decoded written aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest

from penstock.errors import InvalidConfig
from penstock.spark.decoders import dead_letters, decode, infer, split

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
