"""Group members against small brokers: batches, commits, rebalances, seeks; on asyncio and on trio."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
import trio

from penstock.client.consumer import Consumer
from penstock.clock import Clock
from penstock.errors import (
    Fenced,
    InvalidRequest,
    InvalidTopic,
    LogReplaced,
    OffsetOutOfRange,
    PenstockError,
    QueueNotFound,
    TimedOut,
    Unavailable,
)
from penstock.protocol.message import record_body
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup, LeaveGroup
from penstock.protocol.requests.messages import Pull, QueryBounds
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.retries import SendBack
from penstock.protocol.requests.topics import DeleteTopic
from tests.patience import PATIENCE_S
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster, all_refuse
from tests.penstock.producing import put

Run = Callable[..., Any]

QUEUE = MessageQueue("broker-0", "orders", 0)


def consumer(cluster: LinkedCluster, **given: Any) -> Consumer:
    given.setdefault("start", "earliest")
    return Consumer(given.pop("group", "g"), "orders", servers=LinkedCluster.SERVERS, links=cluster, **given)


class VirtualClock(Clock):
    """The test's clock, which jumps."""

    def monotonic(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return 0


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [str(at).encode() for at in range(start, start + count)]


def forget(broker: LinkedBroker, way: str) -> None:
    """The broker knows no member any more."""
    if way == "restart":
        broker.begin_anew()
    else:
        broker.expel("g")


def hold_back_joins_until(broker: LinkedBroker, kind: type) -> None:
    """Refuses joins until such a request has come."""
    before = len(asked(broker, kind))

    def refuse(request: Request) -> PenstockError | None:
        early = isinstance(request, JoinGroup) and len(asked(broker, kind)) == before
        return Unavailable("not yet") if early else None

    broker.refuse = refuse


async def bodies(consumer: Consumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    with anyio.fail_after(PATIENCE_S):
        while len(got) < count:
            got += [message.body for message in await anext(consumer)]
    return got


def committed(cluster: LinkedCluster, group: str = "g") -> dict[str, int]:
    return {queue: offset for queue, offset in cluster.brokers[0].positions(group).items() if offset}


def asked(broker: LinkedBroker, kind: type) -> Sequence[Any]:
    return [request for request in broker.asked if isinstance(request, kind)]


def test_every_message_of_every_queue_arrives_and_a_commit_stores_how_far(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    for queue in range(4):
        put(cluster.brokers[0], *numbered(10, queue * 10), queue=queue)

    async def test() -> None:
        async with consumer(cluster, batch_max=3) as c:
            assert sorted(await bodies(c, 40)) == sorted(numbered(40))
            await c.commit()

    run(test)
    assert committed(cluster) == {f"orders:{queue}": 10 for queue in range(4)}


def test_messages_that_come_later_wake_the_consumer(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])

    async def test() -> None:
        async with consumer(cluster) as c, anyio.create_task_group() as tasks:
            got: list[bytes] = []

            async def take() -> None:
                got.extend(await bodies(c, 1))

            tasks.start_soon(take)
            await anyio.sleep(0.01)
            put(cluster.brokers[0], b"late")
        assert got == [b"late"]

    run(test)


def test_what_was_not_committed_comes_again(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(4))

    async def test() -> None:
        async with consumer(cluster, batch_max=2) as c:
            await bodies(c, 2)
            await c.commit()
            await bodies(c, 2)
        async with consumer(cluster) as c:
            assert await bodies(c, 2) == numbered(2, 2)

    run(test)


def test_a_commit_covers_exactly_the_messages_that_the_stream_returned(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(5))

    async def test() -> None:
        async with consumer(cluster) as c:
            at = 0
            async for message in c.messages():
                assert message.body == str(at).encode()
                assert (message.topic, message.queue, message.offset) == (
                    "orders",
                    MessageQueue("broker-0", "orders", 0),
                    at,
                )
                at += 1
                if at == 3:
                    break
            await c.commit()

    run(test)
    assert committed(cluster) == {"orders:0": 3}


def test_latest_begins_at_the_end_and_a_takeover_skips_nothing(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], b"old")

    async def test() -> None:
        async with consumer(cluster, start="latest") as c:
            put(cluster.brokers[0], b"new")
            assert await bodies(c, 1) == [b"new"]
        async with consumer(cluster, start="latest") as c:
            assert await bodies(c, 1) == [b"new"]

    run(test)


def test_poll_returns_nothing_when_nothing_comes(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])

    async def test() -> None:
        async with consumer(cluster) as c:
            assert await c.poll(0.01) == []
            with pytest.raises(InvalidRequest, match="wait_s is a number of seconds"):
                await c.poll(float("nan"))
            put(cluster.brokers[0], b"x")
            assert [message.body for message in await c.poll(5)] == [b"x"]

    run(test)


