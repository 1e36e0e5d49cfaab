"""SUBSCRIBE: judged filter by filter, answered by one SUBACK."""

from __future__ import annotations

import pytest
from own_topics import OnlyOwnTopics
from rig import Client, Gateway

from gateway.connections.subscribing import Subscribing
from gateway.mqtt.codec import encode
from gateway.mqtt.connection import Connection
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from gateway.mqtt.properties import Properties
from penstock.errors import Unavailable
from penstock.protocol.requests.filters import OpenFilters

LASTING = Properties(session_expiry_interval=600)


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.mqtt("3.8.4-1", "3.8.4-2", "3.8.4-6", "3.9.3-1", old=("3.8.4-1", "3.8.4-2", "3.8.4-5", "3.9.3-1"))
def test_the_suback_has_one_code_per_filter_in_order(level: int) -> None:
    client = Gateway().connect(level=level)
    client.send(Subscribe(7, (Subscription("a", 2), Subscription("b/+", 0), Subscription("c/#", 1))))
    assert client.got() == [Suback(7, (2, 0, 1))]


@pytest.mark.mqtt("3.8.4-7", old=("3.9.3-2",))
def test_filters_are_refused_one_by_one() -> None:
    gateway = Gateway(OnlyOwnTopics(), shared_subscriptions=False)
    asked = (
        Subscription("a", 1),
        Subscription("/".join("a" * 200), 1),
        Subscription("$share/g/a", 1),
        Subscription("secret/x", 1),
        Subscription("b", 0),
    )
    old, new = gateway.connect("old"), gateway.connect("new", level=5)
    for client in (old, new):
        client.send(Subscribe(1, asked))
    assert old.got() == [Suback(1, (1, 0x80, 0x80, 0x80, 0))]
    assert new.got() == [Suback(1, (1, 0x8F, 0x9E, 0x87, 0))]


def test_a_session_has_so_many_subscriptions_and_may_replace_them() -> None:
    gateway = Gateway(subscriptions_max=2)
    client = gateway.connect(level=5)
    client.send(Subscribe(1, tuple(Subscription(one) for one in "abc")))
    assert client.got() == [Suback(1, (0, 0, 0x97), Properties(reason_string="the limit subscriptions_max is reached"))]
    assert client.subscribe("a", qos=1) == Suback(1, (1,))
    assert gateway.quotas.refused["subscriptions_max"] == 1


def test_a_long_filter_counts_as_several_subscriptions() -> None:
    gateway = Gateway(subscriptions_max=66)
    client = gateway.connect(level=5)
    long = "x" * 65_000
    client.send(Subscribe(1, tuple(Subscription(one) for one in ("a", long, "b", "c", "a", long))))
    told = Properties(reason_string="the limit subscriptions_max is reached")
    assert client.got() == [Suback(1, (0, 0, 0, 0x97, 0, 0), told)]
    client.send(Subscribe(2, (Subscription("d"),)))
    assert client.got() == [Suback(2, (0x97,), told)]


