"""``penstock bench`` against real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

Penstock = Callable[..., Result]


def test_it_measures_on_a_topic_of_its_own_and_removes_it(penstock: Penstock, real_cluster: Any) -> None:
    told = penstock("bench", "--seconds", "0.3", "--size", "10", "--json")
    assert told.exit_code == 0
    single, many, read = [json.loads(line) for line in told.stdout.splitlines()]
    assert [row["what"] for row in (single, many, read)] == ["send, one at a time", "send, batches of 500", "read"]
    assert many["messages"] % 500 == 0
    for row in (single, many, read):
        assert row["messages"] > 0
        assert row["per_s"] > 0
    assert 0 < single["p50_ms"] <= single["p99_ms"]
    assert 0 < read["messages"] <= 1 + single["messages"] + many["messages"]
    assert penstock("topic", "list", "--json").stdout == ""


def test_a_person_reads_what_the_figures_mean(penstock: Penstock) -> None:
    told = penstock("bench", "--seconds", "0.3")
    assert "One client on this machine" in told.stderr
    assert "send, one at a time" in told.stdout
