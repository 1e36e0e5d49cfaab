"""The rows of a query: messages, readings, or payloads decoded by a format.

The source's option ``payload`` decodes behind each pull, so rows pass through Python once. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.spark.columns import arrow_schema
from penstock.spark.decoders.formats import FORMATS, Format, format_of
from penstock.spark.decoders.frames import added_schema, decoded_batch
from penstock.telemetry.decode import READING_ARROW, decode_batch

if TYPE_CHECKING:
    from penstock.spark.options import SourceOptions

RAW: Final = "raw"
READINGS: Final = "readings"
PAYLOADS: Final = (RAW, READINGS, *FORMATS)
_VALUE: Final = "value"
_NAME: Final = "mqtt_topic"


def schema_of(columns: tuple[str, ...], payload: str, schema: str = "", message: str = "") -> pa.Schema:
    """The columns of rows. Raises ``InvalidConfig`` where a format lacks its schema."""
    if payload == READINGS:
        return READING_ARROW
    if payload in ("", RAW):
        return arrow_schema(columns)
    return _decoded_schema(columns, format_of(payload, schema, message))


def columns_needed(options: SourceOptions) -> tuple[str, ...]:
    """The columns of messages that are read for a query's rows."""
    if options.payload not in FORMATS:
        return options.columns
    needed = [*options.columns, _VALUE]
    if format_of(options.payload, options.payload_schema, options.payload_message).needs_name:
        needed.append(_NAME)
    return tuple(dict.fromkeys(needed))


def rows_of(messages: pa.RecordBatch, options: SourceOptions) -> pa.RecordBatch:
    """A query's rows of messages that have ``columns_needed``."""
    if options.payload == READINGS:
        return decode_batch(messages)
    if options.payload not in FORMATS:
        return messages
    how = format_of(options.payload, options.payload_schema, options.payload_message)
    kept = [name for name in options.columns if name != _VALUE]
    return decoded_batch(messages, how, _VALUE, kept, _decoded_schema(options.columns, how))


@lru_cache(maxsize=32)
def _decoded_schema(columns: tuple[str, ...], how: Format) -> pa.Schema:
    """The columns but for the payload, and those that decoding adds, exactly as Spark expects them."""
    kept = arrow_schema(tuple(name for name in columns if name != _VALUE))
    return to_arrow_schema(from_arrow_schema(pa.schema([*kept, *added_schema(how)])), timezone="UTC")