def test_leaving_the_block_leaves_the_group(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])

    async def test() -> None:
        with pytest.raises(KeyError):
            async with consumer(cluster):
                raise KeyError("mine")

    run(test)
    assert cluster.brokers[0].members("g") == []


def test_two_members_share_the_queues_and_one_that_leaves_gives_them_back(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])

    async def test() -> None:
        async with consumer(cluster) as first:
            assert len(first.assignment) == 4
            async with consumer(cluster) as second:
                await until(lambda: len(first.assignment) == 2)
                assert sorted(first.assignment + second.assignment) == [
                    MessageQueue("broker-0", "orders", at) for at in range(4)
                ]
            await until(lambda: len(first.assignment) == 4)

    run(test)


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not true():  # noqa: ASYNC110 - what we wait for has no event to show
            await anyio.sleep(0.001)


def test_a_revoked_queue_is_fenced_at_commit_and_its_messages_go_to_the_new_holder(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    for queue in range(4):
        put(cluster.brokers[0], f"q{queue}".encode(), queue=queue)

    async def test() -> None:
        async with consumer(cluster) as first:
            assert len(await bodies(first, 4)) == 4
            async with consumer(cluster) as second:
                await until(lambda: len(first.assignment) == 2)
                with pytest.raises(Fenced, match=r"this member of group g lost orders:\d, orders:\d before"):
                    await first.commit()
                lost = sorted(await bodies(second, 2))
                await second.commit()
                await first.commit()  # said once
                kept = {f"q{one.number}".encode() for one in first.assignment}
                assert kept | set(lost) == {b"q0", b"q1", b"q2", b"q3"}

    run(test)
    assert committed(cluster) == {f"orders:{queue}": 1 for queue in range(4)}


def test_what_was_read_ahead_of_a_revoked_queue_is_not_delivered(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])

    async def test() -> None:
        async with consumer(cluster) as first:
            for queue in range(4):
                put(cluster.brokers[0], f"q{queue}".encode(), queue=queue)
            await anyio.sleep(0.01)  # read ahead, not handed out
            async with consumer(cluster) as second:
                await until(lambda: len(first.assignment) == 2)
                got = await bodies(first, 2) + await bodies(second, 2)
                assert sorted(got) == [b"q0", b"q1", b"q2", b"q3"]
                assert await first.poll(0.01) == []
                await first.commit()

    run(test)


def test_a_revoked_queue_ends_within_a_stream_of_messages(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(10), queue=3)

    async def test() -> None:
        async with consumer(cluster) as first:
            stream = first.messages()
            before = [(await anext(stream)).body for _ in range(3)]
            mine = set(first.assignment)
            async with consumer(cluster) as second:
                await until(lambda: len(first.assignment) == 2)
                if MessageQueue("broker-0", "orders", 3) in first.assignment:
                    assert (await anext(stream)).body == b"3"
                    return
                with anyio.move_on_after(0.02) as nothing:
                    await anext(stream)
                assert nothing.cancelled_caught
                assert await bodies(second, 10) == numbered(10)
            assert before == numbered(3)
            assert len(mine) == 4

    for _ in range(4):  # which member keeps the queue is the broker's choice
        run(test)


def test_a_commit_that_crosses_a_rebalance_is_repeated_for_what_is_still_held(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(3))
    broker = cluster.brokers[0]

    async def test() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            refusals = iter([Fenced("of an older generation")])
            broker.refuse = lambda request: next(refusals, None) if isinstance(request, CommitOffsets) else None
            await c.commit()

    run(test)
    assert committed(cluster) == {"orders:0": 3}


