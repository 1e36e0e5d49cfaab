"""The lease of a gateway on its sessions: renewed in time, and what follows where it is not."""

from __future__ import annotations

import pytest
from pairs import entry_of, settle, two_gateways
from rig import Gateway

from gateway.mqtt.packets import Disconnect, Will
from gateway.mqtt.properties import Properties
from penstock.protocol.requests.sessions import (
    CONNECTED,
    KeepSessions,
    SaveSessions,
)

LASTING = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}


def test_the_lease_is_renewed_in_time_and_tells_of_a_fresh_start_once() -> None:
    gateway = Gateway(session_lease_s=9.0)
    gateway.pass_time(10)
    kept = gateway.broker.made(KeepSessions)
    assert kept[0].fresh
    assert not any(request.fresh for request in kept[1:])
    assert 3 <= len(kept) <= 6


def test_a_home_that_answers_many_renewals_late_is_asked_once_whose_the_sessions_are() -> None:
    gateway = Gateway(session_lease_s=9.0)
    gateway.pass_time(1)
    gateway.connect("c", **LASTING)
    gateway.pass_time(1)
    gateway.broker.holds = (KeepSessions,)
    gateway.pass_time(20)
    assert len(gateway.broker.made(KeepSessions)) > 4
    before = len(gateway.broker.made(SaveSessions))
    gateway.broker.let_go()
    gateway.pass_time(1)
    assert [save.client for request in gateway.broker.made(SaveSessions)[before:] for save in request.saves] == ["c"]


def test_a_fresh_start_is_told_again_only_after_the_answer() -> None:
    gateway = Gateway()
    gateway.broker.holds = (KeepSessions,)
    gateway.pass_time(3)
    assert [kept.fresh for kept in gateway.broker.made(KeepSessions)] == [True]
    gateway.broker.let_go()
    gateway.connect("c", will=Will("w", b"dead", 1))
    gateway.pass_time(20)
    assert not any(kept.fresh for kept in gateway.broker.made(KeepSessions)[1:])
    assert gateway.broker.bodies() == []


@pytest.mark.mqtt("3.1.4-3", old=("3.1.4-2",))
def test_a_gateway_that_was_taken_for_dead_asks_which_clients_are_still_its_own() -> None:
    """A session that is not kept is never saved, so nothing else would ever tell it."""
    one, other = two_gateways()
    first = one.connect("c", level=5)
    first.subscribe("t", qos=1)
    other.pass_time(one.settings.session_lease_s + 2)  # the first one is frozen
    again = other.connect("c", level=5)
    again.subscribe("t", qos=1)
    one.produce("t", b"x", qos=1)
    one.pass_time(2)
    settle(one, other)
    assert first.is_closed
    assert first.got()[-1] == Disconnect(0x8E)
    assert (not again.is_closed, again.payloads()) == (True, [b"x"])


def test_a_home_that_is_slow_to_answer_still_hears_that_its_gateways_live() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    gateway.pass_time(1)
    gateway.broker.holds_replies = True
    gateway.pass_time(30)
    gateway.broker.holds_replies = False
    gateway.pass_time(1)
    assert (client.got(), client.is_closed) == ([], False)
    assert gateway.broker.state.sessions.get("c") is not None


def test_a_gateway_that_was_taken_for_dead_keeps_a_client_with_a_will_that_nobody_has_taken() -> None:
    one, other = two_gateways()
    other.connect("w").subscribe("will", qos=1)
    client = one.connect("c", **LASTING, will=Will("will", b"gone"))
    one.clock.now_s += one.settings.session_lease_s + 2
    one.broker.pass_time()  # the home has buried it
    one.pass_time(2)
    other.pass_time(2)
    settle(one, other)
    assert (client.is_closed, entry_of(one).owner, entry_of(one).state) == (False, "one", CONNECTED)
    for _ in range(20):
        one.pass_time(1)
        other.pass_time(1)
    assert not client.is_closed


def test_a_gateway_whose_lease_is_renewed_in_time_asks_nobody_whose_the_sessions_are() -> None:
    gateway = Gateway(session_lease_s=9.0)
    gateway.pass_time(1)
    gateway.connect("c", **LASTING)
    gateway.pass_time(1)
    saves = len(gateway.broker.made(SaveSessions))
    gateway.pass_time(60)
    assert len(gateway.broker.made(SaveSessions)) == saves
