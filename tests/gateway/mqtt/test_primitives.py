from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.primitives import (
    VARIABLE_INTEGER_MAX,
    FieldReader,
    encode_binary,
    encode_text,
    encode_variable_integer,
    text_of,
)
from gateway.mqtt.reason_codes import MalformedPacket


@given(st.integers(0, VARIABLE_INTEGER_MAX), st.binary(max_size=4))
def test_a_variable_integer_is_read_as_it_was_written(value: int, rest: bytes) -> None:
    cursor = FieldReader(encode_variable_integer(value) + rest)
    assert cursor.variable_integer() == value
    assert cursor.rest() == rest


@given(st.binary(min_size=1, max_size=6))
def test_any_bytes_give_a_variable_integer_in_its_shortest_form_or_an_error(data: bytes) -> None:
    cursor = FieldReader(data)
    try:
        value = cursor.variable_integer()
    except MalformedPacket:
        return
    assert data.startswith(encode_variable_integer(value))
    assert cursor.at == len(encode_variable_integer(value))


@pytest.mark.parametrize("value", [-1, VARIABLE_INTEGER_MAX + 1])
def test_a_variable_integer_has_limits(value: int) -> None:
    with pytest.raises(ValueError, match="variable byte integer"):
        encode_variable_integer(value)


@given(st.binary(max_size=5))
def test_text_is_what_python_and_the_standard_both_allow(raw: bytes) -> None:
    try:
        expected = raw.decode("utf-8")
    except UnicodeDecodeError:
        expected = None
    if expected is None or "\0" in expected:
        with pytest.raises(MalformedPacket):
            text_of(raw)
    else:
        assert text_of(raw) == expected
        assert encode_text(expected) == len(raw).to_bytes(2, "big") + raw


def test_a_read_stops_at_the_given_end_and_not_at_the_end_of_the_data() -> None:
    cursor = FieldReader(b"\x00\x02abc", 0, 3)
    with pytest.raises(MalformedPacket, match="ends within"):
        cursor.binary()


def test_fields_beyond_65535_bytes_and_surrogates_have_no_encoding() -> None:
    assert encode_binary(bytes(65_535))[:2] == b"\xff\xff"
    with pytest.raises(ValueError, match="65535"):
        encode_binary(bytes(65_536))
    with pytest.raises(ValueError, match="surrogates"):
        encode_text("\ud800")


def test_bytes_behind_the_last_field_are_damage() -> None:
    cursor = FieldReader(b"\x01\x02")
    cursor.byte()
    with pytest.raises(MalformedPacket, match="1 bytes follow"):
        cursor.finish()
    cursor.byte()
    cursor.finish()