@pytest.mark.parametrize("way", ["restart", "end of session"])
@pytest.mark.parametrize("by", ["commit", "message", "nack"])
def test_what_nobody_else_had_is_committed_after_the_broker_has_forgotten_its_member(
    run: Run, way: str, by: str
) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(3))

    async def test() -> None:
        async with consumer(cluster, batch_max=3) as c:
            batch = await anext(c)
            hold_back_joins_until(cluster.brokers[0], CommitOffsets if by != "nack" else SendBack)
            forget(cluster.brokers[0], way)
            if by == "nack":
                await c.nack(batch[0])
            await c.commit(batch[-1] if by == "message" else None)
            put(cluster.brokers[0], b"new")
            got = await bodies(c, 2 if by == "nack" else 1)
            assert sorted(got) == ([b"0", b"new"] if by == "nack" else [b"new"])

    run(test)
    assert committed(cluster) == {"orders:0": 3}


@pytest.mark.parametrize("way", ["restart", "end of session"])
@pytest.mark.parametrize("by", ["commit", "message"])
def test_a_late_owner_never_commits_what_somebody_else_had_while_the_broker_did_not_know_it(
    run: Run, way: str, by: str
) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(3))

    async def test() -> None:
        async with consumer(cluster, batch_max=3) as c:
            batch = await anext(c)
            hold_back_joins_until(cluster.brokers[0], CommitOffsets)
            forget(cluster.brokers[0], way)
            cluster.brokers[0].commit("g", orders_0=1)  # somebody who has gone again
            with pytest.raises(Fenced, match="lost orders:0"):
                await c.commit(batch[-1] if by == "message" else None)
            assert committed(cluster) == {"orders:0": 1}
            assert await bodies(c, 2) == numbered(2, 1)
            await c.commit()

    run(test)
    assert committed(cluster) == {"orders:0": 3}


def test_a_failed_commit_is_tried_again_until_the_deadline(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], b"x")
    failures = iter([Unavailable("away")] * 2)
    cluster.brokers[0].refuse = lambda request: next(failures, None) if isinstance(request, CommitOffsets) else None

    async def test() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 1)
            await c.commit()

    run(test)
    assert committed(cluster) == {"orders:0": 1}


def test_seek_goes_back_and_forth(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(10))

    async def test() -> None:
        async with consumer(cluster, batch_max=5) as c:
            assert await bodies(c, 10) == numbered(10)
            await c.seek(QUEUE, 7)
            assert await bodies(c, 3) == numbered(3, 7)
            await c.seek(QUEUE, "earliest")
            assert (await bodies(c, 5))[:5] == numbered(5)
            await c.seek(QUEUE, "latest")
            assert await c.poll(0.01) == []
            put(cluster.brokers[0], b"new")
            assert await bodies(c, 1) == [b"new"]
            with pytest.raises(OffsetOutOfRange, match="0 to 11, not 12"):
                await c.seek(QUEUE, 12)
            with pytest.raises(QueueNotFound, match="does not hold orders:9"):
                await c.seek(MessageQueue("broker-0", "orders", 9), 0)

    run(test)


def test_messages_that_retention_removed_are_passed(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(6))

    async def test() -> None:
        async with consumer(cluster, batch_max=2) as c:
            await bodies(c, 2)
            await c.commit()
        cluster.brokers[0].retire("orders")
        put(cluster.brokers[0], *numbered(4, 6))
        async with consumer(cluster) as c:
            assert await bodies(c, 4) == numbered(4, 6)

    run(test)


def test_the_group_is_joined_at_every_broker(run: Run) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    put(cluster.brokers[0], b"a")
    put(cluster.brokers[1], b"b")

    async def test() -> None:
        async with consumer(cluster) as c:
            assert len(c.assignment) == 8
            assert sorted(await bodies(c, 2)) == [b"a", b"b"]
            assert set((await c.lag()).values()) == {0}
            await c.commit()

    run(test)
    assert [broker.positions("g").get("orders:0") for broker in cluster.brokers] == [1, 1]


