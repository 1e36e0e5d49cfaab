"""Copies that can be read, as they tell it."""

from __future__ import annotations

import pytest

from namesrv.copies import READERS_MAX, Copies
from penstock.errors import Busy
from penstock.protocol.requests.routes import BrokerHeartbeat, BrokerRoute, RegisterBroker, TopicRoute

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def reader(address: str, committed: int, *topics: str, epoch: int = 3, more: bool = False) -> RegisterBroker:
    offered = tuple([TopicRoute(topic, 4) for topic in topics])
    return RegisterBroker("a", address, 1, 60, offered, (), more, epoch, True, committed)


def test_who_has_the_most_of_a_log_is_named_first() -> None:
    readers = Copies()
    readers.register(reader(A, 100, "orders"), 60.0)
    readers.register(reader(B, 200, "orders", "late"), 60.0)
    assert readers.addresses("a") == (B, A)
    assert readers.route("a", "orders") == BrokerRoute("a", B, 4, False, epoch=3, readers=(B, A))
    assert readers.route("a", "late") == BrokerRoute("a", B, 4, False, epoch=3, readers=(B,))
    assert readers.route("a", "other") is None
    one = readers.get("a", A)
    assert one is not None
    readers.beat(one, BrokerHeartbeat("a", A, 2, 60, (TopicRoute("late", 4),), 1, False, 3, True, 300), 90.0)
    assert readers.addresses("a") == (A, B)
    assert sorted(readers.topics("a")) == ["late", "orders"]
    readers.beat(one, BrokerHeartbeat("a", A, 3, 60, (TopicRoute("late", 0),), 2, False, 3, True, 300), 90.0)
    assert readers.route("a", "late") == BrokerRoute("a", B, 4, False, epoch=3, readers=(B,))


def test_a_reader_is_gone_when_its_lease_ends() -> None:
    readers = Copies()
    readers.register(reader(A, 100, "orders"), 60.0)
    readers.register(reader(B, 100, "orders"), 70.0)
    readers.expire(60.0)
    assert readers.addresses("a") == (B,)
    readers.expire(70.0)
    assert list(readers.brokers) == []
    assert len(readers) == 0


def test_a_broker_tells_still_until_one_of_its_readers_has_told_all() -> None:
    readers = Copies()
    readers.register(reader(A, 100, more=True), 60.0)
    assert readers.tells_still("a")
    readers.register(reader(B, 50), 60.0)
    assert not readers.tells_still("a")


def test_the_readers_of_a_broker_are_bounded() -> None:
    readers = Copies()
    for number in range(READERS_MAX):
        readers.register(reader(f"10.0.0.1:{number + 1}", 0), 60.0)
    with pytest.raises(Busy):
        readers.register(reader(A, 0), 60.0)
    readers.register(reader("10.0.0.1:1", 7), 60.0)
