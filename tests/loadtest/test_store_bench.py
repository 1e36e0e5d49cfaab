"""The store's own bench measures what it says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from broker.store.level import Level
from loadtest import store_bench
from loadtest.store_bench import Row


def test_every_row_has_a_figure_beside_its_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in (("ROUNDS", 2), ("BATCHES", 2), ("READ_MESSAGES", 300), ("PRODUCERS", 3), ("LEVEL_S", 0.05)):
        monkeypatch.setattr(store_bench, name, small)
    monkeypatch.setattr(store_bench, "SCAN_MESSAGES", 300)
    rows = store_bench.run()
    assert [row.goal[:4] for row in rows] == [">= 4", "<= 1", "<= 1", ">= 5", ">= 5", "<= 0", "<= 0", ">= 8", "one "]
    assert all("%" in row.figure for row in [rows[0], *rows[3:5], rows[7]])
    assert all(" times " in row.figure for row in rows[1:3])
    assert all(row.figure.endswith(" us a message") for row in rows[5:7])
    assert " syncs a message" in rows[-1].figure


def test_a_goal_that_is_not_reached_is_shown_as_that() -> None:
    out = io.StringIO()
    store_bench.show(Console(file=out, width=120), [Row("a", "5 %", ">= 40 %", False), Row("b", "1 s", "< 2 s", True)])
    first, second = [line for line in out.getvalue().splitlines() if line.strip().startswith(("a ", "b "))]
    assert first.split()[-2:] == ["not", "reached"]
    assert second.split()[-2:] == ["s", "reached"]


def test_a_batch_has_a_record_for_each_device() -> None:
    batch = store_bench.device_batch(10, 64)
    assert len({one.destination.properties for one in batch}) == 10
    assert {one.run.queue_id for one in batch} == set(range(8))
    assert all(one.destination.level is Level.CACHE for one in batch)
