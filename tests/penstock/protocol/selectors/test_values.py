"""How Java reads numbers, and how its values are ordered."""

from __future__ import annotations

import math

import pytest

from penstock.protocol.selectors.values import (
    FAILED,
    INTEGER_END,
    LONG_END,
    compare,
    double_of,
    order_of,
    property_value,
    whole_of,
)


@pytest.mark.parametrize(
    ("text", "end", "number"),
    [
        (b"5", INTEGER_END, 5),
        (b"+007", INTEGER_END, 7),
        (b"-2147483648", INTEGER_END, -(2**31)),
        (b"2147483647", INTEGER_END, 2**31 - 1),
        (b"2147483648", INTEGER_END, None),
        (b"2147483648", LONG_END, 2**31),
        (b"9223372036854775808", LONG_END, None),
        (b"", LONG_END, None),
        (b"-", LONG_END, None),
        (b"+-5", LONG_END, None),
        (b" 5", LONG_END, None),
        (b"5L", LONG_END, None),
        (b"1_0", LONG_END, None),
        (b"5.0", LONG_END, None),
        (b"9" * 100_000, LONG_END, None),
        ("٣".encode(), LONG_END, None),
    ],
)
def test_a_whole_number_is_read_as_java_reads_it(text: bytes, end: int, number: int | None) -> None:
    assert whole_of(text, end) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"5", 5.0),
        (b"-.5e1", -5.0),
        (b" 5.\t", 5.0),
        (b"1e400", math.inf),
        (b"-Infinity", -math.inf),
        (b"1.5f", 1.5),
        (b"2D", 2.0),
        (b"0x1.8p1", 3.0),
        (b"-0X.8p0d", -0.5),
        (b"0x1p99999", math.inf),
        (b"infinity", None),
        (b"nan", None),
        (b"0x10", None),
        (b"1_0", None),
        (b"1e", None),
        (b".", None),
        (b"", None),
        (b"5 5", None),
        ("\u00a05".encode(), None),
    ],
)
def test_a_double_is_read_as_java_reads_it(text: bytes, number: float | None) -> None:
    assert double_of(text) == number


def test_nan_is_read() -> None:
    assert math.isnan(double_of(b"NaN") or 0.0)


def test_doubles_have_the_order_of_java() -> None:
    row = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for place, left in enumerate(row):
        for other, right in enumerate(row):
            assert order_of(left, right) == (place > other) - (place < other)


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        (b"a", b"b", -1),
        (b"5", 5, 0),
        (6, b"5", 1),
        (b"5.0", 5, FAILED),
        (5, b"x", FAILED),
        (b"5", 5.5, -1),
        (3_000_000_000, b"3000000001", -1),
        (5, 5.0, 0),
        (b"TrUe", True, 0),
        (b"no", True, -1),
        (True, b"true", FAILED),
        (True, 1, -1),
        (1, True, -1),
        (True, False, 1),
    ],
)
def test_values_of_any_two_kinds_are_compared(left: object, right: object, answer: int) -> None:
    assert compare(left, right) == answer


def test_a_property_is_found_in_the_bytes() -> None:
    properties = b"ab\x011\x02b\x01\x02c\x012"
    assert property_value(properties, b"ab\x01", b"\x02ab\x01") == b"1"
    assert property_value(properties, b"b\x01", b"\x02b\x01") == b""
    assert property_value(properties, b"c\x01", b"\x02c\x01") == b"2"
    assert property_value(properties, b"1\x01", b"\x021\x01") is None
