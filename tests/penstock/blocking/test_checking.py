"""Checks from code without an event loop, where brokers fail; else they are in tests/penstock/test_real_sends.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import Producer
from penstock.errors import InvalidRequest, UnknownRequest
from penstock.protocol.message import Message
from penstock.protocol.requests.transactions import (
    WatchHalves,
)
from tests.penstock.linked_cluster import LinkedCluster


def test_each_broker_is_asked_and_one_that_fails_is_told_of(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, told = LinkedCluster(brokers=2, topics=["orders"]), list[tuple[str, int]]()
    for broker in cluster.brokers:
        broker.listen(serve)
    asks, fails = cluster.brokers
    (id,) = asks.begin_halves(Message("orders", b"x"))
    fails.answers = {WatchHalves: lambda request: UnknownRequest("what is that?")}

    def check(half: Any) -> Any:
        told.append((half.broker, half.id))
        return "commit"

    with Producer(servers=asks.route.address, group="g", check=check) as producer:
        while not told or not caplog.messages:
            producer.answer_checks()
        with pytest.raises(InvalidRequest, match="wait_s is at least 0"):
            producer.answer_checks(-1)
    assert set(told) == {("broker-0", id)}
    assert set(caplog.messages) == {"broker-1 is not asked for halves to check: what is that?"}
