from __future__ import annotations

import io

import pytest
from rich.console import Console

from events.cloudevents import from_document
from loadtest.events import event, patterns, run


def test_the_event_that_is_measured_is_one() -> None:
    assert from_document(event("reading", 7)).value["n"] == 7


def test_patterns_are_measured_with_events_that_they_match() -> None:
    assert [row.value > 0 for row in patterns()] == [True] * 3


@pytest.mark.endtoend
@pytest.mark.slow
@pytest.mark.long
def test_all_rows_are_measured() -> None:
    out = io.StringIO()
    assert run(Console(file=out, width=120), 1_000, rules=40) == 0
    assert [sum(unit in line for line in out.getvalue().splitlines()) for unit in ("events/s", "us/event")] == [4, 5]
