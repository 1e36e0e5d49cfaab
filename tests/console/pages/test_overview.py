from __future__ import annotations

import pytest

from console.alerts import ERROR, WARNING, Alert
from console.pages.overview import alert_list
from tests.console.browser import Site

pytestmark = pytest.mark.endtoend


async def test_the_overview_has_figures_a_chart_and_parts_that_live(site: Site) -> None:
    async with site.open() as browser:
        page = await browser.get("/")
        assert 'hx-get="/overview/live"' in page
        assert 'data-source="/overview/rates"' in page
        assert "MQTT sessions" in await browser.get("/overview/live")
        told = (await browser.client.get("/overview/rates")).json()
        assert (told["names"], [len(column) for column in told["data"]]) == (["in", "out"], [1, 1, 1])


def test_alerts_are_listed_with_their_levels() -> None:
    listed = alert_list([Alert(ERROR, "the disk is full", "/brokers"), Alert(WARNING, "far behind")])
    assert 'class="alerts error"' in listed
    assert '<a href="/brokers">the disk is full</a>' in listed
    assert "No alerts" in alert_list([])
