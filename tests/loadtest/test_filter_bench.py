"""The filter benchmark measures what it says."""

from __future__ import annotations

import pytest

from loadtest import filter_bench
from loadtest.filter_bench import WORKLOADS, measure
from topicmap.filters import RARE_SHAPES_MAX, SHAPES_MAX


def test_every_workload_finds_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_bench, "NAMES", 1000)
    hits = {"exact names": 1.0, "one wildcard per device": 1.0, "mixed": 3.0, "hostile shapes": 0.0}
    found = {}
    for title, make, pattern in WORKLOADS:
        found[title] = float(measure(make()[:4000], pattern)[4])
    assert found == hits


def test_the_hostile_workload_fills_the_trie() -> None:
    [hostile] = [make() for title, make, _ in WORKLOADS if title == "hostile shapes"]
    assert len(set(hostile)) == SHAPES_MAX + RARE_SHAPES_MAX
