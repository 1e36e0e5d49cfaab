"""Wills that wait, and wills of gateways that died."""

from __future__ import annotations

import pytest
from pairs import settle, two_gateways
from rig import Gateway, HandClock

from gateway.login.access import Access
from gateway.mqtt.packets import Connack, Connect, Disconnect, Will
from gateway.mqtt.properties import Properties
from gateway.sessions import session_state
from gateway.sessions.session_state import Will as Left
from penstock.access.acl import parse_acl
from penstock.errors import InvalidMessage, StorageFull, TimedOut, Unavailable
from penstock.protocol.message import NEVER
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.sessions import CONNECTED, NO_WILL, RELEASED, OpenSession, SaveSessions, WatchSessions

LASTING = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=1000)}


def delayed(delay_s: int) -> Will:
    return Will("w", b"gone", 1, properties=Properties(will_delay_interval=delay_s))


def published(gateway: Gateway) -> list[bytes]:
    return [message.body for message in gateway.broker.messages()]


@pytest.mark.parametrize("asked", [{}, LASTING])
@pytest.mark.mqtt("3.1.2-8", old=("3.1.2-8",))
def test_the_will_of_a_client_whose_gateway_dies_is_published_by_another_one(asked: dict[str, object]) -> None:
    one, other = two_gateways()
    one.connect("c", will=Will("w", b"gone", 1), **asked)
    other.pass_time(40)  # the first one has no rounds any more
    assert published(other) == [b"gone"]
    other.pass_time(100)
    assert published(other) == [b"gone"]


def test_a_gateway_that_begins_anew_sees_to_the_wills_of_its_earlier_epoch() -> None:
    one = Gateway(name="one")
    one.pass_time(1)
    one.connect("c", will=Will("w", b"gone", 1), **LASTING)
    again = Gateway(beside=one, name="one")
    again.pass_time(2)
    assert published(again) == [b"gone"]


@pytest.mark.mqtt("3.1.2-8")
def test_wills_that_wait_at_a_gateway_that_stops_are_seen_to_by_others_at_once() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(6), **LASTING).cut()
    left: list[bool] = []
    one.lease.leave(lambda: left.append(True))
    one.round()
    assert left == [True]
    other.pass_time(5)  # the lease of the first one is not over yet
    assert (len(other.wills), published(other)) == (1, [])
    other.pass_time(2)
    assert published(other) == [b"gone"]


def test_a_gateway_that_stops_leaves_nothing_of_another_process_that_has_its_name() -> None:
    one = Gateway(name="one")
    one.pass_time(1)
    again = Gateway(beside=one, name="one")
    again.pass_time(1)
    client = again.connect("c", will=delayed(1), **LASTING)
    one.lease.leave(lambda: None)
    one.round()
    again.pass_time(20)
    assert (client.is_closed, published(again)) == (False, [])


def test_a_gateway_that_found_no_home_leaves_without_a_word() -> None:
    left: list[bool] = []
    Gateway(has_brokers=False).lease.leave(lambda: left.append(True))
    assert left == [True]


def test_the_delay_of_a_dead_gateways_will_is_kept_and_a_return_cancels_it() -> None:
    one, other = two_gateways()
    one.connect("stays", will=delayed(30), **LASTING)
    one.connect("returns", will=delayed(30), **LASTING)
    other.pass_time(20)
    assert published(other) == []
    assert len(other.wills) == 2
    other.connect("returns", **LASTING)
    other.pass_time(60)
    assert published(other) == [b"gone"]


@pytest.mark.mqtt("3.1.2-8")
def test_the_delay_of_a_will_goes_on_where_its_gateway_dies() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(60), **LASTING).cut()
    other.pass_time(58)  # the first one has no rounds any more
    assert len(other.wills) == 1
    assert published(other) == []
    other.pass_time(3)
    assert published(other) == [b"gone"]
    other.pass_time(100)
    assert published(other) == [b"gone"]


def test_a_dead_gateways_will_that_was_due_before_its_client_came_back_is_published() -> None:
    one, other = two_gateways()
    one.connect("late", will=Will("w", b"late", properties=Properties(will_delay_interval=5)), **LASTING).cut()
    one.connect("soon", will=Will("w", b"soon", properties=Properties(will_delay_interval=50)), **LASTING).cut()
    one.broker.leave_alone("one")
    one.clock.now_s += 10
    one.broker.now_ms = one.clock.wall_ms()
    for client in ("late", "soon"):
        other.connect(client, **LASTING)
    assert published(other) == [b"late"]
    other.pass_time(100)
    assert published(other) == [b"late"]


