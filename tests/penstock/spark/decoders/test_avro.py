"""Avro payloads, compared with what fastavro writes."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.spark.decoders.avro import make
from penstock.spark.decoders.ddl import parse
from penstock.spark.decoders.formats import decoded, format_of

fastavro = pytest.importorskip("fastavro")

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "value", "type": ["null", "double"]},
        {"name": "count", "type": ["int", "long"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "last", "type": "State"},
        {"name": "tags", "type": {"type": "map", "values": "bytes"}},
        {"name": "odd", "type": ["null", "string", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "more", "type": ["null", {"type": "array", "items": "plant.Reading"}]},
    ],
}
ROW: dict[str, Any] = {
    "device": "d7",
    "value": 21.5,
    "count": 3,
    "state": "ON",
    "last": "OFF",
    "tags": {"a": b"x"},
    "odd": 7,
    "at": datetime(2026, 11, 28, 12, tzinfo=UTC),
    "day": date(2026, 11, 28),
    "price": Decimal("12.50"),
    "more": None,
}


def packed(row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), row)
    return stream.getvalue()


def test_a_schema_becomes_columns() -> None:
    kind, _ = make(json.dumps(SCHEMA))
    assert kind == parse(
        "device STRING, value DOUBLE, count BIGINT, state STRING, last STRING, tags MAP<STRING, BINARY>, odd STRING, "
        "at TIMESTAMP, day DATE, price DECIMAL(9, 2), more ARRAY<STRING>"
    )
    assert make('"long"')[0] == make("long")[0] == pa.int64()
    assert make('["null", "float", "int"]')[0] == pa.float64()


@settings(max_examples=30)
@given(st.none() | st.floats(allow_nan=False), st.integers(-9, 2**62), st.none() | st.text(max_size=4), st.booleans())
def test_what_fastavro_wrote_is_read(value: float | None, count: int, odd: str | None, nests: bool) -> None:
    row = ROW | {"value": value, "count": count, "odd": odd, "more": [ROW] if nests else None}
    found = decoded([packed(row)], format_of("avro", json.dumps(SCHEMA)))
    assert found.error.to_pylist() == [None]
    (data,) = found.data.to_pylist()
    inner = data.pop("more")
    assert data == {name: one for name, one in row.items() if name != "more"} | {"tags": [("a", b"x")]}
    assert (json.loads(inner[0])["device"] if nests else inner) == ("d7" if nests else None)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 50))
def test_bytes_that_were_changed_give_one_row_each(changes: list[tuple[int, int]], cut: int) -> None:
    whole = packed(ROW)
    changed = bytearray(whole)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    found = decoded(
        [bytes(changed), whole[: cut % len(whole)], whole + b"x", whole], format_of("avro", json.dumps(SCHEMA))
    )
    data, errors = found.data.to_pylist(), found.error.to_pylist()
    assert [one is None for one in data] == [one is not None for one in errors]
    assert errors[2] == "no Avro of this schema: bytes follow the value"
    assert not any("object at" in one for one in errors if one)
    assert data[3]["device"] == "d7"


@pytest.mark.parametrize("schema", ['{"type": "record"}', "nothing", '{"type": "array", "items": "none"}', "[]"])
def test_what_is_no_schema_is_told(schema: str) -> None:
    with pytest.raises(InvalidConfig, match="no Avro schema"):
        make(schema)