async def test_a_broker_that_comes_later_is_joined_and_one_that_goes_is_left() -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    cluster.live = cluster.brokers[:1]
    put(cluster.brokers[1], b"b")
    async with consumer(cluster, clock=VirtualClock()) as c:
        assert len(c.assignment) == 4
        cluster.live = cluster.brokers
        await trio.sleep(40)
        assert await bodies(c, 1) == [b"b"]
        put(cluster.brokers[0], b"a")
        assert await bodies(c, 1) == [b"a"]
        cluster.live = cluster.brokers[1:]
        await trio.sleep(40)
        assert {at.broker for at in c.assignment} == {"broker-1"}
        assert cluster.brokers[0].members("g") == []
        with pytest.raises(Fenced, match="lost orders:0"):
            await c.commit()
        await c.commit()  # it is told once
    assert asked(cluster.brokers[0], LeaveGroup)
    assert committed(cluster) == {}


async def test_a_broker_that_fails_for_a_while_is_read_again_afterwards() -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    async with consumer(cluster) as c:
        broker.refuse = lambda request: Unavailable("away")
        put_refused = numbered(1)
        await trio.sleep(120)
        broker.refuse = lambda request: None
        put(broker, *put_refused)
        assert await bodies(c, 1) == put_refused
        await c.commit()


async def test_a_topic_that_is_not_there_is_waited_for_told_once_and_read_from_its_beginning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = LinkedCluster()
    async with consumer(cluster, clock=VirtualClock(), start="latest") as c:
        assert c.assignment == ()
        await trio.sleep(30)
        cluster.brokers[0].create("orders")
        put(cluster.brokers[0], b"first")
        assert await bodies(c, 1) == [b"first"]
        await c.commit()
    assert committed(cluster) == {"orders:0": 1}
    told = [record.getMessage() for record in caplog.records if "waiting" in record.getMessage()]
    assert told == ["no live broker has topic 'orders'; waiting for it"]


async def test_a_pattern_finds_topics_that_match_now_and_later_but_none_of_the_systems() -> None:
    cluster = LinkedCluster(topics=["plant-a", "my-plant-a", "%DLQ%plant-g", "%24SYS"])
    async with Consumer(
        "g", re.compile("plant-.*|%.*"), servers=LinkedCluster.SERVERS, links=cluster, clock=VirtualClock()
    ) as c:
        assert {queue.topic for queue in c.assignment} == {"plant-a"}
        cluster.brokers[0].create("plant-b")
        await trio.sleep(40)
        assert {queue.topic for queue in c.assignment} == {"plant-a", "plant-b"}


async def test_a_pattern_that_nothing_matches_yet_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    cluster = LinkedCluster(topics=["other"])
    async with Consumer(
        "g", re.compile("orders"), servers=LinkedCluster.SERVERS, links=cluster, clock=VirtualClock()
    ) as c:
        await trio.sleep(20)
        cluster.brokers[0].create("orders")
        put(cluster.brokers[0], b"x")
        assert await bodies(c, 1) == [b"x"]
    assert [one.getMessage() for one in caplog.records] == ["no topic matches 'orders'; waiting for one"]


def test_reading_begins_at_a_time_where_nothing_was_committed(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    for at in range(5):
        cluster.brokers[0].set_time(1_700_000_000_000 + at)
        put(cluster.brokers[0], str(at).encode())
    when = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=2)

    async def test() -> None:
        for start in (1_700_000_000_002, when):
            async with consumer(cluster, start=start) as c:
                assert await bodies(c, 3) == numbered(3, 2)
                await c.seek(QUEUE, when + timedelta(milliseconds=1))
                assert await bodies(c, 2) == numbered(2, 3)
                await c.seek_time(when)
                assert await bodies(c, 3) == numbered(3, 2)

    run(test)


def test_a_commit_of_a_message_covers_what_is_before_it_and_never_goes_back(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(10))

    async def test() -> None:
        async with consumer(cluster) as c:
            batch = await anext(c)
            await c.commit(batch[6])
            await c.commit(batch[3])
            assert committed(cluster) == {"orders:0": 7}
            await c.seek(QUEUE, 2)
            await c.commit((await anext(c))[0])  # it was sought on purpose
            assert committed(cluster) == {"orders:0": 3}

    run(test)


