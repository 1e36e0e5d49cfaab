"""Finding the home of sessions, keeping the lease there, and being called upon."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.mqtt.packets import Connack, Connect, Disconnect, Will
from gateway.mqtt.properties import Properties
from penstock.errors import Unavailable
from penstock.requests.sessions import HOME_TOPIC, KeepSessions, OpenSession, SaveSessions
from topicmap.queues import TopicMap, check_topic

LASTING = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}


def settle(*gateways: Gateway) -> None:
    """Rounds of all gateways until each has heard of what the others did."""
    for _ in range(5):
        for gateway in gateways:
            gateway.rounds.begin()
            gateway.round()


def two(**settings: object) -> tuple[Gateway, Gateway]:
    one = Gateway(name="one", **settings)
    other = Gateway(beside=one, name="other", **settings)
    for gateway in (one, other):
        gateway.pass_time(1)
    return one, other


def test_no_device_can_name_the_topic_of_the_home() -> None:
    check_topic(HOME_TOPIC)
    assert TopicMap().place(HOME_TOPIC).topic != HOME_TOPIC


@pytest.mark.mqtt("3.1.4-3", "4.13.1-1", old=("3.1.4-2",))
def test_a_client_that_goes_to_another_gateway_is_told_at_the_first_and_finds_its_session() -> None:
    one, other = two()
    first = one.connect("c", **LASTING)
    first.subscribe("t", qos=1)
    second = other.open(5)
    second.send(Connect("c", **LASTING))
    settle(one, other)
    assert first.got() == [Disconnect(0x8E)]
    assert second.got_one(Connack).session_present
    one.produce("t", b"x", qos=1)
    settle(one, other)
    assert second.payloads() == [b"x"]
    assert (len(one.reception.sessions), len(other.reception.sessions)) == (0, 1)


def test_a_session_without_expiry_is_taken_over_too() -> None:
    one, other = two()
    first = one.connect("c", level=5)
    second = other.open(5)
    second.send(Connect("c", clean_start=False, level=5))
    settle(one, other)
    assert first.got() == [Disconnect(0x8E)]
    assert not second.got_one(Connack).session_present


def test_a_gateway_that_does_not_answer_loses_the_session_after_a_second() -> None:
    one, other = two()
    one.connect("c", **LASTING).subscribe("t", qos=1)
    second = other.open(5)
    second.send(Connect("c", **LASTING))
    assert second.got() == []  # the first gateway hangs: it has no rounds
    other.pass_time(1.5)
    assert second.got_one(Connack).session_present


def test_the_lease_is_renewed_in_time_and_tells_of_a_fresh_start_once() -> None:
    gateway = Gateway(session_lease_s=9.0)
    gateway.pass_time(10)
    kept = gateway.broker.made(KeepSessions)
    assert kept[0].fresh
    assert not any(request.fresh for request in kept[1:])
    assert 3 <= len(kept) <= 6


def test_saves_leave_before_whatever_is_asked_next() -> None:
    gateway = Gateway()
    first = gateway.connect("c", **LASTING)
    first.subscribe("t", qos=1)
    gateway.connect("c", **LASTING)
    kinds = [type(request) for request in gateway.broker.requests if isinstance(request, SaveSessions | OpenSession)]
    assert kinds == [OpenSession, SaveSessions, SaveSessions, OpenSession]


@pytest.mark.parametrize(("level", "code"), [(4, 3), (5, 0x88)])
def test_without_its_home_no_session_is_given(level: int, code: int) -> None:
    gateway = Gateway()
    gateway.broker.refuses[OpenSession] = Unavailable("away")
    client = gateway.open(level)
    client.send(Connect("c", level=level))
    assert client.got_one(Connack).reason_code == code
    assert client.is_closed
    del gateway.broker.refuses[OpenSession]
    gateway.connect("c", level=level)


def test_a_client_whose_session_is_not_to_be_had_in_time_is_told_so() -> None:
    gateway = Gateway(has_brokers=False, connect_wait_s=3.0)
    client = gateway.open(5)
    client.send(Connect("c", level=5))
    gateway.pass_time(5)
    assert client.got_one(Connack).reason_code == 0x88
    assert gateway.reception.half_open == 0


# ---------------------------------------------------------------- a beginning that goes wrong


def test_no_session_is_asked_for_before_the_home_has_heard_of_the_fresh_start() -> None:
    gateway = Gateway()
    gateway.broker.refuses[KeepSessions] = Unavailable("away")
    gateway.pass_time(1)
    early = gateway.open(5)
    early.send(Connect("c", will=Will("w", b"dead", 1), **LASTING))
    gateway.pass_time(1)
    assert (early.got(), gateway.broker.made(OpenSession)) == ([], [])
    del gateway.broker.refuses[KeepSessions]
    gateway.pass_time(12)
    assert early.got_one(Connack).reason_code == 0
    early.subscribe("t", qos=1)  # its session is its own still
    assert gateway.broker.bodies() == []


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


def test_what_waits_for_the_home_is_one_opening_for_each_connection_that_is_there() -> None:
    gateway = Gateway(has_brokers=False)
    for number in range(20):
        gone = gateway.open()
        gone.send(Connect(f"gone {number}"))
        gone.cut()
    late = gateway.open(5)
    late.send(Connect("late", level=5))
    gateway.pass_time(8)
    earlier, later = gateway.open(5), gateway.open(5)
    for client in (earlier, later):
        client.send(Connect("c", level=5))
    assert earlier.got_one(Connack).reason_code == 0x88
    gateway.pass_time(4)
    assert late.got_one(Connack).reason_code == 0x88
    gateway.broker.has_brokers = True
    gateway.pass_time(1)
    assert later.got_one(Connack).reason_code == 0
    assert [asked.client for asked in gateway.broker.made(OpenSession)] == ["c"]
