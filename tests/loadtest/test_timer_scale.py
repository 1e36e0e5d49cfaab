"""The proof of many delayed messages, here with few of them."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from loadtest import timer_scale

FEW = 3_000


def test_all_survive_a_kill_and_fire_once_and_never_early(tmp_path: Path) -> None:
    found = timer_scale.prove(tmp_path / "data", FEW)
    assert timer_scale.failures(found, FEW) == []
    assert found["log_bytes"] > FEW * timer_scale.BODY_BYTES
    told = io.StringIO()
    assert timer_scale.show(Console(file=told, width=120), found, FEW) == 0
    assert "< 60 MB" in told.getvalue()


def test_what_is_wrong_is_said() -> None:
    good = {"pending": 2.0, "fired": 2.0, "twice": 0.0, "early": 0.0, "late_ms": 0.0, "index_bytes": 0.0}
    assert timer_scale.failures(good, 2) == []
    for name, value in {"fired": 1.0, "early": 1.0, "twice": 1.0, "late_ms": 2_000.0, "index_bytes": 7e7}.items():
        assert len(timer_scale.failures(good | {name: value}, 2)) == 1


def test_they_are_due_over_the_whole_time_in_another_order_than_they_are_set() -> None:
    due = [timer_scale.due_ms_of(number, FEW) for number in range(FEW)]
    assert len(set(due)) == FEW
    assert due != sorted(due)
    assert max(due) - min(due) == (FEW - 1) * timer_scale.SPAN_S * 1000 // timer_scale.COUNT