def test_a_client_that_comes_back_elsewhere_cancels_its_will_at_the_first_gateway() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(5), **LASTING).cut()
    assert len(one.wills) == 1
    back = other.open(5)
    back.send(Connect("c", **LASTING))
    settle(one, other)
    for _ in range(20):
        one.pass_time(0.5)
        other.rounds.begin()
        other.round()
    assert not back.is_closed
    assert published(one) == []


@pytest.mark.mqtt("3.1.2-8", old=("3.1.2-8",))
def test_a_client_that_begins_anew_elsewhere_ends_its_session_and_with_it_the_delay_of_its_will() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(500), **LASTING).cut()
    back = other.open(5)
    back.send(Connect("c", **{**LASTING, "clean_start": True}))
    settle(one, other)
    assert not back.is_closed
    assert published(one) == [b"gone"]
    one.pass_time(600)
    assert published(one) == [b"gone"]


def test_a_gateway_that_was_thought_dead_does_not_publish_a_will_that_is_not_its_own_any_more() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(10), **LASTING).cut()
    one.broker.leave_alone("one")
    back = other.connect("c", **LASTING)
    one.pass_time(30)
    assert published(one) == []
    back.send(Disconnect())


def test_a_will_whose_session_is_another_gateways_is_forgotten_although_nobody_has_called_for_it() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(10), **LASTING).cut()
    one.broker.ignore(WatchSessions)
    one.broker.leave_alone("one")
    other.connect("c", **LASTING)
    one.pass_time(30)
    assert (published(one), len(one.wills)) == ([], 0)


def test_a_client_that_is_back_while_the_home_is_asked_about_its_will_cancels_it() -> None:
    gateway = Gateway()
    gateway.connect("c", will=delayed(2), **LASTING).cut()
    gateway.broker.holds = (SaveSessions,)
    gateway.pass_time(3)
    back = gateway.open(5)
    back.send(Connect("c", **LASTING))
    assert back.got_one(Connack).session_present
    gateway.broker.let_go()
    gateway.round()
    gateway.pass_time(5)
    assert published(gateway) == []


def test_a_will_waits_while_its_home_is_away() -> None:
    gateway = Gateway()
    gateway.connect("c", will=delayed(2), **LASTING).cut()
    gateway.broker.refuses[SaveSessions] = Unavailable("away")
    gateway.pass_time(10)
    assert published(gateway) == []
    del gateway.broker.refuses[SaveSessions]
    gateway.pass_time(3)
    assert published(gateway) == [b"gone"]


def test_a_will_that_was_published_is_not_published_when_the_gateway_dies_later() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(2), **LASTING).cut()
    one.pass_time(5)
    assert published(one) == [b"gone"]
    other.pass_time(60)
    assert published(other) == [b"gone"]


def lost() -> Unavailable:
    error = Unavailable("the connection broke")
    error.unknown = True
    return error


@pytest.mark.parametrize("error", [Unavailable("away"), StorageFull("full"), TimedOut("late"), lost()])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_will_is_published_when_its_broker_is_back(error: Exception, is_known: bool) -> None:
    gateway = Gateway()
    if is_known:
        gateway.upstream.publish_will("other", Left("w", b"warm", 0, False, 0, NEVER, b""), None)
        gateway.round()
    client = gateway.connect("c", will=Will("w", b"gone", 1))
    gateway.broker.refuses[AppendRuns] = error  # type: ignore[assignment]
    client.cut()
    gateway.pass_time(10)
    assert b"gone" not in published(gateway)
    del gateway.broker.refuses[AppendRuns]
    gateway.pass_time(2)
    gateway.pass_time(60)
    assert published(gateway).count(b"gone") == 1
    assert gateway.upstream.dropped == 0


@pytest.mark.parametrize("delay_s", [0, 2])
@pytest.mark.parametrize("asked", [{}, {"level": 5}, LASTING])
@pytest.mark.mqtt("3.1.2-8", old=("3.1.2-8",))
def test_a_will_that_is_not_stored_when_its_gateway_dies_is_published_by_another_one(
    asked: dict[str, object], delay_s: int
) -> None:
    one, other = two_gateways()
    will = delayed(delay_s) if asked is LASTING else Will("w", b"gone", 1)
    client = one.connect("c", will=will, **asked)
    one.broker.refuses[AppendRuns] = Unavailable("away")
    client.cut()
    one.pass_time(5)
    assert published(one) == []
    del one.broker.refuses[AppendRuns]
    other.pass_time(60)  # the first one has no rounds any more
    assert published(other) == [b"gone"]
    assert len(one.broker.state.sessions) == (asked is LASTING)
    other.pass_time(60)
    assert published(other) == [b"gone"]


