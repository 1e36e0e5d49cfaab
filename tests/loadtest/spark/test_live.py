from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.spark import live
from loadtest.spark.job import LIVE, LIVE_WARM, Order, Run

JOB: Any = SimpleNamespace(order=Order("", "t", 1, "", live_messages=3))


def test_each_message_is_published_when_the_one_before_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 0.0)
    rows: live.Rows = queue.Queue()
    published: list[bytes] = []

    def publish(bodies: Any) -> None:
        assert rows.empty()
        published.extend(bodies)
        rows.put((time.monotonic(), bodies[0]))

    run = Run(LIVE, "penstock")
    live.live(JOB, run, publish, rows)
    assert published == [b"%d" % number for number in range(LIVE_WARM + 3)]
    assert run.rows == 3
    assert 0 < run.figures["p50_s"] <= run.figures["p95_s"]


def test_a_row_that_was_not_published_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: live.Rows = queue.Queue()
    with pytest.raises(ValueError, match="another row"):
        live.live(JOB, Run(LIVE, "penstock"), lambda bodies: rows.put((time.monotonic(), b"x")), rows)
