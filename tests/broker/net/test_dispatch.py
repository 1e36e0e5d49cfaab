from __future__ import annotations

import pytest

from broker.net.dispatch import Dispatch
from penstock.errors import Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Appended, Pull, Pulled
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append


def made(level: str = "disk") -> Rig:
    rig = Rig()
    rig.ask(CreateTopic("t", 1, level))
    return rig


def test_no_way_of_moving_time_or_requests_answers_an_append_before_its_sync() -> None:
    rig = made()
    answers = rig.submit(append(Message("t", b"1")))
    rig.dispatch.end_batch()
    rig.submit(Pull("t:0", 0))
    rig.dispatch.reached(rig.store.durable, rig.store.committed)
    rig.clock.now = 3600.0
    rig.dispatch.tick()
    assert answers == []
    rig.sync()
    assert answers == [Appended("disk")]


def test_a_sync_answers_only_what_was_appended_before_its_point() -> None:
    rig = made()
    first = rig.submit(append(Message("t", b"1")))
    point = rig.store.sync_point()
    second = rig.submit(append(Message("t", b"2")))  # arrives while the sync runs
    rig.store.sync()
    rig.store.mark_durable(point)
    rig.store.mark_committed(point)
    rig.dispatch.reached(rig.store.durable, rig.store.committed)
    assert (len(first), len(second)) == (1, 0)
    rig.sync()
    assert len(second) == 1


@pytest.mark.interpreted
def test_an_error_nobody_has_foreseen_ends_the_broker_whoever_else_catches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the request has done half nobody knows: nothing is carried out or promised any more."""
    rig = made()
    waits = rig.submit(append(Message("t", b"before")))

    def broken(*_: object) -> None:
        raise ZeroDivisionError("unforeseen")

    with monkeypatch.context() as patch:
        patch.setattr(rig.service, "handle", broken)
        with pytest.raises(ZeroDivisionError):
            rig.submit(append(Message("t", b"fatal")))
    [unknown] = waits
    assert isinstance(unknown, Unavailable)
    assert unknown.unknown
    [refused] = rig.submit(append(Message("t", b"after")))
    assert isinstance(refused, Unavailable)
    with pytest.raises(ZeroDivisionError):
        rig.dispatch.tick()


def test_answers_that_wait_for_the_disk_come_in_the_order_of_the_log() -> None:
    rig = made()
    order: list[int] = []
    for number in range(5):
        rig.dispatch.submit(append(Message("t", b"x")), lambda _, number=number: order.append(number), 1)
    rig.sync()
    assert order == [0, 1, 2, 3, 4]


def test_a_request_whose_point_is_durable_already_is_answered_at_once() -> None:
    rig = made()
    assert rig.submit(CreateTopic("t", 1)), "it exists, and nothing is left to sync"


def test_a_topic_that_is_asked_for_again_is_not_promised_before_its_record_is_durable() -> None:
    rig = made()
    first, second = rig.submit(CreateTopic("new")), rig.submit(CreateTopic("new"))
    assert (first, second) == ([], [])
    rig.sync()
    assert (len(first), len(second)) == (1, 1)


def test_the_flusher_is_told_once_per_batch() -> None:
    rig = made()
    told: list[tuple[bool, bool]] = []
    dispatch = Dispatch(rig.service, rig.times, lambda *waits: told.append(waits))
    for _ in range(3):
        dispatch.submit(append(Message("t", b"x")), lambda _: None, 1)
    assert told == []
    dispatch.end_batch()
    assert len(told) == 1


def test_answers_that_bring_the_next_request_do_not_nest() -> None:
    rig = made("cache")
    read: list[int] = []

    def again(result: Result) -> None:
        assert isinstance(result, Pulled)
        read.append(result.count)
        if result.next < 2000:
            rig.dispatch.submit(Pull("t:0", result.next, wait_s=10.0), again, 1)
            rig.dispatch.submit(append(Message("t", b"x")), lambda _: None, 1)
            rig.dispatch.end_batch()

    rig.dispatch.submit(Pull("t:0", 0, wait_s=10.0), again, 1)
    rig.submit(append(Message("t", b"x")))
    assert sum(read) == 2000


def test_what_a_lost_session_parked_is_forgotten() -> None:
    rig = made("cache")
    gone, stays = rig.submit(Pull("t:0", 0, wait_s=10.0), 1), rig.submit(Pull("t:0", 0, wait_s=10.0), 2)
    rig.dispatch.drop(1)
    assert rig.dispatch.parked == 1
    rig.submit(append(Message("t", b"x")))
    assert (len(gone), len(stays), rig.dispatch.parked) == (0, 1, 0)


def test_a_closed_broker_refuses_and_says_that_waiting_writes_have_an_unknown_outcome() -> None:
    rig = made()
    waiting = rig.submit(append(Message("t", b"1")))
    rig.dispatch.close(Unavailable("the broker is stopping"))
    refused = rig.submit(append(Message("t", b"2")))
    assert [(type(one), one.unknown) for one in waiting + refused if isinstance(one, Unavailable)] == [
        (Unavailable, True),
        (Unavailable, False),
    ]


def test_a_broker_that_steps_down_answers_all_that_waits_and_refuses_what_comes() -> None:
    rig = made()
    error = Unavailable("another broker leads", hint="ask it")
    waiting, parked = rig.submit(append(Message("t", b"1"))), rig.submit(Pull("t:0", 0, wait_s=10.0), 2)
    rig.dispatch.hold(2)
    rig.dispatch.step_down(error)
    assert (waiting[0].unknown, parked, rig.dispatch.parked) == (True, [error], 0)  # type: ignore[union-attr]
    assert rig.submit(Pull("t:0", 0)) == [error]
    rig.dispatch.release(2)
    rig.clock.now += 20
    rig.dispatch.tick()
    assert len(parked) == 1, "answered once"


def test_what_a_callback_submits_does_not_hold_the_time_for_the_next_batch() -> None:
    rig = made("cache")
    begun = rig.clock.now

    def again(_: Result) -> None:
        rig.dispatch.submit(Pull("t:0", 1, wait_s=10.0), lambda _: None, 1)

    rig.dispatch.submit(Pull("t:0", 0, wait_s=10.0), again, 1)
    rig.submit(append(Message("t", b"1")))  # its batch ends with the pull's answer
    rig.clock.now = begun + 9
    late = rig.submit(Pull("t:0", 1, wait_s=10.0))
    rig.clock.now = begun + 18
    rig.dispatch.tick()
    assert (late, rig.dispatch.parked) == ([], 1)
