"""The producer against small brokers: receipts, batches, failures, deadlines; on asyncio and on trio."""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import ANY

import anyio
import pytest
import trio
import trio.testing

from penstock.client.producer import Producer
from penstock.client.sending import Receipt
from penstock.client.ways import DelayedReceipt
from penstock.errors import (
    Busy,
    InvalidMessage,
    InvalidRequest,
    NoRoute,
    PenstockError,
    SendManyError,
    TimedOut,
    TimerFired,
    TimerNotFound,
    TooLarge,
    Unavailable,
)
from penstock.protocol.message import Message, decode_message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Append, AppendRuns
from penstock.protocol.requests.request import Done, Request
from penstock.protocol.requests.timers import CancelTimer, SetTimers, TimerSet, TimersSet
from penstock.protocol.runs import decode_runs
from tests.penstock.hand_clock import TrioClock
from tests.penstock.small_cluster import SmallBroker, SmallCluster, records_of

Run = Callable[..., Any]


def producer(cluster: SmallCluster, **given: Any) -> Producer:
    return Producer(servers=SmallCluster.SERVERS, links=cluster, **given)


def appends(broker: SmallBroker) -> list[AppendRuns]:
    return [request for request in broker.asked if isinstance(request, AppendRuns)]


def unreachable_when_written(*, unknown: bool) -> Callable[[Request], PenstockError | None]:
    def refuse(request: Request) -> PenstockError | None:
        if not isinstance(request, AppendRuns):
            return None
        error = Unavailable("lost")
        error.unknown = unknown
        return error

    return refuse


def unreachable_when_stored(request: Request) -> PenstockError | None:
    return Unavailable("lost") if isinstance(request, Append) else None


def test_a_message_is_stored_and_its_receipt_says_where(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])

    async def test() -> Receipt:
        async with producer(cluster) as p:
            return await p.send("orders", b"body", key="42", tag="paid", properties={"a": "b"})

    receipt = run(test)
    queue = zlib.crc32(b"42") % 4
    assert receipt == Receipt(receipt.id, MessageQueue("broker-0", "orders", queue), 0, "disk", "ok")
    message = decode_message(cluster.brokers[0].queues[f"orders:{queue}"][0])
    assert (message.body, message.key, message.tag, dict(message.properties)) == (b"body", "42", "paid", {"a": "b"})
    assert message.id == receipt.id
    assert message.born_ms > 0


def test_an_mqtt_message_is_placed_by_the_topic_map(run: Run) -> None:
    cluster = SmallCluster()

    async def test() -> Receipt:
        async with producer(cluster) as p:
            return await p.send(Message(mqtt_topic="plant/a/temp", body=b"21"))

    assert run(test).topic == "plant"
    assert cluster.stored("plant") == [b"21"]


def test_concurrent_sends_leave_as_one_append(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])

    async def test() -> None:
        async with producer(cluster) as p:
            await p.send("orders", b"first")
            async with anyio.create_task_group() as tasks:
                for at in range(100):
                    tasks.start_soon(p.send, "orders", str(at).encode())

    run(test)
    assert len(cluster.stored("orders")) == 101
    assert len(appends(cluster.brokers[0])) == 2


def test_receipts_of_many_come_in_their_order(run: Run) -> None:
    cluster = SmallCluster(topics=["orders", "bills"])

    async def test() -> Sequence[Receipt]:
        async with producer(cluster) as p:
            return await p.send_many([Message(["orders", "bills"][at % 2], b"x", key=str(at)) for at in range(50)])

    receipts = run(test)
    for at, receipt in enumerate(receipts):
        record = cluster.brokers[0].queues[receipt.queue.name][receipt.offset]
        assert (decode_message(record).key, receipt.id) == (str(at), decode_message(record).id)


def test_sending_nothing_returns_nothing(run: Run) -> None:
    async def test() -> Sequence[Receipt]:
        async with producer(SmallCluster()) as p:
            return await p.send_many([])

    assert run(test) == []


def test_one_illegal_message_and_nothing_is_sent(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])

    async def test() -> None:
        async with producer(cluster) as p:
            with pytest.raises(TooLarge):
                await p.send_many([Message("orders", b"x"), Message("orders", bytes(5_000_000))])

    run(test)
    assert cluster.stored("orders") == []


