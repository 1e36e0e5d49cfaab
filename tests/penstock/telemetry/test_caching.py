"""A frame is given back also where its use fails; with Spark's own frames: tests/spark/test_report_in_spark.py."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.telemetry.caching import cached


class Frame:
    def __init__(self) -> None:
        self.kept = 0

    def persist(self) -> Frame:
        self.kept += 1
        return self

    def unpersist(self) -> None:
        self.kept -= 1


def test_a_frame_is_kept_within_the_context_alone() -> None:
    frame: Any = Frame()
    with cached(frame) as kept:
        assert kept.kept == 1
    with pytest.raises(ZeroDivisionError), cached(frame) as kept:
        assert kept.kept / 0
    assert frame.kept == 0
