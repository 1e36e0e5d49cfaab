"""What leaves together, and deadlines that many messages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest
import trio
import trio.testing

from penstock.client.discovery import Discovery
from penstock.client.faults import Faults
from penstock.client.lanes import Lanes
from penstock.client.preparation import Preparation
from penstock.client.producer import Producer
from penstock.client.sending import Outgoing
from penstock.client.ways import AT_ONCE, Way
from penstock.errors import InvalidRequest, PenstockError, TimedOut
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.request import Request
from penstock.world import RealClock
from tests.penstock.client.at_broker import runs_at_broker
from tests.penstock.linked_cluster import LinkedCluster
from tests.penstock.producing import appends, producer
from topicmap.queues import TopicMap

Run = Callable[..., Any]


def test_concurrent_sends_leave_as_one_append(run: Run) -> None:
    cluster = LinkedCluster(topics=["orders"])

    async def test() -> None:
        async with producer(cluster) as p:
            await p.send("orders", b"first")
            async with anyio.create_task_group() as tasks:
                for at in range(100):
                    tasks.start_soon(p.send, "orders", str(at).encode())

    run(test)
    assert len(cluster.stored("orders")) == 101
    assert len(appends(cluster.brokers[0])) == 2


async def test_single_messages_whose_answer_does_not_come_end_at_the_deadline_of_each() -> None:
    cluster = LinkedCluster(topics=["orders"])
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


async def test_a_producer_that_closes_with_an_error_leaves_no_sender_waiting() -> None:
    cluster = LinkedCluster(topics=["orders"])
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


class Unmade(Way):
    """What has no request."""

    def request(self, batch: Sequence[Outgoing]) -> Request:
        raise OverflowError("too big")


async def test_a_request_that_cannot_be_made_fails_alone_and_later_ones_leave() -> None:
    cluster = LinkedCluster(topics=["orders"])
    discovery = Discovery(LinkedCluster.SERVERS, cluster)
    (route,) = await discovery.brokers("orders")
    lanes = Lanes(discovery, Faults(), RealClock())
    preparation = Preparation(1, TopicMap())
    sent: list[Outgoing] = []

    async def send(way: Way) -> None:
        sent.extend(runs_at_broker(preparation, [Message("orders", b"x")], 77))
        await lanes.hand_over(route, sent[-1], None, way).done.wait()

    async with trio.open_nursery() as tasks:
        tasks.start_soon(lanes.keep_flushing)
        async with trio.open_nursery() as sends:
            sends.start_soon(send, Unmade())
            sends.start_soon(send, AT_ONCE)
        await send(AT_ONCE)
        tasks.cancel_scope.cancel()
    assert len(cluster.stored("orders")) == 2
    (failed,) = [one for one in sent if one.error is not None]
    assert isinstance(failed.error, InvalidRequest)
    assert failed.error.message == "the messages cannot be sent: OverflowError('too big')"
