"""Values made to fit a schema."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.decoders.ddl import parse
from penstock.spark.decoders.fitting import NOT_PLAIN, Undecodable, column, fitter, plain_column

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def fitted(schema: str, value: Any) -> Any:
    kind = parse(schema)
    return column(kind, [fitter(kind)(value)]).to_pylist()[0]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("a BIGINT", {"a": 1.0, "b": 2}, {"a": 1}),
        ("a BIGINT, b STRING", {}, {"a": None, "b": None}),
        ("a DOUBLE", {"a": 2**60 + 1}, {"a": float(2**60 + 1)}),
        ("a STRING", {"a": {"b": [1, b"x"]}}, {"a": '{"b":[1,"eA=="]}'}),
        ("a BINARY, b BINARY", {"a": b"x", "b": "eA=="}, {"a": b"x", "b": b"x"}),
        ("a ARRAY<STRUCT<b INT, c STRUCT<d INT>>>", {"a": [{"b": 1}, None]}, {"a": [{"b": 1, "c": None}, None]}),
        ("a STRUCT<b STRUCT<c INT>>", {"a": {"b": {"c": 3}}}, {"a": {"b": {"c": 3}}}),
        ("a MAP<STRING, STRUCT<b INT>>", {"a": {"x": {"b": 1}}}, {"a": [("x", {"b": 1})]}),
        ("a MAP<STRING, INT>", {"a": {7: 1}}, {"a": [("7", 1)]}),
        ("t TIMESTAMP", {"t": "2026-11-28T12:00:00Z"}, {"t": NOON}),
        ("t TIMESTAMP", {"t": NOON.timestamp()}, {"t": NOON}),
        ("t TIMESTAMP", {"t": int(NOON.timestamp() * 1000)}, {"t": NOON}),
        ("t TIMESTAMP", {"t": NOON.replace(tzinfo=None)}, {"t": NOON}),
        ("d DATE, e DATE", {"d": "2026-11-28", "e": NOON}, {"d": date(2026, 11, 28), "e": NOON.date()}),
        ("d DECIMAL(5, 2), e DECIMAL(5, 2)", {"d": "1.25", "e": 3}, {"d": Decimal("1.25"), "e": Decimal("3.00")}),
        ("DOUBLE", 21, 21.0),
        ("ARRAY<INT>", [1, None], [1, None]),
    ],
)
def test_a_value_fits_where_nothing_of_it_is_lost(schema: str, value: Any, expected: Any) -> None:
    assert fitted(schema, value) == expected


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("a BIGINT", 3, "3 is no object"),
        ("a BIGINT", [], "a list is no object"),
        ("a BIGINT", {"a": 1.5}, "a: 1.5 is no BIGINT"),
        ("a BIGINT", {"a": True}, "a: True is no BIGINT"),
        ("a BIGINT", {"a": 2**63}, "a: 9223372036854775808 is no BIGINT"),
        ("a TINYINT", {"a": 128}, "a: 128 is no TINYINT"),
        ("a DOUBLE", {"a": True}, "a: True is no DOUBLE"),
        ("a DOUBLE", {"a": 10**400}, "is no DOUBLE"),
        ("a DOUBLE", {"a": "hot"}, "a: 'hot' is no DOUBLE"),
        ("a BOOLEAN", {"a": 1}, "a: 1 is no BOOLEAN"),
        ("a BINARY", {"a": "?"}, "a: '?' is no BINARY"),
        ("a STRUCT<b STRUCT<c INT>>", {"a": {"b": {"c": "x"}}}, "a.b.c: 'x' is no INT"),
        ("a ARRAY<INT>", {"a": [1, "x"]}, "a: 'x' is no INT"),
        ("a ARRAY<INT>", {"a": {}}, "a: an object is no ARRAY<INT>"),
        ("a MAP<STRING, INT>", {"a": [1]}, "a: a list is no MAP<STRING, INT>"),
        ("t TIMESTAMP", {"t": "yesterday"}, "t: 'yesterday' is no TIMESTAMP"),
        ("t TIMESTAMP", {"t": float("nan")}, "t: nan is no TIMESTAMP"),
        ("t TIMESTAMP", {"t": 1e18}, "t: 1e+18 is no TIMESTAMP"),
        ("d DATE", {"d": 3}, "d: 3 is no DATE"),
        ("d DECIMAL(3, 2)", {"d": 100}, "d: 100 is no DECIMAL(3, 2)"),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(schema: str, value: Any, said: str) -> None:
    with pytest.raises(Undecodable) as raised:
        fitter(parse(schema))(value)
    assert said in str(raised.value)


def test_a_column_of_objects_keeps_its_nulls() -> None:
    kind = parse("a INT, b STRUCT<c INT>")
    values = [fitter(kind)(one) for one in (None, {"a": 1}, {"b": {"c": 2}})]
    expected = [None, {"a": 1, "b": None}, {"a": None, "b": {"c": 2}}]
    assert column(kind, values).to_pylist() == expected
    assert len(column(kind, [])) == 0


MIXED = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=2) | st.binary(max_size=2)
)
OBJECTS = st.dictionaries(st.sampled_from("abco"), MIXED | st.dictionaries(st.just("d"), MIXED), max_size=5)


@settings(max_examples=37)
@given(
    st.lists(st.none() | OBJECTS, max_size=4),
    st.sampled_from(["DOUBLE", "BIGINT", "STRING", "BOOLEAN", "BINARY", "INT"]),
)
def test_columns_of_plain_values_are_what_fitting_one_by_one_gives(values: list[Any], leaf: str) -> None:
    kind = parse(f"a {leaf}, b ARRAY<{leaf}>, o STRUCT<d {leaf}>")
    fit = fitter(kind)
    try:
        expected = column(kind, [None if value is None else fit(value) for value in values])
    except Undecodable:
        with pytest.raises(NOT_PLAIN):
            plain_column(kind, values)
        return
    try:
        found = plain_column(kind, values)
    except NOT_PLAIN:
        return  # then they are made to fit one by one
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is itself here
