"""What is measured is what happened in the window, and a body that is missing, doubled or changed is found."""

from __future__ import annotations

import os

import pytest

from loadtest.native.orders import Bodies, Look, Meter, Order
from loadtest.native.scenarios import SEND
from loadtest.wires import Failed


def order(**changed: object) -> Order:
    given: dict[str, object] = {
        "servers": "127.0.0.1:9",
        "server_pid": os.getpid(),
        "kind": SEND,
        "topic": "t",
        "group": "g",
        "batch": 16,
        "tasks": 2,
        "body_bytes": 64,
        "messages": 0,
        "warm_s": 0.0,
        "measure_s": 0.0,
        "core": -1,
    }
    return Order(**(given | changed))  # type: ignore[arg-type]


def test_figures_are_of_what_is_between_two_looks() -> None:
    begin, end = Look(10.0, 1.0, 4.0, 100), Look(12.0, 2.0, 4.5, 100_100)
    seen = begin.until(end)
    assert (seen.messages, seen.seconds, seen.rate) == (100_000, 2.0, 50_000.0)
    assert (seen.client_us, seen.broker_us) == (pytest.approx(10.0), pytest.approx(5.0))
    assert (seen.client_busy, seen.broker_busy) == (0.5, 0.25)


def test_a_window_in_which_nothing_was_done_has_no_figures() -> None:
    with pytest.raises(Failed, match=r"no message was done in 2\.0 s"):
        Look(10.0, 1.0, 4.0, 7).until(Look(12.0, 2.0, 4.5, 7))


def test_a_window_opens_after_the_warm_up_and_closes_once() -> None:
    meter = Meter(order())
    assert meter.goes_on(5)
    assert not meter.goes_on(25)
    assert not meter.goes_on(99)
    assert meter.first.done == 5
    assert meter.outcome().messages == 20


def test_what_is_done_while_it_warms_up_does_not_count() -> None:
    meter = Meter(order(warm_s=1e9))
    assert all(meter.goes_on(count) for count in range(3))
    with pytest.raises(AssertionError):
        _ = meter.first


BODIES = Bodies(32)
SENT = [BODIES.make(number) for number in range(5)]


def test_bodies_may_come_in_any_order() -> None:
    assert {len(body) for body in SENT} == {32}
    assert BODIES.check(SENT[::-1], 5) == 5


@pytest.mark.parametrize(
    ("came", "said"),
    [
        (SENT[:2] + SENT[3:], "1 of 5 messages did not come, the first is 2"),
        ([*SENT, SENT[1]], "message 1 came twice"),
        ([*SENT, BODIES.make(5)], "a body that was not sent"),
        ([*SENT[:4], SENT[4][:-1] + b"x"], "a body that was not sent"),
        ([*SENT[:4], SENT[4][:-1]], "a body that was not sent"),
    ],
)
def test_a_body_that_is_missing_doubled_or_changed_is_found(came: list[bytes], said: str) -> None:
    with pytest.raises(Failed, match=said):
        BODIES.check(came, 5)
