"""The checks of a producer against small brokers; with real ones they are in tests/penstock/test_real_sends.py."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from penstock.client.halves import CHECKS_MAX, HalfMessage
from penstock.client.producer import Producer
from penstock.errors import UnknownRequest
from penstock.protocol.message import Message
from penstock.protocol.requests.transactions import (
    WatchHalves,
)
from tests.penstock.linked_cluster import LinkedCluster


def producer(cluster: LinkedCluster, check: Any, **given: Any) -> Producer:
    return Producer(servers=LinkedCluster.SERVERS, links=cluster, group="g", check=check, **given)


async def test_a_bounded_number_of_listeners_works_at_once_and_a_hanging_one_is_ended() -> None:
    cluster = LinkedCluster(topics=["orders"])
    ids = cluster.brokers[0].begin_halves(*[Message("orders", b"%d" % at) for at in range(3 * CHECKS_MAX)])
    at_work = most = 0

    async def check(half: HalfMessage) -> Any:
        nonlocal at_work, most
        most = max(most, at_work := at_work + 1)
        try:
            await trio.sleep_forever() if int(half.messages[0].body) % 2 else await trio.sleep(1)
        finally:
            at_work -= 1
        return "commit"

    async with producer(cluster, check, check_s=5):
        await trio.testing.wait_all_tasks_blocked()
        assert at_work == CHECKS_MAX
        for _ in range(200):
            await trio.sleep(1)
            cluster.brokers[0].pass_time(1)
    assert most == CHECKS_MAX
    assert sorted(cluster.brokers[0].outcomes()) == [(id, "commit") for id in ids[::2]]


async def test_brokers_that_come_are_watched_and_one_that_cannot_be_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    old, new = cluster.brokers
    cluster.live = [old]
    old.answers = {WatchHalves: lambda request: UnknownRequest("what is that?")}
    (id,) = new.begin_halves(Message("orders", b"x"))

    def check(half: HalfMessage) -> Any:
        return "rollback"  # a plain function will do

    async with producer(cluster, check):
        await trio.sleep(5)
        cluster.live = [new]
        await trio.sleep(15)
        old.asked.clear()
        await trio.sleep(60)
        assert not [one for one in old.asked if isinstance(one, WatchHalves)]
    assert new.outcomes() == [(id, "rollback")]
    assert [one for one in caplog.messages if "what is that" in one] == [
        "broker-0 is not asked for halves to check: what is that?"
    ]