def test_a_partial_failure_keeps_the_receipts_of_the_others(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])
    cluster.brokers[0].refuse_record = lambda body: TooLarge("no") if body == b"bad" else None

    async def test() -> SendManyError:
        async with producer(cluster) as p:
            with pytest.raises(SendManyError) as caught:
                await p.send_many([Message("orders", body) for body in (b"a", b"bad", b"c")])
            return caught.value

    error = run(test)
    assert {at: type(failure) for at, failure in error.failures.items()} == {1: TooLarge}
    assert [receipt is not None for receipt in error.receipts] == [True, False, True]
    assert sorted(cluster.stored("orders")) == [b"a", b"c"]


def test_what_may_succeed_is_tried_again_with_the_same_id(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])
    failures = iter([Busy("full"), Busy("full")])
    cluster.brokers[0].refuse_record = lambda body: next(failures, None)

    async def test() -> Receipt:
        async with producer(cluster) as p:
            return await p.send("orders", b"x")

    receipt = run(test)
    runs = [run for request in appends(cluster.brokers[0]) for run in decode_runs(bytes(request.body))]
    sent = [decode_message(record).id for run in runs for record in records_of(run)]
    assert sent == [receipt.id] * 3
    assert cluster.stored("orders") == [b"x"]


def test_an_error_that_no_repetition_mends_is_raised_at_once(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])
    cluster.brokers[0].refuse_record = lambda body: TooLarge("no")

    async def test() -> None:
        async with producer(cluster) as p:
            with pytest.raises(TooLarge) as caught:
                await p.send("orders", b"x")
            assert not caught.value.unknown

    run(test)
    assert len(appends(cluster.brokers[0])) == 1


def test_a_message_without_a_key_goes_to_another_broker_when_one_fails(run: Run) -> None:
    cluster = SmallCluster(brokers=2, topics=["orders"])
    cluster.brokers[1].refuse = unreachable_when_written(unknown=False)

    async def test() -> None:
        async with producer(cluster) as p:
            for at in range(6):
                assert (await p.send("orders", str(at).encode())).queue.broker == "broker-0"

    run(test)
    assert len(cluster.stored("orders")) == 6
    assert len(appends(cluster.brokers[1])) == 1


def test_after_a_failure_the_name_servers_are_asked_who_has_the_topic_now(run: Run) -> None:
    cluster = SmallCluster(brokers=2, topics=["orders"])
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
    cluster = SmallCluster(brokers=2, topics=["orders"])

    async def test() -> set[str]:
        async with producer(cluster) as p:
            return {(await p.send("orders", b"x")).queue.broker for _ in range(4)}

    assert run(test) == {"broker-0", "broker-1"}


async def test_outside_its_block_a_producer_says_so() -> None:
    cluster = SmallCluster(topics=["orders"])
    p = producer(cluster)

    async def is_refused() -> None:
        for use in (p.send("orders", b"x"), p.send_many([Message(topic="orders", body=b"x")])):
            with pytest.raises(InvalidRequest, match=r"this producer is not open \(use it inside `async with Producer"):
                await use

    await is_refused()
    async with p:
        await p.send("orders", b"y")
    await is_refused()
    assert cluster.stored("orders") == [b"y"]


async def test_no_answer_until_the_deadline_is_unknown() -> None:
    cluster = SmallCluster(topics=["orders"])
    cluster.brokers[0].silent = lambda request: isinstance(request, AppendRuns)
    async with producer(cluster) as p:
        began = trio.current_time()
        with pytest.raises(TimedOut, match="unknown") as caught:
            await p.send("orders", b"x", timeout_s=7)
        assert caught.value.unknown
        assert trio.current_time() - began == 7


async def test_one_deadline_covers_all_attempts() -> None:
    cluster = SmallCluster(topics=["orders"])
    cluster.brokers[0].refuse = unreachable_when_written(unknown=True)
    async with producer(cluster) as p:
        began = trio.current_time()
        with pytest.raises(Unavailable) as caught:
            await p.send("orders", b"x", timeout_s=7)
        assert caught.value.unknown
        assert trio.current_time() - began == 7
    assert len(appends(cluster.brokers[0])) > 4


async def test_a_refusal_after_an_unknown_attempt_leaves_the_outcome_unknown() -> None:
    cluster = SmallCluster(topics=["orders"])
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
    cluster = SmallCluster()
    cluster.brokers[0].silent = lambda request: True
    async with producer(cluster) as p:
        with pytest.raises(PenstockError) as caught:
            await p.send("orders", b"x", timeout_s=1)
        assert not caught.value.unknown


async def test_more_than_the_bound_wait_for_room() -> None:
    cluster = SmallCluster(topics=["orders"])
    cluster.brokers[0].silent = lambda request: isinstance(request, AppendRuns)
    async with producer(cluster, pending_max=10, timeout_s=5) as p, trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(TimedOut):
                await p.send("orders", b"x")

        for _ in range(25):
            nursery.start_soon(send)
    assert sum(request.count for request in appends(cluster.brokers[0])) == 10


