from __future__ import annotations

import sys

from broker.kernel.deadlines import SPARE
from broker.kernel.outcomes import Parked
from broker.net.parked import ParkedRequests
from penstock.protocol.requests.request import Done, Result


class Door:
    """Parks requests that have something to say once it is open."""

    def __init__(self) -> None:
        self.requests = ParkedRequests()
        self.open = False
        self.answers: list[str] = []

    def park(self, name: str, *wakers: str, deadline: float = 10.0, session: int = 1) -> None:
        def retry(last: bool) -> Result | None:
            return Done() if self.open or last else None

        self.requests.park(Parked(wakers, deadline, retry), lambda _: self.answers.append(name), session)


def test_a_waker_asks_only_its_own_requests_and_only_those_with_something_to_say_are_answered() -> None:
    door = Door()
    door.park("a", "q1")
    door.park("b", "q2")
    door.requests.wake(["q1", "q2", "q3"])
    assert door.answers == []
    door.open = True
    door.requests.wake(["q2"])
    assert (door.answers, len(door.requests)) == (["b"], 1)


def test_requests_of_one_queue_are_answered_in_the_order_in_which_they_came() -> None:
    door = Door()
    for name in "abc":
        door.park(name, "q")
    door.open = True
    door.requests.wake(["q"])
    assert door.answers == ["a", "b", "c"]


def test_a_request_with_several_wakers_is_answered_once() -> None:
    door = Door()
    door.park("a", "q1", "q2")
    door.open = True
    door.requests.wake(["q1", "q2"])
    door.requests.expire(100.0)
    assert door.answers == ["a"]


def test_deadlines_pass_in_their_order() -> None:
    door = Door()
    door.park("late", "q", deadline=3.0)
    door.park("early", "q", deadline=1.0)
    door.park("later", "q", deadline=3.1)
    door.requests.expire(0.9)
    assert door.answers == []
    door.requests.expire(3.0)
    assert (door.answers, len(door.requests)) == (["early", "late"], 1)


def test_a_dropped_sessions_requests_are_never_answered() -> None:
    door = Door()
    door.park("a", "q", session=1)
    door.park("b", "q", session=2)
    door.requests.drop_session(1)
    door.requests.expire(100.0)
    assert (door.answers, len(door.requests)) == (["b"], 0)


def test_a_request_that_an_answer_of_the_same_round_dropped_is_not_answered() -> None:
    requests, answers = ParkedRequests(), []

    def on_first(_: Result) -> None:
        answers.append("first")
        requests.drop_session(2)

    requests.park(Parked(("q",), 10.0, lambda last: Done()), on_first, 1)
    requests.park(Parked(("q",), 10.0, lambda last: Done()), lambda _: answers.append("second"), 2)
    requests.wake(["q"])
    assert answers == ["first"]


def test_answered_requests_leave_nothing_behind() -> None:
    door = Door()
    door.open = True
    for number in range(5 * SPARE):
        door.park("a", f"q{number}", deadline=1e9, session=number)
        door.requests.wake([f"q{number}"])
    assert len(door.requests) == 0
    assert len(door.requests._deadlines._heap) <= SPARE + 1
    assert (door.requests._by_waker, door.requests._by_session) == ({}, {})


def test_many_that_are_answered_at_once_go_at_once() -> None:
    """Whoever stays in the heap until the next request comes is looked at by the garbage collector, thrice."""
    door = Door()
    for number in range(5 * SPARE):
        door.park("a", f"q{number}", deadline=1e9, session=1)
    door.requests.drop_session(1)
    assert len(door.requests._deadlines._heap) <= SPARE


def test_what_an_answered_request_holds_does_not_wait_for_its_deadline() -> None:
    """A megabyte that its connection had read, say, for as long as a pull may wait."""
    door = Door()
    door.open = True
    held = object()
    before = sys.getrefcount(held)
    door.requests.park(Parked(("q",), 1e9, lambda last, held=held: Done()), lambda _, held=held: None, 1)  # type: ignore[misc]
    door.requests.wake(["q"])
    assert sys.getrefcount(held) == before
    door.requests.expire(2e9)
    assert len(door.requests) == 0


def test_a_held_session_waits_on_and_is_answered_as_it_stirred_once_it_is_released() -> None:
    door = Door()
    for name in "abcd":
        door.park(name, f"q{name}", deadline=3.0 if name == "d" else 10.0)
    door.park("other", "qa", session=2)
    door.requests.hold(1)
    door.open = True
    door.requests.wake(["qb", "qa"])
    assert door.answers == ["other"]
    door.open = False
    door.requests.expire(3.0)
    door.requests.release(1)
    assert door.answers == ["other", "d"]  # what stirred the others is over
    door.open = True
    door.requests.wake(["qa", "qb"])
    assert (door.answers, len(door.requests)) == (["other", "d", "a", "b"], 1)


def test_a_session_that_is_held_again_leaves_the_rest_for_later() -> None:
    door = Door()
    requests = door.requests
    for name in "abc":
        requests.park(
            Parked(("q",), 10.0, lambda last: Done()),
            lambda _, name=name: (door.answers.append(name), requests.hold(1)),  # type: ignore[misc]
            1,
        )
    requests.wake(["q"])
    assert door.answers == ["a"]
    requests.release(1)
    assert door.answers == ["a", "b"]
    requests.release(1)
    assert (door.answers, len(requests)) == (["a", "b", "c"], 0)


def test_what_a_session_that_is_held_has_parked_goes_with_it() -> None:
    door = Door()
    door.open = True
    door.park("a", "q")
    door.requests.hold(1)
    door.requests.wake(["q"])
    door.requests.drop_session(1)
    door.requests.release(1)
    assert (door.answers, len(door.requests)) == ([], 0)
