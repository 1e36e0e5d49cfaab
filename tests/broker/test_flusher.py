from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

import pytest
import trio

from broker.dispatch import Dispatch
from broker.flusher import Flusher
from penstock.errors import StorageFailed
from penstock.message import Message
from penstock.requests.messages import Appended
from penstock.requests.request import Result
from penstock.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append, now

T = TypeVar("T")


class Turnstile:
    """An offload whose calls begin at once and return when the test lets them."""

    def __init__(self) -> None:
        self.began = 0
        self._gates: list[trio.Event] = []

    async def __call__(self, work: Callable[[], T]) -> T:
        self.began += 1
        gate = trio.Event()
        self._gates.append(gate)
        result = work()
        await gate.wait()
        return result

    async def let_one(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        self._gates.pop(0).set()
        await trio.testing.wait_all_tasks_blocked()


class Flushed:
    """A rig with a flusher in a task of its own."""

    def __init__(self, nursery: trio.Nursery, later_s: float = 0.0, later_bytes: int = 0) -> None:
        self.rig = Rig()
        self.rig.ask(CreateTopic("t", 1))
        self.rig.ask(CreateTopic("c", 1, "cache"))
        self.turnstile = Turnstile()
        flusher = Flusher(self.rig.store, later_s, later_bytes)
        self.rig.dispatch = Dispatch(self.rig.service, self.rig.clock, flusher.need)
        nursery.start_soon(flusher.run, self.rig.dispatch, self.rig.service, self.turnstile)

    def send(self, body: bytes = b"x", topic: str = "t") -> list[Result]:
        return self.rig.submit(append(Message(topic, body)))


async def test_appends_that_arrive_during_a_sync_wait_for_the_next_one_and_share_it() -> None:
    async with trio.open_nursery() as nursery:
        broker = Flushed(nursery)
        first = broker.send()
        await trio.testing.wait_all_tasks_blocked()
        assert (broker.turnstile.began, first) == (1, [])
        others = [broker.send() for _ in range(10)]
        await broker.turnstile.let_one()
        assert first == [Appended("disk")]
        assert others == [[]] * 10
        await broker.turnstile.let_one()
        assert others == [[Appended("disk")]] * 10
        assert broker.turnstile.began == 2
        nursery.cancel_scope.cancel()


async def test_nothing_is_synced_while_there_is_nothing_to_sync() -> None:
    async with trio.open_nursery() as nursery:
        broker = Flushed(nursery)
        for _ in range(3):
            broker.rig.dispatch.end_batch()
        await trio.testing.wait_all_tasks_blocked()
        assert broker.turnstile.began == 0
        nursery.cancel_scope.cancel()


async def test_a_failed_sync_ends_the_broker_and_acknowledges_nothing() -> None:
    answers: list[Result] = []
    brokers: list[Flushed] = []

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            brokers.append(Flushed(nursery))
            brokers[0].rig.disk.fail("sync", errno.EIO)
            brokers[0].rig.dispatch.submit(append(Message("t", b"x")), answers.append, 1)
            brokers[0].rig.dispatch.end_batch()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(StorageFailed, match="fsync")
    assert answers == []
    assert isinstance(now(brokers[0].rig.handle(append(Message("t", b"x")))), StorageFailed)


async def test_what_asks_while_a_sync_runs_that_covers_it_gets_no_sync_of_its_own() -> None:
    async with trio.open_nursery() as nursery:
        broker = Flushed(nursery)
        first = broker.send()
        await trio.testing.wait_all_tasks_blocked()
        broker.rig.dispatch.end_batch()  # another session, with nothing to store
        began = broker.turnstile.began
        await broker.turnstile.let_one()
        assert first
        assert broker.turnstile.began == began
        nursery.cancel_scope.cancel()


async def test_what_nobody_waits_for_is_synced_later_and_once() -> None:
    async with trio.open_nursery() as nursery:
        broker = Flushed(nursery, later_s=5.0, later_bytes=1 << 20)
        start = trio.current_time()
        for _ in range(10):
            assert broker.send(topic="c") == [Appended("cache")]
        await trio.sleep(4.9)
        assert broker.turnstile.began == 0
        await trio.sleep(0.2)
        assert (broker.turnstile.began, trio.current_time() - start) == (1, pytest.approx(5.1))
        await broker.turnstile.let_one()
        assert broker.rig.store.durable == broker.rig.store.written
        nursery.cancel_scope.cancel()


async def test_whoever_waits_takes_along_what_waited_for_a_later_sync() -> None:
    async with trio.open_nursery() as nursery:
        broker = Flushed(nursery, later_s=5.0, later_bytes=1 << 20)
        broker.send(topic="c")
        await trio.sleep(1)
        answers = broker.send()
        await broker.turnstile.let_one()
        assert answers == [Appended("disk")]
        assert broker.rig.store.durable == broker.rig.store.written
        await trio.sleep(60)
        assert broker.turnstile.began == 1
        nursery.cancel_scope.cancel()


async def test_no_more_than_a_bound_waits_for_a_later_sync() -> None:
    async with trio.open_nursery() as nursery:
        broker = Flushed(nursery, later_s=5.0, later_bytes=1000)
        broker.send(topic="c")
        await trio.testing.wait_all_tasks_blocked()
        assert broker.turnstile.began == 0
        broker.send(bytes(1000), topic="c")
        await trio.testing.wait_all_tasks_blocked()
        assert broker.turnstile.began == 1
        nursery.cancel_scope.cancel()
