"""Tables of devices to join with: CSV, Parquet, a database's table, or the newest messages of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KINDS = "write FILE.csv, a Parquet file or folder, jdbc:ADDRESS#table or topic:NAME"


def registry(text: str, spark: SparkSession, servers: str) -> DataFrame:
    """The table that ``text`` names; it is read when a job begins.

    A CSV file has a line of names first, and all its columns are texts. ``topic:NAME`` is the newest JSON object under
    each MQTT topic name of the topic, retained or not; its device is its field ``device`` or the name's second level,
    and an empty payload removes it, as retained messages are removed.

    Raises:
        InvalidConfig: there is no such table.
    """
    from pyspark.errors import AnalysisException

    kind, colon, rest = text.partition(":")
    if not text or (colon and not rest):
        raise InvalidConfig(f"{text!r} is no registry of devices", hint=_KINDS)
    try:
        if kind == "topic" and colon:
            return retained(rest, spark, servers)
        if kind == "jdbc" and colon:
            from penstock.telemetry.outputs import driver_of

            address, _, table = text.partition("#")
            reader = spark.read.format("jdbc").option("url", address).option("driver", driver_of(address, spark))
            return reader.option("dbtable", table or "devices").load()
        if text.endswith(".csv"):
            return spark.read.option("header", "true").csv(text)
        return spark.read.parquet(text)
    except AnalysisException as error:
        told = (str(error).splitlines() or ["it cannot be read"])[0]
        raise InvalidConfig(f"registry {text}: {told}", hint=_KINDS) from None


def retained(topic: str, spark: SparkSession, servers: str) -> DataFrame:
    """The newest object under each MQTT topic name of a topic, one row each, with ``device`` and its other fields.
    Of two that were stored in one millisecond, in different queues, the position in the broker's log tells."""
    from pyspark.sql import functions as f

    options = {"servers": servers, "subscribe": topic, "columns": "mqtt_topic,value,timestamp,position"}
    rows = spark.read.format("penstock").options(**options).load().groupBy("mqtt_topic")
    newest = rows.agg(f.max(f.struct("timestamp", "position", "value")).alias("one"))
    return table(newest.select("mqtt_topic", "one.value").toArrow().to_pylist(), spark)


def table(rows: list[dict[str, Any]], spark: SparkSession) -> DataFrame:
    """Objects as a DataFrame. A field that is not of one kind in all of them, or has parts, is text."""
    import orjson
    import pyarrow as pa

    devices: list[dict[str, Any]] = []
    for row in rows:
        try:
            said = orjson.loads(row["value"] or b"null")
        except orjson.JSONDecodeError:
            continue
        if isinstance(said, dict):
            name = [*row["mqtt_topic"].split("/"), ""][1]
            devices.append({"device": str(said.get("device", name))} | {k: v for k, v in said.items() if k != "device"})
    names = list(dict.fromkeys(name for one in devices for name in one)) or ["device"]
    columns: dict[str, Any] = {}
    for name in names:
        values = [one.get(name) for one in devices]
        kinds = {type(value) for value in values if value is not None}
        if not (kinds <= {bool} or kinds <= {int} or kinds <= {int, float} or kinds <= {str}) or not kinds:
            values = [
                value if value is None or isinstance(value, str) else orjson.dumps(value).decode() for value in values
            ]
            kinds = {str}
        if float in kinds:
            values = [None if value is None else float(value) for value in values]
        columns[name] = pa.array(values, pa.string() if kinds <= {str} else None)
    return spark.createDataFrame(pa.table(columns))
