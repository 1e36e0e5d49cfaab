from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.durations import DURATION, place_of, shown_duration, shown_time, time_of


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("30s", 30), ("2h", 7200), ("7d", 604_800), ("5ms", 0.005), (3, 3)]
)
def test_a_duration_is_a_number_and_a_unit(text: object, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "1 s", "-1s", "1w", "1e9", "1s2s", "nan"])
def test_anything_else_is_refused_and_the_right_forms_are_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90, 30s, 5m"):
        DURATION.convert(text, None, None)


@given(st.integers(1, 10**7))
def test_what_is_shown_can_be_given(seconds: int) -> None:
    assert DURATION.convert(shown_duration(seconds), None, None) == seconds


@given(st.integers(0, 1 << 42))
def test_a_time_that_is_shown_can_be_given(ms: int) -> None:
    assert round(time_of(shown_time(ms), "--at").timestamp() * 1000) == ms


def test_a_place_is_an_offset_an_end_or_a_time() -> None:
    assert [place_of(text, "--to") for text in ("earliest", "latest", "17")] == ["earliest", "latest", 17]
    assert place_of("2026-12-01T08:00+01:00", "--to") == datetime(2026, 12, 1, 7, tzinfo=UTC)
    assert time_of("2026-12-01T08:00", "--at").tzinfo is not None, "it is local"
    with pytest.raises(click.BadParameter, match="'-3' is neither earliest, latest, an offset nor a time"):
        place_of("-3", "--to")
