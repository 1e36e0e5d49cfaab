"""The blocking producer against small brokers in threads."""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import Producer
from penstock.clock import Clock
from penstock.errors import (
    Busy,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    SendManyError,
    TimedOut,
    TooLarge,
    Unavailable,
)
from penstock.protocol.message import Message, decode_message
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.topics import ChangeTopic
from tests.patience import PATIENCE_S
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster, all_refuse


@pytest.fixture
def cluster(serve: Callable[..., Any]) -> LinkedCluster:
    made = LinkedCluster(brokers=2, topics=["orders"])
    for broker in made.brokers:
        broker.listen(serve)
    return made


def producer(cluster: LinkedCluster, **given: Any) -> Producer:
    return Producer(servers=cluster.brokers[0].route.address, **given)


def appends(broker: LinkedBroker) -> list[AppendRuns]:
    return [request for request in broker.asked if isinstance(request, AppendRuns)]


def test_a_message_is_stored_and_its_receipt_says_where(cluster: LinkedCluster) -> None:
    with producer(cluster) as p:
        receipt = p.send("orders", b"body", key="42", tag="paid")
    broker = next(one for one in cluster.brokers if one.route.broker == receipt.queue.broker)
    message = decode_message(broker.records(receipt.queue.name)[receipt.offset])
    assert (message.id, message.body, message.key, message.tag) == (receipt.id, b"body", "42", "paid")


def test_many_leave_as_one_append_per_broker(cluster: LinkedCluster) -> None:
    with producer(cluster) as p:
        receipts = p.send_many([Message("orders", b"x", key=str(at)) for at in range(100)])
    assert len(receipts) == len(cluster.stored("orders")) == 100
    assert [len(appends(broker)) for broker in cluster.brokers] == [1, 1]


def test_a_new_topic_is_created_by_policy(cluster: LinkedCluster) -> None:
    with producer(cluster) as p:
        p.send(Message(mqtt_topic="plant/a", body=b"x"))
    assert cluster.stored("plant") == [b"x"]


def test_what_may_succeed_is_tried_again_and_what_may_not_is_told(cluster: LinkedCluster) -> None:
    failures = iter([Busy("full")] * 2)
    for broker in cluster.brokers:
        broker.refuse_record = lambda body: TooLarge("no") if body == b"bad" else next(failures, None)
    with producer(cluster) as p, pytest.raises(SendManyError) as caught:
        p.send_many([Message("orders", b"a"), Message("orders", b"bad")])
    assert list(caught.value.failures) == [1]
    assert cluster.stored("orders") == [b"a"]


def test_another_broker_takes_what_one_cannot(cluster: LinkedCluster) -> None:
    cluster.brokers[1].address = "127.0.0.1:1"
    with producer(cluster) as p:
        assert {p.send("orders", b"x").queue.broker for _ in range(6)} == {"broker-0"}


def test_no_answer_until_the_deadline_is_unknown(cluster: LinkedCluster) -> None:
    for broker in cluster.brokers:
        broker.silent = lambda request: isinstance(request, AppendRuns)
    with producer(cluster) as p, pytest.raises(TimedOut) as caught:
        p.send("orders", b"x", timeout_s=0.05)
    assert caught.value.unknown


def test_a_message_is_sent_alone_and_a_wrong_type_is_named(cluster: LinkedCluster) -> None:
    wrong: Any = 7
    with producer(cluster) as p:
        with pytest.raises(InvalidRequest, match="a Message has its body"):
            p.send(Message("orders", b"x"), b"y")  # type: ignore[call-overload]
        with pytest.raises(InvalidMessage, match="key must be str or bytes, not int"):
            p.send("orders", b"x", key=wrong)
    assert cluster.stored("orders") == []


