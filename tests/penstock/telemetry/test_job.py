from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry import job


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("500ms", "500 milliseconds"),
        ("10s", "10 seconds"),
        ("5m", "5 minutes"),
        ("1h", "1 hours"),
        ("2 d", "2 days"),
        ("10 seconds", "10 seconds"),
        ("1 minute", "1 minute"),
    ],
)
def test_a_length_of_time_becomes_what_spark_reads(text: str, interval: str) -> None:
    assert job.spark_interval(text) == interval


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "10 parsecs", "1s; drop"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="no length of time"):
        job.spark_interval(text)


def row(second: int, device: str | None, count: int, refused: int = 0) -> dict[str, Any]:
    start = datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC)
    figures = {"count": count, "mean": 1.0 if count else None, "min": 1.0, "max": 1.0, "refused": refused}
    return {"window_start": start, "window_end": start, "device": device, "metric": "temp"} | figures


def test_windows_are_told_in_order_with_their_times_as_text() -> None:
    told = job.batch_of([row(20, "b", 1), row(10, "b", 1), row(10, "a", 1)], 7)
    assert told["batch"] == 7
    assert [(one["window_start"], one["device"]) for one in told["rows"]] == [
        ("2026-01-02T03:04:10Z", "a"),
        ("2026-01-02T03:04:10Z", "b"),
        ("2026-01-02T03:04:20Z", "b"),
    ]


def test_a_window_of_refused_payloads_only_is_counted_and_not_shown() -> None:
    told = job.batch_of([row(10, "a", 2, refused=1), row(10, None, 0, refused=4)], 0)
    assert [one["device"] for one in told["rows"]] == ["a"]
    assert told["refused"] == 5


def test_a_signal_asks_the_job_to_stop_and_the_old_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with job.stop_signals() as stopped:
        assert not stopped()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped()
    assert signal.getsignal(signal.SIGTERM) is before
