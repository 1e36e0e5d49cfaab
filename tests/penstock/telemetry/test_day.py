"""Which day is meant, and how it is read; the figures are in tests/spark/test_report_in_spark.py."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry.day import day_of, source_options

NOW_MS = 1_772_366_401_000  # 2026-03-01T12:00:01Z


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("today", (2026, 3, 1)),
        ("yesterday", (2026, 2, 28)),
        ("2024-02-29", (2024, 2, 29)),
        ("2026-03-01", (2026, 3, 1)),
    ],
)
def test_a_day_is_named_or_written(text: str, day: tuple[int, int, int]) -> None:
    assert day_of(text, NOW_MS) == date(*day)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *[(text, "is no day") for text in ("2026-02-30", "03/01/2026", "", "20260301")],
        ("2026-03-02", r"lies ahead; today is 2026-03-01 \(UTC\)"),
    ],
)
def test_a_wrong_day_is_told_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        day_of(text, NOW_MS)


def test_a_day_is_read_by_store_time_and_a_while_longer() -> None:
    options = source_options(date(2026, 3, 1), timedelta(hours=2))
    assert int(options["startingTimestamp"]) == NOW_MS - 43_201_000
    assert int(options["endingTimestamp"]) - int(options["startingTimestamp"]) == 26 * 3_600_000
    assert int(source_options(date(2026, 3, 1), timedelta(days=999_999_999))["endingTimestamp"]) == 2**53
