"""What programs and people write for the time at which a message is delivered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.client.delays import Due, due_of
from penstock.errors import InvalidRequest

LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_S = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def test_all_of_rocketmqs_levels_are_delays() -> None:
    assert [due_of(level, None) for level in LEVELS.split()] == [Due(1000 * one + 1, True) for one in LEVELS_S]


@pytest.mark.parametrize(
    ("delay", "ms"),
    [
        (0, 0),
        (1.5, 1501),
        (0.0001, 2),
        (timedelta(minutes=2, microseconds=1), 120_002),
        ("250ms", 251),
        ("40d", 3_456_000_000),
    ],
)
def test_a_delay_becomes_whole_milliseconds_and_one_for_the_one_that_has_begun(delay: Any, ms: int) -> None:
    assert due_of(delay, None) == Due(ms, from_now=True)


def test_a_time_is_a_datetime_or_milliseconds() -> None:
    assert due_of(None, datetime(2027, 1, 1, tzinfo=UTC)) == Due(1_798_761_600_000, from_now=False)
    assert due_of(None, 1_798_761_600_000) == Due(1_798_761_600_000, from_now=False)
    assert due_of(None, None) is None


@pytest.mark.parametrize(
    ("delay", "at", "said"),
    [
        (5, 1_798_761_600_000, "delay and at exclude each other"),
        ("soon", None, "'soon' is no time"),
        ("-5s", None, "is no time"),
        (-1, None, "delay is at least 0 s"),
        (True, None, "delay is seconds, a timedelta or a str"),
        (float("nan"), None, "a number of seconds"),
        (float("inf"), None, "at most 40 days"),
        (10**400, None, "a number of seconds"),
        (None, 10**30, "whole milliseconds since 1970"),
        ("41d", None, "at most 40 days"),
        (None, 1_798_761_600, "is before 1973"),
        (None, datetime(2027, 1, 1), "at has no time zone"),
        (None, "2027-01-01", "at is a datetime"),
    ],
)
def test_what_is_no_time_is_refused_with_the_rule(delay: Any, at: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        due_of(delay, at)
