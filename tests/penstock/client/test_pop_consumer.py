"""Consumers that pop, against the real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from penstock import Admin, Consumer, Message, PopConsumer, Producer, Reader, ReceivedMessage, Retry
from penstock.errors import Fenced, GroupNotFound, InvalidRequest, QueueNotFound
from penstock.protocol.received import MessageQueue
from tests.patience import PATIENCE_S

Run = Callable[..., Any]


async def send(cluster: Any, *bodies: bytes, topic: str = "jobs") -> None:
    async with Producer(servers=cluster.servers) as producer:
        await producer.send_many([Message(topic, body) for body in bodies])


def popping(cluster: Any, **given: Any) -> PopConsumer:
    return PopConsumer("g", given.pop("topics", "jobs"), servers=cluster.servers, **({"start": "earliest"} | given))


def numbered(count: int) -> list[bytes]:
    return [b"%d" % at for at in range(count)]


def test_consumers_share_every_queue_and_each_message_is_acknowledged_once(run: Run, real_cluster: Any) -> None:
    seen: Counter[bytes] = Counter()
    takers: Counter[int] = Counter()

    async def read(number: int, stop: anyio.CancelScope) -> None:
        async with popping(real_cluster, batch_max=7) as consumer:
            async for batch in consumer:
                seen.update(one.body for one in batch)
                takers[number] += 1
                await consumer.ack(batch)
                if seen.total() >= 300:
                    stop.cancel()

    async def test() -> None:
        await send(real_cluster, *numbered(300))
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(read, number, tasks.cancel_scope)
        async with popping(real_cluster) as consumer:
            assert await consumer.poll(0.1) == []

    run(test)
    assert seen == Counter(numbered(300))


def test_what_is_not_acknowledged_goes_to_others_at_once_when_its_consumer_leaves(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        await send(real_cluster, *numbered(10))
        async with popping(real_cluster) as consumer:
            got: list[ReceivedMessage] = []
            while len(got) < 10:
                got += await consumer.poll(PATIENCE_S)
            await consumer.ack(got[0])
            await consumer.extend(got[1], 3600)
        async with popping(real_cluster) as consumer:
            again: list[ReceivedMessage] = []
            while len(again) < 9:
                again += await consumer.poll(PATIENCE_S)
            assert sorted(one.body for one in again) == sorted(one.body for one in got[1:])
            assert {one.attempts for one in again} == {0}
            await consumer.ack(again)

    run(test)


def test_a_lease_that_is_over_has_the_message_come_again_with_one_attempt_more(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        await send(real_cluster, b"slow")
        async with popping(real_cluster, invisible_s=0.05) as consumer, popping(real_cluster) as other:
            [first] = await consumer.poll(PATIENCE_S)
            with anyio.fail_after(PATIENCE_S):
                again = await anext(other)
            assert (first.attempts, again[0].body) == (0, b"slow")
            assert again[0].attempts >= 1, "on a starved machine a lease of the message read ahead may be over too"
            with pytest.raises(Fenced):
                await consumer.nack(first)
            await consumer.ack(first)  # whoever has it now
            with pytest.raises(Fenced):
                await other.nack(again[0])

    run(test)


def test_a_handler_that_fails_has_its_message_again_and_the_last_attempt_is_a_dead_letter(
    run: Run, real_cluster: Any
) -> None:
    done: Counter[bytes] = Counter()
    tries: list[int] = []

    async def test() -> None:
        await send(real_cluster, *numbered(20), b"bad")
        async with popping(real_cluster, attempts_max=3, retry_delays_s=[0.01]) as consumer:

            async def work(message: ReceivedMessage) -> None:
                if message.body == b"bad":
                    tries.append(message.attempts)
                    if len(tries) == 3:
                        consumer.stop()
                    raise ValueError(message.attempts)
                if message.body == b"7" and not message.attempts:
                    raise Retry(0)
                done[message.body] += 1

            with anyio.fail_after(PATIENCE_S):
                await consumer.handle(work, concurrency=5)
            assert await consumer.poll(0.1) == []
        async with Reader("%DLQ%g", servers=real_cluster.servers, until_end=True) as letters:
            assert [(one.body, one.properties["REASON"]) async for one in letters.messages()] == [
                (b"bad", "ValueError: 2")
            ]

    run(test)
    assert tries == [0, 1, 2]
    assert done == Counter(numbered(20))


def test_a_group_is_reset_and_deleted_when_its_takers_are_gone(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        await send(real_cluster, *numbered(3))
        async with Admin(real_cluster.servers) as admin:
            async with popping(real_cluster) as consumer:
                got: list[ReceivedMessage] = []
                while len(got) < 3:
                    got += await consumer.poll(PATIENCE_S)
                with pytest.raises(InvalidRequest, match=r"group g is popped by .*cannot be its member"):
                    await Consumer("g", "jobs", servers=real_cluster.servers).__aenter__()
                with pytest.raises(Fenced, match="group g is popped by"):
                    await admin.reset_group("g", "jobs", to="earliest")
                with pytest.raises(Fenced, match="group g is popped by"):
                    await admin.delete_group("g")
                await consumer.ack(got)
            moved = await admin.reset_group("g", "jobs", to="earliest")
            assert sum(one.before for one in moved) == 3
            async with popping(real_cluster, start="latest") as consumer:
                again: list[ReceivedMessage] = []
                while len(again) < 3:
                    again += await consumer.poll(PATIENCE_S)
            await admin.delete_group("g")
            with pytest.raises(GroupNotFound):
                await admin.group("g")

    run(test)


def test_a_group_with_members_is_not_popped_and_wrong_use_is_told_at_once(run: Run, real_cluster: Any) -> None:
    queue = MessageQueue("nowhere", "jobs", 0)

    async def test() -> None:
        await send(real_cluster, b"x")
        async with popping(real_cluster) as consumer:
            with pytest.raises(QueueNotFound):
                await consumer.ack(ReceivedMessage(queue, 0, b"", b"", b""))
            with pytest.raises(InvalidRequest, match="ack takes a received message"):
                await consumer.ack([b"x"])  # type: ignore[list-item]
            with pytest.raises(InvalidRequest, match="ack takes received messages"):
                await consumer.ack(5)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="extend takes a received message"):
                await consumer.extend([b"x"], 1)  # type: ignore[list-item]
            with pytest.raises(InvalidRequest, match="wait_s is a number of seconds"):
                await consumer.poll("x")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="not open"):
            await consumer.poll(0)
        async with Consumer("g", "jobs", servers=real_cluster.servers), popping(real_cluster) as consumer:
            with pytest.raises(InvalidRequest, match="has members"):
                await consumer.poll(PATIENCE_S)

    run(test)
    with pytest.raises(InvalidRequest, match="invisible_s is at least 0"):
        popping(real_cluster, invisible_s=-1)
