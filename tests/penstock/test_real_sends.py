"""Delayed messages, transactions and the other ways to send against the real name server and broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    Consumer,
    DelayedReceipt,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    blocking,
)
from penstock.clock import RealClock
from penstock.errors import (
    InvalidRequest,
    InvalidTopic,
    TimerFired,
    TimerNotFound,
)
from tests.patience import PATIENCE_S

Run = Callable[..., Any]


def check_delayed(receipts: Sequence[DelayedReceipt], began_ms: int, messages: Sequence[ReceivedMessage]) -> None:
    """Of two delayed messages the second was cancelled; the first came when it was due."""
    assert [message.id for message in messages] == [receipts[0].id]
    assert messages[0].stored_ms >= receipts[0].due_ms >= began_ms + 300
    assert began_ms + 3_600_000 <= receipts[1].due_ms <= RealClock().wall_ms() + 3_600_000


def test_a_delayed_message_is_never_early_and_one_that_is_cancelled_never_comes(run: Run, real_cluster: Any) -> None:
    servers = real_cluster.servers

    async def test() -> None:
        async with Producer(servers=servers) as producer:
            await producer.send("orders", b"now", key="k")
            async with Consumer("g", "orders", servers=servers) as consumer:
                began_ms = RealClock().wall_ms()
                receipts = [await producer.send("orders", b"x", key="k", delay=s) for s in (0.3, timedelta(hours=1))]
                await producer.cancel(receipts[1])
                messages = await consumer.poll(PATIENCE_S)
            with pytest.raises(TimerNotFound):
                await producer.cancel(receipts[1])
            with pytest.raises(TimerFired):
                await producer.cancel(receipts[0])
            check_delayed(receipts, began_ms, messages)
            soon = await producer.send("orders", b"at", key="k", at=began_ms)
            assert soon.due_ms >= began_ms
            with pytest.raises(InvalidTopic):
                await producer.send("orders", b"x", mqtt_topic="$SYS/x", delay=1)

    run(test)


def test_delays_are_the_same_in_blocking(real_cluster: Any) -> None:
    servers = real_cluster.servers
    with blocking.Producer(servers=servers) as producer:
        queue = producer.send("orders", b"now", key="k").queue
        with blocking.Consumer("g", "orders", servers=servers) as consumer:
            began_ms = RealClock().wall_ms()
            receipts = [producer.send("orders", b"x", key="k", delay="300ms")]
            receipts += producer.send_many([Message("orders", b"x")], delay=3600)
            producer.cancel(receipts[1])
            messages = consumer.poll(PATIENCE_S)
        with pytest.raises(TimerNotFound):
            producer.cancel(receipts[1])
        with pytest.raises(TimerFired):
            producer.cancel(receipts[0])
        check_delayed(receipts, began_ms, messages)
        assert producer.send("orders", b"x", queue=queue).queue == queue
        assert {
            one.queue for one in producer.send_many([Message("orders", b"x")] * 9, queue=lambda all, one: all[-1])
        } == {MessageQueue(queue.broker, "orders", 3)}
    with pytest.raises(InvalidRequest, match="not open"):
        producer.cancel(receipts[1])