def test_a_producer_that_is_not_open_says_so(run: Run) -> None:
    async def test() -> None:
        with pytest.raises(InvalidRequest, match="async with"):
            await producer(SmallCluster()).send("orders", b"x")

    run(test)


def test_the_end_of_the_block_waits_for_what_other_tasks_are_sending(run: Run, serve: Callable[..., Any]) -> None:
    """Nothing lost: what was begun has its receipt, and what has its receipt is stored."""
    cluster = SmallCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.route = broker.route._replace(address=serve(broker).address)
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
    cluster = SmallCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.route = broker.route._replace(address=serve(broker).address)
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


def test_the_blocks_error_comes_out_as_it_is(run: Run) -> None:
    async def test() -> None:
        async with producer(SmallCluster()):
            raise KeyError("mine")

    with pytest.raises(KeyError):
        run(test)


def test_over_tcp_a_broker_that_restarts_is_found_again(run: Run, serve: Callable[..., Any]) -> None:
    cluster = SmallCluster(topics=["orders"])
    broker = cluster.brokers[0]
    first = serve(broker)
    port = int(first.address.rpartition(":")[2])
    broker.route = broker.route._replace(address=first.address)

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


def test_a_message_is_sent_alone_and_a_wrong_type_is_named(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])
    wrong: Any = 7

    async def test() -> None:
        async with producer(cluster) as p:
            with pytest.raises(InvalidRequest, match="a Message has its body"):
                await p.send(Message("orders", b"x"), key="k")  # type: ignore[call-overload]
            with pytest.raises(InvalidMessage, match="key must be str or bytes, not int"):
                await p.send("orders", b"x", key=wrong)

    run(test)
    assert cluster.stored("orders") == []


def test_qos_and_retain_are_given_to_send_as_to_a_message(run: Run) -> None:
    cluster = SmallCluster(topics=["plant"])

    async def test() -> Receipt:
        async with producer(cluster) as p:
            with pytest.raises(InvalidRequest, match="in itself"):
                await p.send(Message("plant", b"x"), retain=True)  # type: ignore[call-overload]
            with pytest.raises(InvalidMessage, match="qos is 0, 1 or 2, not 3"):
                await p.send("plant", b"x", qos=3)
            with pytest.raises(InvalidRequest, match="timeout_s is at least 0 s, not -1"):
                await p.send("plant", b"x", timeout_s=-1)
            return await p.send("plant", b"on", mqtt_topic="plant/state", qos=2, retain=True)

    receipt = run(test)
    message = decode_message(cluster.brokers[0].queues[receipt.queue.name][receipt.offset])
    assert (message.qos, message.retain, message.name) == (2, True, "plant/state")


async def test_a_send_that_finds_no_server_says_so_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SmallCluster(topics=["orders"])
    cluster.brokers[0].refuse = lambda request: Unavailable("no server at h:1: connection refused")
    async with producer(cluster, timeout_s=8, clock=TrioClock()) as p:
        with pytest.raises(Unavailable, match="connection refused"):
            await p.send("orders", b"x")
    (told,) = [record.getMessage() for record in caplog.records]
    assert "connection refused; trying for another" in told


async def test_single_messages_whose_answer_does_not_come_end_at_the_deadline_of_each() -> None:
    cluster = SmallCluster(topics=["orders"])
    async with producer(cluster, timeout_s=7) as p:
        await p.send("orders", b"the way is known now")
        cluster.brokers[0].silent = lambda request: isinstance(request, AppendRuns)
        began = trio.current_time()
        ended: list[tuple[float, bool]] = []

        async def send(after_s: float) -> None:
            await trio.sleep(after_s)
            with pytest.raises(TimedOut, match="no receipt within 7 s") as caught:
                await p.send("orders", b"x")
            ended.append((trio.current_time() - began, caught.value.unknown))

        async with trio.open_nursery() as nursery:
            for after_s in (0, 0, 2):
                nursery.start_soon(send, after_s)
    assert ended == [(7, True), (7, True), (9, True)]


async def test_a_single_message_that_failed_is_tried_again_within_its_deadline_with_the_same_id() -> None:
    cluster = SmallCluster(topics=["orders"])
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
    runs = [run for request in appends(cluster.brokers[0]) for run in decode_runs(bytes(request.body))]
    sent = [decode_message(record) for run in runs for record in records_of(run)]
    assert [message.id for message in sent if message.body == b"x"] == [receipt.id] * 3
    assert len({message.id for message in sent if message.body == b"y"}) == 1


