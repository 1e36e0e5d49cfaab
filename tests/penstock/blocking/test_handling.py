"""Handlers of a blocking consumer, in its own thread and in several."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.blocking import Consumer
from penstock.client.attempts import Retry
from penstock.errors import Damaged, InvalidRequest, LogReplaced
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.groups import JoinGroup, LeaveGroup, WatchGroup
from penstock.protocol.requests.retries import SendBack
from tests.patience import PATIENCE_S
from tests.penstock.linked_cluster import LinkedCluster
from tests.penstock.producing import put


@pytest.fixture
def cluster(serve: Callable[..., Any]) -> LinkedCluster:
    made = LinkedCluster(topics=["orders"])
    broker = made.brokers[0]
    for queue in (0, 1):
        put(broker, *[b"%d-%d" % (queue, at) for at in range(20)], queue=queue)
    broker.listen(serve)
    return made


def consumer(cluster: LinkedCluster, **given: Any) -> Consumer:
    return Consumer("g", "orders", servers=cluster.brokers[0].route.address, start="earliest", **given)


def committed(cluster: LinkedCluster) -> dict[str, int]:
    return {queue: offset for queue, offset in cluster.brokers[0].positions("g").items() if offset}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_messages_are_done_or_given_back_and_all_are_passed(cluster: LinkedCluster, concurrency: int) -> None:
    done, lock, threads = Counter[bytes](), threading.Lock(), set[int]()

    def work(message: ReceivedMessage) -> None:
        if message.body == b"0-3" and message.attempts < 2:
            raise ValueError(message.attempts)
        if message.body == b"1-0" and not message.attempts:
            raise Retry(9, "later")
        with lock:
            threads.add(threading.get_ident())
            done[message.body] += 1
            if len(done) == 40:
                c.stop()

    with consumer(cluster, batch_max=6) as c:
        c.handle(work, concurrency=concurrency)
        assert c.poll(0.01) == []
    assert done == Counter(b"%d-%d" % (queue, at) for queue in (0, 1) for at in range(20))
    assert (threading.get_ident() in threads) == (concurrency == 1)
    asked = {(one.queue, one.delay_ms, one.reason) for one in cluster.brokers[0].given_back}
    assert asked == {
        ("orders:0", -1, "ValueError: 0"),
        ("%RETRY%g:0", -1, "ValueError: 1"),
        ("orders:1", 9000, "later"),
    }
    assert committed(cluster) == {"orders:0": 20, "orders:1": 20, "%RETRY%g:0": 3}


def test_heartbeats_go_on_while_handlers_are_at_work(cluster: LinkedCluster) -> None:
    broker = cluster.brokers[0]
    seen = threading.Event()

    def watches() -> int:
        return sum(isinstance(request, WatchGroup) for request in broker.asked)

    def answer(request: Any) -> None:
        if isinstance(request, WatchGroup) and watches() > 3:
            seen.set()
        return None

    def work(message: ReceivedMessage) -> None:
        while not seen.is_set():  # each answer to the watch has the next one sent, and only this thread is kept
            broker.ask(JoinGroup("g", "other", ("orders",)))
            broker.ask(LeaveGroup("g", "other"))
        c.stop()

    broker.refuse = answer
    with consumer(cluster) as c:
        c.handle(work, concurrency=2)
    assert seen.is_set()


def test_what_the_broker_cannot_take_back_the_handler_has_again(cluster: LinkedCluster) -> None:
    refusals = iter([Damaged("the frame")])
    cluster.brokers[0].refuse = lambda request: next(refusals, None) if isinstance(request, SendBack) else None
    tries = Counter[bytes]()

    def work(message: ReceivedMessage) -> None:
        tries[message.body] += 1
        if tries == Counter({message.body: 1}):
            raise ValueError
        if tries.total() == 41:
            c.stop()

    with consumer(cluster) as c:
        c.handle(work)
    assert sorted(tries.values()) == [*[1] * 39, 2]
    assert cluster.brokers[0].given_back == []
    assert committed(cluster) == {"orders:0": 20, "orders:1": 20}


def test_a_batch_handler_names_what_it_did_not_finish_and_the_rest_is_passed(cluster: LinkedCluster) -> None:
    seen = 0

    def work(messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        nonlocal seen
        seen += len(messages)
        if seen == 42:
            c.stop()
        return [one for one in messages if one.offset == 7 and not one.attempts]

    with consumer(cluster, batch_max=4) as c:
        c.handle_batches(work)
    assert {one.reason for one in cluster.brokers[0].given_back} == {"the handler did not finish it"}
    assert committed(cluster) == {"orders:0": 20, "orders:1": 20, "%RETRY%g:0": 2}


def test_what_is_not_begun_comes_again_and_what_ends_the_reading_is_raised(cluster: LinkedCluster) -> None:
    def work(message: ReceivedMessage) -> None:
        with pytest.raises(InvalidRequest, match="already runs a handler"):
            c.handle(work)
        if message.offset == 4:
            c.stop()

    def fail(message: ReceivedMessage) -> None:
        c._pulls._failure = LogReplaced("another log")

    with consumer(cluster) as c:
        c.handle(work)
        assert list(committed(cluster).values()) in ([5], [20, 5])
        passed = sum(committed(cluster).values())
        left = 40 - passed
        while left:
            left -= len(c.poll(PATIENCE_S))
    with consumer(cluster) as c, pytest.raises(LogReplaced):
        c.handle(fail)
