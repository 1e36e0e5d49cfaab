"""What is joined and what is removed; it is done in tests/spark/test_outputs_in_spark.py."""

from __future__ import annotations

import pytest

from penstock.telemetry.compaction import FOLDERS_MAX, Plan, plan


def batches(*numbers: int) -> list[str]:
    return [f"batch={number}" for number in numbers]


@pytest.mark.parametrize(
    ("names", "below", "found"),
    [
        ([], 5, Plan([], [], "")),
        (batches(3), 5, Plan([], [], "")),
        (batches(1, 3), 5, Plan([], batches(1, 3), "batch=-4")),
        (batches(1, 3, 5), 5, Plan([], batches(1, 3), "batch=-4")),  # 5 is not committed
        (batches(3, 5, 6), 5, Plan([], [], "")),
        (batches(-4, 1, 3), 5, Plan(batches(1, 3), [], "")),  # copied before a crash
        (batches(-4, -2, 1, 3, 4), 5, Plan(sorted(batches(-2, 1, 3)), sorted(batches(-4, 4)), "batch=-5")),
        ([*batches(0, 1), "_SUCCESS"], 2, Plan([], batches(0, 1), "batch=-2")),
    ],
)
def test_committed_batches_of_a_day_that_is_over_become_one(names: list[str], below: int, found: Plan) -> None:
    assert plan(names, below, is_over=True) == found


def test_a_day_that_goes_on_is_compacted_when_it_has_many() -> None:
    few, many = batches(*range(FOLDERS_MAX - 1)), batches(*range(FOLDERS_MAX))
    assert plan(few, 1000, is_over=False).joined == []
    assert plan(many, 1000, is_over=False).into == f"batch={-FOLDERS_MAX}"
