"""Pages that list 10,000 of something load a page of it; with ``PENSTOCK_LISTED=100000`` (`make soak`) 100,000."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.kernel.fold import fact_record
from broker.sessions import fold as sessions
from broker.sessions.fold import Sessions
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import RealDisk
from broker.store.recovery import open_store
from broker.topics import fold as topics
from penstock.protocol.requests.sessions import HOME_TOPIC, NO_WILL
from penstock.protocol.requests.topics import TopicInfo
from tests.console.browser import Site, cells
from tests.penstock.conftest import RealCluster

COUNT = int(os.environ.get("PENSTOCK_LISTED", "10000"))
PER_RECORD_BATCH = 1_000
NEVER_ENDS_S = 0xFFFFFFFF

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


def fill(folder: Path) -> None:
    """The log of a broker that has made so many topics, and keeps so many sessions."""
    settings, state = BrokerSettings(data=folder, segment_bytes=1 << 25, retention_s=0.0), BrokerState()
    store = open_store(RealDisk(folder), settings.store(), state, 1)
    for start in range(0, COUNT, PER_RECORD_BATCH):
        names = [f"topic-{number:06}" for number in range(start, start + PER_RECORD_BATCH)]
        facts = [state.topics.making(TopicInfo(name, 1, "disk")) for name in names]
        store.append([fact_record(topics.TOPIC, fact) for fact in facts], 1)
    store.append([fact_record(topics.TOPIC, state.topics.making(TopicInfo(HOME_TOPIC, 1, "disk")))], 1)
    for start in range(0, COUNT, PER_RECORD_BATCH):
        clients = [f"client-{number:06}" for number in range(start, start + PER_RECORD_BATCH)]
        opened = [Sessions.opening("gateway-1", client, True, NEVER_ENDS_S, NO_WILL, "", 0) for client in clients]
        store.append([fact_record(sessions.TOPIC, fact) for fact in opened], 1)
    store.close(1)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    data = tmp_path_factory.mktemp("many")
    fill(data / "a")
    cluster = RealCluster(data, 1 << 25, retention_s=0.0, topics_max=2 * COUNT)
    yield cluster
    cluster.stop()


async def test_many_topics_are_looked_through_a_page_at_a_time(many: RealCluster) -> None:
    async with Site(many.servers).open() as browser:
        first = await browser.get("/topics")
        names = [HOME_TOPIC, *[f"topic-{number:06}" for number in range(49)]]
        assert [row[0] for row in cells(first)[1:]] == names
        following = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        assert cells(await browser.get(following))[1][0] == "topic-000049"
        last = await browser.get(f"/topics?after=topic-{COUNT - 11:06}")
        assert len(cells(last)) == 1 + 10
        assert "Next page" not in last
        assert [row[0] for row in cells(await browser.get("/topics?contains=07777"))[1:]] == ["topic-007777"]
        assert len(first) < 50_000, "bytes: a page of rows, not of topics"


async def test_many_sessions_are_looked_through_a_page_at_a_time(many: RealCluster) -> None:
    async with Site(many.servers).open() as browser:
        first = await browser.get("/clients")
        assert [row[0] for row in cells(first)[1:]] == [f"client-{number:06}" for number in range(50)]
        following = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        assert cells(await browser.get(following))[1][0] == "client-000050"
        assert [row[0] for row in cells(await browser.get("/clients?contains=07777"))[1:]] == ["client-007777"]
        last = f"client-{COUNT - 1:06}"
        assert last in await browser.get(f"/client?id={last}")
        assert len(first) < 50_000, "bytes: a page of rows, not of sessions"
