"""Reading ahead: what is handed out, what is void, how positions move."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from penstock.client.positions import PullLimits
from penstock.client.pulling import Held, Intake, MessageStream, offset_at
from penstock.client.task_scope import TaskScope
from penstock.errors import InvalidRequest, InvalidTopic, OffsetOutOfRange
from penstock.protocol.message import Message
from penstock.protocol.received import MessageQueue
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster


def broker_with(*messages: Message) -> LinkedBroker:
    broker = LinkedCluster(topics=["t"]).brokers[0]
    broker.put(*messages)
    return broker


def held(broker: LinkedBroker, offset: int = 0) -> Held:
    made = Held(queue=MessageQueue("b", "t", 0), link=broker._cluster.link(broker.route.address))
    made.begin(offset)
    return made


@asynccontextmanager
async def intake(limits: PullLimits | None = None, *, ends: bool = False) -> AsyncIterator[Intake]:
    tasks = TaskScope()
    await tasks.open()
    try:
        yield Intake(tasks, limits or PullLimits(), random.Random(1), ends=ends)
    finally:
        await tasks.close()


def numbered(count: int, tag: str = "") -> list[Message]:
    return [Message("t", str(at).encode(), tag=tag) for at in range(count)]


async def test_positions_move_with_what_is_handed_out_not_with_what_is_read_ahead() -> None:
    one = held(broker_with(*numbered(4)))
    async with intake(PullLimits(batch_max=2)) as opened:
        opened.pull(one)
        await trio.testing.wait_all_tasks_blocked()
        assert (one.offset, one.handed_out) == (4, 0)
        stream = MessageStream(opened)
        await anext(stream)
        assert one.handed_out == 1
        await anext(stream)
        assert one.handed_out == 2


async def test_what_a_tag_leaves_out_moves_the_position_when_nothing_before_is_open() -> None:
    broker = broker_with(*numbered(3, tag="blue"))
    one = held(broker)
    async with intake(PullLimits(tags=("red",))) as opened:
        opened.pull(one)
        await trio.testing.wait_all_tasks_blocked()
        assert one.handed_out == 3
        broker.put(Message("t", b"x", tag="red"))
        await trio.testing.wait_all_tasks_blocked()
        assert one.handed_out == 3
        batch = await opened.take()
        assert batch is not None
        assert [message.body for message in batch.messages] == [b"x"]


async def test_a_wait_that_ends_as_a_batch_comes_takes_nothing_away() -> None:
    one = held(broker_with(*numbered(3)))
    async with intake() as opened:
        opened.pull(one)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            batch = await opened.take()
        assert batch is not None
        assert len(batch.messages) == 3


async def test_nothing_of_a_dropped_queue_is_handed_out() -> None:
    one = held(broker_with(*numbered(4)))
    async with intake() as opened:
        opened.pull(one)
        await trio.testing.wait_all_tasks_blocked()
        opened.drop(one)
        assert opened.take_ready() is None


async def test_nothing_that_was_read_before_a_seek_is_handed_out() -> None:
    one = held(broker_with(*numbered(4)))
    async with intake() as opened:
        opened.pull(one)
        await trio.testing.wait_all_tasks_blocked()
        one.begin(3)
        batch = await opened.take()
        assert batch is not None
        assert [message.offset for message in batch.messages] == [3]


async def test_a_reader_of_nothing_ends_only_if_it_is_meant_to() -> None:
    async with intake(ends=True) as opened:
        assert await opened.take() is None
    async with intake() as opened:
        with trio.move_on_after(1000) as waited:
            await opened.take()
        assert waited.cancelled_caught


async def test_an_error_comes_after_what_was_read_before_it() -> None:
    one = held(broker_with(*numbered(1)))
    async with intake() as opened:
        opened.pull(one)
        await trio.testing.wait_all_tasks_blocked()
        opened.fail(InvalidTopic("gone"))
        assert await opened.take() is not None
        with pytest.raises(InvalidTopic):
            await opened.take()


async def test_an_offset_beyond_the_end_is_an_error_and_never_a_jump() -> None:
    async with intake() as opened:
        opened.pull(held(broker_with(*numbered(2)), offset=9))
        with pytest.raises(OffsetOutOfRange, match="ends at 2, before offset 9"):
            await opened.take()


async def test_places_are_names_or_offsets_in_range() -> None:
    one = held(broker_with(*numbered(5)))
    assert await offset_at(one.link, "t:0", "earliest") == 0
    assert await offset_at(one.link, "t:0", "latest") == 5
    assert await offset_at(one.link, "t:0", 5) == 5
    with pytest.raises(OffsetOutOfRange):
        await offset_at(one.link, "t:0", -1)
    with pytest.raises(InvalidRequest):
        await offset_at(one.link, "t:0", "middle")  # type: ignore[arg-type]
