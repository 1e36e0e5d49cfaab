"""The benchmark of selectors measures what it says."""

from __future__ import annotations

import pytest

from loadtest import selector_bench
from loadtest.selector_bench import WORKLOADS, measure, measure_pull


@pytest.mark.parametrize("text", WORKLOADS)
def test_every_workload_matches_and_takes_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(selector_bench, "MESSAGES", 100)
    monkeypatch.setattr(selector_bench, "ROUNDS", 1)
    assert measure(text) > 0
    assert measure_pull(text) > 0
