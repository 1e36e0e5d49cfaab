from __future__ import annotations

import pytest

from penstock.blocking import Admin, Consumer, Producer
from tests.console.browser import Site, cells

pytestmark = pytest.mark.endtoend


def read_all(site: Site, topic: str, group: str, count: int) -> None:
    """A group that has read a topic to its end."""
    with Admin(site.servers) as admin:
        admin.create_topic(topic, queues=1)
    with Producer(servers=site.servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)
    with Consumer(group, [topic], start="earliest", servers=site.servers) as consumer:
        read = 0
        for batch in consumer:
            read += len(batch)
            consumer.commit()
            if read == count:
                break


async def test_a_group_is_shown_moved_after_a_preview_and_its_lag_kept(site: Site) -> None:
    read_all(site, "grouped", "readers", 5)
    async with site.open() as browser:
        [row] = cells(await browser.get("/groups?contains=reader"))[1:]
        assert row == ["readers", "0", "1", "0", "5"]
        assert "readers" in await browser.get("/groups/live?contains=reader")
        page = await browser.get("/group?name=readers")
        assert ["grouped:0@broker-a", "5", "5", "0"] in cells(page)
        page = await browser.get("/group/reset?name=readers&to=offset&at=2")
        assert "3 messages are read again, 0 are skipped, in 1 queues." in page
        assert ["grouped:0@broker-a", "5", "2", "5", "3"] in cells(page)
        assert ["grouped:0@broker-a", "5", "5", "0"] in cells(await browser.get("/group/live?name=readers")), "not yet"
        await browser.get("/group/reset?name=readers&to=offset&at=2")
        assert "was moved in 1 queues" in await browser.post("/group/reset", name="readers", to="offset", at="2")
        assert ["grouped:0@broker-a", "2", "5", "3"] in cells(await browser.get("/group/live?name=readers"))
        await browser.console.watch.look(with_groups=True)
        lag = (await browser.client.get("/group/lag?name=readers")).json()
        assert (lag["names"], lag["data"][1]) == (["lag"], [0, 3])


async def test_a_place_that_is_none_and_a_group_with_members_are_refused(site: Site) -> None:
    read_all(site, "held", "holders", 1)
    async with site.open() as browser:
        for wrong in ("to=", "to=offset", "to=offset&at=x", "to=time&at=soon"):
            await browser.get(f"/group/reset?name=holders&{wrong}", 400)
        with Consumer("holders", ["held"], servers=site.servers):
            await browser.get("/group/reset?name=holders&to=earliest")
            assert "has members" in await browser.post("/group/reset", 503, name="holders", to="earliest")
