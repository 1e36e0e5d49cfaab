"""Whether a gateway can serve."""

from __future__ import annotations

import pytest
from linked_broker import LinkedBroker
from rig import Gateway, draining

from gateway.health import AWAY_S, PING_S, Health
from penstock.errors import Busy, Unavailable
from penstock.protocol.requests.routes import QueryRoute
from penstock.protocol.requests.servers import Ping
from penstock.protocol.requests.sessions import KeepSessions
from penstock.protocol.requests.topics import DescribeTopic


def watched(gateway: Gateway, trouble: list[str] | None = None) -> Health:
    drain = draining(gateway, 1)
    said = trouble if trouble is not None else [""]
    return Health(gateway.brokers, gateway.home, gateway.upstream, drain, lambda: said[0], gateway.clock.now_s)


def pass_time(gateway: Gateway, health: Health, seconds: float) -> None:
    until = gateway.clock.now_s + seconds
    while gateway.clock.now_s < until:
        health.tick(gateway.clock.now_s)
        gateway.pass_time(0.5)


def test_a_gateway_whose_broker_answers_is_ready() -> None:
    gateway = Gateway()
    health = watched(gateway)
    pass_time(gateway, health, 3 * PING_S)
    assert health.reasons() == []
    assert health.brokers_away == 0
    assert len(gateway.broker.made(Ping)) == 3


def test_a_broker_that_answers_tells_what_time_it_is_there() -> None:
    gateway, told = Gateway(), list[int]()
    drain = draining(gateway, 1)
    health = Health(
        gateway.brokers, gateway.home, gateway.upstream, drain, lambda: "", gateway.clock.now_s, told.append
    )
    pass_time(gateway, health, 1)
    first = gateway.clock.wall_ms()
    pass_time(gateway, health, PING_S)
    assert [0 <= now_ms - first <= PING_S * 1000 for now_ms in told[1:]] == [True]


def test_without_a_broker_it_is_not() -> None:
    gateway = Gateway(has_brokers=False)
    assert "no broker is known" in watched(gateway).reasons()[0]


def test_a_broker_that_fails_counts_as_away_until_it_answers_again() -> None:
    gateway = Gateway()
    health = watched(gateway)
    gateway.broker.refuses[Ping] = Unavailable("nobody listens at broker:1")
    pass_time(gateway, health, PING_S)
    assert "nobody listens" in health.reasons()[0]
    assert health.brokers_away == 1
    gateway.broker.refuses.clear()
    pass_time(gateway, health, PING_S)
    assert health.reasons() == []


def test_a_broker_that_never_answers_counts_as_away_and_is_asked_once() -> None:
    gateway = Gateway()
    health = watched(gateway)
    gateway.broker.silent.add(Ping)
    pass_time(gateway, health, AWAY_S + 2 * PING_S)
    assert "silent" in health.reasons()[0]
    assert len(gateway.broker.made(Ping)) == 1


def test_a_broker_that_is_lost_and_back_has_one_line_each_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway()
    health = watched(gateway)
    (broker,) = gateway.brokers.known
    pass_time(gateway, health, PING_S)
    assert caplog.messages == []
    gateway.broker.refuses[Ping] = Unavailable("nobody listens at broker:1")
    pass_time(gateway, health, 6 * PING_S)
    assert caplog.messages == [f"broker {broker.name} lost: nobody listens at broker:1"]
    gateway.broker.refuses.clear()
    pass_time(gateway, health, 3 * PING_S)
    assert caplog.messages[1:] == [f"broker {broker.name} back after 30 s"]
    gateway.broker.silent.add(Ping)
    pass_time(gateway, health, AWAY_S + 2 * PING_S)
    assert caplog.messages[2:] == [f"broker {broker.name} lost: silent for more than 15 s"]


def test_name_servers_that_are_lost_and_back_have_one_line_each_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway()
    health = watched(gateway)
    gateway.broker.refuses[QueryRoute] = Unavailable("nobody listens at namesrv:1")
    for _ in range(5):
        gateway.brokers.refresh()
        pass_time(gateway, health, 1)
    assert caplog.messages == ["name servers lost: nobody listens at namesrv:1"]
    gateway.broker.refuses.clear()
    gateway.brokers.refresh()
    pass_time(gateway, health, 1)
    assert caplog.messages[1:] == ["name servers back after 5 s"]


def test_a_gateway_that_has_moved_is_not_ready() -> None:
    assert watched(Gateway(has_moved=True)).reasons() == ["this gateway has moved and refuses all clients"]


def test_a_gateway_that_may_have_lost_its_sessions_is_not_ready_until_the_home_has_answered() -> None:
    gateway = Gateway()
    health = watched(gateway)
    gateway.pass_time(1)
    gateway.broker.holds = (KeepSessions,)
    gateway.lease_recovery.doubt()
    gateway.round()
    assert health.reasons() == ["this gateway may have lost sessions, and stores nothing until their home has answered"]
    gateway.broker.let_go()
    gateway.round()
    assert health.reasons() == []


def test_a_listener_in_trouble_and_a_drain_are_reasons_too() -> None:
    gateway = Gateway()
    trouble = [""]
    drain = draining(gateway, 1)
    health = Health(gateway.brokers, gateway.home, gateway.upstream, drain, lambda: trouble[0], gateway.clock.now_s)
    assert health.reasons() == []
    trouble[0] = "Too many open files"
    assert health.reasons() == ["the listener does not accept: Too many open files"]
    trouble[0] = ""
    drain.begin()
    assert health.reasons() == ["this gateway is being drained"]


def test_a_home_that_is_not_found_keeps_traffic_away_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway(has_brokers=False)
    health = watched(gateway)
    gateway.broker.has_brokers = True
    gateway.broker.refuses[DescribeTopic] = Busy("this broker has 10 topics already, its limit")
    gateway.brokers.refresh()
    pass_time(gateway, health, 2 * PING_S)
    assert health.reasons() == [
        "no client gets in, for the home of sessions is not found: this broker has 10 topics already, its limit"
    ]
    gateway.broker.refuses.clear()
    pass_time(gateway, health, PING_S)
    assert health.reasons() == []
    told = [line for line in caplog.messages if "home of sessions" in line]
    assert told == [
        "the home of sessions not found: this broker has 10 topics already, its limit",
        "the home of sessions back after 10 s",
    ]


def test_one_broker_of_several_may_be_away_but_not_the_one_where_sessions_are_at_home() -> None:
    gateway = Gateway()
    second = LinkedBroker(gateway.clock, "c", "broker:2")
    gateway.connect("c")
    gateway.learn(second)
    health = watched(gateway)
    second.refuses[Ping] = Unavailable("nobody listens at broker:2")
    pass_time(gateway, health, PING_S)
    assert (health.reasons(), health.brokers_away) == ([], 1)
    second.refuses.clear()
    gateway.broker.refuses[Ping] = Unavailable("nobody listens at broker:1")
    pass_time(gateway, health, PING_S)
    assert health.reasons() == [
        "no client gets in, for b, where sessions are at home, is away: nobody listens at broker:1"
    ]
    gateway.broker.refuses.clear()
    pass_time(gateway, health, PING_S)
    assert health.reasons() == []