def test_a_commit_of_offsets_stores_exactly_those(run: Run) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    for broker in cluster.brokers:
        put(broker, *numbered(10))
    second = MessageQueue("broker-1", "orders", 0)

    async def test() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 20)
            await c.commit({QUEUE: 4, second: 9})
            await c.commit({QUEUE: 2})
            with pytest.raises(Fenced, match="lost orders:0 before the commit"):
                await c.commit({MessageQueue("broker-9", "orders", 0): 1})
            with pytest.raises(Fenced, match="lost orders:9 before the commit"):
                await c.commit({MessageQueue("broker-0", "orders", 9): 1})

    run(test)
    assert [broker.positions("g")["orders:0"] for broker in cluster.brokers] == [2, 9]


def test_a_paused_queue_waits_and_loses_nothing(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(9))
    put(cluster.brokers[0], b"other", queue=1)

    async def test() -> None:
        async with consumer(cluster, batch_max=3) as c:
            stream = c.messages()
            await c.seek(MessageQueue("broker-0", "orders", 1), "latest")
            assert [(await anext(stream)).body for _ in range(2)] == numbered(2)
            c.pause(QUEUE)
            c.pause([QUEUE])
            assert c.paused == (QUEUE,)
            put(cluster.brokers[0], b"while", queue=1)
            assert (await anext(stream)).body == b"while"
            assert await c.poll(0.01) == []
            c.resume(QUEUE)
            assert c.paused == ()
            assert [(await anext(stream)).body for _ in range(7)] == numbered(7, 2)
            await c.commit()

    run(test)
    assert committed(cluster) == {"orders:0": 9, "orders:1": 2}


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("orders:0", "commit takes a received message or {queue: offset}, not 'orders:0'"),
        ({"orders:0": 1}, "a queue is a MessageQueue, not 'orders:0'"),
        ({QUEUE: -1}, "an offset is a whole number from 0 on, not -1"),
        ({QUEUE: True}, "an offset is a whole number"),
    ],
)
async def test_a_commit_of_something_else_is_refused(what: Any, told: str) -> None:
    async with consumer(LinkedCluster(topics=["orders"])) as c:
        with pytest.raises(InvalidRequest, match=re.escape(told)):
            await c.commit(what)
        with pytest.raises(InvalidRequest, match="MessageQueue"):
            c.pause("orders:0")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="MessageQueue"):
            await c.seek("orders:0", 0)  # type: ignore[arg-type]


async def test_a_broker_that_does_not_answer_the_join_is_an_error_after_the_deadline() -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].silent = lambda request: isinstance(request, JoinGroup)
    with pytest.raises(TimedOut):
        async with consumer(cluster, timeout_s=5):
            pass


async def test_a_join_that_is_refused_for_good_is_an_error_at_once() -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse = lambda request: InvalidTopic("no") if isinstance(request, JoinGroup) else None
    began = trio.current_time()
    with pytest.raises(InvalidTopic):
        async with consumer(cluster):
            pass
    assert trio.current_time() == began


async def test_a_pull_that_is_refused_for_good_is_raised_to_the_reader() -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse = lambda request: InvalidTopic("no") if isinstance(request, Pull) else None
    async with consumer(cluster) as c:
        with pytest.raises(InvalidTopic):
            await anext(c)


def test_read_ahead_is_bounded_to_two_pulls_per_queue(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(300))

    def pulls() -> list[int]:
        return [pull.offset for pull in asked(cluster.brokers[0], Pull) if pull.queue == "orders:0"]

    async def test() -> None:
        async with consumer(cluster, batch_max=10) as c:
            await anyio.sleep(0.01)
            assert pulls() == [0]
            for taken in range(1, 9):  # the first pull brings eight batches, the second one goes out with the first
                assert len(await anext(c)) == 10
                await anyio.sleep(0.01)
                assert pulls() == [0, 80], taken
            await anext(c)
            await anyio.sleep(0.01)
            assert pulls() == [0, 80, 160]

    run(test)


def test_wrong_use_says_what_is_right(run: Run) -> None:
    async def test() -> None:
        with pytest.raises(InvalidRequest, match="async with"):
            await anext(consumer(LinkedCluster()))

    run(test)
    with pytest.raises(InvalidRequest, match="one topic or more"):
        Consumer("g", [])


