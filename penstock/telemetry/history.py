"""Topics as tables for SQL: one row a message, its JSON fields as columns beside ``device``, ``metric``, ``time``.

The fields of a topic are those of its newest messages. A field that is called like a column of the message is
``field_...``; of two that differ only in upper and lower case the first counts, for SQL does not tell them apart. A
field that a payload lacks, or has of another kind, is NULL: no payload ends a query.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.errors import InvalidConfig, TopicNotFound
from penstock.spark.decoders.ddl import quoted
from penstock.telemetry.decode import AHEAD_MS_MAX, MILLISECONDS_MAX, SECONDS_MAX, TIME_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEWEST: Final = 500
"""Number of messages per queue from which the fields are inferred."""
MESSAGE_COLUMNS: Final = ("key", "mqtt_topic", "client_id", "queue", "offset", "stored", "payload")
COLUMNS: Final = ("device", "metric", "time", "value", "FIELDS", *MESSAGE_COLUMNS)
_READ: Final = ("key", "value", "queue", "offset", "timestamp", "mqtt_topic", "client_id")
_OURS: Final = frozenset({"device", "metric", "value", *TIME_FIELDS})
_TABLES_MAX: Final = 50
_CORRECT: Final = "correct the query; docs/guide/analyst.md has the columns of a topic's table"


def answer(query: str, spark: SparkSession, servers: str, topics: Sequence[str]) -> DataFrame:
    """The result of a query whose tables are topics.

    Args:
        query: one statement of Spark's SQL.
        spark: a session that knows the source.
        servers: name servers.
        topics: names of all topics.

    Raises:
        TopicNotFound: the query names a table that is not a topic.
        InvalidConfig: Spark does not take the query; says why.
    """
    from pyspark.errors import AnalysisException, ParseException

    for _ in range(_TABLES_MAX):
        try:
            return _named_once(spark.sql(query))
        except ParseException as error:
            raise InvalidConfig(f"this is no SQL: {_first(error)}", hint=_CORRECT) from None
        except AnalysisException as error:
            if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                raise InvalidConfig(_first(error), hint=_CORRECT) from None
            name = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
        if "`.`" in name:  # as of DROP TABLE and INSERT, which name Spark's own catalog
            hint = "each topic is a table, with no catalog before its name, and a query only reads"
            raise InvalidConfig(f"there is no table {name.replace('`', '')}", hint=hint)
        if name not in topics:
            near = difflib.get_close_matches(name, topics, n=1)
            hint = f"did you mean {near[0]}?" if near else "`penstock topic list` shows all"
            raise TopicNotFound(f"there is no topic {name}", hint=hint)
        table(name, spark, servers).createOrReplaceTempView(f"`{name}`")
    raise InvalidConfig(f"a query has at most {_TABLES_MAX} tables")


def table(topic: str, spark: SparkSession, servers: str) -> DataFrame:
    """A topic as a table: ``COLUMNS``, with the payload's fields in place of ``FIELDS``."""
    from pyspark.sql import functions as f

    given = {"servers": servers, "subscribe": topic, "columns": ",".join(_READ)}
    sample = spark.read.format("penstock").options(**given, startingOffsets=_newest(topic, servers))
    newest = sample.load().select("value")
    fields = fields_of(bytes(one or b"") for one in newest.toArrow().column(0).to_pylist())
    rows = (
        spark.read.format("penstock")
        .options(**given)
        .load()
        .select(
            f.expr("make_valid_utf8(CAST(key AS STRING))").alias("key"),
            "mqtt_topic",
            "client_id",
            "queue",
            "offset",
            f.col("timestamp").alias("stored"),
            f.expr("make_valid_utf8(CAST(value AS STRING))").alias("payload"),
        )
    )
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in fields.items())
    said = f.from_json("payload", schema) if fields else f.lit(None)
    return rows.withColumn("_said", said).selectExpr(*expressions(fields), *MESSAGE_COLUMNS)


