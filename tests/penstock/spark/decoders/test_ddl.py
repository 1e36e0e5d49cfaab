"""Schemas as text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.spark.decoders.ddl import TIME, columns_of, parse, text_of

SIMPLE = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()]
SIMPLE += [pa.binary(), pa.date32(), TIME, pa.decimal128(38, 3)]
NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1, max_size=5)
KINDS = st.recursive(
    st.sampled_from(SIMPLE),
    lambda kinds: st.one_of(
        kinds.map(pa.list_),
        kinds.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(NAMES, kinds, min_size=1, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=6,
)


@settings(max_examples=50)
@given(KINDS)
def test_every_type_has_a_text_that_is_read_as_the_type(kind: pa.DataType) -> None:
    assert parse(text_of(kind)) == kind
    if pa.types.is_struct(kind):
        assert parse(columns_of(kind)) == kind


def test_columns_are_written_as_in_spark() -> None:
    found = parse("temp double, `odd name` STRING NOT NULL, at: timestamp, more struct<a int, b:array<bigint>>")
    more = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))])
    expected = [("temp", pa.float64()), ("odd name", pa.string()), ("at", TIME), ("more", more)]
    assert found == pa.struct(expected)
    assert parse("DECIMAL(5, 2)") == pa.decimal128(5, 2)
    assert parse("a DECIMAL") == pa.struct([("a", pa.decimal128(10, 0))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the schema is empty"),
        ("a", "there is no type 'a'"),
        ("a nothing", "there is no type 'nothing'"),
        ("a INT,", "it ends too early"),
        ("a INT b", "'b' is too much"),
        ("a ARRAY<INT", "'>' is expected, not 'its end'"),
        ("a INT, a STRING", "two fields are named 'a'"),
        ("MAP<INT, INT>", "the keys of a MAP are STRING"),
        ("a DECIMAL(39)", "has up to 38 digits"),
        ("a DECIMAL(3, 4)", "no more digits behind the point"),
        ("a INT, <", "'<' stands where a name is expected"),
        ("a INT; DROP", "is no part of a schema"),
        ("a " + "ARRAY<" * 40, "more than 32 deep"),
    ],
)
def test_what_is_no_schema_is_told_where_it_goes_wrong(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse(text)
    assert said in str(raised.value)
