from __future__ import annotations

import pytest

from console.cluster import open_cluster
from penstock.protocol.message import Message
from tests.console.browser import Site

pytestmark = pytest.mark.endtoend


async def test_what_is_published_is_found_by_its_key(site: Site) -> None:
    async with open_cluster([site.servers]) as cluster:
        for number in range(3):
            receipt = await cluster.publish(Message("clustered", b"%d" % number, key="k"))
        assert [one.body for one in await cluster.find("clustered", "k", 0, 2)] == [b"2", b"1"]
        assert receipt.queue.topic == "clustered"
        assert await cluster.find("clustered", "other", 0, 2) == []
