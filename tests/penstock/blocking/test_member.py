"""A blocking membership; what the consumer adds is in test_consumer.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import BlockingLink
from penstock.blocking.exchange import Exchange
from penstock.blocking.member import Member
from penstock.blocking.pulls import Pulls
from penstock.client.holdings import Membership
from penstock.client.positions import PullLimits
from penstock.client.subscription import Subscription
from penstock.errors import InvalidTopic
from penstock.protocol.requests.groups import JoinGroup, WatchGroup
from tests.penstock.hand_clock import HandClock
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster


@pytest.fixture
def broker(serve: Callable[..., Any]) -> LinkedBroker:
    made = LinkedCluster(topics=["t", "u"]).brokers[0]
    made.listen(serve)
    return made


def member(broker: LinkedBroker, clock: HandClock) -> tuple[Member, Exchange, BlockingLink]:
    rng, exchange = random.Random(1), Exchange()
    pulls = Pulls(exchange, PullLimits(), clock, rng)
    link = BlockingLink(broker.route.address)
    who = Membership("g", "m", Subscription("t", "earliest"), 30.0)
    return Member(who, "b", link, ["t"], exchange, pulls, clock, rng), exchange, link


def test_it_joins_once_and_keeps_one_watch_open(broker: LinkedBroker) -> None:
    one, exchange, link = member(broker, HandClock())
    with link:
        for _ in range(3):
            one.tend()
            exchange.wait(0.01)
        assert sorted(one.held) == ["t:0", "t:1", "t:2", "t:3"]
        kinds = [type(request) for request in broker.asked]
        assert (kinds.count(JoinGroup), kinds.count(WatchGroup)) == (1, 1)


def test_another_subscription_joins_again(broker: LinkedBroker) -> None:
    one, _exchange, link = member(broker, HandClock())
    with link:
        one.tend()
        one.subscribe(["t", "u"])
        one.tend()
        assert len(one.held) == 8


def test_a_watch_that_is_never_answered_ends_the_connection(broker: LinkedBroker) -> None:
    clock = HandClock()
    one, _exchange, link = member(broker, clock)
    with link:
        one.tend()
        clock.now = 100.0
        one.tend()
        assert link.losses == 1
        assert one.joined


def test_a_refusal_for_good_is_raised(broker: LinkedBroker) -> None:
    broker.refuse = lambda request: InvalidTopic("no") if isinstance(request, JoinGroup) else None
    one, _exchange, link = member(broker, HandClock())
    with link, pytest.raises(InvalidTopic):
        one.tend()


def test_leaving_gives_the_queues_back(broker: LinkedBroker) -> None:
    one, _exchange, link = member(broker, HandClock())
    with link:
        one.tend()
        one.leave()
        assert broker.members("g") == []
        assert one.held == {}
