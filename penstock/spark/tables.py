"""Schemas that Spark hands out and back: of tables in its catalog, and those that users give.

Spark hands a table's options to a Python source when the table is created, and none when it is read. But it keeps the
schema that the source gave, and the metadata of its columns: so the options travel there, in that of the first column.
A table that was created with a list of columns never meets the source; it has no options when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.errors import InvalidConfig
from penstock.spark.columns import COLUMNS
from penstock.spark.logins import refuse_secrets
from penstock.spark.payloads import RAW, READINGS, schema_of

_KEPT: Final = "penstock"
_AS_OPTION: Final = "option."  # how a catalog names options among the properties of a table


def asked(given: Mapping[str, str]) -> Mapping[str, str]:
    """The options that a person gave, without what a catalog adds to them when it creates a table."""
    if not is_creating(given):
        return given
    return {name.removeprefix(_AS_OPTION): value for name, value in given.items() if name.startswith(_AS_OPTION)}


def is_creating(given: Mapping[str, str]) -> bool:
    """Whether a catalog asks for the schema of a table that it is about to create."""
    return given.get("provider", "").lower() == "penstock"


def keep(schema: StructType, options: Mapping[str, str]) -> StructType:
    """A schema that has the options of its table with it. Raises ``InvalidConfig`` for secrets among them."""
    refuse_secrets(options)
    first, *others = schema.fields
    return StructType([StructField(first.name, first.dataType, first.nullable, {_KEPT: dict(options)}), *others])


def kept(schema: StructType | None) -> dict[str, str]:
    """The options that a schema has with it."""
    for column in schema or ():
        if _KEPT in column.metadata:
            return dict(column.metadata[_KEPT])
    return {}


def spark_types(columns: tuple[str, ...], payload: str = "", text: str = "", message: str = "") -> StructType:
    """The schema of rows: messages with these columns, readings, or payloads decoded by a schema (``text``)."""
    schema: StructType = from_arrow_schema(schema_of(columns, payload, text, message))
    return schema


def chosen(
    schema: StructType | None, columns: tuple[str, ...], payload: str = "", text: str = "", message: str = ""
) -> tuple[str, ...]:
    """The columns of messages that a query reads: those of the schema that Spark has, where a user gave one.

    Raises:
        InvalidConfig: the schema has other columns than there are.
    """
    have = spark_types(columns, payload, text, message)
    if schema is None or _plain(schema) == _plain(have):
        return columns
    if payload not in ("", RAW):
        rows = "readings" if payload == READINGS else "rows"
        raise InvalidConfig(f"{rows} have the columns {_told(have)}", hint="leave the schema out, and select()")
    known = {field.name: field for field in spark_types(tuple(COLUMNS))}
    for field in schema:
        right = known.get(field.name)
        if right is None:
            raise InvalidConfig(f"schema: there is no column {field.name!r}", hint=f"there are {', '.join(COLUMNS)}")
        if right.dataType.simpleString() != field.dataType.simpleString():
            raise InvalidConfig(f"schema: {field.name} is {_type(right)}, not {_type(field)}")
    return tuple(schema.names)


def _plain(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _type(field: Any) -> str:
    return str(field.dataType.simpleString()).upper()


def _told(schema: StructType) -> str:
    return ", ".join(f"{field.name} {_type(field)}" for field in schema)
