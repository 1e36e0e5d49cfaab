"""Decoders as functions on DataFrames, of batches and of streams: Arrow in, Arrow out, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.errors import InvalidConfig
from penstock.spark.decoders.formats import DATA, ERROR, PAYLOAD, Format, decoded, format_of, schema_text
from penstock.spark.decoders.inferring import infer_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ADDED: Final = (DATA, ERROR, PAYLOAD)
SAMPLE_ROWS: Final = 1000


def decode(
    frame: DataFrame, payload: str, schema: str | bytes = "", *, message: str = "", column: str = "value"
) -> DataFrame:
    """The frame with ``data`` in place of its payloads; ``error`` and ``payload`` are null unless decoding failed.

    Args:
        frame: messages, of a batch or a stream.
        payload: ``json``, ``msgpack``, ``cbor``, ``avro``, ``protobuf`` or ``sparkplug``.
        schema: ``"temp DOUBLE, unit STRING"``; of Avro its schema in JSON; of protobuf the bytes or the path of a
            descriptor set (``protoc --include_imports --descriptor_set_out``); nothing for Sparkplug.
        message: the full name of a protobuf message.
        column: where the payloads are.

    Raises:
        InvalidConfig: the schema is illegal, the column is missing, or an added column exists already.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    text = schema_text(payload, schema)
    how = format_of(payload, text, message)
    if how.needs_name and "mqtt_topic" not in frame.columns:
        raise InvalidConfig(f"{payload} needs the column mqtt_topic", hint='option("columns", "mqtt_topic,value,...")')
    if column not in frame.columns:
        raise InvalidConfig(f"there is no column {column!r} to decode", hint=f"there are {', '.join(frame.columns)}")
    kept = [field for field in frame.schema.fields if field.name != column]
    taken = [field.name for field in kept if field.name in _ADDED]
    if taken:
        raise InvalidConfig(f"the column {taken[0]} is there already", hint=f"decode adds {', '.join(_ADDED)}")
    added = from_arrow_schema(added_schema(how))
    out = StructType([*kept, *added.fields])
    arrow = to_arrow_schema(out, timezone="UTC")
    work = partial(_decoded_batches, payload, text, message, column, [field.name for field in kept], arrow)
    found: DataFrame = frame.mapInArrow(work, out)
    return found


def split(frame: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The decoded and the undecodable rows of a frame that ``decode`` or ``payload=`` made."""
    from pyspark.sql.functions import col

    good = frame.where(col(ERROR).isNull()).drop(ERROR, PAYLOAD)
    return good, frame.where(col(ERROR).isNotNull()).drop(DATA)


def dead_letters(bad: DataFrame) -> DataFrame:
    """Messages of undecodable rows, to write to a topic: the payload as it was sent, and as properties the reason and
    where the message is stored (``DLQ_REASON``, ``DLQ_TOPIC``, ``DLQ_QUEUE``, ``DLQ_OFFSET``)."""
    from pyspark.sql.functions import col, create_map, lit

    pairs: list[Any] = [lit("DLQ_REASON"), col(ERROR)]
    for name in ("topic", "queue", "offset"):
        if name in bad.columns:
            pairs += [lit(f"DLQ_{name.upper()}"), col(name).cast("string")]
    kept = [col("key")] if "key" in bad.columns else []
    return bad.select(*kept, col(PAYLOAD).alias("value"), create_map(*pairs).alias("properties"))


def infer(frame: DataFrame, payload: str, *, rows: int = SAMPLE_ROWS, column: str = "value") -> str:
    """The schema of a sample of a batch's payloads, as ``decode`` takes it. For ``json``, ``msgpack`` and ``cbor``."""
    value_of = format_of(payload, "STRING").value_of if payload in ("json", "msgpack", "cbor") else None
    if value_of is None:
        raise InvalidConfig(f"{payload} has a schema of its own", hint="infer() is for json, msgpack and cbor")
    sample = frame.select(column).limit(rows).toArrow().column(0).to_pylist()
    return infer_text(_values(sample, value_of))


def _values(payloads: Sequence[bytes | None], value_of: Callable[[bytes], Any]) -> Iterator[Any]:
    for payload in payloads:
        if payload is not None:
            with suppress(Exception):  # an undecodable payload says nothing of the schema
                yield value_of(payload)


def added_schema(how: Format) -> pa.Schema:
    """The columns that decoding adds."""
    return pa.schema([(DATA, how.kind), (ERROR, pa.string()), (PAYLOAD, pa.binary())])


def _decoded_batches(
    payload: str,
    text: str,
    message: str,
    column: str,
    kept: list[str],
    arrow: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    how = format_of(payload, text, message)
    for batch in batches:
        yield decoded_batch(batch, how, column, kept, arrow)


def decoded_batch(
    batch: pa.RecordBatch, how: Format, column: str, kept: Sequence[str], arrow: pa.Schema
) -> pa.RecordBatch:
    """A batch with the decoded columns behind those that are kept."""
    names = batch.column("mqtt_topic").to_pylist() if how.needs_name else None
    found = decoded(batch.column(column).cast(pa.binary()).to_pylist(), how, names)
    arrays = [batch.column(name) for name in kept] + list(found)
    return pa.RecordBatch.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, arrow, strict=True)], schema=arrow
    )
