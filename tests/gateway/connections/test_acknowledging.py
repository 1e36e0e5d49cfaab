"""Acknowledgements make room, and those of MQTT 5 say what was not found."""

from __future__ import annotations

from typing import Any

import pytest
from rig import Gateway

from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.requests.sessions import SaveSessions


def test_an_acknowledgement_makes_room_for_what_waits_in_the_log() -> None:
    gateway = Gateway(in_flight_max=1)
    client = gateway.connect()
    client.subscribe("t", qos=2)
    for at, qos in enumerate((1, 2, 2, 1)):
        gateway.produce("t", bytes([at]), qos=qos)
    gateway.round()
    first = client.got_one(Publish)
    client.send(Puback(first.packet_id))
    second = client.got_one(Publish)
    client.send(Pubrec(second.packet_id))
    assert client.got() == [Pubrel(second.packet_id)]
    client.send(Pubcomp(second.packet_id))
    third = client.got_one(Publish)
    assert [first.payload, second.payload, third.payload] == [b"\0", b"\1", b"\2"]


@pytest.mark.mqtt("4.3.3-4")
@pytest.mark.parametrize("reason", [0x80, 0x97])
def test_a_message_that_the_client_refuses_makes_room_too(reason: int) -> None:
    gateway = Gateway(in_flight_max=1)
    client = gateway.connect(level=5)
    client.subscribe("t", qos=2)
    for at in range(2):
        gateway.produce("t", bytes([at]), qos=2)
    gateway.round()
    client.send(Pubrec(client.got_one(Publish).packet_id, reason))
    assert client.got_one(Publish).payload == b"\1"


@pytest.mark.parametrize(("level", "reason"), [(4, 0), (5, 0x92)])
def test_an_unknown_id_is_answered_all_the_same(level: int, reason: int) -> None:
    client = Gateway().connect(level=level)
    client.send(Pubrec(9), Pubrel(9), Puback(9), Pubcomp(9))
    assert client.got() == [Pubrel(9, reason), Pubcomp(9, reason)]


@pytest.mark.mqtt("4.3.3-12", old=("4.3.3-2",))
@pytest.mark.parametrize("asked", [{"level": 4, "clean_start": True}, {"level": 4, "clean_start": False}])
def test_a_pubrel_that_does_not_wait_for_its_pubrec_frees_the_id_only_when_the_message_is_stored(
    asked: dict[str, Any],
) -> None:
    """Nothing lost: both messages that the client sent under the id are stored, each once."""
    gateway = Gateway()
    client = gateway.connect(**asked)
    for body in (b"first", b"second"):
        client.send(Publish("t", body, 2, packet_id=5), Pubrel(5))
        assert client.got() == [Pubrec(5), Pubcomp(5)]
    gateway.broker.holds_replies = True
    client.send(Publish("t", b"third", 2, packet_id=5), Pubrel(5))
    client.send(Publish("t", b"third", 2, dup=True, packet_id=5), Pubrel(5))
    assert client.got() == []
    gateway.broker.holds_replies = False
    gateway.broker.release()
    gateway.round()
    assert client.got() == [Pubrec(5), Pubcomp(5)]
    assert gateway.broker.bodies() == [b"first", b"second", b"third"]


def test_a_pubrec_that_comes_again_while_its_pubrel_waits_for_a_save_adds_nothing() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    client.subscribe("t", qos=2)
    gateway.produce("t", b"x", qos=2)
    packet_id = client.got_one(Publish).packet_id
    gateway.broker.holds = (SaveSessions,)
    for _ in range(10):
        client.send(*[Pubrec(packet_id)] * 100)
    assert client.got() == []
    gateway.broker.let_go()
    gateway.round()
    assert client.got() == [Pubrel(packet_id)]


@pytest.mark.parametrize("clean_start", [True, False])
def test_a_pubrel_that_has_left_leaves_again_when_its_pubrec_comes_again(clean_start: bool) -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=clean_start)
    client.subscribe("t", qos=2)
    gateway.produce("t", b"x", qos=2)
    packet_id = client.got_one(Publish).packet_id
    for _ in range(3):
        client.send(Pubrec(packet_id))
        assert client.got() == [Pubrel(packet_id)]
    client.send(Pubcomp(packet_id), Pubrec(packet_id))
    assert client.got() == [Pubrel(packet_id)]
