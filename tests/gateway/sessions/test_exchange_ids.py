"""Inbound QoS 2 exchanges that outlive the gateway: stored once, free only when that is durable."""

from __future__ import annotations

import pytest
from rig import Client, Gateway

from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import Properties
from penstock.errors import Fenced, Unavailable
from penstock.protocol.requests.sessions import FetchExchanges, ReleaseExchanges


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


@pytest.mark.parametrize("level", [4, 5])
def test_a_message_that_comes_too_late_for_its_session_ends_the_connection_and_is_not_refused(level: int) -> None:
    gateway = Gateway()
    client = gateway.connect(
        "c", level=level, clean_start=False, properties=Properties(session_expiry_interval=100 if level == 5 else None)
    )
    gateway.broker.refused_records[0] = Fenced("another gateway has this session by now")
    client.publish("t", b"x", 2, packet_id=7)
    assert client.got() == ([Disconnect(0x8E)] if level == 5 else [])
    assert client.is_closed


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


def back(gateway: Gateway) -> Client:
    """A client whose session goes on."""
    return gateway.connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=100))


def exchanges(*ids: int, dup: bool = False) -> list[Publish]:
    return [Publish("t", b"x", 2, packet_id=packet_id, dup=dup) for packet_id in ids]


@pytest.mark.mqtt("3.3.4-7", "4.4.0-1", "4.9")
def test_exchanges_that_an_earlier_connection_left_open_do_not_count_against_the_receive_maximum() -> None:
    gateway = Gateway(receive_max=3)
    client = back(gateway)
    client.send(*exchanges(1, 2, 3))
    client.cut()
    again = back(gateway)
    again.send(Pubrel(1), Pubrel(2), Pubrel(3), Publish("t", b"y", 1, packet_id=9), *exchanges(4, 5))
    assert {*again.got()} == {Pubcomp(1), Pubcomp(2), Pubcomp(3), Puback(9), Pubrec(4), Pubrec(5)}
    assert gateway.broker.bodies().count(b"x") == 5


@pytest.mark.mqtt("3.3.4-7", "4.9")
def test_an_exchange_that_is_sent_again_counts_on_the_connection_that_it_is_sent_on() -> None:
    gateway = Gateway(receive_max=3)
    client = back(gateway)
    client.send(*exchanges(1, 2, 3))
    client.cut()
    again = back(gateway)
    again.send(*exchanges(1, 2, 3, dup=True))
    assert again.got() == [Pubrec(1), Pubrec(2), Pubrec(3)]
    again.send(Pubrel(1))
    again.send(*exchanges(4))
    assert again.got() == [Pubcomp(1), Pubrec(4)]
    again.send(*exchanges(5))
    assert again.got_one(Disconnect).reason_code == 0x93
    assert gateway.broker.bodies() == [b"x"] * 4


def test_a_client_that_never_completes_its_exchanges_cannot_have_more_with_every_connection() -> None:
    gateway = Gateway(receive_max=3)
    for first in (1, 4):
        client = back(gateway)
        client.send(*exchanges(first, first + 1, first + 2))
        assert len(client.got()) == 3
        client.cut()
    client = back(gateway)
    client.send(*exchanges(7))
    refusal = client.got_one(Pubrec)
    assert (refusal.packet_id, refusal.reason_code) == (7, 0x97)
    client.send(Pubrel(1))
    client.send(*exchanges(7))
    assert client.got() == [Pubcomp(1), Pubrec(7)]
    assert len(gateway.broker.messages()) == 7


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


def test_an_exchange_that_comes_in_one_piece_with_the_end_of_its_session_is_forgotten() -> None:
    gateway = Gateway()
    lasting = Properties(session_expiry_interval=3600)
    gateway.connect("other").publish("t", b"the topic is known")
    client = gateway.connect("c", level=5, clean_start=True, properties=lasting)
    client.send(Publish("t", b"x", 2, packet_id=1), Disconnect(0, Properties(session_expiry_interval=0)))
    assert gateway.broker.bodies() == [b"the topic is known", b"x"]
    assert gateway.broker.state.sessions.get("c") is None
    assert gateway.broker.state.exchanges.sessions() == []
