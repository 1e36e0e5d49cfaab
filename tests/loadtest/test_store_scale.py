"""The store's long bench builds what it says, here with little of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest import store_scale


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_scale, "QUEUES", 300)
    monkeypatch.setattr(store_scale, "GIB", 1 << 20)


@pytest.mark.parametrize("part", store_scale.PARTS)
def test_each_part_gives_rows_with_goals(part: object, tmp_path: Path) -> None:
    assert callable(part)
    rows = part(tmp_path / "data")
    assert rows
    assert all(row.figure and row.goal for row in rows)


def test_a_log_is_left_as_by_a_kill_and_found_again(tmp_path: Path) -> None:
    store_scale.fill(tmp_path, store_scale.SETTINGS, 1 << 20, 256)
    assert store_scale.recovered_s(tmp_path, store_scale.SETTINGS) > 0
