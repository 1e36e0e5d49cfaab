"""Inbound QoS 2 exchanges that outlive the gateway: stored once, free only when that is durable."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.mqtt.packets import Connack, Connect, Pubcomp, Publish, Pubrec, Pubrel
from penstock.errors import Unavailable
from penstock.requests.sessions import FetchExchanges, ReleaseExchanges


@pytest.mark.mqtt("4.3.3-10", "4.3.3-12", old=("4.3.3-2",))
def test_a_message_that_is_sent_again_to_another_gateway_is_stored_once() -> None:
    one = Gateway(name="one")
    one.pass_time(1)
    client = one.connect("c", clean_start=False)
    client.publish("t", b"x", 2, packet_id=7)
    assert client.got() == [Pubrec(7)]
    other = Gateway(beside=one, name="other")  # the first one is gone without a word
    again = other.open()
    again.send(Connect("c", clean_start=False), Publish("t", b"x", 2, packet_id=7, dup=True))
    other.pass_time(1.5)
    assert again.got() == [Connack(True), Pubrec(7)]
    again.send(Pubrel(7))
    assert again.got() == [Pubcomp(7)]
    again.publish("t", b"y", 2, packet_id=7)
    assert one.broker.bodies() == [b"x", b"y"]


def test_a_pubcomp_leaves_only_when_the_id_is_free_for_ever() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    for packet_id in (1, 2):
        client.publish("t", b"x", 2, packet_id=packet_id)
    client.got()
    gateway.broker.holds = (ReleaseExchanges,)
    client.send(Pubrel(1), Pubrel(2))
    assert client.got() == []
    gateway.broker.let_go()
    gateway.round()
    assert client.got() == [Pubcomp(1), Pubcomp(2)]
    assert len(gateway.broker.made(ReleaseExchanges)) == 1, "one request for the ids of a round"


def test_a_pubrel_that_cannot_be_made_durable_ends_the_connection_and_is_answered_on_the_next() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    client.publish("t", b"x", 2, packet_id=1)
    gateway.broker.refuses[ReleaseExchanges] = Unavailable("away")
    client.send(Pubrel(1))
    assert client.is_closed
    del gateway.broker.refuses[ReleaseExchanges]
    again = gateway.connect("c", clean_start=False)
    again.send(Pubrel(1))
    assert again.got() == [Pubcomp(1)]


def test_a_client_is_not_admitted_while_its_open_exchanges_are_unknown() -> None:
    gateway = Gateway()
    gateway.connect("c", clean_start=False).cut()
    gateway.broker.refuses[FetchExchanges] = Unavailable("away")
    client = gateway.open()
    client.send(Connect("c", clean_start=False))
    assert client.got_one(Connack).reason_code == 3
    del gateway.broker.refuses[FetchExchanges]
    again = gateway.open()
    again.send(Connect("c", clean_start=False))
    assert again.got_one(Connack).session_present


def test_the_exchanges_of_a_session_that_has_ended_are_forgotten() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    client.publish("t", b"x", 2, packet_id=1)
    gateway.connect("c")
    assert len(gateway.broker.state.exchanges) == 0


def test_a_session_that_ends_with_its_connection_keeps_its_ids_to_itself() -> None:
    gateway = Gateway()
    client = gateway.connect("c")
    client.publish("t", b"x", 2, packet_id=1)
    assert len(gateway.broker.state.exchanges) == 0
    client.send(Pubrel(1))
    assert client.got() == [Pubrec(1), Pubcomp(1)]
