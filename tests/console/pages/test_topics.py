from __future__ import annotations

import pytest

from console import history, visits
from console.pages import topics
from penstock.blocking import Admin, Producer
from tests.console.browser import Site, cells
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


async def test_topics_are_listed_a_page_at_a_time_and_found_by_a_part_of_their_names(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "PAGE_ROWS", 2)
    with Admin(site.servers) as admin:
        for number in range(3):
            admin.create_topic(f"listed-{number}", queues=2)
    async with site.open() as browser:
        page = await browser.get("/topics?contains=listed-")
        assert [row[0] for row in cells(page)[1:]] == ["listed-0", "listed-1"]
        assert "after=listed-1" in page
        last = await browser.get("/topics?contains=listed-&after=listed-1")
        assert [row[0] for row in cells(last)[1:]] == ["listed-2"]
        assert "Next page" not in last
        assert "listed-0" in await browser.get("/topics/live?contains=listed-")
    assert visits.PAGE_ROWS == 50


async def test_the_list_says_how_much_a_topic_has_and_how_fast_it_grows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "STEP_S", 0.0)
    monkeypatch.setattr(history, "FORGOTTEN_S", PATIENCE_S)
    with Producer(servers=site.servers) as producer:
        producer.send("sized", b"x" * 100_000)
        async with site.open() as browser:
            [row] = cells(await browser.get("/topics?contains=sized"))[1:]
            assert (row[1], row[2], row[4]) == ("1", "–", "1")
            assert row[3] == "97.8 KiB", "with its properties"
            producer.send("sized", b"x")
            [row] = cells(await browser.get("/topics/live?contains=sized"))[1:]
            assert float(row[2].replace(",", "")) > 0


async def test_a_topic_is_created_shown_changed_purged_and_deleted(site: Site) -> None:
    async with site.open() as browser:
        await browser.get("/topics")
        assert "The topic bills is there." in await browser.post("/topics/create", name="bills", queues="2")
        with Producer(servers=site.servers) as producer:
            producer.send("bills", b"1", key="k")
        page = await browser.get("/topic/live?name=bills")
        assert sorted(row[-1] for row in cells(page)[1:]) == ["0", "1"]
        await browser.get("/topic?name=bills")
        page = await browser.post("/topics/change", name="bills", retention_s="3600", queues="3", trace_every="0")
        assert "60 min" in page
        assert "1 messages of bills were removed" in await browser.post("/topics/purge", name="bills")
        assert "was deleted" in await browser.post("/topics/delete", name="bills")
        await browser.get("/topic?name=bills", 404)
