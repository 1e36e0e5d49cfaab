"""Handlers and readers of ordered groups: one at a time per queue, held up in place; in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from penstock.client.attempts import Retry
from penstock.client.consumer import Consumer
from penstock.errors import InvalidRequest, StorageFull
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.groups import JoinGroup, NoteAttempts, WatchGroup
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.retries import SendBack
from tests.penstock.client.test_handover import cluster, member, numbers, put
from tests.penstock.linked_cluster import LinkedCluster

__all__ = ["cluster"]


class Log:
    """Who was at work where, in the order of the beginnings."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.begun: list[tuple[str, int, int, int]] = []  # member, queue, offset, attempts
        self.now: set[int] = set()
        self.twice: list[tuple[str, int, int]] = []  # begun where somebody was at work
        self._takes_s = takes_s

    async def work(self, who: str, message: ReceivedMessage) -> None:
        number = message.queue.number
        if number in self.now:
            self.twice.append((who, number, message.offset))
        self.begun.append((who, number, message.offset, message.attempts))
        self.now.add(number)
        try:
            await trio.sleep(self._takes_s)
        finally:
            self.now.discard(number)

    def of_queue(self, number: int) -> list[tuple[str, int, int]]:
        assert self.twice == []
        return [(who, offset, attempts) for who, queue, offset, attempts in self.begun if queue == number]


async def test_a_message_that_fails_holds_up_its_queue_alone_until_it_is_a_dead_letter(cluster: LinkedCluster) -> None:
    log, broker, done = Log(), cluster.brokers[0], set[tuple[int, int]]()

    def refuse(request: Request) -> StorageFull | None:
        """No room for a dead letter, until the handler had the message once more."""
        is_full = isinstance(request, SendBack) and ("a", 1, 1, 3) not in log.begun
        return StorageFull("full") if is_full else None

    broker.refuse = refuse

    async def work(message: ReceivedMessage) -> None:
        await log.work("a", message)
        done.add((1, 1))  # which never is
        if message.queue.number == 1 and message.offset == 1:
            raise ValueError("always")
        if message.queue.number == 2 and not message.attempts:
            raise Retry(4)
        done.add((message.queue.number, message.offset))
        if len(done) == 12:
            c.stop()

    async with member(cluster, ordered=True, attempts_max=3, timeout_s=0.5) as c:
        await c.handle(work, concurrency=2)
    assert log.of_queue(0) == log.of_queue(3) == [("a", 0, 0), ("a", 1, 0), ("a", 2, 0)]
    assert log.of_queue(1) == [("a", 0, 0), ("a", 1, 0), ("a", 1, 1), ("a", 1, 2), ("a", 1, 3), ("a", 2, 0)]
    assert log.of_queue(2) == [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("a", 1, 1), ("a", 2, 0), ("a", 2, 1)]
    (buried,) = broker.given_back
    assert (buried.queue, buried.offset, buried.attempts_max, buried.reason) == ("orders:1", 1, 1, "ValueError: always")
    assert broker.positions("g")["orders:1"] == 3
    assert log.begun.index(("a", 0, 2, 0)) < log.begun.index(("a", 1, 2, 0)), "the others went on meanwhile"


async def test_batches_keep_what_was_not_finished_and_its_place(cluster: LinkedCluster) -> None:
    seen: list[list[int]] = []

    async def work(messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage] | None:
        if messages[0].queue.number:
            return None
        seen.append([one.offset for one in messages])
        if len(seen) == 1:
            return [one for one in messages if one.offset == 1]
        c.stop()
        return None

    async with member(cluster, ordered=True) as c:
        await c.handle_batches(work)
    assert seen == [[0, 1, 2], [1]]


async def test_a_queue_goes_over_between_two_messages_with_all_that_was_done_committed(cluster: LinkedCluster) -> None:
    log, broker = Log(takes_s=3), cluster.brokers[0]
    for number in range(4):
        put(broker, *[b"%d" % at for at in range(3, 12)], queue=number)

    async def run(c: Consumer, name: str) -> None:
        async def work(message: ReceivedMessage) -> None:
            await log.work(name, message)
            if {(number, 11) for number in range(4)} <= {one[1:3] for one in log.begun}:
                for one in members:
                    one.stop()

        await c.handle(work, concurrency=4)

    members: list[Consumer] = []
    async with member(cluster, ordered=True) as a:
        members.append(a)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, a, "a")
            await trio.sleep(7)
            async with member(cluster, ordered=True) as b:
                members.append(b)
                await run(b, "b")
    for number in range(4):
        assert [offset for _, offset, _ in log.of_queue(number)] == list(range(12)), "each once, in order"
    assert {who for who, _, _ in log.of_queue(3)} == {"a", "b"}


async def test_a_queue_that_is_held_up_goes_over_at_once(cluster: LinkedCluster) -> None:
    async def work(message: ReceivedMessage) -> None:
        raise Retry(3600)

    async with member(cluster, ordered=True) as a, trio.open_nursery() as nursery:
        nursery.start_soon(a.handle, work)
        await wait_all_tasks_blocked()
        async with member(cluster, ordered=True) as b:
            await wait_all_tasks_blocked()
            assert (numbers(a), numbers(b)) == ([0, 1], [2, 3])
        a.stop()


