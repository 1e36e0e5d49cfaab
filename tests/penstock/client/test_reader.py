"""Reading without a group, on asyncio and on trio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from penstock import Admin, Producer
from penstock.client.reader import Reader
from penstock.errors import BrokerAway, InvalidRequest, LogReplaced, NoRoute, QueueNotFound, TimedOut
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Pull, QueryBounds
from penstock.protocol.requests.topics import Bounds, ChangeTopic
from tests.patience import PATIENCE_S
from tests.penstock.linked_cluster import LinkedCluster
from tests.penstock.producing import put

Run = Callable[..., Any]

QUEUE = MessageQueue("broker-0", "orders", 0)


def reader(cluster: LinkedCluster, **given: Any) -> Reader:
    return Reader("orders", servers=LinkedCluster.SERVERS, links=cluster, **given)


@pytest.fixture
def cluster() -> LinkedCluster:
    made = LinkedCluster(brokers=2, topics=["orders"])
    for at, broker in enumerate(made.brokers):
        for queue in range(4):
            put(broker, *[f"{at}{queue}{n}".encode() for n in range(3)], queue=queue)
    return made


def test_until_the_end_gives_what_is_there_and_stops(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        got = []
        async with reader(cluster, until_end=True, batch_max=2) as r:
            async for message in r.messages():
                got.append(message.body)
                if len(got) == 1:
                    put(cluster.brokers[0], b"too late")
            assert sum(r.positions.values()) == 24
        assert sorted(got) == sorted(cluster.stored("orders"))[:24]

    run(test)


def test_an_empty_topic_ends_at_once(run: Run) -> None:
    async def test() -> None:
        async with reader(LinkedCluster(topics=["orders"]), until_end=True) as r:
            assert [batch async for batch in r] == []

    run(test)


def test_some_queues_only(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        async with reader(cluster, queues=[2], until_end=True) as r:
            assert r.queues == (MessageQueue("broker-0", "orders", 2), MessageQueue("broker-1", "orders", 2))
            assert sorted([message.body async for message in r.messages()])[0] == b"020"

    run(test)


def test_latest_gives_only_what_comes_later(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        async with reader(cluster, start="latest") as r:
            put(cluster.brokers[1], b"new")
            assert [message.body for message in await anext(r)] == [b"new"]

    run(test)


def test_seek_and_bounds(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        async with reader(cluster, queues=[1], start="latest") as r:
            await r.seek(MessageQueue("broker-1", "orders", 1), 2)
            with anyio.fail_after(PATIENCE_S):
                assert [message.body for message in await anext(r)] == [b"112"]
            assert (await r.bounds())[MessageQueue("broker-0", "orders", 1)] == Bounds("orders:1", 0, 3)
            with pytest.raises(QueueNotFound):
                await r.seek(MessageQueue("broker-0", "orders", 2), 0)

    run(test)


def test_what_is_not_there_is_said_on_entering(run: Run) -> None:
    async def test() -> None:
        with pytest.raises(NoRoute):
            async with reader(LinkedCluster()):
                pass
        with pytest.raises(QueueNotFound):
            async with reader(LinkedCluster(topics=["orders"]), queues=[9]):
                pass
        with pytest.raises(InvalidRequest):
            await anext(reader(LinkedCluster()))

    run(test)


def test_a_broker_that_does_not_answer_in_time_is_an_error_of_ours(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        cluster.brokers[1].silent = lambda request: isinstance(request, QueryBounds)
        with pytest.raises(TimedOut, match=r"within 0\.01 s where the queues of orders begin"):
            async with reader(cluster, timeout_s=0.01):
                pass

    run(test)


@pytest.mark.parametrize("start", ["Earliest", "begin", 0, None])
def test_a_start_that_is_none_is_refused_before_anything_is_read(start: Any) -> None:
    with pytest.raises(InvalidRequest, match="start is 'earliest', 'latest', a datetime"):
        reader(LinkedCluster(), start=start)


def test_a_text_is_one_tag(run: Run) -> None:
    async def test() -> None:
        cluster = LinkedCluster(topics=["orders"])
        for tag in ("p", "paid"):
            put(cluster.brokers[0], tag.encode(), tag=tag)
        async with reader(cluster, tags="paid", until_end=True) as r:
            assert [message.body async for message in r.messages()] == [b"paid"]

    run(test)


def test_outside_its_block_a_reader_says_so(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        r = reader(cluster)
        uses: list[Callable[[], Any]] = [
            r.bounds,
            lambda: r.seek(QUEUE, 0),
            lambda: anext(r),
        ]
        for opened in (False, True):
            if opened:
                async with r:
                    pass
            for use in uses:
                with pytest.raises(InvalidRequest, match="this reader is not open"):
                    await use()

    run(test)


@pytest.mark.parametrize("until_end", [True, False])
def test_a_broker_that_is_away_is_an_error_that_names_it_or_left_out_on_request(
    run: Run, cluster: LinkedCluster, until_end: bool
) -> None:
    async def test() -> None:
        cluster.lose(1)
        with pytest.raises(BrokerAway, match="broker broker-1 is away"):
            await reader(cluster, until_end=until_end).__aenter__()
        async with reader(cluster, until_end=until_end, allow_incomplete=True) as r:
            assert {at.broker for at in r.queues} == {"broker-0"}

    run(test)


async def test_a_log_that_was_replaced_is_an_error_however_much_it_has_grown_since() -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    put(broker, b"a", b"b")
    async with reader(cluster) as r:
        assert len(await anext(r)) == 2
        before = broker.log_id
        broker.replace_log()
        put(broker, *[b"new"] * 9)
        with pytest.raises(LogReplaced, match=before):
            await anext(r)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_topic_that_is_deleted_and_made_again_is_read_on(run: Run, real_cluster: Any, at_once: bool) -> None:
    async def test() -> None:
        servers = real_cluster.servers
        async with Admin(servers) as admin, Producer(servers=servers) as producer:
            await producer.send("orders", b"1")
            async with Reader("orders", servers=servers) as r:
                assert [message.body for message in await anext(r)] == [b"1"]
                await admin.delete_topic("orders")
                if not at_once:
                    with pytest.raises(QueueNotFound):
                        await r.bounds()
                    with anyio.move_on_after(0.1):
                        raise AssertionError(await anext(r))
                await producer.send("orders", b"2")
                with anyio.fail_after(PATIENCE_S):
                    assert [message.body for message in await anext(r)] == [b"2"]

    run(test)


def test_one_that_is_to_end_says_that_its_topic_was_deleted(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        for broker in cluster.brokers:
            broker.refuse = lambda request: QueueNotFound("deleted") if isinstance(request, Pull) else None
        async with reader(cluster, until_end=True) as r:
            with pytest.raises(QueueNotFound), anyio.fail_after(PATIENCE_S):
                await anext(r)

    run(test)


def test_queues_are_assigned_sought_paused_and_resumed_and_positions_follow(run: Run, cluster: LinkedCluster) -> None:
    first, second = MessageQueue("broker-1", "orders", 2), MessageQueue("broker-0", "orders", 3)

    async def bodies(r: Reader, count: int) -> list[bytes]:
        got: list[bytes] = []
        with anyio.fail_after(PATIENCE_S):
            while len(got) < count:
                got += [message.body for message in await r.poll(PATIENCE_S)]
        return sorted(got)

    async def test() -> None:
        async with reader(cluster, queues=[first], batch_max=1) as r:
            assert await bodies(r, 2) == [b"120", b"121"]
            r.pause(first)
            await r.assign([first, second])
            assert (r.queues, r.paused) == ((second, first), (first,))
            assert await bodies(r, 3) == [b"030", b"031", b"032"]
            assert await r.poll(0.01) == []
            assert r.positions == {first: 2, second: 3}
            await r.seek(first, 1)
            r.resume(first)
            assert await bodies(r, 2) == [b"121", b"122"]
            for wrong in ([first, MessageQueue("broker-9", "orders", 0)], [9]):
                with pytest.raises(QueueNotFound):
                    await r.assign(wrong)
            assert r.queues == (second, first), "nothing has changed"
            await r.assign([second])
            put(cluster.brokers[1], b"unread", queue=2)
            put(cluster.brokers[0], b"033", queue=3)
            assert await bodies(r, 1) == [b"033"]
            for use in (r.pause, r.resume, lambda queue: r.pause([second, queue])):
                with pytest.raises(QueueNotFound, match="is not read here"):
                    use(first)
            await r.assign(None)
            assert len(r.queues) == 8
            assert r.positions[second] == 4

    run(test)


def test_one_that_is_to_end_reads_on_where_it_is_sought(run: Run, cluster: LinkedCluster) -> None:
    async def test() -> None:
        async with reader(cluster, queues=[QUEUE], until_end=True) as r:
            for offset in (0, 2, 1):
                await r.seek(QUEUE, offset)
                assert [message.offset async for message in r.messages()] == list(range(offset, 3))
                assert await r.poll(PATIENCE_S) == []

    run(test)


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_queues_that_are_made_later_are_read_from_their_beginning(start: Any) -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    async with reader(cluster, start=start) as r:
        assert len(r.queues) == 4
        broker.ask(ChangeTopic("orders", queues=5))
        broker.set_time(1 << 45)
        put(broker, b"new", queue=4)
        assert [message.body for message in await anext(r)] == [b"new"]
        assert len(r.queues) == 5
    async with reader(cluster, queues=[0]) as r:
        assert await r.poll(100) == []
        assert len(r.queues) == 1
