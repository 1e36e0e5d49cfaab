from __future__ import annotations

import io

import pytest
from rich.console import Console

from loadtest.replica import Row, run, show


def test_a_row_says_whether_its_goal_is_reached() -> None:
    out = io.StringIO()
    show(Console(file=out, width=120), [Row("a", 0.5, "times", ">= 0.40", True), Row("b", 4.0, "s", "<= 3", False)])
    assert "reached" in out.getvalue()
    assert "missed" in out.getvalue()


@pytest.mark.endtoend
@pytest.mark.slow
def test_all_rows_are_measured() -> None:
    out = io.StringIO()
    assert run(Console(file=out, width=120), 1, 0.5, 4 << 20) == 0
    for part in ("level disk", "level quorum", "single message", "copies 4 MiB", "next PUBACK"):
        assert part in out.getvalue()