async def test_attempts_of_all_holders_are_counted_together(cluster: LinkedCluster) -> None:
    broker, attempts = cluster.brokers[0], list[tuple[str, int]]()

    async def fail(name: str, c: Consumer, times: int) -> None:
        async def work(message: ReceivedMessage) -> None:
            if message.queue.number or message.offset:
                return
            attempts.append((name, message.attempts))
            if len([1 for who, _ in attempts if who == name]) == times:
                c.stop()
            raise Retry(1)

        await c.handle(work)

    for name in "ab":
        async with member(cluster, ordered=True, attempts_max=6) as c:
            await fail(name, c, 2)
    async with member(cluster, ordered=True, attempts_max=6) as c:  # a program that reads has the same count
        async for message in c.messages():
            if message.queue.number == 0 and message.offset == 0:
                attempts.append(("c", message.attempts))
                if len(attempts) == 7:
                    break
                sent = await c.nack(message, 1)
                assert sent.attempt == message.attempts + 1
                if not sent.due_ms:
                    break
    assert attempts == [("a", 0), ("a", 1), ("b", 2), ("b", 3), ("c", 4), ("c", 5)]
    (buried,) = broker.given_back
    assert (buried.queue, buried.offset, buried.attempts_max) == ("orders:0", 0, 1)


async def test_an_attempt_that_the_broker_cannot_note_holds_nothing_up(cluster: LinkedCluster) -> None:
    broker, attempts = cluster.brokers[0], list[int]()
    broker.refuse = lambda request: StorageFull("full") if isinstance(request, NoteAttempts) else None
    async with member(cluster, ordered=True) as c:

        async def work(message: ReceivedMessage) -> None:
            if message.queue.number == 0 and message.offset == 0:
                attempts.append(message.attempts)
                if len(attempts) == 3:
                    c.stop()
                raise Retry(1)

        await c.handle(work)
    assert attempts == [0, 1, 2]


async def test_a_handler_begins_nothing_while_the_session_may_be_over(cluster: LinkedCluster) -> None:
    log, broker = Log(takes_s=40), cluster.brokers[0]
    async with member(cluster, ordered=True, session_s=30) as c, trio.open_nursery() as nursery:
        nursery.start_soon(c.handle, lambda_of(log))
        await trio.sleep(1)
        broker.silent = lambda request: isinstance(request, JoinGroup | WatchGroup)
        await trio.sleep(100)
        assert len(log.begun) == 1
        broker.silent = lambda request: False
        await trio.sleep(500)
        c.stop()
    for number in range(4):
        offsets = [offset for _, offset, _ in log.of_queue(number)]
        assert offsets == sorted(offsets)
        assert set(offsets) == {0, 1, 2}


def lambda_of(log: Log) -> Any:
    async def work(message: ReceivedMessage) -> None:
        await log.work("a", message)

    return work


async def test_a_reader_that_gives_a_message_back_has_it_again_before_the_next(cluster: LinkedCluster) -> None:
    broker = cluster.brokers[0]
    seen: list[int] = []
    async with member(cluster, ordered=True, attempts_max=3) as c:
        c.pause([queue for queue in c.assignment if queue.number])
        async for message in c.messages():
            if message.queue.number:
                continue
            seen.append(message.offset)
            if message.offset == 1:
                sent = await c.nack(message, 5, reason="not yet")
                assert sent.attempt == seen.count(1)
                assert (sent.due_ms == 0) == (sent.attempt == 3)
            if message.offset == 2:
                break
        await c.commit()
    assert seen == [0, 1, 1, 1, 2]
    (buried,) = broker.given_back
    assert (buried.offset, buried.attempts_max, buried.reason) == (1, 1, "not yet")
    assert broker.positions("g")["orders:0"] == 3


async def test_a_handler_of_an_ordered_group_raises_retry_instead_of_giving_back(cluster: LinkedCluster) -> None:
    async def work(message: ReceivedMessage) -> None:
        with pytest.raises(InvalidRequest, match="a handler raises Retry"):
            await c.nack(message)
        c.stop()

    async with member(cluster, ordered=True) as c:
        await c.handle(work)


async def test_a_queue_that_is_lost_and_comes_back_waits_for_the_work_that_is_under_way_there(
    cluster: LinkedCluster,
) -> None:
    log, broker = Log(takes_s=60), cluster.brokers[0]
    async with member(cluster, ordered=True) as c, trio.open_nursery() as nursery:
        nursery.start_soon(partial(c.handle, lambda_of(log), concurrency=8))
        await trio.sleep(1)
        broker.silent = lambda request: isinstance(request, JoinGroup | WatchGroup)
        await trio.sleep(40)
        broker.pass_time(40)
        broker.silent = lambda request: False
        await trio.sleep(300)
        c.stop()
    assert [offset for _, offset, _ in log.of_queue(2)] == [0, 0, 1, 2]
