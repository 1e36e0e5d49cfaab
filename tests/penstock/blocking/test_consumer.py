"""The blocking group member against small brokers in threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.blocking import Consumer
from penstock.errors import (
    Fenced,
    InvalidRequest,
    InvalidTopic,
    LogReplaced,
    OffsetOutOfRange,
    QueueNotFound,
    Unavailable,
)
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup
from penstock.protocol.requests.messages import Pull
from tests.penstock.client.test_consumer import forget
from tests.penstock.linked_cluster import BEGIN_MS, LinkedCluster, all_refuse
from tests.penstock.producing import put


@pytest.fixture
def cluster(serve: Callable[..., Any]) -> LinkedCluster:
    made = LinkedCluster(brokers=2, topics=["orders"])
    for broker in made.brokers:
        broker.listen(serve)
    made.live = made.brokers[:1]
    return made


def consumer(cluster: LinkedCluster, **given: Any) -> Consumer:
    given.setdefault("start", "earliest")
    return Consumer("g", "orders", servers=cluster.brokers[0].route.address, **given)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [str(at).encode() for at in range(start, start + count)]


def bodies(consumer: Consumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    for _ in range(1000):
        got += [message.body for message in consumer.poll(5)]
        if len(got) >= count:
            return got
    raise AssertionError(f"only {len(got)} of {count}")


def committed(cluster: LinkedCluster) -> dict[str, int]:
    return {queue: offset for queue, offset in cluster.brokers[0].positions("g").items() if offset}


def test_every_message_arrives_and_a_commit_stores_how_far(cluster: LinkedCluster) -> None:
    for queue in range(4):
        put(cluster.brokers[0], *numbered(10, queue * 10), queue=queue)
    with consumer(cluster, batch_max=3) as c:
        assert sorted(bodies(c, 40)) == sorted(numbered(40))
        c.commit()
        assert c.poll(0.02) == []
    assert committed(cluster) == {f"orders:{queue}": 10 for queue in range(4)}
    assert cluster.brokers[0].members("g") == []


def test_iterating_and_the_stream_of_messages(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], *numbered(5))
    with consumer(cluster) as c:
        for message in c.messages():
            if message.offset == 2:
                break
        c.commit()
    assert committed(cluster) == {"orders:0": 3}
    with consumer(cluster) as c:
        assert [message.body for message in next(iter(c))] == numbered(2, 3)


def test_latest_begins_at_the_end_and_a_takeover_skips_nothing(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], b"old")
    with consumer(cluster, start="latest"):
        pass
    put(cluster.brokers[0], b"new")
    with consumer(cluster, start="latest") as c:
        assert bodies(c, 1) == [b"new"]


def test_two_members_share_and_a_lost_queue_is_fenced_at_commit(cluster: LinkedCluster) -> None:
    for queue in range(4):
        put(cluster.brokers[0], f"q{queue}".encode(), queue=queue)
    with consumer(cluster) as first:
        assert len(bodies(first, 4)) == 4
        with consumer(cluster) as second:
            with pytest.raises(Fenced, match=r"lost orders:\d, orders:\d before"):
                first.commit()
            assert len(first.assignment) == len(second.assignment) == 2
            assert len(bodies(second, 2)) == 2
            second.commit()
            first.commit()
        first.poll(0.05)
        assert len(first.assignment) == 4
    assert committed(cluster) == {f"orders:{queue}": 1 for queue in range(4)}


@pytest.mark.parametrize("way", ["restart", "end of session"])
@pytest.mark.parametrize("others", [False, True], ids=["nobody else", "somebody else"])
def test_a_member_that_the_broker_has_forgotten_commits_what_nobody_else_had(
    cluster: LinkedCluster, way: str, others: bool
) -> None:
    broker = cluster.brokers[0]
    put(broker, *numbered(3))
    with consumer(cluster, batch_max=3) as c:
        assert len(bodies(c, 3)) == 3
        forget(broker, way)
        if others:  # who has gone again
            broker.commit("g", orders_0=1)
            with pytest.raises(Fenced, match="lost orders:0"):
                c.commit()
            assert committed(cluster) == {"orders:0": 1}
            assert bodies(c, 2) == numbered(2, 1)
        c.commit()
        assert c.poll(0.05) == []
    assert committed(cluster) == {"orders:0": 3}


def test_seek(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], *numbered(10))
    with consumer(cluster) as c:
        bodies(c, 10)
        c.seek(MessageQueue("broker-0", "orders", 0), 7)
        assert bodies(c, 3) == numbered(3, 7)
        with pytest.raises(OffsetOutOfRange):
            c.seek(MessageQueue("broker-0", "orders", 0), 99)
        with pytest.raises(QueueNotFound):
            c.seek(MessageQueue("broker-0", "orders", 9), 0)


def test_a_time_is_sought_in_every_held_queue(cluster: LinkedCluster) -> None:
    for now_ms in (1000, 2000, 3000):
        cluster.brokers[0].set_time(BEGIN_MS + now_ms)
        for queue in range(4):
            put(cluster.brokers[0], f"{queue} at {now_ms}".encode(), queue=queue)
    with consumer(cluster) as c:
        bodies(c, 12)
        c.seek_time(BEGIN_MS + 2500)
        assert sorted(bodies(c, 4)) == [b"0 at 3000", b"1 at 3000", b"2 at 3000", b"3 at 3000"]
        c.seek_time(BEGIN_MS + 3001)
        assert c.poll(0.02) == []


def test_the_lag_is_what_was_not_handed_out_yet(cluster: LinkedCluster) -> None:
    cluster.live = cluster.brokers
    put(cluster.brokers[0], *numbered(5))
    put(cluster.brokers[1], *numbered(3), queue=1)
    with consumer(cluster, batch_max=2) as c:
        first, second = MessageQueue("broker-0", "orders", 0), MessageQueue("broker-1", "orders", 1)
        assert {at: left for at, left in c.lag().items() if left} == {first: 5, second: 3}
        assert c.lag().keys() == set(c.assignment)
        bodies(c, 8)
        assert set(c.lag().values()) == {0}


def test_messages_that_retention_removed_are_passed(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], *numbered(6))
    cluster.brokers[0].commit("g", orders_0=2)
    cluster.brokers[0].retire("orders")
    put(cluster.brokers[0], *numbered(4, 6))
    with consumer(cluster) as c:
        assert bodies(c, 4) == numbered(4, 6)


def test_what_fails_for_a_while_is_tried_again(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], *numbered(3))
    failures = {kind: iter([Unavailable("away")] * 2) for kind in (Pull, CommitOffsets, JoinGroup)}
    cluster.brokers[0].refuse = lambda request: next(failures.get(type(request), iter(())), None)
    with consumer(cluster) as c:
        assert bodies(c, 3) == numbered(3)
        c.commit()
    assert committed(cluster) == {"orders:0": 3}


def test_a_broker_that_is_there_from_the_start_is_joined_too(cluster: LinkedCluster) -> None:
    cluster.live = cluster.brokers
    put(cluster.brokers[0], b"a")
    put(cluster.brokers[1], b"b")
    with consumer(cluster) as c:
        assert sorted(bodies(c, 2)) == [b"a", b"b"]
        assert len(c.assignment) == 8


def test_a_connection_that_is_lost_is_made_again(serve: Callable[..., Any]) -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    server = serve(broker)
    broker.address = server.address
    with consumer(cluster) as c:
        put(broker, *numbered(2))
        assert bodies(c, 2) == numbered(2)
        server.stop()
        assert c.poll(0.05) == []
        serve(broker, int(server.address.rpartition(":")[2]))
        c.commit()
    assert committed(cluster) == {"orders:0": 2}


def test_what_cannot_be_mended_is_raised(cluster: LinkedCluster) -> None:
    cluster.brokers[0].refuse = lambda request: InvalidTopic("no") if isinstance(request, Pull) else None
    with consumer(cluster) as c, pytest.raises(InvalidTopic):
        c.poll(5)
    with pytest.raises(InvalidRequest):
        Consumer("g", [])


@pytest.mark.parametrize("start", ["Latest", "begin", 0, None])
def test_a_start_that_is_none_is_refused_before_anything_is_read(start: Any) -> None:
    with pytest.raises(InvalidRequest, match="start is 'earliest', 'latest', a datetime"):
        Consumer("g", "orders", start=start)


def test_a_text_is_one_tag(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], b"no")
    with consumer(cluster, tags="paid") as c:
        assert c.poll(0.05) == []
    assert {request.tags for request in cluster.brokers[0].asked if isinstance(request, Pull)} == {("paid",)}


def test_outside_its_block_a_consumer_says_so_and_connects_no_more(cluster: LinkedCluster) -> None:
    c = consumer(cluster)
    uses: list[Callable[[], object]] = [
        lambda: c.poll(0),
        lambda: next(iter(c)),
        lambda: next(c.messages()),
        c.commit,
        c.lag,
        lambda: c.seek(MessageQueue("broker-0", "orders", 0), 0),
        lambda: c.seek_time(0),
    ]
    refused = r"this consumer is not open \(use it inside `with Consumer"
    all_refuse(uses, refused)
    with c:
        pass
    asked = len(cluster.brokers[0].asked)
    all_refuse(uses, refused)
    assert len(cluster.brokers[0].asked) == asked


def test_a_topic_that_is_not_there_is_waited_for_and_read_from_its_beginning(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LinkedCluster()
    for broker in cluster.brokers:
        broker.listen(serve)
    with consumer(cluster, start="latest") as c:
        assert c.assignment == ()
        cluster.brokers[0].set_time(1 << 42)  # later than any consumer's clock says
        cluster.brokers[0].create("orders")
        put(cluster.brokers[0], b"first")
        assert bodies(c, 1) == [b"first"]
    told = [record.getMessage() for record in caplog.records if "waiting" in record.getMessage()]
    assert told == ["no live broker has topic 'orders'; waiting for it"]


def test_commits_of_messages_and_offsets_and_paused_queues(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], *numbered(9))
    with consumer(cluster, batch_max=3) as c:
        batch = c.poll(5)
        c.commit(batch[1])
        c.commit(batch[0])
        assert committed(cluster) == {"orders:0": 2}
        c.pause(batch[0].queue)
        assert c.paused == (batch[0].queue,)
        assert c.poll(0.05) == []
        c.resume(batch[0].queue)
        assert bodies(c, 6) == numbered(6, 3)
        c.commit({batch[0].queue: 1})
        with pytest.raises(Fenced, match="lost orders:9"):
            c.commit({batch[0].queue._replace(number=9): 1})
    assert committed(cluster) == {"orders:0": 1}


def test_a_pattern_chooses_topics_and_a_time_where_to_begin(cluster: LinkedCluster) -> None:
    for at in range(4):
        cluster.brokers[0].set_time(1_700_000_000_000 + at)
        put(cluster.brokers[0], str(at).encode())
    when = datetime.fromtimestamp(1_700_000_000.002, UTC)
    with Consumer("g", re.compile("or.*"), servers=cluster.brokers[0].route.address, start=when) as c:
        assert bodies(c, 2) == numbered(2, 2)
        c.seek(c.assignment[0], datetime.fromtimestamp(1_700_000_000.001, UTC))
        assert bodies(c, 3) == numbered(3, 1)


def test_a_log_that_was_replaced_is_an_error_however_much_it_has_grown_since(cluster: LinkedCluster) -> None:
    broker = cluster.brokers[0]
    put(broker, *numbered(100))
    with consumer(cluster, batch_max=1) as c:
        bodies(c, 1)
        before = broker.log_id
        broker.replace_log()
        with pytest.raises(LogReplaced, match=before):
            bodies(c, 99)


def test_wrong_arguments_and_an_async_with_are_refused_at_once() -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: Consumer(["orders"], "g"),  # type: ignore[arg-type]
        lambda: Consumer("g", "orders", timeout_s=-1),
        lambda: Consumer("g", "orders", batch_max=0),
        lambda: Consumer("g", "orders").__aenter__().send(None),
    ]
    for use, told in zip(wrong, ["group is a str", "at least 0 s", "batch_max", "opened by `with`"], strict=True):
        with pytest.raises(InvalidRequest, match=told):
            use()


def test_a_message_that_is_given_back_comes_again_with_its_attempts(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], *numbered(2))
    with consumer(cluster, retry_delays_s=[2]) as c:
        for message in c.poll(5):
            assert c.nack(message, reason="later").attempt == 1
        c.commit()
        again = c.poll(5)
        while len(again) < 2:
            again += c.poll(5)
        assert [(one.body, one.attempts) for one in again] == [(b"0", 1), (b"1", 1)]
        all_refuse([lambda: c.nack(b"0")], "nack takes a received message")  # type: ignore[arg-type]
        all_refuse([lambda: c.poll(float("nan")), lambda: c.poll(float("inf"))], "wait_s is")
    assert [(one.delay_ms, one.reason) for one in cluster.brokers[0].given_back] == [(2000, "later")] * 2


def test_a_broadcast_client_is_a_group_of_one(cluster: LinkedCluster) -> None:
    put(cluster.brokers[0], *numbered(3))
    for client in ("one", "two"):
        with consumer(cluster, broadcast=True, client=client) as c:
            assert bodies(c, 3) == numbered(3)
            c.commit()
    assert [cluster.brokers[0].positions(f"g@{client}")["orders:0"] for client in ("one", "two")] == [3, 3]
