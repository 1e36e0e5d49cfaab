from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

import pytest
import trio

from broker.net.flusher import Flusher
from broker.store.fresh import APPENDS_MAX
from penstock.clock import Clock
from penstock.errors import StorageFailed
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Appended
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append, now

T = TypeVar("T")


class TrioClock(Clock):
    """The time of the test, and what a call that blocks has added to it."""

    blocked_s = 0.0

    def monotonic(self) -> float:
        return trio.current_time() + self.blocked_s

    def wall_ms(self) -> int:
        return int(trio.current_time() * 1000)


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

    def __init__(self, nursery: trio.Nursery, later_s: float = 0.0, later_bytes: int = 0, quick_s: float = 0.0) -> None:
        self.flusher: Flusher
        self.rig = Rig(on_unsynced=self._need)
        self.rig.ask(CreateTopic("t", 1))
        self.rig.ask(CreateTopic("c", 1, "cache"))
        self.turnstile = Turnstile()
        self.clock = TrioClock()
        self.flusher = Flusher(self.rig.store, self.clock, later_s, later_bytes, quick_s)
        nursery.start_soon(self.flusher.run, self.rig.lead, self.turnstile)

    def _need(self, is_waited_for: bool, is_whole: bool) -> None:
        if hasattr(self, "flusher"):
            self.flusher.need(is_waited_for, is_whole)

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


class Quick(Flushed):
    """One whose syncs take no time, after the first one."""

    async def begun(self) -> None:
        answers = self.send()
        await self.turnstile.let_one()
        assert answers == [Appended("disk")]
        assert self.flusher.is_quick

    def slow_down(self, patch: pytest.MonkeyPatch, by_s: float) -> None:
        """From now on every sync takes so much longer."""
        sync = self.rig.store.sync

        def slow() -> None:
            sync()
            self.clock.blocked_s += by_s

        patch.setattr(self.rig.store, "sync", slow)

    def send_whole(self) -> list[Result]:
        """What a gateway in this process does at its round's end."""
        answers: list[Result] = []
        self.rig.dispatch.submit(append(Message("t", b"x")), answers.append, 1)
        self.rig.dispatch.end_batch(is_whole=True)
        return answers


async def test_a_quick_disk_is_synced_within_the_round_that_wrote() -> None:
    async with trio.open_nursery() as nursery:
        broker = Quick(nursery, quick_s=0.5)
        await broker.begun()
        assert broker.send_whole() == [Appended("disk")]
        assert broker.rig.store.durable == broker.rig.store.written
        assert broker.turnstile.began == 1
        nursery.cancel_scope.cancel()


async def test_what_is_too_much_of_the_newest_appends_goes_when_their_senders_have_their_answers() -> None:
    async with trio.open_nursery() as nursery:
        broker = Quick(nursery, quick_s=0.5)
        await broker.begun()
        fresh = broker.rig.store._log.fresh
        kept: list[int] = []
        for _ in range(APPENDS_MAX + 3):
            broker.rig.dispatch.submit(append(Message("t", b"x")), lambda _: kept.append(len(fresh._appends)), 1)
            broker.rig.dispatch.end_batch(is_whole=True)
        assert (len(kept), max(kept)) == (APPENDS_MAX + 3, APPENDS_MAX + 1)
        assert len(fresh._appends) == APPENDS_MAX
        nursery.cancel_scope.cancel()


async def test_sessions_that_are_not_alone_share_one_sync_on_a_quick_disk_too() -> None:
    async with trio.open_nursery() as nursery:
        broker = Quick(nursery, quick_s=0.5)
        await broker.begun()
        syncs = broker.rig.service.figures()["penstock_syncs_total"]
        answers = [broker.send() for _ in range(10)]
        assert answers == [[]] * 10
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [[Appended("disk")]] * 10
        assert broker.rig.service.figures()["penstock_syncs_total"] == syncs + 1
        nursery.cancel_scope.cancel()


@pytest.mark.interpreted
async def test_a_disk_that_was_slow_is_synced_by_the_thread_until_it_has_been_quick_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with trio.open_nursery() as nursery:
        broker = Quick(nursery, quick_s=0.5)
        await broker.begun()
        with monkeypatch.context() as patch:
            broker.slow_down(patch, 2.0)
            assert broker.send_whole() == [Appended("disk")]
        by_thread = 0
        while not broker.flusher.is_quick:
            by_thread += 1
            answers = broker.send_whole()
            assert answers == []
            await broker.turnstile.let_one()
            assert answers == [Appended("disk")]
        assert by_thread == 2  # 0.56 s on average by now, and every quick one takes off a sixteenth
        assert broker.send_whole() == [Appended("disk")]
        nursery.cancel_scope.cancel()


@pytest.mark.interpreted
async def test_one_long_sync_among_quick_ones_leaves_the_syncs_with_the_loop_and_several_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with trio.open_nursery() as nursery:
        broker = Quick(nursery, quick_s=0.5)
        await broker.begun()
        with monkeypatch.context() as patch:
            broker.slow_down(patch, 0.25)
            for _ in range(100):
                broker.send_whole()
        broker.slow_down(monkeypatch, 1000.0)
        long = 0
        while broker.flusher.is_quick:
            long += 1
            assert broker.send_whole() == [Appended("disk")]
        assert long == 2
        nursery.cancel_scope.cancel()


async def test_a_round_that_ends_while_the_thread_syncs_waits_for_the_next_sync() -> None:
    async with trio.open_nursery() as nursery:
        broker = Quick(nursery, quick_s=0.5)
        first = broker.send()
        await trio.testing.wait_all_tasks_blocked()
        broker.flusher._takes_s = 0.0
        second = broker.send_whole()
        assert (first, second) == ([], [])
        await broker.turnstile.let_one()
        assert (first, second) == ([Appended("disk")], [Appended("disk")])
        assert broker.turnstile.began == 1
        nursery.cancel_scope.cancel()


async def test_a_failed_sync_of_the_loop_ends_the_broker_and_raises_nothing_into_the_round() -> None:
    answers: list[Result] = []

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            broker = Quick(nursery, quick_s=0.5)
            await broker.begun()
            broker.rig.disk.fail("sync", errno.EIO)
            answers.extend(broker.send_whole())
            answers.extend(broker.send_whole())

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(StorageFailed, match="fsync")
    assert [type(answer) for answer in answers] == [StorageFailed]  # the second one's: nothing was acknowledged
