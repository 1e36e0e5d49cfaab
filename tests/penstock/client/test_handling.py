"""Handlers against a small broker: what is finished is passed, what fails is given back, nothing is skipped."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
import trio
import trio.testing

from penstock.client.attempts import Retry
from penstock.client.consumer import Consumer
from penstock.errors import Damaged, InvalidRequest, LogReplaced, StorageFull
from penstock.protocol.message import record_body
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup
from penstock.protocol.requests.retries import SendAllBack
from tests.patience import PATIENCE_S
from tests.penstock.linked_cluster import LinkedCluster
from tests.penstock.producing import put

Run = Callable[..., Any]


def filled(*per_queue: int) -> LinkedCluster:
    cluster = LinkedCluster(topics=["orders"])
    for queue, count in enumerate(per_queue):
        put(cluster.brokers[0], *[f"{queue}-{at}".encode() for at in range(count)], queue=queue)
    return cluster


def consumer(cluster: LinkedCluster, **given: Any) -> Consumer:
    return Consumer("g", "orders", servers=LinkedCluster.SERVERS, links=cluster, start="earliest", **given)


def committed(cluster: LinkedCluster) -> dict[str, int]:
    return {queue: offset for queue, offset in cluster.brokers[0].positions("g").items() if offset}


class Work:
    """A handler that notes what it has finished, and ends when it was all."""

    def __init__(
        self, consumer: Consumer, count: int, fails: Callable[[ReceivedMessage], None] = lambda _: None
    ) -> None:
        self.done: list[ReceivedMessage] = []
        self.at_once = self.most_at_once = 0
        self._consumer = consumer
        self._count = count
        self._fails = fails

    async def __call__(self, message: ReceivedMessage) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await anyio.lowlevel.checkpoint()
            self._fails(message)
        finally:
            self.at_once -= 1
        self.done.append(message)
        if len(self.done) == self._count:
            self._consumer.stop()

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.done)


def test_every_message_is_handled_once_several_at_a_time_and_all_are_committed(run: Run) -> None:
    cluster = filled(30, 5, 40)

    async def test() -> None:
        async with consumer(cluster, batch_max=7) as c:
            work = Work(c, 75)
            await c.handle(work, concurrency=4)
            assert work.most_at_once == 4
            assert len(set(work.bodies)) == 75
            assert await c.poll(0) == []

    run(test)
    assert committed(cluster) == {"orders:0": 30, "orders:1": 5, "orders:2": 40}


def test_one_at_a_time_keeps_the_order_of_each_queue(run: Run) -> None:
    cluster = filled(20, 20)

    async def test() -> None:
        async with consumer(cluster, batch_max=3) as c:
            work = Work(c, 40)
            await c.handle(work)
            for queue in (0, 1):
                assert [one.offset for one in work.done if one.queue.number == queue] == list(range(20))

    run(test)


def test_what_a_handler_raises_gives_the_message_back_with_the_reason(run: Run) -> None:
    cluster = filled(6)

    def fails(message: ReceivedMessage) -> None:
        if message.body == b"0-2" and message.attempts < 2:
            raise ValueError(f"attempt {message.attempts}")
        if message.body == b"0-4" and not message.attempts:
            raise Retry(7, "too early")

    async def test() -> None:
        async with consumer(cluster) as c:
            work = Work(c, 6, fails)
            await c.handle(work, concurrency=2)
            assert Counter(work.bodies) == Counter(f"0-{at}".encode() for at in range(6))

    run(test)
    asked = {(one.queue, one.delay_ms, one.reason) for one in cluster.brokers[0].given_back}
    assert asked == {
        ("orders:0", -1, "ValueError: attempt 0"),
        ("%RETRY%g:0", -1, "ValueError: attempt 1"),
        ("orders:0", 7000, "too early"),
    }
    assert committed(cluster) == {"orders:0": 6, "%RETRY%g:0": 3}


def test_no_position_passes_a_message_before_the_broker_has_it_back(run: Run) -> None:
    cluster = filled(4)
    broker = cluster.brokers[0]
    broker.silent = lambda request: isinstance(request, SendAllBack)

    def fails(message: ReceivedMessage) -> None:
        if message.offset == 1:
            raise ValueError

    async def test() -> None:
        async with consumer(cluster) as c, anyio.create_task_group() as tasks:
            work = Work(c, 99, fails)
            tasks.start_soon(c.handle, work)
            await anyio.sleep(1)
            assert any(isinstance(request, SendAllBack) for request in broker.asked)
            assert (len(work.done), committed(cluster)) == (3, {"orders:0": 1})
            tasks.cancel_scope.cancel()

    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))
    assert committed(cluster) == {"orders:0": 1}


def test_a_message_that_the_broker_cannot_take_back_is_handled_again_here(run: Run) -> None:
    cluster = filled(3)
    refusals = iter([Damaged("the frame")])
    cluster.brokers[0].refuse = lambda request: next(refusals, None) if isinstance(request, SendAllBack) else None
    tries = Counter[int]()

    def fails(message: ReceivedMessage) -> None:
        tries[message.offset] += 1
        if message.offset == 1 and tries[1] == 1:
            raise ValueError

    async def test() -> None:
        async with consumer(cluster) as c:
            work = Work(c, 3, fails)
            await c.handle(work)
            assert work.bodies == [b"0-0", b"0-1", b"0-2"]

    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (tries[1], cluster.brokers[0].given_back) == (2, [])
    assert committed(cluster) == {"orders:0": 3}


def test_what_was_not_begun_when_the_handler_is_stopped_comes_again(run: Run) -> None:
    cluster = filled(10)

    async def test() -> None:
        async with consumer(cluster) as c:
            await c.handle(Work(c, 4), concurrency=2)
            stopped = committed(cluster)["orders:0"]
            assert 4 <= stopped <= 5
            assert [one.offset for one in await anext(c)] == list(range(stopped, 10))

    run(test)


def test_a_handler_that_does_not_end_is_cancelled_and_its_message_comes_again(run: Run) -> None:
    cluster = filled(3)

    async def work(message: ReceivedMessage) -> None:
        if message.offset == 1:
            c.stop()
            await anyio.sleep_forever()

    async def test() -> None:
        nonlocal c
        async with consumer(cluster) as c:
            await c.handle(work, concurrency=1, stop_s=3)
            assert [one.offset for one in await anext(c)] == [1, 2]

    c = consumer(cluster)
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))
    assert committed(cluster) == {"orders:0": 1}


def test_a_cancelled_handler_leaves_what_it_finished_committed(run: Run) -> None:
    cluster = filled(5)

    async def test() -> None:
        async with consumer(cluster) as c:
            with anyio.CancelScope() as scope:

                async def work(message: ReceivedMessage) -> None:
                    if message.offset == 3:
                        scope.cancel()
                        await anyio.sleep_forever()

                await c.handle(work)

    run(test)
    assert committed(cluster) == {"orders:0": 3}


def test_one_slow_message_holds_up_no_more_than_the_span_and_other_queues_go_on() -> None:
    cluster = filled(40, 40)
    begun: Counter[int] = Counter()

    async def work(message: ReceivedMessage) -> None:
        begun[message.queue.number] += 1
        if message.queue.number == message.offset == 0:
            await anyio.sleep(1)
            assert begun == {0: 4, 1: 40}
        if begun.total() == 80:
            c.stop()

    async def test() -> None:
        nonlocal c
        async with consumer(cluster, batch_max=2) as c:
            await c.handle(work, concurrency=8, span_max=4)

    c = consumer(cluster)
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))
    assert committed(cluster) == {"orders:0": 40, "orders:1": 40}


@pytest.mark.parametrize("limit", [{"messages_max": 4}, {"bytes_max": 12}])
def test_no_more_is_taken_than_may_be_unfinished(limit: dict[str, int]) -> None:
    cluster = filled(40)
    begun: list[int] = []

    async def work(message: ReceivedMessage) -> None:
        begun.append(message.offset)
        await anyio.sleep(1)
        if len(begun) == 40:
            c.stop()

    async def test() -> None:
        nonlocal c
        async with consumer(cluster, batch_max=2) as c, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: c.handle(work, concurrency=8, **limit))
            await anyio.sleep(0.5)
            assert begun == [0, 1, 2, 3]

    c = consumer(cluster)
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))
    assert committed(cluster) == {"orders:0": 40}


def test_of_a_queue_that_went_elsewhere_nothing_more_is_begun_or_committed() -> None:
    cluster = filled(0, 0, 6, 6)
    broker, begun = cluster.brokers[0], list[tuple[int, int]]()

    async def work(message: ReceivedMessage) -> None:
        begun.append((message.queue.number, message.offset))
        if len(begun) == 2:
            broker.ask(JoinGroup("g", "other", ("orders",)))
            put(broker, b"last", queue=0)
            await anyio.sleep(1)
            raise ValueError("of no use")
        if message.body == b"last":
            c.stop()

    async def test() -> None:
        nonlocal c
        async with consumer(cluster) as c:
            await c.handle(work)

    c = consumer(cluster)
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))
    assert begun in ([(2, 0), (2, 1), (0, 0)], [(3, 0), (3, 1), (0, 0)])
    assert committed(cluster) == {"orders:0": 1}
    assert broker.given_back == []


def test_a_batch_handler_gives_back_what_it_names_and_all_where_it_raises(run: Run) -> None:
    cluster = filled(8)
    seen: list[list[int]] = []
    again: set[bytes] = set()

    async def test() -> None:
        async with consumer(cluster, batch_max=3) as c:

            async def work(messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage] | None:
                if messages[0].queue.topic == "%RETRY%g":
                    again.update(one.body for one in messages)
                    if len(again) == 3:
                        c.stop()
                    return None
                seen.append([one.offset for one in messages])
                if messages[0].offset >= 6:
                    raise ValueError("both")
                return [one for one in messages if one.offset == 4]

            await c.handle_batches(work)

    run(test)
    asked = sorted((one.offset, one.reason) for one in cluster.brokers[0].given_back)
    assert asked == [(4, "the handler did not finish it"), (6, "ValueError: both"), (7, "ValueError: both")]
    assert (seen, again) == ([[0, 1, 2], [3, 4, 5], [6, 7]], {b"0-4", b"0-6", b"0-7"})
    assert committed(cluster) == {"orders:0": 8, "%RETRY%g:0": 3}


def test_what_ends_the_reading_is_raised_and_a_wrong_handler_is_told_at_once(run: Run) -> None:
    cluster = filled(1)

    async def test() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(InvalidRequest, match="a handler is an async function"):
                await c.handle(print)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="concurrency is a whole number"):
                await c.handle(Work(c, 1), concurrency=0)

            async def work(message: ReceivedMessage) -> None:
                with pytest.raises(InvalidRequest, match="already runs a handler"):
                    await c.handle(work)
                c._intake().fail(LogReplaced("another log"))

            with pytest.raises(LogReplaced):
                await c.handle(work)

    run(test)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_and_whenever_the_consumer_is_replaced_nothing_is_skipped(seed: int) -> None:
    """A model: consumers come and go, handlers fail, sends back fail, queues move; each message is done at last."""
    rng = random.Random(seed)
    cluster = filled(*[rng.randint(0, 60) for _ in range(4)])
    broker = cluster.brokers[0]
    wanted = set(cluster.stored("orders"))
    done: set[bytes] = set()
    broker.refuse = lambda request: (
        StorageFull("no room") if isinstance(request, SendAllBack | CommitOffsets) and rng.random() < 0.2 else None
    )

    async def work(message: ReceivedMessage) -> None:
        await anyio.sleep(rng.choice([0, 0, 0.01, 0.3]))
        if rng.random() < 0.2:
            raise ValueError(message.offset)
        done.add(message.body)

    async def live(life_s: float) -> None:
        batch_max = rng.randint(1, 20)
        async with (
            consumer(cluster, batch_max=batch_max, timeout_s=30, attempts_max=1000) as c,
            anyio.create_task_group() as tasks,
        ):

            async def end() -> None:
                await anyio.sleep(life_s)
                if rng.random() < 0.5:
                    c.stop()
                else:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            await c.handle(work, concurrency=rng.randint(1, 6), messages_max=rng.randint(1, 50), stop_s=1)

    async def test() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(rng.randint(1, 4)):
                tasks.start_soon(live, rng.uniform(0, 4))
        for name, offset in committed(cluster).items():  # all that is passed is done, or comes again as a retry
            passed = {record_body(one) for one in broker.records(name)[:offset]}
            again = set(cluster.stored("%RETRY%g"))
            assert passed <= done | again
        while done != wanted:
            await live(5)

    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_handler_that_awaits_what_was_cancelled_has_failed_and_the_work_goes_on(ordered: bool) -> None:
    cluster = filled(6)
    failed: set[bytes] = set()

    async def test() -> None:
        cancelled = asyncio.ensure_future(asyncio.sleep(0))
        cancelled.cancel()
        async with consumer(cluster, ordered=ordered, retry_delays_s=[0]) as c:

            async def work(message: ReceivedMessage) -> None:
                if message.body not in failed:
                    failed.add(message.body)
                    await cancelled
                done.append(message.body)
                if len(done) == 6:
                    c.stop()

            done: list[bytes] = []
            with anyio.fail_after(PATIENCE_S):
                await c.handle(work, concurrency=2)
        assert sorted(done) == sorted(failed) == [f"0-{at}".encode() for at in range(6)]

    anyio.run(test)
    assert ordered or {one.reason for one in cluster.brokers[0].given_back} == {"CancelledError"}
