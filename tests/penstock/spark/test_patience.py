from __future__ import annotations

import contextlib

import pytest

from penstock.errors import InvalidRequest, Unavailable
from penstock.spark.options import SourceOptions
from penstock.spark.patience import Patience
from tests.penstock.hand_clock import HandClock

AWAY = Unavailable("the broker is away")


def waits(options: SourceOptions, patience_s: float | None = None) -> list[float]:
    """The times at which a broker that stays away is asked for again."""
    clock, asked = HandClock(), []

    def wait(seconds: float) -> None:
        clock.now += seconds
        asked.append(clock.now)

    patience = Patience(options, None if patience_s is None else lambda: patience_s, clock, wait)
    with contextlib.suppress(Unavailable):
        while True:
            patience.wait_or_raise(AWAY)
    return asked


def test_a_broker_is_waited_for_as_long_as_a_machine_takes_to_boot() -> None:
    assert waits(SourceOptions())[-1] == 300


def test_retries_are_the_least_where_the_patience_is_shorter() -> None:
    assert waits(SourceOptions(patience_s=0, retries=2, retry_pause_s=5)) == [5, 10]
    assert waits(SourceOptions(retries=2), patience_s=0) == [1, 2]
    assert waits(SourceOptions(patience_s=0, retries=0)) == []


def test_the_wait_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    waits(SourceOptions(patience_s=3, retries=0))
    assert [record.getMessage() for record in caplog.records] == ["the broker is away; asking again for 3 s"]


def test_what_waiting_cannot_mend_is_raised_at_once() -> None:
    with pytest.raises(InvalidRequest):
        Patience(SourceOptions(), wait=lambda seconds: pytest.fail("waited")).wait_or_raise(InvalidRequest("no"))
