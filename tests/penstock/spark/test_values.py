from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.spark import values


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 h", 7200), ("1D", 86400)])
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert values.read_duration("d", text) == seconds


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (values.read_count, "0", "x is a number from 1 on"),
        (values.read_amount, "-1", "x is a number from 0 on"),
        (values.read_duration, "15", "x is a time like 500ms"),
        (values.read_flag, "yes", "x is true or false"),
        (values.read_names, " , ", "x is empty"),
        (values.read_text, " ", "x is empty"),
        (values.read_pattern, "(", "x is no regular expression"),
        (values.read_group, "", "x has 1 to 255 bytes"),
        (values.read_json_list, "[]", "x is a,b or JSON"),
        (values.read_json_object, "{}", "x is JSON like"),
        (values.read_offsets, '{"a":{"0":-3}}', "x is JSON like"),
    ],
)
def test_a_wrong_value_is_told_with_its_option(read: Callable[[str, str], Any], text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        read("x", text)


def test_mqtt_filters_are_a_list_of_commas_or_of_json() -> None:
    assert values.read_mqtt_filters("x", "a/+, b/#,a/+") == ("a/+", "b/#")
    assert values.read_mqtt_filters("x", '["a,b/+", "c"]') == ("a,b/+", "c")
