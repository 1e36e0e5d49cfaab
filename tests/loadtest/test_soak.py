"""A few cycles of each long proof; `make soak` runs hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from loadtest import soak
from loadtest.store_writer import QUEUE, open_soak, record

pytestmark = pytest.mark.endtoend

QUIET = Console(quiet=True)


def test_kill_9_at_any_moment_loses_nothing_durable(tmp_path: Path) -> None:
    outcome = soak.kill_cycles(tmp_path / "data", 3, QUIET)
    assert (outcome.cycles, outcome.lost, outcome.wrong) == (3, 0, 0)
    assert outcome.durable > 0


def test_power_loss_at_any_moment_loses_nothing_durable(tmp_path: Path) -> None:
    outcome = soak.power_cycles(tmp_path, 3, QUIET)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert (outcome.cycles, outcome.lost, outcome.wrong) == (3, 0, 0)
    assert outcome.durable > 0


def test_a_full_disk_refuses_whole_records_and_takes_commits_and_goes_on_with_room(tmp_path: Path) -> None:
    outcome = soak.full_disk(tmp_path)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert (outcome.cycles, outcome.lost, outcome.wrong) == (1, 0, 0)


def test_the_checker_sees_a_lost_and_a_changed_record(tmp_path: Path) -> None:
    store, _ = open_soak(tmp_path / "data")
    store.append([record(0), record(7)], 1)  # number 1 should have been record 1
    store.close(1)
    outcome = soak.Outcome()
    soak.verify(tmp_path / "data", 3, outcome)
    assert (outcome.lost, outcome.wrong) == (1, 1)
    assert outcome.failed
    assert QUEUE == "soak:0"