class QuickClock(Clock):
    """A third of a second passes with every look at it."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks / 3

    def wall_ms(self) -> int:
        return 0


class NoWait(random.Random):
    def random(self) -> float:
        return 0.0


def test_who_waits_for_a_server_is_told_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"127.0.0.1:{listener.getsockname()[1]}"
    with (
        caplog.at_level(logging.WARNING, "penstock.blocking.producer"),
        Producer(servers=nobody, clock=QuickClock(), rng=NoWait()) as p,
        pytest.raises(Unavailable),
    ):
        p.send("orders", b"x")
    (said,) = caplog.messages
    assert said.startswith(f"no name server answers: no server at {nobody}: connection refused; trying for another ")


def test_a_message_that_another_attempt_stores_soon_is_not_talked_about(
    cluster: LinkedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([Busy("full")])
    for broker in cluster.brokers:
        broker.refuse_record = lambda body: next(failures, None)
    with caplog.at_level(logging.WARNING, "penstock.blocking.producer"), producer(cluster, rng=NoWait()) as p:
        p.send("orders", b"x")
    assert caplog.messages == []


def test_outside_its_block_a_producer_says_so_and_connects_no_more(cluster: LinkedCluster) -> None:
    p = producer(cluster)
    uses: list[Callable[[], object]] = [lambda: p.send("orders", b"x"), lambda: p.send_many([])]
    refused = r"this producer is not open \(use it inside `with Producer"
    all_refuse(uses, refused)
    with p:
        p.send("orders", b"x")
    all_refuse(uses, refused)
    assert cluster.stored("orders") == [b"x"]


def test_a_message_without_a_key_leaves_a_broker_that_hangs(cluster: LinkedCluster) -> None:
    cluster.brokers[0].silent = lambda request: isinstance(request, AppendRuns)
    with producer(cluster, timeout_s=30.0) as p:
        p._faults.answered(cluster.brokers[0].route.address, 0.6, p._clock.monotonic())  # it was slow a moment ago
        assert {p.send("orders", b"x").queue.broker for _ in range(5)} == {"broker-1"}
    with producer(cluster, timeout_s=3.0) as p:
        assert {p.send("orders", b"x").queue.broker for _ in range(5)} == {"broker-1"}
    assert cluster.stored("orders").count(b"x") == 10


def test_each_illegal_message_has_an_outcome_of_its_own_and_the_good_ones_are_stored(cluster: LinkedCluster) -> None:
    many = [Message("orders", b"x"), Message("orders", bytes(5_000_000)), Message("a/b", b"x"), Message("orders", b"")]
    with producer(cluster) as p:
        assert [one.status for one in p.send_each(many)] == ["stored", "not stored", "not stored", "stored"]
        assert [one.level for one in p.send_each(many[:1])] == ["disk"]
    assert sorted(cluster.stored("orders")) == [b"", b"x", b"x"]


def test_what_is_sent_one_way_is_stored_before_the_block_has_ended(cluster: LinkedCluster) -> None:
    with producer(cluster) as p:
        for at in range(1000):
            p.send_oneway("orders", b"%d" % at, key="k")
        with pytest.raises(InvalidTopic):
            p.send_oneway(Message("a/b", b"x"))
    assert sorted(cluster.stored("orders"), key=int) == [b"%d" % at for at in range(1000)]
    with pytest.raises(InvalidRequest, match="not open"):
        p.send_oneway("orders", b"x")


def allow(cluster: LinkedCluster, access: str) -> None:
    for broker in cluster.brokers:
        broker.ask(ChangeTopic("orders", access=access))


def test_a_topic_that_may_be_written_to_again_is_written_to(cluster: LinkedCluster) -> None:
    with producer(cluster, timeout_s=PATIENCE_S) as p:
        allow(cluster, "r")
        with pytest.raises(NoRoute, match="takes messages"):
            p.send("orders", b"too early", timeout_s=0)
        allow(cluster, "rw")
        p.send("orders", b"in time", timeout_s=10)
    assert cluster.stored("orders") == [b"in time"]
