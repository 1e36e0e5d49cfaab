from __future__ import annotations

import json

from node.demo import _take_table
from node.demo_view import DemoFigures


def figures() -> DemoFigures:
    return DemoFigures("127.0.0.1:1883", "127.0.0.1:10911", "127.0.0.1:9876", "127.0.0.1:8080", "/tmp/data")


def row(window: str, device: str) -> dict[str, object]:
    values = {"count": 5, "mean": 21.0, "min": 20.0, "max": 22.0}
    return {"window_start": window, "device": device, "metric": "temperature", **values}


def test_a_batch_of_the_job_shows_its_newest_window_in_order_of_devices() -> None:
    shown = figures()
    rows = [row("12:00:00", "dev-01"), row("12:00:10", "dev-02"), row("12:00:10", "dev-01")]
    _take_table(json.dumps({"batch": 3, "rows": rows}).encode(), shown)
    assert [(one.window, one.device) for one in shown.aggregates] == [("12:00:10", "dev-01"), ("12:00:10", "dev-02")]


def test_what_is_no_batch_of_the_job_leaves_the_screen_alone() -> None:
    shown = figures()
    for chatter in (b"WARN something", b"[1, 2]", b'{"rows": [{}]}', b""):
        _take_table(chatter, shown)
    assert shown.aggregates == ()
