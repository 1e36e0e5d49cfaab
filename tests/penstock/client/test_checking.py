"""The checks of a producer against small brokers; with real ones they are in tests/penstock/test_real_sends.py."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from penstock.client.halves import CHECKS_MAX, HalfMessage
from penstock.client.producer import Producer
from penstock.errors import UnknownRequest
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.transactions import (
    EndHalves,
    HalfEnded,
    HalfRow,
    HalvesEnded,
    HalvesToCheck,
    WatchHalves,
)
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster

RECORD = encode_message(Message("orders", b"x"))


def asks(broker: LinkedBroker, count: int, ended: list[tuple[int, str]]) -> None:
    """Has a broker ask about so many halves, as many at once as the producer wants, and note what it is told."""
    ids = iter(range(1, count + 1))

    def watch(request: WatchHalves) -> Any:
        rows = [
            HalfRow(id, "g", 1, 1, "", "orders", "", len(RECORD))
            for _, id in zip(range(request.count_max), ids, strict=False)
        ]
        return HalvesToCheck(tuple(rows), RECORD * len(rows)) if rows else None

    def end(request: EndHalves) -> Any:
        ended.extend([(one.id, one.outcome) for one in request.outcomes])
        return HalvesEnded(tuple([HalfEnded(one.id, one.outcome) for one in request.outcomes]))

    broker.answers = {WatchHalves: watch, EndHalves: end}


def producer(cluster: LinkedCluster, check: Any, **given: Any) -> Producer:
    return Producer(servers=LinkedCluster.SERVERS, links=cluster, group="g", check=check, **given)


async def test_a_bounded_number_of_listeners_works_at_once_and_a_hanging_one_is_ended() -> None:
    cluster, ended = LinkedCluster(topics=["orders"]), list[tuple[int, str]]()
    asks(cluster.brokers[0], 3 * CHECKS_MAX, ended)
    at_work = most = 0

    async def check(half: HalfMessage) -> Any:
        nonlocal at_work, most
        most = max(most, at_work := at_work + 1)
        try:
            await trio.sleep_forever() if half.id % 2 else await trio.sleep(1)
        finally:
            at_work -= 1
        return "commit"

    async with producer(cluster, check, check_s=5):
        await trio.testing.wait_all_tasks_blocked()
        assert at_work == CHECKS_MAX
        await trio.sleep(60)
    assert most == CHECKS_MAX
    assert sorted(ended) == [(id, "commit") for id in range(2, 3 * CHECKS_MAX + 1, 2)]


async def test_brokers_that_come_are_watched_and_one_that_cannot_be_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, ended = LinkedCluster(brokers=2, topics=["orders"]), list[tuple[int, str]]()
    old, new = cluster.brokers
    cluster.live = [old]
    old.answers = {WatchHalves: lambda request: UnknownRequest("what is that?")}
    asks(new, 1, ended)

    def check(half: HalfMessage) -> Any:
        return "rollback"  # a plain function will do

    async with producer(cluster, check):
        await trio.sleep(5)
        cluster.live = [new]
        await trio.sleep(15)
        old.asked.clear()
        await trio.sleep(60)
        assert not [one for one in old.asked if isinstance(one, WatchHalves)]
    assert ended == [(1, "rollback")]
    assert [one for one in caplog.messages if "what is that" in one] == [
        "broker-0 is not asked for halves to check: what is that?"
    ]
