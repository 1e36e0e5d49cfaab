from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.kernel.fold import fact_record
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import RealDisk
from broker.store.recovery import open_store
from broker.topics import fold as topics
from penstock.protocol.requests.topics import TopicInfo
from tests.console.browser import Site, cells
from tests.penstock.conftest import RealCluster

COUNT = 100_000
PER_RECORD_BATCH = 1_000

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


def fill(folder: Path) -> None:
    """The log of a broker that has made so many topics."""
    settings, state = BrokerSettings(data=folder, segment_bytes=1 << 25, retention_s=0.0), BrokerState()
    store = open_store(RealDisk(folder), settings.store(), state, 1)
    for start in range(0, COUNT, PER_RECORD_BATCH):
        names = [f"topic-{number:06}" for number in range(start, start + PER_RECORD_BATCH)]
        facts = [state.topics.making(TopicInfo(name, 1, "disk")) for name in names]
        store.append([fact_record(topics.TOPIC, fact) for fact in facts], 1)
    store.close(1)


@pytest.fixture
def many(tmp_path: Path) -> Iterator[RealCluster]:
    fill(tmp_path / "data" / "a")
    cluster = RealCluster(tmp_path / "data", 1 << 25, retention_s=0.0, topics_max=2 * COUNT)
    yield cluster
    cluster.stop()


async def test_100_000_topics_are_looked_through_a_page_at_a_time(many: RealCluster) -> None:
    async with Site(many.servers).open() as browser:
        first = await browser.get("/topics")
        assert [row[0] for row in cells(first)[1:]] == [f"topic-{number:06}" for number in range(50)]
        following = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        assert cells(await browser.get(following))[1][0] == "topic-000050"
        last = await browser.get("/topics?after=topic-099989")
        assert len(cells(last)) == 1 + 10
        assert "Next page" not in last
        assert [row[0] for row in cells(await browser.get("/topics?contains=77777"))[1:]] == ["topic-077777"]
        assert len(first) < 50_000, "bytes: a page of rows, not of topics"
