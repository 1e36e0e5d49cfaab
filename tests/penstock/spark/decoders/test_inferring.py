"""Schemas of samples."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.spark.decoders.ddl import parse
from penstock.spark.decoders.fitting import column, fitter
from penstock.spark.decoders.inferring import infer_text

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=3)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([{"a": 1, "b": "x"}, {"a": 1.5, "c": None}], "a DOUBLE, b STRING, c STRING"),
        ([{"a": {"b": [1, 2.5]}}, {"a": {"c": True}}], "a STRUCT<b ARRAY<DOUBLE>, c BOOLEAN>"),
        ([{"a": 1}, {"a": "x"}], "a STRING"),
        ([{"a": {}}, {"a": {"b": 1}}], "a STRUCT<b BIGINT>"),
        ([{}], "MAP<STRING, STRING>"),
        ([{"odd name": b"x"}], "`odd name` BINARY"),
        ([{"t": datetime(2026, 1, 1, tzinfo=UTC), "d": date(2026, 1, 1)}], "t TIMESTAMP, d DATE"),
        ([21, None], "BIGINT"),
        ([{"a": 1}, [1], {"a": 2}, None, "x", {}], "a BIGINT"),
        ([{"a": 1}, 2.5], "STRING"),
        ([{str(at): at for at in range(1001)}], "MAP<STRING, BIGINT>"),
    ],
)
def test_a_schema_has_all_that_was_seen(values: list[Any], text: str) -> None:
    assert infer_text(values) == text


@settings(max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_what_a_schema_was_inferred_from_fits_it(values: list[Any]) -> None:
    objects = [value for value in values if isinstance(value, dict)]
    if 2 * len(objects) > sum(value is not None for value in values):
        values = objects  # the others are bad rows
    if all(value is None for value in values):
        with pytest.raises(InvalidConfig, match="nothing of the sample"):
            infer_text(values)
        return
    kind = parse(infer_text(values))
    fit = fitter(kind)
    assert len(column(kind, [None if value is None else fit(value) for value in values])) == len(values)
