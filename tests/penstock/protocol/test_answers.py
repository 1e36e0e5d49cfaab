from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.properties import Properties, application_properties, encode_properties
from penstock.errors import InvalidMessage
from penstock.protocol.answers import Answer, answer_in, packed_answer

PAIRS = st.lists(st.tuples(st.text(max_size=5).filter(str.isprintable), st.just("v")), max_size=3)
NAMES = st.text(st.characters(exclude_characters="+#", exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)


@given(NAMES, st.binary(max_size=40))
def test_what_is_packed_is_found_and_is_what_mqtt_says(to: str, correlation: bytes) -> None:
    packed = packed_answer(to, correlation)
    assert answer_in(packed) == (to, correlation)
    said = encode_properties(Properties(response_topic=to, correlation_data=correlation or None))
    assert packed == ":" + b64encode(said).decode()


@given(
    NAMES, st.binary(min_size=1, max_size=40), st.integers(0, 1), NAMES, st.lists(st.tuples(NAMES, NAMES), max_size=3)
)
def test_an_answer_is_found_among_all_that_a_device_may_say(
    to: str, correlation: bytes, format: int, kind: str, pairs: list[tuple[str, str]]
) -> None:
    said = Properties(
        payload_format_indicator=format,
        content_type=kind,
        response_topic=to,
        correlation_data=correlation,
        user_properties=tuple(pairs),
    )
    raw = application_properties(encode_properties(said)).encoded
    assert answer_in("60:" + b64encode(raw).decode()) == (to, correlation)


@given(st.binary(max_size=60))
def test_any_bytes_give_an_answer_or_none(data: bytes) -> None:
    assert isinstance(answer_in(":" + b64encode(data).decode()), Answer)
    assert isinstance(answer_in(data.decode("latin-1")), Answer)


def test_nothing_said_is_no_answer() -> None:
    assert answer_in("") == answer_in("60:") == Answer("", b"")


def test_what_mqtt_cannot_say_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="at most 65535 bytes"):
        packed_answer("a", bytes(65_536))