def _newest(topic: str, servers: str) -> str:
    """Where the newest messages of a topic begin, as the source's option ``startingOffsets``."""
    from penstock.spark.cluster import Cluster
    from penstock.spark.options import parse

    cluster = Cluster(parse({"subscribe": topic, "servers": servers}, stream=False))
    try:
        extents = cluster.extents()
    finally:
        cluster.close()
    return json.dumps({topic: {key.name: max(one.min, one.end - NEWEST) for key, one in extents.items()}})


def fields_of(payloads: Iterable[bytes]) -> dict[str, str]:
    """Fields of JSON objects with their types in Spark: that of more than half of the values, else ``string`` (lists
    and objects are their JSON then). Payloads that are no objects have none."""
    kinds: dict[str, Counter[str]] = {}
    spelled: dict[str, str] = {}
    for payload in payloads:
        try:
            said = orjson.loads(payload)
        except orjson.JSONDecodeError:
            continue
        if type(said) is dict:
            for name, value in said.items():
                if name and spelled.setdefault(name.lower(), name) == name:
                    kinds.setdefault(name, Counter()).update(_kind(value))
    return {name: _joined(its) for name, its in kinds.items()}


def _kind(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if type(value) is int:
        return ("bigint",) if -(2**63) <= value < 2**63 else ("double",)
    return ({bool: "boolean", float: "double"}.get(type(value), "string"),)


def _joined(kinds: Counter[str]) -> str:
    if kinds["double"]:
        kinds["double"] += kinds.pop("bigint", 0)
    kind, count = (kinds.most_common(1) or [("string", 0)])[0]
    return kind if 2 * count > kinds.total() else "string"


def expressions(fields: dict[str, str]) -> list[str]:
    """The columns of a table in SQL, over ``_said`` (the payload's fields) and the columns of the message."""
    texts = {
        "device": "split_part(mqtt_topic, '/', 2)",
        "metric": "array_join(slice(split(mqtt_topic, '/'), 3, 1000), '/')",
    }
    found = []
    for name, of_topic in texts.items():
        parts = [f"CAST({_said(name)} AS STRING)"] * (name in fields) + [f"nullif({of_topic}, '')"]
        found.append(f"coalesce({', '.join(parts)}) AS {name}")
    found.append(f"{_time(fields)} AS time")
    number = "try_cast(payload AS DOUBLE)"
    if fields.get("value") in ("bigint", "double"):
        found.append(f"coalesce(CAST({_said('value')} AS DOUBLE), {number}) AS value")
    else:
        found.append(f"{_said('value') if 'value' in fields else number} AS value")
    taken = {"device", "metric", "value", "time", *MESSAGE_COLUMNS}
    for name in fields:
        if name not in _OURS:
            shown = f"field_{name}" if name.lower() in taken else name
            found.append(f"{_said(name)} AS {quoted(shown)}")
    return found


def _time(fields: dict[str, str]) -> str:
    """The time of the measurement: the payload's if it is credible, else the store time."""
    for name in TIME_FIELDS:
        kind = fields.get(name)
        if kind in ("bigint", "double"):
            number = f"CAST({_said(name)} AS DOUBLE)"
            milliseconds = f"CAST(if({number} < {SECONDS_MAX}, {number} * 1000, {number}) AS BIGINT)"
            at = f"if({number} BETWEEN 0 AND {MILLISECONDS_MAX}, timestamp_millis({milliseconds}), NULL)"
        elif kind == "string":
            at = f"try_to_timestamp({_said(name)})"
        else:
            continue
        believed = f"{at} <= stored + INTERVAL {AHEAD_MS_MAX // 1000} SECONDS"
        return f"if({believed}, {at}, stored)"
    return "stored"


def _said(name: str) -> str:
    return f"_said.{quoted(name)}"


def _named_once(rows: DataFrame) -> DataFrame:
    """Rows whose columns all have different names."""
    names: list[str] = []
    for name in rows.columns:
        found, number = name, 2
        while found in names:
            found, number = f"{name}_{number}", number + 1
        names.append(found)
    return rows if names == rows.columns else rows.toDF(*names)


def _first(error: Any) -> str:
    """The sentence of Spark's error, without its name and details."""
    text = str(error).strip().splitlines()[0]
    text = text.split("] ", 1)[-1] if text.startswith("[") else text
    return text.split(" SQLSTATE")[0].rstrip(". ")
