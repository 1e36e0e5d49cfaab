"""The blocking reader against small brokers in threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import Admin, Producer, Reader
from penstock.errors import BrokerAway, InvalidRequest, NoRoute, QueueNotFound
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.topics import Bounds
from tests.patience import PATIENCE_S
from tests.penstock.hand_clock import AheadClock
from tests.penstock.linked_cluster import LinkedCluster, all_refuse
from tests.penstock.producing import put


@pytest.fixture
def cluster(serve: Callable[..., Any]) -> LinkedCluster:
    made = LinkedCluster(brokers=2, topics=["orders", "empty"])
    for at, broker in enumerate(made.brokers):
        broker.listen(serve)
        for queue in range(4):
            put(broker, *[f"{at}{queue}{n}".encode() for n in range(3)], queue=queue)
    return made


def reader(cluster: LinkedCluster, topic: str = "orders", **given: Any) -> Reader:
    return Reader(topic, servers=cluster.brokers[0].route.address, **given)


def test_until_the_end_gives_what_is_there_and_stops(cluster: LinkedCluster) -> None:
    with reader(cluster, until_end=True, batch_max=2) as r:
        put(cluster.brokers[0], b"too late")
        got = [message.body for message in r.messages()]
        assert sum(r.positions.values()) == 24
    assert sorted(got) == sorted(cluster.stored("orders"))[:24]


def test_an_empty_topic_ends_at_once(cluster: LinkedCluster) -> None:
    with reader(cluster, "empty", until_end=True) as r:
        assert list(r) == []


def test_latest_seek_and_some_queues(cluster: LinkedCluster) -> None:
    with reader(cluster, queues=[1], start="latest") as r:
        assert r.poll(0.02) == []
        assert r.queues == (MessageQueue("broker-0", "orders", 1), MessageQueue("broker-1", "orders", 1))
        r.seek(MessageQueue("broker-1", "orders", 1), 2)
        assert [message.body for message in r.poll(5)] == [b"112"]
        with pytest.raises(QueueNotFound):
            r.seek(MessageQueue("broker-0", "orders", 2), 0)


def test_the_bounds_are_those_of_now(cluster: LinkedCluster) -> None:
    with reader(cluster, queues=[1]) as r:
        put(cluster.brokers[1], b"new", queue=1)
        first, second = MessageQueue("broker-0", "orders", 1), MessageQueue("broker-1", "orders", 1)
        assert r.bounds() == {first: Bounds("orders:1", 0, 3), second: Bounds("orders:1", 0, 4)}


def test_what_is_not_there_is_said_on_entering(cluster: LinkedCluster) -> None:
    with pytest.raises(NoRoute), reader(cluster, "nothing"):
        pass
    with pytest.raises(QueueNotFound), reader(cluster, queues=[9]):
        pass


@pytest.mark.parametrize("start", ["Earliest", "begin", 0, None])
def test_a_start_that_is_none_is_refused_before_anything_is_read(start: Any) -> None:
    with pytest.raises(InvalidRequest, match="start is 'earliest', 'latest', a datetime"):
        Reader("orders", start=start)


def test_a_text_is_one_tag(cluster: LinkedCluster) -> None:
    with reader(cluster, tags="paid", until_end=True) as r:
        assert list(r) == []
    assert {request.tags for request in cluster.brokers[0].asked if isinstance(request, Pull)} == {("paid",)}


def test_outside_its_block_a_reader_says_so_and_connects_no_more(cluster: LinkedCluster) -> None:
    r = reader(cluster)
    uses: list[Callable[[], object]] = [
        lambda: r.poll(0),
        lambda: next(iter(r)),
        lambda: next(r.messages()),
        r.bounds,
        lambda: r.seek(MessageQueue("broker-0", "orders", 0), 0),
    ]
    refused = r"this reader is not open \(use it inside `with Reader"
    all_refuse(uses, refused)
    with r:
        pass
    asked = len(cluster.brokers[0].asked)
    all_refuse(uses, refused)
    assert len(cluster.brokers[0].asked) == asked


def test_a_broker_that_is_away_is_an_error_that_names_it_or_left_out_on_request(cluster: LinkedCluster) -> None:
    cluster.lose(1)
    with pytest.raises(BrokerAway, match="broker broker-1 is away"), reader(cluster, until_end=True):
        pass
    with reader(cluster, until_end=True, allow_incomplete=True) as r:
        assert len([message for message in r.messages()]) == 12


def test_a_topic_that_is_deleted_and_made_again_is_read_on(real_cluster: Any) -> None:
    servers = real_cluster.servers
    with Admin(servers) as admin, Producer(servers=servers) as producer:
        producer.send("orders", b"1")
        with Reader("orders", servers=servers) as r:
            assert [message.body for message in r.poll(PATIENCE_S)] == [b"1"]
            admin.delete_topic("orders")
            assert r.poll(0.1) == []
            producer.send("orders", b"2")
            assert [message.body for message in r.poll(PATIENCE_S)] == [b"2"]


@pytest.mark.parametrize("wait_s", ["x", float("nan"), float("inf"), -1, None])
def test_a_wait_that_is_none_is_refused(cluster: LinkedCluster, wait_s: Any) -> None:
    with reader(cluster) as r:
        all_refuse([lambda: r.poll(wait_s), lambda: reader(cluster, timeout_s=wait_s)], "wait_s is|timeout_s is")


def test_queues_are_assigned_sought_paused_and_resumed_and_positions_follow(cluster: LinkedCluster) -> None:
    first, second = MessageQueue("broker-1", "orders", 2), MessageQueue("broker-0", "orders", 3)

    def bodies(r: Reader, count: int) -> list[bytes]:
        got: list[bytes] = []
        while len(got) < count:
            batch = r.poll(PATIENCE_S)
            assert batch
            got += [message.body for message in batch]
        return sorted(got)

    with reader(cluster, queues=[first], batch_max=1) as r:
        assert bodies(r, 2) == [b"120", b"121"]
        r.pause(first)
        r.assign([first, second])
        assert (r.queues, r.paused) == ((second, first), (first,))
        assert bodies(r, 3) == [b"030", b"031", b"032"]
        assert r.poll(0.01) == []
        assert r.positions == {first: 2, second: 3}
        r.seek(first, 1)
        r.resume(first)
        assert bodies(r, 2) == [b"121", b"122"]
        for wrong in ([first, MessageQueue("broker-9", "orders", 0)], [9]):
            with pytest.raises(QueueNotFound):
                r.assign(wrong)
        assert r.queues == (second, first), "nothing has changed"
        r.assign([second])
        put(cluster.brokers[1], b"unread", queue=2)
        put(cluster.brokers[0], b"033", queue=3)
        assert bodies(r, 1) == [b"033"]
        for use in (r.pause, r.resume, lambda queue: r.pause([second, queue])):
            with pytest.raises(QueueNotFound, match="is not read here"):
                use(first)
        r.assign(None)
        assert len(r.queues) == 8
        assert r.positions[second] == 4


def test_one_that_is_to_end_reads_on_where_it_is_sought_also_within_a_batch(cluster: LinkedCluster) -> None:
    queue = MessageQueue("broker-0", "orders", 0)
    with reader(cluster, queues=[queue], until_end=True) as r:
        for offset in (0, 2, 1):
            r.seek(queue, offset)
            assert [message.offset for message in r.messages()] == list(range(offset, 3))
        r.seek(queue, 0)
        got = []
        for message in r.messages():
            got.append(message.offset)
            if len(got) == 1:
                r.seek(queue, 2)
        assert got == [0, 2]


def test_a_topic_that_is_made_again_with_more_queues_is_read_whole(real_cluster: Any) -> None:
    clock = AheadClock()
    with Admin(real_cluster.servers) as admin, Producer(servers=real_cluster.servers) as producer:
        admin.create_topic("orders", queues=1)
        with Reader("orders", servers=real_cluster.servers, start="latest", clock=clock) as r:
            admin.delete_topic("orders")
            admin.create_topic("orders", queues=3)
            producer.send("orders", b"2", queue=r.queues[0]._replace(number=2))
            clock.ahead_s = 60.0
            assert [message.body for message in r.poll(PATIENCE_S)] == [b"2"]
            assert len(r.queues) == 3
