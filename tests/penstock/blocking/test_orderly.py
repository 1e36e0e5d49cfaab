"""Blocking members of ordered groups, and callbacks, against a small broker in a thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import Consumer
from penstock.client.attempts import Retry
from penstock.client.handover import Queues
from penstock.errors import Fenced, InvalidRequest, Unavailable
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.groups import JoinGroup, WatchGroup
from tests.patience import PATIENCE_S
from tests.penstock.client.test_handover import RISING
from tests.penstock.hand_clock import AheadClock
from tests.penstock.linked_cluster import LinkedCluster
from tests.penstock.producing import put


@pytest.fixture
def cluster(serve: Callable[..., Any]) -> LinkedCluster:
    """Four queues with three messages each."""
    made = LinkedCluster(topics=["orders"])
    (broker,) = made.brokers
    for queue in range(4):
        put(broker, b"0", b"1", b"2", queue=queue)
    broker.listen(serve)
    return made


def member(cluster: LinkedCluster, **given: Any) -> Consumer:
    """One that is made later has a later name, by which queues are dealt."""
    broker = cluster.brokers[0]
    before = {request.member for request in broker.asked if isinstance(request, JoinGroup)}
    given.setdefault("rng", random.Random(RISING[len(before)]))
    return Consumer("g", "orders", servers=broker.route.address, start="earliest", batch_max=3, **given)


def numbers(consumer: Consumer) -> list[int]:
    return [queue.number for queue in consumer.assignment if queue.topic == "orders"]


def test_a_queue_goes_when_the_program_comes_back_and_has_committed(cluster: LinkedCluster) -> None:
    told: list[tuple[str, list[int]]] = []

    def note(name: str, queues: Queues) -> None:
        told.append((name, [queue.number for queue in queues]))

    def commit(queues: Queues) -> None:
        note("revoked", queues)
        if told.count(("revoked", [2, 3])):
            a.commit()
            raise ValueError("is told in the log")

    a = member(
        cluster,
        on_assigned=lambda queues: note("assigned", queues),
        on_revoked=commit,
        on_lost=lambda queues: note("lost", queues),
    )
    with a:
        for _ in range(4):
            assert len(a.poll(PATIENCE_S)) == 3
        with member(cluster) as b:
            assert b.poll(0.05) == []
            assert numbers(b) == [], "the program is at work yet"
            assert a.poll(0.05) == []
            while not numbers(b):
                assert b.poll(0.05) == [], "nothing comes again"
            assert (numbers(a), numbers(b)) == ([0, 1], [2, 3])
    assert told == [("assigned", [0, 1, 2, 3]), ("revoked", [2, 3]), ("revoked", [0, 1])]


def test_the_commit_of_an_ordered_member_is_refused_once_others_may_have_been_at_work(cluster: LinkedCluster) -> None:
    lost: list[Queues] = []
    clock, broker = AheadClock(), cluster.brokers[0]
    with member(cluster, ordered=True, on_lost=lost.append, clock=clock) as a:
        (message, *_) = a.poll(PATIENCE_S)
        clock.ahead_s = 31.0
        broker.expel("g")
        with pytest.raises(Fenced):
            a.commit(message)
        assert len(a.poll(PATIENCE_S)) == 3
        assert [len(queues) for queues in lost] == [4]


def test_an_ordered_member_commits_at_a_broker_that_began_anew_and_goes_on(cluster: LinkedCluster) -> None:
    lost: list[Queues] = []
    broker = cluster.brokers[0]
    with member(cluster, ordered=True, on_lost=lost.append) as a:
        batch = a.poll(PATIENCE_S)
        broker.begin_anew()
        a.commit(batch[-1])
        assert [message.queue.number for _ in range(3) for message in a.poll(PATIENCE_S)][::3] == [1, 2, 3]
        assert a.poll(0.05) == []
    assert lost == []
    assert broker.positions("g")["orders:0"] == 3


def test_nothing_is_begun_while_the_session_may_be_over(cluster: LinkedCluster) -> None:
    clock, broker = AheadClock(), cluster.brokers[0]
    with member(cluster, ordered=True, clock=clock) as a:
        stream = a.messages()
        first = next(stream)
        cut_off = Unavailable("cut off")
        broker.refuse = lambda request: cut_off if isinstance(request, JoinGroup | WatchGroup) else None
        clock.ahead_s = 29.0
        assert next(stream).offset == first.offset + 1
        clock.ahead_s = 31.0
        assert a.poll(0.1) == []
        broker.refuse = lambda request: None
        clock.ahead_s = 60.0
        assert len(a.poll(PATIENCE_S)) > 0


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_message_that_fails_holds_up_its_queue_alone_until_it_is_a_dead_letter(
    cluster: LinkedCluster, concurrency: int
) -> None:
    begun: list[tuple[int, int, int]] = []
    busy: set[int] = set()
    twice: list[int] = []
    done: set[tuple[int, int]] = {(1, 1)}  # which never is
    lock = threading.Lock()

    def work(message: ReceivedMessage) -> None:
        number = message.queue.number
        with lock:
            twice.extend([number] * (number in busy))
            busy.add(number)
            begun.append((number, message.offset, message.attempts))
        try:
            if number == 1 and message.offset == 1:
                raise ValueError("always")
            if number == 2 and not message.attempts:
                raise Retry(0.02)
        finally:
            with lock:
                busy.discard(number)
        with lock:
            done.add((number, message.offset))
            if len(done) == 12:
                c.stop()

    with member(cluster, ordered=True, attempts_max=3, retry_delays_s=[0.01]) as c:
        c.handle(work, concurrency=concurrency)
    assert twice == [], "two at work on one queue"
    by_queue = [[(offset, tried) for number, offset, tried in begun if number == one] for one in range(4)]
    assert by_queue[0] == by_queue[3] == [(0, 0), (1, 0), (2, 0)]
    assert by_queue[1] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert by_queue[2] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    broker = cluster.brokers[0]
    (buried,) = broker.given_back
    assert (buried.queue, buried.offset, buried.attempts_max, buried.reason) == ("orders:1", 1, 1, "ValueError: always")
    assert {broker.positions("g")[f"orders:{number}"] for number in range(4)} == {3}


def test_attempts_of_all_holders_are_counted_together(cluster: LinkedCluster) -> None:
    begun: list[int] = []

    def work(message: ReceivedMessage) -> None:
        if message.queue.number or message.offset:
            return
        begun.append(message.attempts)
        if len(begun) in (2, 4):
            c.stop()
        raise Retry(0.01)

    for _ in range(2):
        with member(cluster, ordered=True, attempts_max=5) as c:
            c.handle(work)
    assert begun == [0, 1, 2, 3]
    assert cluster.brokers[0].given_back == []
    with member(cluster, ordered=True, attempts_max=5) as c:
        message = next(one for one in c.messages() if one.queue.number == 0)
        sent = c.nack(message)
    assert (message.attempts, sent.attempt, sent.due_ms) == (4, 5, 0)
    assert [one.offset for one in cluster.brokers[0].given_back] == [0]


def test_a_queue_goes_over_between_two_messages_of_a_handler_with_all_that_was_done_committed(
    cluster: LinkedCluster,
) -> None:
    begun: list[tuple[str, int, int]] = []
    halfway, never = threading.Event(), threading.Event()

    def work_of(name: str) -> Callable[[ReceivedMessage], None]:
        def work(message: ReceivedMessage) -> None:
            begun.append((name, message.queue.number, message.offset))
            if name == "a" and message.queue.number >= 2 and message.offset == 1:
                halfway.set()
                held = [one for some in a._members.values() for one in some.held.values()]
                while not any(one.leaving for one in held):
                    never.wait(0.001)  # the rebalance has no event to show
            if len({one[1:] for one in begun}) == 12:
                for one in members:
                    one.stop()

        return work

    a, b = (member(cluster, ordered=True, rng=random.Random(seed)) for seed in RISING[:2])
    members = [a, b]

    def run_b() -> None:
        assert halfway.wait(PATIENCE_S)
        with b:
            b.handle(work_of("b"))

    other = threading.Thread(target=run_b)
    other.start()
    with a:
        a.handle(work_of("a"), concurrency=4)
        other.join(PATIENCE_S)
    for number in range(4):
        assert [offset for _, queue, offset in begun if queue == number] == [0, 1, 2], "each once, in order"
    assert {number for name, number, _ in begun if name == "b"} == {2, 3}


def test_a_reader_that_gives_a_message_back_has_it_again_before_the_next(cluster: LinkedCluster) -> None:
    seen: list[int] = []
    with member(cluster, ordered=True, attempts_max=2) as c:
        c.pause([queue for queue in c.assignment if queue.number])
        for message in c.messages():
            seen.append(message.offset)
            if message.offset == 1:
                assert c.nack(message, 0.01).attempt == seen.count(1)
            if message.offset == 2:
                break
        c.commit()
    assert seen == [0, 1, 1, 2]
    assert cluster.brokers[0].positions("g")["orders:0"] == 3


def test_callbacks_are_plain_functions(cluster: LinkedCluster) -> None:
    async def later(queues: Queues) -> None:
        pass

    with pytest.raises(InvalidRequest, match="on_revoked is a plain function here"):
        member(cluster, on_revoked=later)