@pytest.mark.parametrize("start", ["Latest", "begin", 0, None])
def test_a_start_that_is_none_is_refused_before_anything_is_read(start: Any) -> None:
    with pytest.raises(InvalidRequest, match="start is 'earliest', 'latest', a datetime"):
        consumer(LinkedCluster(), start=start)


def test_a_text_is_one_tag(run: Run) -> None:
    async def test() -> None:
        cluster = LinkedCluster(topics=["orders"])
        put(cluster.brokers[0], b"yes", tag="paid")
        put(cluster.brokers[0], b"no", tag="p")
        async with consumer(cluster, tags="paid") as c:
            assert await bodies(c, 1) == [b"yes"]

    run(test)


async def test_outside_its_block_a_consumer_says_so() -> None:
    c = consumer(LinkedCluster(topics=["orders"]))
    uses: list[Callable[[], Any]] = [
        c.commit,
        c.lag,
        lambda: c.seek(QUEUE, 0),
        lambda: c.seek_time(0),
    ]
    for opened in (False, True):
        if opened:
            async with c:
                pass
        for use in uses:
            with pytest.raises(InvalidRequest, match="this consumer is not open"):
                await use()


async def test_a_topic_that_is_deleted_and_made_again_goes_from_the_members_and_comes_back() -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    async with consumer(cluster) as c:
        broker.refuse = lambda request: QueueNotFound("deleted") if isinstance(request, Pull) else None
        put(broker, *numbered(2))
        await trio.sleep(60)
        broker.refuse = lambda request: None
        assert await bodies(c, 2) == numbered(2)


async def test_a_queue_that_goes_while_a_member_looks_where_it_begins_is_no_error() -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    refused: list[Request] = []

    def gone(request: Request) -> PenstockError | None:
        if isinstance(request, QueryBounds) and not refused:
            refused.append(request)
            broker.ask(DeleteTopic("orders"))
            broker.create("orders")
            put(broker, *numbered(1))
            return QueueNotFound("deleted")
        return None

    broker.refuse = gone
    async with consumer(cluster) as c:
        assert await bodies(c, 1) == numbered(1)
    assert refused


async def test_a_log_that_was_replaced_is_an_error_however_much_it_has_grown_since() -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    put(broker, *numbered(3))
    for start in ("earliest", "latest"):
        before = broker.log_id
        async with consumer(cluster, start=start, clock=VirtualClock()) as c:
            put(broker, b"x")
            await anext(c)
            broker.replace_log()
            put(broker, *numbered(9))
            with pytest.raises(LogReplaced, match=before):
                await bodies(c, 99)


async def test_a_member_that_joins_again_at_another_log_says_so_before_it_reads() -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.silent = lambda request: isinstance(request, Pull)
    async with consumer(cluster, start="latest", clock=VirtualClock(), session_s=3) as c:
        before = broker.log_id
        broker.replace_log()
        put(broker, *numbered(5))
        with pytest.raises(LogReplaced, match=f"had log {before} and has log {broker.log_id} now"):
            await anext(c)
        assert asked(broker, JoinGroup)[0].topics == ("orders", "%RETRY%g")