@pytest.mark.parametrize("asked", [{}, {"level": 5}, LASTING])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_client_that_is_back_before_its_will_is_stored_gets_its_session_and_the_will_comes_once(
    asked: dict[str, object], where: str
) -> None:
    one, other = two_gateways()
    client = one.connect("c", will=Will("w", b"gone", 1), **asked)
    one.broker.refuses[AppendRuns] = Unavailable("away")
    client.cut()
    one.pass_time(2)
    gateway = one if where == "here" else other
    back = gateway.open(5)
    back.send(Connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=1000)))
    settle(one, other)
    assert back.got_one(Connack).session_present is (asked is LASTING)
    del one.broker.refuses[AppendRuns]
    for _ in range(4):
        for each in (one, other):
            each.pass_time(5)
    assert published(one) == [b"gone"]
    assert not back.is_closed
    entry = one.broker.state.sessions.get("c")
    assert entry is not None
    assert (entry.owner, entry.state) == ("one" if where == "here" else "other", CONNECTED)


def test_the_session_of_a_will_that_is_given_up_is_let_go() -> None:
    gateway = Gateway()
    gateway.broker.refused_records = {0: InvalidMessage("x")}
    gateway.connect("stays", will=Will("w", b"gone", 1), **LASTING).cut()
    gateway.connect("ends", will=Will("w", b"gone", 1)).cut()
    gateway.pass_time(1)
    assert gateway.broker.state.sessions.get("ends") is None
    entry = gateway.broker.state.sessions.get("stays")
    assert entry is not None
    assert (entry.state, entry.will) == (RELEASED, NO_WILL)


def test_a_claim_whose_answer_was_lost_is_offered_anew() -> None:
    one, other = two_gateways()
    one.connect("c", will=Will("w", b"gone", 1), **LASTING)
    other.broker.holds = (OpenSession,)
    other.pass_time(40)
    assert [made.claim for made in other.broker.made(OpenSession)][-1], "it was claimed"
    other.broker.holds = ()
    other.broker.lose_kept_back(lost())
    other.pass_time(30)
    assert published(other) == [b"gone"]
    other.pass_time(60)
    assert published(other) == [b"gone"]


def test_a_will_waits_until_some_broker_can_have_its_topic() -> None:
    gateway = Gateway()
    client = gateway.connect("c", will=Will("w", b"gone", 1))
    gateway.broker.has_brokers = False
    client.cut()
    gateway.pass_time(10)
    gateway.broker.has_brokers = True
    gateway.pass_time(2)
    assert published(gateway) == [b"gone"]
    assert gateway.upstream.dropped == 0


def test_a_will_that_is_refused_for_good_is_counted_and_not_tried_again() -> None:
    gateway = Gateway()
    client = gateway.connect("c", will=Will("w", b"gone", 1))
    gateway.broker.refused_records = {0: InvalidMessage("x")}
    client.cut()
    gateway.pass_time(10)
    assert published(gateway) == []
    assert gateway.upstream.dropped == 1


def test_wills_that_wait_for_a_broker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.connections.wills.KEPT_BYTES_MAX", 1 << 20)
    gateway = Gateway()
    gateway.upstream.publish_will("other", Left("w", b"warm", 0, False, 0, NEVER, b""), None)
    gateway.round()
    wills, many = gateway.wills, ((1 << 20) >> 16) - 1
    for _ in range(2):  # what was stored leaves room for others
        gateway.broker.refuses[AppendRuns] = Unavailable("away")
        for at in range(many + 3):
            wills.publish(str(at), Left("w", bytes(1 << 16), 1, False, 0, NEVER, b""))
        gateway.pass_time(1)
        del gateway.broker.refuses[AppendRuns]
        gateway.pass_time(1)
    assert len(published(gateway)) == 1 + 2 * many
    assert gateway.upstream.dropped == 6


def test_a_kept_will_that_cannot_be_published_is_counted_and_harms_nobody() -> None:
    gateway = Gateway()
    gateway.wills.publish("c", session_state.Will("w", b"", 1, False, 0, NEVER, bytes(200_000)))
    gateway.round()
    assert (gateway.upstream.dropped, gateway.broker.messages()) == (1, [])


def test_a_will_that_may_not_be_published_any_more_is_counted_as_unauthorized() -> None:
    access = Access("everyone", 1, 0, b"key", lambda: None, HandClock().monotonic)
    gateway = Gateway(access)
    client = gateway.connect("c", will=Will("w", b"gone", 1))
    access.set_acl(parse_acl(""))
    client.cut()
    gateway.round()
    assert published(gateway) == []
    assert (gateway.upstream.dropped, gateway.upstream.unauthorized) == (1, 1)
