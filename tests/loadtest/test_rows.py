from __future__ import annotations

import io

from rich.console import Console

from loadtest.rows import Row, show


def test_a_row_says_whether_its_goal_is_reached() -> None:
    out = io.StringIO()
    reached, missed = Row("a", 4.0, "us", "<= 5", True), Row("b", 1_000.0, "/s", ">= 5,000", False)
    show(Console(file=out, width=120), "some bench", [reached, missed, Row("c", 7.0, "ms", "", True)])
    lines = {line.split("│")[1].strip(): line for line in out.getvalue().splitlines() if line.startswith("│")}
    assert "reached" in lines["a"]
    assert "missed" in lines["b"]
    assert "reached" not in lines["c"]
