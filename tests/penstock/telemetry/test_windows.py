"""The numbers of windows, stream against batch, are compared in tests/spark; here is what needs no Java."""

from __future__ import annotations

import inspect

from penstock.telemetry import windows
from penstock.telemetry.command import SHOWN
from penstock.telemetry.job import spark_interval


def test_everything_that_is_shown_is_a_column_of_a_window() -> None:
    assert set(SHOWN) <= set(windows.WINDOW_COLUMNS)


def test_the_defaults_are_lengths_of_time() -> None:
    assert spark_interval(windows.WINDOW) == "10 seconds"
    assert inspect.signature(windows.windows).parameters["watermark"].default == "30 seconds"