async def test_a_first_attempt_that_finds_no_server_says_so_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse = lambda request: Unavailable("no server at h:1: connection refused")
    with pytest.raises(Unavailable, match="connection refused"):
        async with consumer(cluster, clock=VirtualClock(), timeout_s=8):
            pass
    (told,) = [record.getMessage() for record in caplog.records]
    assert "no server at h:1: connection refused; trying for another" in told


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Consumer(["orders"], "group"),
            "group is a str, not ['orders'] (the group comes first:",
        ),
        (lambda: Consumer("", "orders"), "group is empty"),
        (lambda: Consumer("g", "orders", timeout_s=-1), "timeout_s is at least 0 s, not -1"),
        (lambda: Consumer("g", "orders", session_s=0), "session_s is at least 1 s, not 0"),
        (lambda: Consumer("g", "orders", batch_max=0), "batch_max is a whole number from 1 on, not 0"),
        (lambda: Consumer("g", "orders", prefetch_bytes="1"), "prefetch_bytes is a whole number from 1 on, not '1'"),
        (lambda: Consumer("g", 7), "topics are named by str, not 7"),
        (lambda: Consumer("g", ["a", 7]), "a topic is a str, not 7"),
    ],
)
def test_wrong_arguments_are_refused_at_once(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        make()


def test_a_plain_with_says_what_is_right() -> None:
    with pytest.raises(InvalidRequest, match="a Consumer is opened by `async with`"):
        consumer(LinkedCluster()).__enter__()


def test_a_message_that_is_given_back_comes_again_and_is_a_dead_letter_at_its_last_attempt(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(3))

    async def test() -> None:
        async with consumer(cluster, start="latest", attempts_max=3) as c:
            first, again = [], []
            put(cluster.brokers[0], b"a", b"b")
            while len(first) < 2:
                first += await anext(c)
            for message in first:  # the first one makes the retry topic, which changes the generation
                await c.nack(message, 0.25, reason="not now")
            await c.commit()
            while len(again) < 2:
                again += await anext(c)
            assert [(one.body, one.attempts, one.queue.topic) for one in again] == [
                (b"a", 1, "%RETRY%g"),
                (b"b", 1, "%RETRY%g"),
            ]
            [third] = [await c.nack(again[0]) for _ in range(1)]
            [message] = await anext(c)
            assert (third.attempt, (await c.nack(message)).due_ms) == (2, 0)

    run(test)
    asked = [(one.offset, one.delay_ms, one.attempts_max, one.reason) for one in cluster.brokers[0].given_back]
    assert asked == [(3, 250, 3, "not now"), (4, 250, 3, "not now"), (0, -1, 3, ""), (2, -1, 3, "")]
    assert [record_body(one) for one in cluster.brokers[0].records("%DLQ%g:0")] == [b"a"]


def test_a_message_of_a_queue_that_went_elsewhere_is_not_given_back(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    put(cluster.brokers[0], *numbered(1))

    async def test() -> None:
        async with consumer(cluster) as c:
            [message] = await anext(c)
            c._members[message.queue.broker]._holdings.drop_all()
            with pytest.raises(Fenced, match="lost orders:0"):
                await c.nack(message)
            with pytest.raises(InvalidRequest, match="at most 3456000 s"):
                await c.nack(message, 1e9)

    run(test)
    assert cluster.brokers[0].given_back == []


def test_every_broadcast_client_reads_all_and_goes_on_where_it_was_also_beside_its_ghost(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    for queue in range(4):
        put(cluster.brokers[0], *numbered(5, queue * 5), queue=queue)

    async def test() -> None:
        async with (
            consumer(cluster, broadcast=True, client="one") as one,
            consumer(cluster, broadcast=True, client="two") as two,
        ):
            assert sorted(await bodies(one, 20)) == sorted(await bodies(two, 20)) == sorted(numbered(20))
            await one.commit()
        ghost = JoinGroup("g@one", "one", ("orders", "%RETRY%g%40one"))  # it was killed, and its session lasts
        cluster.brokers[0].ask(ghost)
        put(cluster.brokers[0], b"new")
        async with consumer(cluster, broadcast=True, client="one") as again:
            assert len(again.assignment) == 4
            assert await bodies(again, 1) == [b"new"]
        async with consumer(cluster, broadcast=True, client="two") as again:
            assert len(await bodies(again, 21)) == 21

    run(test)
    assert {one.group for one in asked(cluster.brokers[0], JoinGroup)} == {"g@one", "g@two"}


def test_a_broadcast_client_has_a_name_and_only_such_a_one() -> None:
    all_refuse([lambda: consumer(LinkedCluster(), broadcast=True)], "client is empty")
    for client in ("a/b", "a@b"):
        all_refuse([lambda client=client: consumer(LinkedCluster(), broadcast=True, client=client)], "client .* holds")
    all_refuse([lambda: consumer(LinkedCluster(), broadcast="x", client="one")], "broadcast is True or False")
    all_refuse([lambda: consumer(LinkedCluster(), client="one")], "goes with broadcast=True")
