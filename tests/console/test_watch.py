from __future__ import annotations

import pytest

from console.cluster import open_cluster
from console.watch import Watch
from penstock.blocking import Producer
from penstock.world import RealClock
from tests.console.browser import Site
from tests.penstock.hand_clock import HandClock

pytestmark = pytest.mark.endtoend


async def test_rates_are_what_brokers_count_from_look_to_look(site: Site) -> None:
    clock = HandClock()
    async with open_cluster([site.servers]) as cluster:
        watch = Watch(cluster.reads, clock)
        await watch.look(with_groups=True)
        with Producer(servers=site.servers) as producer:
            for _ in range(10):
                producer.send("watched", b"x")
        clock.now += 2
        await watch.look(with_groups=False)
        assert watch.rates.last["in"] >= 5
        assert (watch.trouble, watch.away) == ("", ())
        assert list(watch.figures) == ["broker-a"]


async def test_a_cluster_that_does_not_answer_is_an_alert() -> None:
    async with open_cluster(["127.0.0.1:1"]) as cluster:
        watch = Watch(cluster.reads, RealClock())
        await watch.look(with_groups=True)
        assert "cannot be asked" in watch.alerts()[0].text
