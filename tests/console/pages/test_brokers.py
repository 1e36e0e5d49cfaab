from __future__ import annotations

import pytest

from tests.console.browser import Site, cells

pytestmark = pytest.mark.endtoend


async def test_brokers_are_shown_with_their_limits_and_taken_out_of_service(site: Site) -> None:
    async with site.open() as browser:
        [row] = [row for row in cells(await browser.get("/brokers")) if row[0] == "broker-a"]
        assert (row[1], row[4]) == ("lives", "read, write")
        page = await browser.get("/broker?name=broker-a")
        assert {"topics_max", "rocketmq_messages_in_total"} <= {row[0] for row in cells(page)}
        await browser.post("/broker/allow", name="broker-a", access="r")
        try:
            assert "read" in [row[4] for row in cells(await browser.get("/brokers/live")) if row[0] == "broker-a"]
        finally:
            await browser.post("/broker/allow", name="broker-a", access="rw")
        await browser.post("/broker/allow", 400, name="broker-a", access="all")
        await browser.get("/broker?name=broker-z", 400)


async def test_a_broker_that_is_away_is_shown_as_such(site: Site) -> None:
    async with site.open() as browser:
        browser.console.watch.away = ("broker-b",)
        page = await browser.get("/brokers")
        assert ["broker-b", "away"] in [row[:2] for row in cells(page)]
        assert "broker broker-b is away" in page
