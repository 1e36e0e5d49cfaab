"""The blocking consumer that pops, against real brokers."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from penstock import Message, ReceivedMessage, Retry
from penstock.blocking import Admin, PopConsumer, Producer, Reader
from penstock.errors import Fenced, InvalidFilter, InvalidRequest, QueueNotFound
from penstock.protocol.received import MessageQueue
from tests.patience import PATIENCE_S
from tests.penstock.conftest import RealCluster
from tests.penstock.linked_cluster import all_refuse


@pytest.fixture
def cluster(two_brokers: RealCluster) -> RealCluster:
    """Two brokers; each has two queues of the topic ``jobs``."""
    with Admin(two_brokers.servers) as admin:
        assert len(admin.create_topic("jobs", queues=2)) == 2
    return two_brokers


def popping(cluster: RealCluster, group: str = "g", **given: Any) -> PopConsumer:
    return PopConsumer(group, "jobs", servers=cluster.servers, **({"start": "earliest"} | given))


def send(cluster: RealCluster, *bodies: bytes) -> None:
    """Half of them are odd."""
    with Producer(servers=cluster.servers) as producer:
        producer.send_many(
            [
                Message("jobs", one, key=one, tag="ab"[at % 2], properties={"at": str(at)})
                for at, one in enumerate(bodies)
            ]
        )


def numbered(count: int) -> list[bytes]:
    return [b"%d" % at for at in range(count)]


def taken(consumer: PopConsumer, count: int) -> list[ReceivedMessage]:
    got: list[ReceivedMessage] = []
    while len(got) < count:
        batch = consumer.poll(PATIENCE_S)
        assert batch, f"only {len(got)} of {count} came"
        got += batch
    return got


def test_consumers_share_the_queues_of_all_brokers_and_each_message_is_acknowledged_once(cluster: RealCluster) -> None:
    send(cluster, *numbered(200))
    with popping(cluster, batch_max=7) as one, popping(cluster, batch_max=7) as other:
        got: list[ReceivedMessage] = []
        while len(got) < 200:
            for consumer in (one, other):
                batch = consumer.poll(0.02)
                consumer.ack(batch)
                got += batch
        assert (one.poll(0.05), other.poll(0.05)) == ([], [])
    assert Counter(message.body for message in got) == Counter(numbered(200))
    assert {message.queue.broker for message in got} == {"broker-a", "broker-b"}
    with popping(cluster) as again:
        assert again.poll(0.1) == []


def test_what_is_not_acknowledged_goes_to_others_untried_when_its_consumer_leaves(cluster: RealCluster) -> None:
    send(cluster, *numbered(10))
    with popping(cluster) as consumer:
        got = taken(consumer, 10)
        consumer.ack(got[0])
        consumer.extend(got[1], 3600)
        consumer.extend([got[2]], 0)
    with popping(cluster) as consumer:
        again = taken(consumer, 9)
        consumer.ack(again)
        with pytest.raises(Fenced):
            consumer.nack(again[0])
    assert sorted(one.body for one in again) == sorted(one.body for one in got[1:])
    assert {one.attempts for one in again} == {0}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler_that_fails_has_its_message_again_and_the_last_attempt_is_a_dead_letter(
    cluster: RealCluster, concurrency: int
) -> None:
    send(cluster, *numbered(20), b"bad")
    done, tries, lock = Counter[bytes](), list[int](), threading.Lock()
    with popping(cluster, attempts_max=3, retry_delays_s=[0.01]) as consumer:

        def work(message: ReceivedMessage) -> None:
            with lock:
                if message.body == b"bad":
                    tries.append(message.attempts)
                    raise ValueError(message.attempts)
                if message.body == b"7" and not message.attempts:
                    raise Retry(0)
                done[message.body] += 1

        threading.Thread(target=stop_when, args=(consumer, lambda: len(tries) == 3 and len(done) == 20)).start()
        consumer.handle(work, concurrency=concurrency)
        assert consumer.poll(0.1) == []
    assert (sorted(tries), done) == ([0, 1, 2], Counter(numbered(20)))
    with Reader("%DLQ%g", servers=cluster.servers, until_end=True) as letters:
        assert [(one.body, one.properties["REASON"]) for one in letters.messages()] == [(b"bad", "ValueError: 2")]


def stop_when(consumer: PopConsumer, is_done: Any) -> None:
    assert wait_until(is_done)
    consumer.stop()


def wait_until(is_done: Any) -> bool:
    """Looks until a fact is there."""
    waiting = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if is_done():
            return True
        waiting.wait(0.01)
    return False


def test_batches_go_to_a_handler_and_what_it_did_not_begin_goes_to_others_at_once(cluster: RealCluster) -> None:
    send(cluster, *numbered(40))
    seen: list[bytes] = []
    with popping(cluster, batch_max=3) as consumer:

        def work(messages: Any) -> None:
            seen.extend(one.body for one in messages)
            consumer.stop()

        consumer.handle_batches(work)
    with popping(cluster) as other:
        rest = taken(other, 40 - len(seen))
        other.ack(rest)
    assert Counter(seen) + Counter(one.body for one in rest) == Counter(numbered(40))
    assert {one.attempts for one in rest} == {0}


def test_a_batch_that_waited_longer_than_its_lease_is_not_handed_out_but_comes_again(cluster: RealCluster) -> None:
    send(cluster, *numbered(40))
    clock = SettableClock()
    with popping(cluster, invisible_s=3600.0, batch_max=2, clock=clock) as consumer:
        first = taken(consumer, 2)
        clock.now += 3600.0  # the program has worked so long; the broker's clock is another one
        got = taken(consumer, 38)
        consumer.ack([*first, *got])
    assert Counter(one.body for one in [*first, *got]) == Counter(numbered(40)), "each once, or again untried"
    assert {one.attempts for one in got} == {0}


class SettableClock:
    """A clock that goes with the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.0001
        return self.now

    def wall_ms(self) -> int:
        return 0


def test_a_group_pops_what_its_tags_and_its_filter_want_and_has_one_filter(cluster: RealCluster) -> None:
    send(cluster, *numbered(20))
    with popping(cluster, tags="a", filter="at > 9") as consumer:
        got = taken(consumer, 5)
        consumer.ack(got)
        with (
            popping(cluster, filter="at > 8") as other,
            pytest.raises(InvalidRequest, match=r"with the tags a and the filter 'at > 9', and taker-.* 'at > 8'"),
        ):
            other.poll(PATIENCE_S)
    assert sorted(one.body for one in got) == [b"10", b"12", b"14", b"16", b"18"]
    with popping(cluster) as consumer:
        assert consumer.poll(0.1) == [], "the others are settled"
    with pytest.raises(InvalidFilter):
        popping(cluster, filter="at >")


def test_wrong_use_is_told_at_once(cluster: RealCluster) -> None:
    consumer, message = popping(cluster), ReceivedMessage(MessageQueue("nowhere", "jobs", 0), 0, b"", b"", b"")
    uses: list[Any] = [
        lambda: consumer.poll(0),
        lambda: next(iter(consumer)),
        lambda: consumer.ack(message),
        lambda: consumer.nack(message),
        lambda: consumer.extend(message, 1),
        lambda: consumer.handle(print),
        lambda: consumer.handle_batches(lambda messages: None),
    ]
    all_refuse(uses, r"this consumer is not open \(use it inside `with PopConsumer")
    with consumer:
        for wrong in (
            lambda: consumer.ack(message),
            lambda: consumer.nack(message),
            lambda: consumer.extend(message, 1),
        ):
            with pytest.raises(QueueNotFound):
                wrong()
    all_refuse(uses, "not open")
