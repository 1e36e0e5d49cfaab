"""The producer against small brokers: receipts, batches, failures, deadlines; on asyncio and on trio."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import ANY

import pytest
import trio
import trio.testing

from penstock.client.sending import Receipt
from penstock.client.ways import DelayedReceipt
from penstock.errors import (
    Busy,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    PenstockError,
    SendManyError,
    TimerFired,
    TimerNotFound,
    TooLarge,
    Unavailable,
)
from penstock.protocol.message import Message, decode_message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Append
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.timers import CancelTimer, SetTimers
from tests.penstock.hand_clock import TrioClock
from tests.penstock.linked_cluster import BEGIN_MS, LinkedCluster
from tests.penstock.producing import appends, producer

Run = Callable[..., Any]


def unreachable_when_stored(request: Request) -> PenstockError | None:
    return Unavailable("lost") if isinstance(request, Append) else None


def test_a_message_is_stored_and_its_receipt_says_where(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])

    async def test() -> Receipt:
        async with producer(cluster) as p:
            return await p.send("orders", b"body", key="42", tag="paid", properties={"a": "b"})

    receipt = run(test)
    queue = zlib.crc32(b"42") % 4
    assert receipt == Receipt(receipt.id, MessageQueue("broker-0", "orders", queue), 0, "disk", "ok")
    message = decode_message(cluster.brokers[0].records(f"orders:{queue}")[0])
    assert (message.body, message.key, message.tag, dict(message.properties)) == (b"body", "42", "paid", {"a": "b"})
    assert message.id == receipt.id
    assert message.born_ms > 0


def test_an_mqtt_message_is_placed_by_the_topic_map(run: Run) -> None:
    cluster = LinkedCluster()

    async def test() -> Receipt:
        async with producer(cluster) as p:
            return await p.send(Message(mqtt_topic="plant/a/temp", body=b"21"))

    assert run(test).topic == "plant"
    assert cluster.stored("plant") == [b"21"]


def test_receipts_of_many_come_in_their_order(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders", "bills"])

    async def test() -> Sequence[Receipt]:
        async with producer(cluster) as p:
            return await p.send_many([Message(["orders", "bills"][at % 2], b"x", key=str(at)) for at in range(50)])

    receipts = run(test)
    for at, receipt in enumerate(receipts):
        record = cluster.brokers[0].records(receipt.queue.name)[receipt.offset]
        assert (decode_message(record).key, receipt.id) == (str(at), decode_message(record).id)


def test_sending_nothing_returns_nothing(run: Run) -> None:
    async def test() -> Sequence[Receipt]:
        async with producer(LinkedCluster()) as p:
            return await p.send_many([])

    assert run(test) == []


def test_each_illegal_message_has_an_error_of_its_own_and_the_good_ones_are_stored(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    cluster.brokers[0].refuse_record = lambda body: Busy("full") if body == b"never" else None
    many = [Message("orders", b"x"), Message("orders", bytes(5_000_000)), Message("a/b", b"x"), Message("orders", b"")]

    async def test() -> None:
        async with producer(cluster) as p:
            with pytest.raises(SendManyError, match="2 of 4 messages") as caught:
                await p.send_many(many)
            assert [type(caught.value.failures[at]) for at in (1, 2)] == [TooLarge, InvalidTopic]
            outcomes = await p.send_each([*many, Message("orders", b"never")], timeout_s=0.2)
            assert [one.status for one in outcomes] == ["stored", "not stored", "not stored", "stored", "not stored"]
            assert [one.level for one in outcomes] == ["disk", "", "", "disk", ""]
            assert [one.status for one in await p.send_each(many[:1], delay=5)] == ["stored"]

    run(test)
    assert sorted(cluster.stored("orders")) == [b"", b"", b"x", b"x"]


def test_a_partial_failure_keeps_the_receipts_of_the_others(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
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


async def test_outside_its_block_a_producer_says_so() -> None:
    cluster = LinkedCluster(topics=["orders"])
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


def test_a_producer_that_is_not_open_says_so(run: Run) -> None:
    async def test() -> None:
        with pytest.raises(InvalidRequest, match="async with"):
            await producer(LinkedCluster()).send("orders", b"x")

    run(test)


def test_the_blocks_error_comes_out_as_it_is(run: Run) -> None:
    async def test() -> None:
        async with producer(LinkedCluster()):
            raise KeyError("mine")

    with pytest.raises(KeyError):
        run(test)


def test_a_message_is_sent_alone_and_a_wrong_type_is_named(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
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
    cluster = LinkedCluster(topics=["plant"])

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
    message = decode_message(cluster.brokers[0].records(receipt.queue.name)[receipt.offset])
    assert (message.qos, message.retain, message.name) == (2, True, "plant/state")


def test_a_delayed_message_has_a_receipt_with_its_timer_and_many_have_one_request(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])
    at = BEGIN_MS + 86_400_000

    async def test() -> None:
        async with producer(cluster) as p:
            receipt = await p.send("orders", b"x", key="k", delay=5)
            assert receipt == DelayedReceipt(receipt.id, "broker-0", ANY, BEGIN_MS + 5001, "orders")
            many = await p.send_many([Message("orders", b"x")] * 3, at=at)
            assert len({receipt.timer, *[one.timer for one in many]}) == 4
            assert {one.due_ms for one in many} == {at}

    run(test)
    asked = [request for request in cluster.brokers[0].asked if isinstance(request, SetTimers)]
    assert [(tuple(sorted(one.due_ms)), one.from_now) for one in asked] == [
        ((5001,), True),
        ((at,) * 3, False),
    ]
    assert appends(cluster.brokers[0]) == []


async def test_a_cancel_tells_fired_from_unknown_and_knows_what_it_has_done_itself() -> None:
    cluster = LinkedCluster(topics=["orders"])
    lost = Unavailable("lost")
    lost.unknown = True
    gone = TimerNotFound("gone")
    answers = iter([TimerFired("too late"), gone, Unavailable("later"), gone, lost, gone, lost, TimerFired("")])
    cluster.brokers[0].refuse = lambda request: next(answers, None) if isinstance(request, CancelTimer) else None
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


@pytest.mark.interpreted
def test_a_queue_is_given_or_chosen_and_its_broker_is_not_left(run: Run) -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])

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
