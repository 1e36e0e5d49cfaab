"""Avro payloads: one value by its schema, without a header or a file around it."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import orjson
import pyarrow as pa

from penstock.errors import InvalidConfig
from penstock.spark.decoders.ddl import TIME
from penstock.spark.decoders.fitting import Undecodable

_SIMPLE: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    "timestamp-millis": TIME,
    "timestamp-micros": TIME,
    "local-timestamp-millis": TIME,
    "local-timestamp-micros": TIME,
    "date": pa.date32(),
    "time-millis": pa.string(),
    "time-micros": pa.string(),
    "uuid": pa.string(),
}
_WIDER: Final = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
_PRECISION_MAX: Final = 38


def make(schema: str) -> tuple[pa.DataType, Callable[[bytes], Any]]:
    """The type of a schema's values, and the reader of one. Raises ``InvalidConfig`` for an illegal schema."""
    import fastavro

    try:
        given = orjson.loads(schema)
    except orjson.JSONDecodeError:
        given = schema  # the name of a type, which is a schema too
    try:
        parsed = fastavro.parse_schema(given)
        kind = _kind(given, {}, ())
    except Exception as error:  # of many kinds, and of other ones in other versions
        raise InvalidConfig(f"no Avro schema: {error}", hint="payloadSchema is a schema in JSON") from None

    def value_of(payload: bytes) -> Any:
        stream = BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except EOFError:  # its text has the address of an object
            raise Undecodable("no Avro of this schema: the payload ends within the value") from None
        except Exception as error:
            raise Undecodable(f"no Avro of this schema: {str(error) or type(error).__name__}") from None
        if stream.tell() != len(payload):
            raise Undecodable("no Avro of this schema: bytes follow the value")
        return value

    return kind, value_of


def _kind(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    """The type of a schema's values. ``named``: the types that had a name; ``within``: those around this one."""
    if isinstance(schema, list):
        return _of_union([one for one in schema if one != "null"], named, within)
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        return pa.string() if schema in within else _kind(named[schema], named, within)
    name = schema.get("name")
    if name:
        space = schema.get("namespace")
        full = f"{space}.{name}" if space else name
        named |= {name: schema, full: schema}
        within = (*within, name, full)
    what, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and schema["precision"] <= _PRECISION_MAX:
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if what in ("record", "error"):
        return pa.struct([(one["name"], _kind(one["type"], named, within)) for one in schema["fields"]])
    if what == "array":
        return pa.list_(_kind(schema["items"], named, within))
    if what == "map":
        return pa.map_(pa.string(), _kind(schema["values"], named, within))
    return _kind(what, named, within)


def _of_union(kinds: list[Any], named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    """Of one kind beside null its own type, of numbers the wider one, else text that takes anything as JSON."""
    found = [_kind(one, named, within) for one in kinds]
    if not found:
        raise ValueError("a union of nothing, or of null alone")
    if len(set(found)) == 1:
        return found[0]
    if all(one in _WIDER for one in found):
        return pa.float64() if pa.float32() in found else max(found, key=_WIDER.index)
    return pa.string()
