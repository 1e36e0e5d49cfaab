from __future__ import annotations

from html import unescape

import pytest

from console.pages.brokers import copies
from penstock.client.replica_tasks import replicas
from tests.console.browser import Site, cells
from tests.penstock.client.replica_scene import END, Cluster, follower, leader, row

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


def test_copies_are_shown_with_how_far_they_are_and_what_to_do() -> None:
    rows = row("a"), row("b", END - 2048, behind_s=9.0), row("c")._replace(heard_s=70.0)
    groups = Cluster({"a": leader(*rows), "b": follower("b", *rows, repaired=3)}).run(replicas())
    [section] = copies(groups)
    page = unescape(str(section))
    assert [found[1:4] for found in cells(page)[1:]] == [
        ["a", "leader", "leads"],
        ["b", "voter", "lacks 2.0 KiB, for 9 s"],
        ["c", "voter", "silent for 70 s"],
    ]
    assert cells(page)[2][7] == "3"
    assert "broker: No further voter may be lost" in page
    assert copies(Cluster({"a": leader(row("a"))}).run(replicas())) == []


async def test_a_broker_that_is_away_is_shown_as_such(site: Site) -> None:
    async with site.open() as browser:
        browser.console.watch.away = ("broker-b",)
        page = await browser.get("/brokers")
        assert ["broker-b", "away"] in [row[:2] for row in cells(page)]
        assert "broker broker-b is away" in page
