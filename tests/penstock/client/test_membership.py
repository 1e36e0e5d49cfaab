"""Membership at one broker; what the consumer adds is in test_consumer.py."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from penstock.client.arguments import Start
from penstock.client.holdings import Membership
from penstock.client.membership import Member
from penstock.client.positions import PullLimits
from penstock.client.pulling import Intake
from penstock.client.subscription import Subscription
from penstock.client.task_scope import TaskScope
from penstock.errors import Fenced
from penstock.protocol.message import Message
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup
from penstock.protocol.requests.topics import ChangeTopic
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster


@asynccontextmanager
async def member(broker: LinkedBroker, name: str = "m", start: Start = "earliest") -> AsyncIterator[Member]:
    tasks = TaskScope()
    await tasks.open()
    rng = random.Random(name)
    intake = Intake(tasks, PullLimits(), rng)
    link = broker._cluster.link(broker.route.address)
    made = Member(Membership("g", name, Subscription("t", start), 30.0), "b", link, ["t"], intake, rng)
    tasks.start_soon(made.run)
    try:
        yield made
    finally:
        await tasks.close()


def small_broker() -> LinkedBroker:
    return LinkedCluster(topics=["t", "u"]).brokers[0]


def joins(broker: LinkedBroker) -> list[JoinGroup]:
    return [request for request in broker.asked if isinstance(request, JoinGroup)]


async def test_one_join_and_then_only_watching() -> None:
    broker = small_broker()
    async with member(broker) as one:
        await one.joined.wait()
        await trio.sleep(15)
        assert sorted(one.held) == ["t:0", "t:1", "t:2", "t:3"]
    assert len(joins(broker)) == 1


async def test_another_subscription_joins_again_and_keeps_what_is_still_held() -> None:
    broker = small_broker()
    async with member(broker) as one:
        await one.joined.wait()
        before = one.held["t:0"]
        one.subscribe(["t", "u"])
        await wait_all_tasks_blocked()
        assert len(one.held) == 8
        assert one.held["t:0"] is before
        one.subscribe(["t", "u"])
        await wait_all_tasks_blocked()
    assert [join.topics for join in joins(broker)] == [("t",), ("t", "u")]


async def test_a_rebalance_during_the_first_commit_is_no_reason_to_join_again() -> None:
    broker = small_broker()
    crossed = iter([True])

    def cross(request: object) -> Fenced | None:
        if isinstance(request, CommitOffsets) and next(crossed, False):
            broker.ask(ChangeTopic("t", queues=5))
            return Fenced("older generation")
        return None

    broker.refuse = cross
    async with member(broker, start="latest") as one:
        await one.joined.wait()
        assert len(one.held) == 5
    assert len(joins(broker)) == 1


async def test_reading_begins_anew_where_somebody_else_committed() -> None:
    broker = small_broker()
    broker.put(*[Message("t", str(at).encode()) for at in range(5)])
    async with member(broker) as one:
        await one.joined.wait()
        await wait_all_tasks_blocked()
        broker.commit("g", t_0=4)
        broker.ask(ChangeTopic("t", queues=5))
        await wait_all_tasks_blocked()
        assert one.held["t:0"].begun == 4
        assert one.take_lost() == []


async def test_what_was_handed_out_and_taken_away_is_told_once() -> None:
    broker = small_broker()
    async with member(broker) as one:
        await one.joined.wait()
        one.held["t:3"].handed_out = 2
        async with member(broker, "n") as other:
            await other.joined.wait()
            await wait_all_tasks_blocked()
            lost = {"t:3"} - one.held.keys()
            assert set(one.take_lost()) == lost
            assert one.take_lost() == []
            assert sorted([*one.held, *other.held]) == ["t:0", "t:1", "t:2", "t:3"]


async def test_leaving_ends_the_membership() -> None:
    broker = small_broker()
    async with member(broker) as one:
        await one.joined.wait()
        await one.leave()
        await trio.sleep(100)
        assert broker.members("g") == []
        assert one.held == {}
