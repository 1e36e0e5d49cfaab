"""Queues that come and go: callbacks, two steps, leases; against small brokers, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from penstock.client.consumer import Consumer
from penstock.client.handover import HandOver, Lease, Queues
from penstock.clock import Clock
from penstock.errors import Fenced, InvalidRequest, PenstockError, Unavailable
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.groups import JoinGroup, WatchGroup
from penstock.protocol.requests.request import Request
from tests.penstock.linked_cluster import LinkedCluster
from tests.penstock.producing import put


class VirtualClock(Clock):
    """The clock of the test's event loop."""

    def monotonic(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return 0


class Seen:
    """What the callbacks of a member were told."""

    def __init__(self, *, awaits: bool = False) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self._awaits = awaits

    def callbacks(self, *names: str) -> dict[str, Any]:
        return {name: self._noting(name) for name in names}

    def _noting(self, name: str) -> Any:
        def note(queues: Queues) -> None:
            self.told.append((name, [queue.number for queue in queues]))

        async def note_later(queues: Queues) -> None:
            await trio.sleep(1)
            note(queues)

        return note_later if self._awaits else note


RISING = sorted(range(8), key=lambda seed: random.Random(seed).getrandbits(64))
ALL = ("on_assigned", "on_revoked", "on_lost")


@pytest.fixture
def cluster() -> Iterator[LinkedCluster]:
    made = LinkedCluster(topics=["orders"])
    for queue in range(4):
        put(made.brokers[0], *[b"%d" % at for at in range(3)], queue=queue)
    return made


def member(cluster: LinkedCluster, **given: Any) -> Consumer:
    """One that is made later has a later name, by which queues are dealt."""
    given.setdefault("session_s", 30.0)
    before = {request.member for request in cluster.brokers[0].asked if isinstance(request, JoinGroup)}
    given.setdefault("rng", random.Random(RISING[len(before)]))
    return Consumer(
        "g",
        "orders",
        servers=LinkedCluster.SERVERS,
        links=cluster,
        start="earliest",
        clock=VirtualClock(),
        batch_max=3,
        **given,
    )


def numbers(consumer: Consumer) -> list[int]:
    return [queue.number for queue in consumer.assignment if queue.topic == "orders"]


async def of_queue(consumer: Consumer, number: int) -> list[ReceivedMessage]:
    """Batches until one of this queue comes."""
    async for batch in consumer:
        if batch[0].queue.number == number:
            return batch
    raise AssertionError


async def test_without_on_revoked_queues_are_others_at_once(cluster: LinkedCluster) -> None:
    first, second = Seen(), Seen(awaits=True)
    async with member(cluster, **first.callbacks("on_assigned", "on_lost")) as a:
        for _ in range(4):
            await anext(a)
        async with member(cluster, **second.callbacks(*ALL)) as b:
            assert (numbers(a), numbers(b)) == ([0, 1], [2, 3])
            with pytest.raises(Fenced, match="lost orders:2, orders:3"):
                await a.commit()
        await wait_all_tasks_blocked()
    assert first.told == [("on_assigned", [0, 1, 2, 3]), ("on_lost", [2, 3]), ("on_assigned", [2, 3])]
    assert second.told == [("on_assigned", [2, 3]), ("on_revoked", [2, 3])], "leaving is letting go"


async def test_on_revoked_commits_what_was_done_before_others_begin(cluster: LinkedCluster) -> None:
    committed: list[Queues] = []

    async def commit(queues: Queues) -> None:
        committed.append(queues)
        await a.commit()

    async with member(cluster, on_revoked=commit) as a:
        for _ in range(4):
            await anext(a)
        put(cluster.brokers[0], b"3", queue=3)
        await of_queue(a, 3)
        async with member(cluster) as b:
            await wait_all_tasks_blocked()
            assert (numbers(b), committed) == ([], []), "the program has not come back yet"
            assert await a.poll(1) == []
            await wait_all_tasks_blocked()
            assert (numbers(a), numbers(b)) == ([0, 1], [2, 3])
            assert committed == [(MessageQueue("broker-0", "orders", 2), MessageQueue("broker-0", "orders", 3))]
            put(cluster.brokers[0], b"new", queue=3)
            assert [message.body for message in await anext(b)] == [b"new"], "nothing comes again"
            await a.commit()


async def test_on_assigned_may_seek(cluster: LinkedCluster) -> None:
    async def seek(queues: Queues) -> None:
        for queue in queues:
            await c.seek(queue, 2)

    c = member(cluster, on_assigned=seek)
    async with c:
        assert [[message.offset for message in await anext(c)] for _ in range(4)] == [[2]] * 4


async def test_an_ordered_queue_moves_when_the_program_asks_for_the_next_batch(cluster: LinkedCluster) -> None:
    async with member(cluster, ordered=True) as a:
        (first, *_) = await of_queue(a, 3)
        async with member(cluster, ordered=True) as b:
            await trio.sleep(100)  # heartbeats go on
            cluster.brokers[0].pass_time(0)
            assert (numbers(a), numbers(b)) == ([0, 1, 2, 3], [])
            await a.commit(first)
            await a.poll(1)
            await wait_all_tasks_blocked()
            assert (numbers(a), numbers(b)) == ([0, 1], [2, 3])
            assert [message.offset for message in await of_queue(b, 3)] == [1, 2]
            with pytest.raises(Fenced):
                await a.commit(first)


async def test_an_ordered_queue_of_a_member_that_hangs_moves_when_its_session_ends(cluster: LinkedCluster) -> None:
    broker, seen = cluster.brokers[0], Seen()
    async with member(cluster, ordered=True, session_s=30, **seen.callbacks(*ALL)) as a:
        await of_queue(a, 3)
        (name,) = broker.members("g")

        def refuse(request: Request) -> PenstockError | None:
            is_cut_off = isinstance(request, WatchGroup) and request.member == name
            return Unavailable("cut off") if is_cut_off else None

        broker.refuse = refuse
        async with member(cluster, ordered=True, session_s=30) as b:
            assert numbers(b) == []
            await trio.sleep(31)
            broker.refuse = lambda request: None
            broker.pass_time(31)
            await trio.sleep(11)
            await of_queue(a, 0)
            await wait_all_tasks_blocked()
            assert sorted(numbers(a) + numbers(b)) == [0, 1, 2, 3]
    assert ("on_lost", [0, 1, 2, 3]) in seen.told


async def test_nothing_is_begun_in_an_ordered_queue_while_the_broker_has_not_heard_of_the_member(
    cluster: LinkedCluster,
) -> None:
    broker = cluster.brokers[0]
    async with member(cluster, ordered=True, session_s=30) as c:
        stream = c.messages()
        assert (await anext(stream)).offset == 0
        broker.silent = lambda request: isinstance(request, JoinGroup | WatchGroup)
        await trio.sleep(31)
        with trio.move_on_after(5) as patience:
            await anext(stream)
        assert patience.cancelled_caught
        assert await c.poll(1) == []
        broker.silent = lambda request: False
        assert len([await anext(stream) for _ in range(11)]) == 11


async def test_an_ordered_member_goes_on_at_a_broker_that_began_anew_and_others_wait(cluster: LinkedCluster) -> None:
    broker, seen = cluster.brokers[0], Seen()
    async with member(cluster, ordered=True, **seen.callbacks(*ALL)) as a:
        (message, *_) = await of_queue(a, 3)
        refusals: set[str] = {broker.members("g")[0]}

        def refuse(request: Request) -> PenstockError | None:
            away = isinstance(request, JoinGroup | WatchGroup) and request.member in refusals
            return Unavailable("not there yet") if away else None

        broker.refuse = refuse
        broker.begin_anew()
        async with member(cluster, ordered=True) as b:
            assert numbers(b) == [], "somebody may hold them"
            refusals.clear()
            await trio.sleep(5)
            assert (numbers(a), numbers(b)) == ([0, 1, 2, 3], [])
            await a.commit(message)
            await a.poll(1)
            await wait_all_tasks_blocked()
            assert (numbers(a), numbers(b)) == ([0, 1], [2, 3])
            assert seen.told == [("on_assigned", [0, 1, 2, 3]), ("on_revoked", [2, 3])]
    assert broker.positions("g")["orders:3"] == 1


async def test_a_program_that_never_comes_back_loses_its_queues_after_a_session(
    cluster: LinkedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    async with member(cluster, session_s=30, **seen.callbacks(*ALL)) as a:
        await of_queue(a, 3)
        async with member(cluster) as b:
            await trio.sleep(29)
            assert numbers(b) == []
            await trio.sleep(2)
            assert numbers(b) == [2, 3]
    assert ("on_lost", [3]) not in seen.told[:1]
    assert seen.told[1] == ("on_lost", [2, 3])
    assert "works on orders:2@broker-0, orders:3@broker-0 for too long" in caplog.text


async def test_a_callback_that_raises_holds_nothing_up(
    cluster: LinkedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(queues: Queues) -> None:
        raise ValueError("mine")

    async with member(cluster, on_revoked=fails, on_assigned=fails) as a:
        assert len(await anext(a)) == 3
        async with member(cluster) as b:
            await a.poll(1)
            await wait_all_tasks_blocked()
            assert numbers(b) == [2, 3]
        await wait_all_tasks_blocked()
    assert caplog.text.count("ValueError: mine") == 4  # each twice


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="on_lost is a function that takes queues, not 1"):
        HandOver(on_lost=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="ordered is True or False"):
        HandOver(ordered="yes")  # type: ignore[arg-type]

    async def later(queues: Queues) -> None:
        pass

    with pytest.raises(InvalidRequest, match="on_revoked is a plain function here"):
        HandOver(on_revoked=later).check_plain()


async def test_a_lease_counts_from_when_the_answered_sign_of_life_was_sent() -> None:
    lease = Lease(VirtualClock(), 10.0)
    assert lease.is_over
    sent = lease.now()
    await trio.sleep(4)
    lease.renew(sent)
    await trio.sleep(5.9)
    assert not lease.is_over
    await trio.sleep(0.1)
    assert lease.is_over
