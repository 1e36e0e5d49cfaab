"""The scrape of many series."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from loadtest import scrape
from penstock.service.metrics import expose


def test_there_are_as_many_series_as_asked_for() -> None:
    for count in (100, 1_000):
        page = expose(scrape.series(count))
        assert sum(not line.startswith("#") for line in page.splitlines()) == count


@pytest.mark.endtoend
def test_a_scrape_is_timed_beside_a_loop_that_is_watched() -> None:
    told = io.StringIO()
    assert scrape.run(Console(file=told, width=132), 500, 2) == 0
    assert "500 series, 2 scrapes" in told.getvalue()
    assert "OpenMetrics" in told.getvalue()
