from __future__ import annotations

import msgpack
import pytest
import trio

from penstock.blocking import Admin, Producer
from tests.console.browser import Site, cells
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


async def test_messages_are_browsed_by_place_and_time_and_found_by_key(site: Site) -> None:
    with Admin(site.servers) as admin:
        admin.create_topic("browsed", queues=1)
    with Producer(servers=site.servers) as producer:
        for number in range(30):
            producer.send("browsed", b"body-%d" % number, key=f"k{number % 3}")
    async with site.open() as browser:
        newest = cells(await browser.get("/messages?topic=browsed"))
        assert [row[0] for row in newest[1:]] == [str(at) for at in range(29, 9, -1)]
        first = cells(await browser.get("/messages?topic=browsed&queue=broker-a/0&offset=earliest"))
        assert [row[5] for row in first[1:3]] == ["body-19", "body-18"]
        page = await browser.get("/messages?topic=browsed&queue=broker-a/0&offset=5")
        assert "offset=25" in page
        assert "offset=0" in page
        assert len(cells(await browser.get("/messages?topic=browsed&time=2020-01-01T00:00"))) == 21
        assert cells(await browser.get("/messages?topic=browsed&time=2100-01-01T00:00")) == []
        found = cells(await browser.get("/messages?topic=browsed&key=k1"))
        assert [row[5] for row in found[1:3]] == ["body-28", "body-25"]
        await browser.get("/messages?topic=browsed&queue=broker-z/9", 400)
        await browser.get("/messages?topic=absent", 404)


async def test_a_message_is_published_and_shown_in_all_forms_with_its_trace(site: Site) -> None:
    with Admin(site.servers) as admin:
        admin.create_topic("posted", queues=1, trace_every=1)
    async with site.open() as browser:
        await browser.get("/publish?topic=posted")
        body = msgpack.packb({"t": 1}).hex(" ")
        page = await browser.post("/publish", topic="posted", body=body, form="hex", key="<b>", tag="x")
        assert "Stored in posted:0@broker-a at offset 0, level disk." in page
        id = page.partition("/message?id=")[2].partition('"')[0]
        page = await browser.get(f"/message?id={id}")
        assert '"t": 1' in page
        assert "81 a1 74 01" in await browser.get(f"/message?id={id}&as=hex")
        assert "it is no JSON" in await browser.get(f"/message?id={id}&as=json")
        with trio.fail_after(PATIENCE_S):  # the broker writes traces a moment later
            while "stored" not in [row[1] for row in cells(page) if len(row) == 5]:
                page = await browser.get(f"/message?id={id}")
        await browser.get("/message?id=broker-a:1", 404)
        assert "no hex" in await browser.post("/publish", 400, topic="posted", body="zz", form="hex")
        assert "id=" in await browser.get(f"/messages?id={id}")