@pytest.mark.interpreted
@pytest.mark.parametrize("asked", [("a",), ("a", "b"), ("a", "a#"), ("a#", "b")])
def test_a_subscribe_whose_filters_are_opened_at_once_is_answered_once(
    asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    told: list[bytes] = []
    monkeypatch.setattr(gateway.downstream, "subscribe", lambda *about: about[3](None))
    packet = Subscribe(1, tuple(Subscription(one, 1) for one in asked))
    Subscribing(client.device, gateway.services, client.device._connection, packet, told.append).go_on(len(asked))
    assert told == [encode(Suback(1, tuple([1 if "#" not in one else 0x8F for one in asked])), 5)]


def test_the_suback_waits_until_every_broker_has_opened_the_filter() -> None:
    gateway = Gateway()
    client = gateway.connect()
    gateway.broker.holds_replies = True
    client.send(Subscribe(1, (Subscription("a"),)))
    assert client.got() == []
    gateway.broker.holds_replies = False
    gateway.round()
    assert client.got() == [Suback(1, (0,))]


def test_without_a_broker_everything_waits_for_one() -> None:
    gateway = Gateway(has_brokers=False)
    client = gateway.open()
    client.send(Connect("c"), Subscribe(1, (Subscription("a"),)))
    assert client.got() == []
    gateway.broker.has_brokers = True
    gateway.brokers.refresh()
    gateway.pass_time(1)
    assert client.got() == [Connack(False), Suback(1, (0,))]


def test_a_broker_that_cannot_open_the_filter_fails_the_subscription() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    client.send(Subscribe(1, (Subscription("a"),)))
    assert client.got() == [Suback(1, (0x80,))]
    assert client.device.session is not None
    assert client.device.session.subscriptions == {}
    del gateway.broker.refuses[OpenFilters]
    assert client.subscribe("a") == Suback(1, (2,))


@pytest.mark.mqtt("3.8.4-3", old=("3.8.4-3",))
def test_a_subscription_replaced_keeps_its_place_and_takes_the_new_options() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.subscribe("t", qos=0)
    client.subscribe("t", qos=1)
    client.publish("t", b"x", 1, packet_id=9)
    assert [packet.qos for packet in client.got() if hasattr(packet, "payload")] == [1]
    assert client.device.session is not None
    assert len(client.device.session.overlap.cursors) == 1


def test_an_unsubscribe_in_the_same_breath_undoes_the_subscribe() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.send(Subscribe(1, (Subscription("a"),)), Unsubscribe(2, ("a", "b")))
    assert sorted(map(repr, client.got())) == sorted(map(repr, [Suback(1, (0,)), Unsuback(2, (0, 0x11))]))
    client.publish("a", b"x")
    assert client.payloads() == []
    assert gateway.broker.filters() == []


def test_a_client_that_is_gone_before_the_answer_leaves_nothing_open() -> None:
    gateway = Gateway()
    client = gateway.connect()
    gateway.broker.holds_replies = True
    client.send(Subscribe(1, (Subscription("a"),)))
    client.cut()
    gateway.broker.holds_replies = False
    gateway.round()
    gateway.pass_time(1)
    assert gateway.broker.filters() == []


def test_a_durable_session_keeps_a_subscription_whose_answer_it_did_not_see() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    gateway.broker.holds_replies = True
    client.send(Subscribe(1, (Subscription("a", 1),)))
    client.cut()
    gateway.broker.holds_replies = False
    gateway.round()
    again = gateway.open()
    again.send(Connect("c", clean_start=False))
    gateway.produce("a", b"x", qos=1)
    gateway.round()
    assert again.payloads() == [b"x"]


@pytest.mark.mqtt("3.3.4-3")
@pytest.mark.parametrize("others", [(), ("elsewhere",)])
def test_a_subscription_identifier_comes_back_with_what_it_delivers(others: tuple[str, ...]) -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    for other in others:  # with several subscriptions it is sent messages one by one
        client.subscribe(other, properties=Properties(subscription_identifiers=(1,)))
    client.subscribe("t", properties=Properties(subscription_identifiers=(300,)))
    client.publish("t", b"x")
    [delivered] = client.got()
    assert delivered.properties.subscription_identifiers == (300,)  # type: ignore[union-attr]
    client.send(Pingreq())


@pytest.mark.parametrize("filter", ["a/#", "$share/g/a/#"])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("takes_over", [False, True])
def test_a_connection_that_ends_in_the_round_of_its_subscribe_leaves_no_filter_open(
    filter: str, qos: int, is_lasting: bool, takes_over: bool
) -> None:
    gateway = Gateway()
    expiry = Properties(session_expiry_interval=10 if is_lasting else 0)
    client = gateway.connect("c", level=5, properties=expiry)
    subscribe = encode(Subscribe(1, (Subscription(filter, qos),)), 5)
    if takes_over:
        gateway.rounds.begin()
        client.device.receive(subscribe)
        gateway.connect("c", level=5).cut()
    else:
        client.send_bytes(subscribe + encode(Pingresp(), 5))  # no client may send that
    assert client.is_closed
    gateway.pass_time(20)
    assert gateway.broker.filters() == []


@pytest.mark.parametrize("again", [False, True])
def test_a_client_that_is_gone_before_the_refusal_disturbs_nobody(again: bool) -> None:
    gateway = Gateway()
    client, other = gateway.connect("c"), gateway.connect("other")
    gateway.broker.holds_replies = True
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    client.send(Subscribe(1, (Subscription("a"),)))
    client.cut()
    gateway.broker.refuses.clear()
    if again:
        other.send(Subscribe(1, (Subscription("a"),)))
    gateway.broker.holds_replies = False
    gateway.round()
    assert not again or other.got() == [Suback(1, (0,))]
    assert again or other.subscribe("a", qos=0) == Suback(1, (0,))
    gateway.produce("a", b"x")
    assert other.payloads() == [b"x"]
    other.send(Unsubscribe(2, ("a",)))
    assert gateway.broker.filters() == []


def test_a_subscription_that_cannot_be_replaced_stands_as_it_was_with_what_waits_for_it() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, clean_start=False, properties=LASTING)
    client.subscribe("a", qos=1)
    client.cut()
    for body in (b"1", b"2", b"3"):
        gateway.produce("a", body, qos=1)
    client = gateway.open(5)
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    client.send(Connect("c", False, level=5, properties=LASTING), Subscribe(1, (Subscription("a", 0),)))
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    gateway.produce("a", b"4", qos=1)
    came = client.got()
    assert [one.reason_codes for one in came if isinstance(one, Suback)] == [(0x80,)]
    assert [(one.payload, one.qos) for one in came if isinstance(one, Publish)] == [
        (body, 1) for body in (b"1", b"2", b"3", b"4")
    ]
    assert gateway.broker.state.filters.held_by(f"~session/{generation_of(client)}") == ["a"]


