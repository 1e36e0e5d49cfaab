"""Calls upon owners of sessions: how long each has, and what it hears."""

from __future__ import annotations

from broker.kernel.theme import Wakers
from broker.sessions.calls import HANDOVER_S, OwnerCalls, client_waker, owner_waker
from penstock.protocol.requests.sessions import SessionCall

CALL = SessionCall("c", 7, False)


def test_an_owner_has_its_time_from_the_first_call_on_whoever_asks() -> None:
    wakers: Wakers = {}
    calls = OwnerCalls(wakers)
    assert calls.call("g", CALL, 10.0) == 10.0 + HANDOVER_S
    assert calls.call("g", CALL, 10.5) == 10.0 + HANDOVER_S
    assert not calls.has_had_time("c", 7, 10.9)
    assert calls.has_had_time("c", 7, 11.0)
    assert not calls.has_had_time("c", 8, 99.0), "another owner's time begins anew"
    assert calls.call("h", CALL._replace(epoch=8), 12.0) == 12.0 + HANDOVER_S


def test_an_owner_hears_the_last_call_for_each_session_once() -> None:
    wakers: Wakers = {}
    calls = OwnerCalls(wakers)
    calls.call("g", CALL, 10.0)
    calls.tell("g", CALL._replace(closes=True))
    assert calls.take("g") == (CALL._replace(closes=True),)
    assert calls.take("g") == ()
    assert list(wakers) == [owner_waker("g")]


def test_of_what_is_settled_and_of_the_dead_nobody_is_called() -> None:
    wakers: Wakers = {}
    calls = OwnerCalls(wakers)
    calls.call("g", CALL, 10.0)
    calls.settle("c")
    assert calls.take("g") == ()
    assert list(wakers)[-1] == client_waker("c")
    assert not calls.has_had_time("c", 7, 99.0)
    calls.call("g", CALL, 10.0)
    calls.forget("g")
    assert calls.take("g") == ()