async def test_a_producer_that_closes_with_an_error_leaves_no_sender_waiting() -> None:
    cluster = SmallCluster(topics=["orders"])
    failures: list[PenstockError] = []

    async def send(p: Producer) -> None:
        with pytest.raises(PenstockError) as caught:
            await p.send("orders", b"x")
        failures.append(caught.value)

    async with trio.open_nursery() as nursery:
        with suppress(KeyError):
            async with producer(cluster, timeout_s=7) as p:
                await p.send("orders", b"the way is known now")
                cluster.brokers[0].silent = lambda request: True
                nursery.start_soon(send, p)
                await trio.testing.wait_all_tasks_blocked()
                raise KeyError("mine")
    assert [error.unknown for error in failures] == [True]


def delays(broker: SmallBroker, *errors: PenstockError) -> None:
    """Has a broker set timers, and answer each ``CancelTimer`` with the next error, then ``Done``."""
    timers, answers = itertools.count(40), iter(errors)
    broker.answers[SetTimers] = lambda request: TimersSet(
        tuple([TimerSet(next(timers), 9000 + ms) for ms in request.due_ms])
    )
    broker.answers[CancelTimer] = lambda request: next(answers, Done())


def test_a_delayed_message_has_a_receipt_with_its_timer_and_concurrent_ones_leave_together(run: Run) -> None:
    cluster = SmallCluster(topics=["orders"])
    delays(cluster.brokers[0])

    async def test() -> None:
        async with producer(cluster) as p:
            receipt = await p.send("orders", b"x", key="k", delay=5)
            assert receipt == DelayedReceipt(receipt.id, "broker-0", 40, 14_000, "orders")
            many = await p.send_many([Message("orders", b"x")] * 3, at=1_800_000_000_000)
            assert [one.timer for one in many] == [41, 42, 43]
            async with anyio.create_task_group() as tasks:
                for ms in (1, 2):
                    tasks.start_soon(partial(p.send, "orders", b"x", delay=f"{ms}ms"))

    run(test)
    asked = [request for request in cluster.brokers[0].asked if isinstance(request, SetTimers)]
    assert [(tuple(sorted(one.due_ms)), one.from_now) for one in asked] == [
        ((5000,), True),
        ((1_800_000_000_000,) * 3, False),
        ((1, 2), True),
    ]
    assert appends(cluster.brokers[0]) == []


async def test_a_cancel_tells_fired_from_unknown_and_knows_what_it_has_done_itself() -> None:
    cluster = SmallCluster(topics=["orders"])
    lost = Unavailable("lost")
    lost.unknown = True
    gone = TimerNotFound("gone")
    delays(
        cluster.brokers[0], TimerFired("too late"), gone, Unavailable("later"), gone, lost, gone, lost, TimerFired("")
    )
    async with producer(cluster, clock=TrioClock()) as p:
        receipt = await p.send("orders", b"x", delay="1h")
        with pytest.raises(TimerFired, match="too late"):
            await p.cancel(receipt)
        for _ in range(2):
            with pytest.raises(TimerNotFound):
                await p.cancel(receipt)
        await p.cancel(receipt)  # the attempt whose answer was lost has cancelled it
        with pytest.raises(TimerFired):
            await p.cancel(receipt)
        cluster.live = []
        began = trio.current_time()
        with pytest.raises(NoRoute) as caught:
            await p.cancel(receipt, timeout_s=7)
        assert not caught.value.unknown
        assert 4 < trio.current_time() - began <= 7


def test_a_queue_is_given_or_chosen_and_its_broker_is_not_left(run: Run) -> None:
    cluster = SmallCluster(brokers=2, topics=["orders"])

    async def test() -> None:
        async with producer(cluster) as p:
            queue = MessageQueue("broker-1", "orders", 3)
            for offset in range(3):
                assert (await p.send("orders", b"x", queue=queue)) == Receipt(ANY, queue, offset, "disk")
            many = [Message("orders", b"%d" % at) for at in range(16)]
            receipts = await p.send_many(many, queue=lambda queues, message: queues[int(message.body) % 8])
            assert [one.queue.name for one in receipts] == [f"orders:{at % 4}" for at in range(8)] * 2
            cluster.brokers[1].refuse = unreachable_when_stored
            with pytest.raises(Unavailable):
                await p.send("orders", b"x", queue=queue, timeout_s=0.2)

    run(test)
    assert len(cluster.stored("orders")) == 19
