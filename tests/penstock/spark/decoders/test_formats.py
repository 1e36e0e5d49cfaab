"""Formats compared with independent encoders, and with bytes that nobody encoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.spark.decoders.formats import decoded, format_of, need, schema_text

cbor2 = pytest.importorskip("cbor2")

SCHEMA = "n BIGINT, x DOUBLE, s STRING, b BOOLEAN, l ARRAY<BIGINT>, o STRUCT<m MAP<STRING, DOUBLE>>"
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "json": lambda value: json.dumps(value).encode(),
    "msgpack": msgpack.packb,
    "cbor": cbor2.dumps,
}
ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | TEXT,
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "o": st.none() | st.fixed_dictionaries({"m": st.none() | st.dictionaries(TEXT, st.floats(-1, 1), max_size=2)}),
    }
)


def expected(row: dict[str, Any]) -> dict[str, Any]:
    inner = row["o"] and {"m": None if row["o"]["m"] is None else list(row["o"]["m"].items())}
    return row | {"o": inner}


@settings(max_examples=40)
@given(st.lists(ROWS, max_size=5))
def test_what_an_encoder_wrote_is_read(rows: list[dict[str, Any]]) -> None:
    for name, encode in ENCODERS.items():
        found = decoded([encode(row) for row in rows], format_of(name, SCHEMA))
        assert found.data.to_pylist() == list(map(expected, rows)), name
        assert found.error.to_pylist() == found.payload.to_pylist() == [None] * len(rows)


@settings(max_examples=30)
@given(ROWS, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 50))
def test_bytes_that_were_changed_give_one_row_each_and_no_error_leaves(
    row: dict[str, Any], changes: list[tuple[int, int]], cut: int
) -> None:
    for name, encode in ENCODERS.items():
        whole = encode(row)
        changed = bytearray(whole)
        for at, byte in changes:
            changed[at % len(changed)] = byte
        payloads: list[bytes | None] = [bytes(changed), whole[: cut % len(whole)], None, whole]
        found = decoded(payloads, format_of(name, SCHEMA))
        for payload, data, error, kept in zip(payloads, *(column.to_pylist() for column in found), strict=True):
            assert (data is None) == (error is not None)
            assert kept == (None if error is None else payload)
        assert found.data.to_pylist()[3] == expected(row)


def test_a_payload_that_is_null_is_refused_and_a_large_one_cut() -> None:
    found = decoded([b"null", b"x" * 100_000], format_of("json", "a INT"))
    assert found.error.to_pylist()[0] == "the payload is null"
    assert len(found.payload.to_pylist()[1]) == 65_536


@pytest.mark.parametrize(
    ("name", "schema", "message", "said"),
    [
        ("jsn", "a INT", "", "there is no payload format 'jsn' \\(there are json"),
        ("json", "", "", "these payloads need a schema"),
        ("json", "a nothing", "", "there is no type 'nothing'"),
        ("cbor", "a INT", "M", "cbor has no message names"),
    ],
)
def test_a_format_says_what_it_lacks(name: str, schema: str, message: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        format_of(name, schema, message)


def test_a_package_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(InvalidConfig, match="No module named 'no_such_package'"):
        need("no_such_package")


def test_a_schema_may_be_bytes() -> None:
    assert schema_text("avro", b"{}") == schema_text("avro", "{}") == "{}"
