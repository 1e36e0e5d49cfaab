from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from events.fields import choice, flag, known, number_of
from events.problems import Problem

MODES = ("binary", "structured")


def test_a_field_that_is_missing_has_its_usual_value() -> None:
    assert (choice({}, "mode", MODES), flag({}, "retain"), flag({}, "enabled", True)) == ("binary", False, True)


@pytest.mark.parametrize(
    ("check", "told", "pointer"),
    [
        (lambda: known([], "bus"), "a bus is a JSON object, not list", None),
        (lambda: known({"color": 1}, "bus", "violations"), "'color' is not known of a bus: violations", "/color"),
        (lambda: choice({"mode": "loud"}, "mode", MODES), "mode is one of binary, structured, not 'loud'", "/mode"),
        (lambda: flag({"retain": 1}, "retain"), "retain is true or false, not 1", "/retain"),
        (lambda: number_of(True, "/qos", 0, 2), "expected a number from 0 to 2, not True", "/qos"),
        (lambda: number_of(3, "/qos", 0, 2), "expected a number from 0 to 2, not 3", "/qos"),
        (lambda: number_of(1.5, "/qos", 0, 2, whole=True), "expected a whole number from 0 to 2, not 1.5", "/qos"),
    ],
)
def test_a_refusal_says_what_was_expected_and_where(check: Callable[[], Any], told: str, pointer: str | None) -> None:
    with pytest.raises(Problem) as caught:
        check()
    assert (caught.value.detail, caught.value.more.get("pointer")) == (told, pointer)
