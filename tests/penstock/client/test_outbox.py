"""Attempts against small brokers: failures, deadlines, ends; on asyncio and on trio."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
import trio
import trio.testing

from penstock.client.outcomes import Outcome
from penstock.client.producer import Producer
from penstock.client.sending import Receipt, choose
from penstock.errors import (
    Busy,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    PenstockError,
    TimedOut,
    TooLarge,
    Unavailable,
)
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Appended, AppendRuns, PlacedRun
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.timers import SetTimers
from penstock.protocol.requests.topics import ChangeTopic
from tests.patience import PATIENCE_S
from tests.penstock.hand_clock import TrioClock
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster
from tests.penstock.producing import appended, appends, producer, unreachable_when_written

Run = Callable[..., Any]


def test_what_may_succeed_is_tried_again_with_the_same_id(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    failures = iter([Busy("full"), Busy("full")])
    cluster.brokers[0].refuse_record = lambda body: next(failures, None)

    async def test() -> Receipt:
        async with producer(cluster) as p:
            return await p.send("orders", b"x")

    receipt = run(test)
    sent = [message.id for message in appended(cluster.brokers[0])]
    assert sent == [receipt.id] * 3
    assert cluster.stored("orders") == [b"x"]


def test_an_error_that_no_repetition_mends_is_raised_at_once(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse_record = lambda body: TooLarge("no")

    async def test() -> None:
        async with producer(cluster) as p:
            with pytest.raises(TooLarge) as caught:
                await p.send("orders", b"x")
            assert not caught.value.unknown

    run(test)
    assert len(appends(cluster.brokers[0])) == 1


def test_a_message_without_a_key_goes_to_another_broker_when_one_fails(run: Run) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    cluster.brokers[1].refuse = unreachable_when_written(unknown=False)

    async def test() -> None:
        async with producer(cluster) as p:
            for at in range(6):
                assert (await p.send("orders", str(at).encode())).queue.broker == "broker-0"

    run(test)
    assert len(cluster.stored("orders")) == 6
    assert len(appends(cluster.brokers[1])) == 1


def test_after_a_failure_the_name_servers_are_asked_who_has_the_topic_now(run: Run) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    first, second = cluster.brokers
    cluster.live = [first]

    def gone(request: Request) -> PenstockError | None:
        if isinstance(request, AppendRuns):
            cluster.live = [second]
        return unreachable_when_written(unknown=False)(request)

    first.refuse = gone

    async def test() -> Receipt:
        async with producer(cluster, timeout_s=5) as p:
            return await p.send("orders", b"x", key="k")

    assert run(test).queue.broker == "broker-1"


def test_messages_without_a_key_use_all_brokers(run: Run) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])

    async def test() -> set[str]:
        async with producer(cluster) as p:
            return {(await p.send("orders", b"x")).queue.broker for _ in range(4)}

    assert run(test) == {"broker-0", "broker-1"}


async def test_no_answer_until_the_deadline_is_unknown() -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].silent = lambda request: isinstance(request, AppendRuns)
    async with producer(cluster) as p:
        began = trio.current_time()
        with pytest.raises(TimedOut, match="unknown") as caught:
            await p.send("orders", b"x", timeout_s=7)
        assert caught.value.unknown
        assert trio.current_time() - began == 7


async def test_one_deadline_covers_all_attempts() -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse = unreachable_when_written(unknown=True)
    async with producer(cluster) as p:
        began = trio.current_time()
        with pytest.raises(Unavailable) as caught:
            await p.send("orders", b"x", timeout_s=7)
        assert caught.value.unknown
        assert trio.current_time() - began == 7
    assert len(appends(cluster.brokers[0])) > 4


async def test_a_refusal_after_an_unknown_attempt_leaves_the_outcome_unknown() -> None:
    cluster = LinkedCluster(topics=["orders"])
    answers = iter([True, False])

    def refuse(request: Request) -> PenstockError | None:
        if isinstance(request, AppendRuns) and next(answers, False):
            return unreachable_when_written(unknown=True)(request)
        return TooLarge("no") if isinstance(request, AppendRuns) else None

    cluster.brokers[0].refuse = refuse
    async with producer(cluster) as p:
        with pytest.raises(TooLarge) as caught:
            await p.send("orders", b"x")
        assert caught.value.unknown


async def test_a_message_that_never_found_a_broker_is_known_not_to_be_stored() -> None:
    cluster = LinkedCluster()
    cluster.brokers[0].silent = lambda request: True
    async with producer(cluster) as p:
        with pytest.raises(PenstockError) as caught:
            await p.send("orders", b"x", timeout_s=1)
        assert not caught.value.unknown


async def test_more_than_the_bound_wait_for_room() -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].silent = lambda request: isinstance(request, AppendRuns)
    async with producer(cluster, pending_max=10, timeout_s=5) as p, trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(TimedOut):
                await p.send("orders", b"x")

        for _ in range(25):
            nursery.start_soon(send)
    assert sum(request.count for request in appends(cluster.brokers[0])) == 10


def test_the_end_of_the_block_waits_for_what_other_tasks_are_sending(run: Run, serve: Callable[..., Any]) -> None:
    """Nothing lost: what was begun has its receipt, and what has its receipt is stored."""
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.listen(serve)
    receipts: list[Receipt] = []

    async def test() -> None:
        async with anyio.create_task_group() as tasks, Producer(servers=broker.route.address) as p:

            async def send(number: int) -> None:
                receipts.append(await p.send("orders", b"%d" % number))

            for number in range(100):
                tasks.start_soon(send, number)

    run(test)
    assert len(receipts) == 100
    assert sorted(cluster.stored("orders"), key=int) == [b"%d" % number for number in range(100)]


def test_a_block_that_ends_with_an_error_leaves_unknown_what_is_on_its_way(run: Run, serve: Callable[..., Any]) -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.listen(serve)
    on_its_way = threading.Event()
    failures: list[PenstockError] = []

    def silent(request: Request) -> bool:
        if isinstance(request, AppendRuns):
            on_its_way.set()
        return isinstance(request, AppendRuns)

    async def send(p: Producer) -> None:
        with pytest.raises(PenstockError) as caught:
            await p.send("orders", b"x")
        failures.append(caught.value)

    async def test() -> None:
        async with anyio.create_task_group() as tasks:
            with suppress(KeyError):
                async with Producer(servers=broker.route.address) as p:
                    tasks.start_soon(send, p)
                    assert await anyio.to_thread.run_sync(on_its_way.wait, 10)
                    raise KeyError("mine")

    broker.silent = silent
    run(test)
    assert [(type(error), error.unknown) for error in failures] == [(Unavailable, True)]


def test_over_tcp_a_broker_that_restarts_is_found_again(run: Run, serve: Callable[..., Any]) -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    first = serve(broker)
    port = int(first.address.rpartition(":")[2])
    broker.address = first.address

    async def test() -> None:
        async with Producer(servers=first.address) as p:
            await p.send("orders", b"before")
            await anyio.to_thread.run_sync(first.stop)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(p.send, "orders", b"while it is away")
                await anyio.sleep(0.01)
                await anyio.to_thread.run_sync(serve, broker, port)

    run(test)
    assert sorted(cluster.stored("orders")) == [b"before", b"while it is away"]


async def test_a_send_that_finds_no_server_says_so_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse = lambda request: Unavailable("no server at h:1: connection refused")
    async with producer(cluster, timeout_s=8, clock=TrioClock()) as p:
        with pytest.raises(Unavailable, match="connection refused"):
            await p.send("orders", b"x")
    (told,) = [record.getMessage() for record in caplog.records]
    assert "connection refused; trying for another" in told


async def test_a_single_message_that_failed_is_tried_again_within_its_deadline_with_the_same_id() -> None:
    cluster = LinkedCluster(topics=["orders"])
    async with producer(cluster, timeout_s=7) as p:
        await p.send("orders", b"the way is known now")
        failures = iter([Busy("full"), Busy("full")])
        cluster.brokers[0].refuse_record = lambda body: next(failures, None)
        receipt = await p.send("orders", b"x")
        cluster.brokers[0].refuse_record = lambda body: Busy("for ever")
        began = trio.current_time()
        with pytest.raises(Busy):
            await p.send("orders", b"y")
        assert 6 < trio.current_time() - began <= 7
    sent = appended(cluster.brokers[0])
    assert [message.id for message in sent if message.body == b"x"] == [receipt.id] * 3
    assert len({message.id for message in sent if message.body == b"y"}) == 1


def hangs(broker: LinkedBroker) -> None:
    broker.silent = lambda request: isinstance(request, AppendRuns | SetTimers)


@pytest.mark.parametrize("quick", [True, False])
async def test_a_message_without_a_key_leaves_a_broker_that_hangs_and_one_with_a_key_stays(quick: bool) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    async with producer(cluster, timeout_s=9, clock=TrioClock()) as p:
        await p.send("orders", b"the way is known now")
        for broker in cluster.brokers:
            hangs(broker)
        began = trio.current_time()
        with pytest.raises(TimedOut) as caught:
            await (p.send("orders", b"x") if quick else p.send("orders", b"x", timeout_s=9))
        assert caught.value.unknown
        assert trio.current_time() - began == 9
        cluster.brokers[1].silent = lambda request: False
        await trio.sleep(60)
        for more in ({}, {} if quick else {"timeout_s": 9}):  # the second one goes round
            began = trio.current_time()
            while (await p.send("orders", b"y", **more)).queue.broker != "broker-1":  # type: ignore[arg-type]
                pass
            assert trio.current_time() - began < 6
        key = next(str(at) for at in range(99) if choose(str(at), p_routes(cluster), 0).broker == "broker-0")
        before = len(appends(cluster.brokers[1]))
        with pytest.raises(TimedOut):
            await p.send("orders", b"x", key=key)
        assert len(appends(cluster.brokers[1])) == before
    assert {message.count(b"y") for message in cluster.stored("orders") if message == b"y"} == {1}


def p_routes(cluster: LinkedCluster) -> list[BrokerRoute]:
    return [broker.route for broker in cluster.brokers]


async def test_a_slow_broker_is_gone_round_and_its_late_answers_mean_nothing() -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    slow = cluster.brokers[0]
    answered: list[Any] = []
    async with producer(cluster, timeout_s=9, clock=TrioClock()) as p, trio.open_nursery() as nursery:
        for _ in range(2):
            await p.send("orders", b"the way is known now")

        async def answer(request: AppendRuns, on_result: Any, after_s: float) -> None:
            await trio.sleep(after_s)
            on_result(Busy("at last") if after_s > 3 else Appended("disk", (), (), (PlacedRun(0, 0, 77, 0),)))
            answered.append(request)

        def slowly(request: Any, on_result: Any) -> None:
            if isinstance(request, AppendRuns):
                nursery.start_soon(answer, request, on_result, delays.pop(0))
            else:
                LinkedBroker.submit(slow, request, on_result)

        slow.submit = slowly  # type: ignore[method-assign]
        delays = [1.0]
        began = trio.current_time()
        offsets = [(await p.send("orders", b"x")).offset for _ in range(12)]
        assert offsets.count(77) == 1
        assert trio.current_time() - began == 1, "it was asked once"
        await trio.sleep(60)
        delays = [5.0]
        receipts = [await p.send("orders", b"z") for _ in range(2)]
        await trio.sleep(5)
        assert [one.queue.broker for one in receipts] == ["broker-1"] * 2
    assert len(answered) == 2
    assert cluster.stored("orders").count(b"z") == 2


def test_a_callback_hears_what_became_of_each_message_and_the_block_waits_for_it(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse_record = lambda body: TooLarge("no") if body == b"bad" else None
    told: list[Outcome] = []

    async def test() -> None:
        async with producer(cluster, pending_max=4) as p:
            for body in (b"a", b"bad", b"b"):
                p.send_soon("orders", body, key="k", on_done=told.append)
            p.send_soon("orders", b"nobody wants to know", key="k")
            with pytest.raises(Busy, match="4 messages are under way"):
                p.send_soon("orders", b"c")
        with pytest.raises(InvalidRequest, match="not open"):
            p.send_soon("orders", b"c")

    run(test)
    assert sorted([(one.status, one.level) for one in told]) == [
        ("not stored", ""),
        ("stored", "disk"),
        ("stored", "disk"),
    ]
    assert sorted(cluster.stored("orders")) == [b"a", b"b", b"nobody wants to know"]


def test_a_callback_that_raises_ends_nothing_and_what_is_told_to_nobody_is_in_the_log(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LinkedCluster(topics=["orders"])

    def wrong(outcome: Outcome) -> None:
        raise KeyError("mine")

    async def test() -> None:
        async with producer(cluster) as p:
            p.send_soon("orders", b"a", on_done=wrong)
            p.send_soon("a/b", b"x")
            await p.send("orders", b"b")

    run(test)
    assert sorted(cluster.stored("orders")) == [b"a", b"b"]
    assert sorted([one.partition(":")[0] for one in caplog.messages]) == ["a message is not stored", "on_done raised"]


def test_what_is_sent_one_way_is_stored_and_waits_for_no_answer(run: Run, serve: Callable[..., Any]) -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.listen(serve)

    async def test() -> None:
        async with Producer(servers=broker.route.address) as p:
            for at in range(100):
                await p.send_oneway("orders", b"%d" % at, key="k")
            with pytest.raises(InvalidTopic):
                await p.send_oneway("a/b", b"x")

    run(test)
    assert sorted(cluster.stored("orders"), key=int) == [b"%d" % at for at in range(100)], "all had left at the end"
    assert len(appends(broker)) < 100


async def test_an_answer_that_does_not_come_holds_up_neither_a_one_way_send_nor_the_end_for_long() -> None:
    cluster = LinkedCluster(topics=["orders"])
    hangs(cluster.brokers[0])
    began = trio.current_time()
    async with producer(cluster) as p:
        await p.send_oneway(Message("orders", b"x"))
        assert trio.current_time() == began
    assert trio.current_time() - began == 2
    cluster.brokers[0].silent = lambda request: True
    async with producer(cluster, timeout_s=7) as p:
        with pytest.raises(PenstockError) as caught:
            await p.send_oneway("orders", b"x")
        assert not caught.value.unknown


def test_more_than_a_link_takes_at_once_is_sent_once_each(run: Run, serve: Callable[..., Any]) -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.listen(serve)
    bodies = [bytes([at]) * 1_000_000 for at in range(80)]

    async def test() -> None:
        async with Producer(servers=broker.route.address, timeout_s=PATIENCE_S) as p:
            assert len(await p.send_many([Message("orders", body) for body in bodies])) == 80

    run(test)
    assert sum(request.count for request in appends(broker)) == 80
    assert sorted(cluster.stored("orders")) == bodies


async def test_a_topic_that_may_be_written_to_again_is_written_to_within_the_deadline() -> None:
    cluster = LinkedCluster(topics=["orders"])
    async with producer(cluster, timeout_s=5) as p:
        cluster.brokers[0].ask(ChangeTopic("orders", access="r"))
        with pytest.raises(NoRoute, match="takes messages"):
            await p.send("orders", b"too early")
        cluster.brokers[0].ask(ChangeTopic("orders", access="rw"))
        await p.send("orders", b"in time")
    assert cluster.stored("orders") == [b"in time"]