def test_of_two_that_replace_a_subscription_the_last_that_was_granted_stands() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    for first, second, granted in ((True, False, [1]), (False, False, []), (False, True, [0])):
        client.send(Unsubscribe(9, ("a",)))
        gateway.broker.holds_replies = True
        for number, good, qos in ((1, first, 1), (2, second, 0)):
            gateway.broker.refuses = {} if good else {OpenFilters: Unavailable("away")}
            client.send(Subscribe(number, (Subscription("a", qos),)))
            gateway.broker.settle()
        gateway.broker.refuses = {}
        gateway.broker.holds_replies = False
        gateway.round()
        assert client.device.session is not None
        assert [one.qos for one in client.device.session.subscriptions.values()] == granted


def test_a_share_that_cannot_be_replaced_has_its_member_still() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    client.subscribe("$share/g/a", qos=1)
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    assert client.subscribe("$share/g/a", qos=0) == Suback(1, (0x80,))
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    gateway.produce("a", b"x", qos=1)
    assert [(one.payload, one.qos) for one in client.got() if isinstance(one, Publish)] == [(b"x", 1)]


def generation_of(client: Client) -> str:
    assert client.device.session is not None
    assert client.device.session.lasting is not None
    return client.device.session.lasting.generation


def test_what_was_unsubscribed_on_its_way_does_not_come_back_when_the_next_one_is_refused() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    gateway.broker.holds_replies = True
    client.send(Subscribe(1, (Subscription("a", 1),)))
    client.send(Unsubscribe(2, ("a",)))
    gateway.broker.refuses = {OpenFilters: Unavailable("away")}
    client.send(Subscribe(3, (Subscription("a", 1),)))
    gateway.broker.refuses = {}
    gateway.broker.holds_replies = False
    gateway.round()
    assert [one.reason_codes for one in client.got() if isinstance(one, Suback) and one.packet_id == 3] == [(0x80,)]
    gateway.produce("a", b"x", qos=1)
    assert client.payloads() == []


@pytest.mark.interpreted
def test_an_error_that_nobody_has_foreseen_as_a_broker_answers_ends_that_connection_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stumble(*_: object) -> None:
        raise RuntimeError("planted")

    gateway = Gateway()
    client, other = gateway.connect("c", level=5), gateway.connect("other", level=5)
    monkeypatch.setattr(Connection, "suback", stumble)
    client.send(Subscribe(1, (Subscription("a"),)))
    assert (client.is_closed, other.is_closed, gateway.connections.failures) == (True, False, 1)
