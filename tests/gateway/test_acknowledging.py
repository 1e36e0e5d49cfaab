"""Acknowledgements make room, and those of MQTT 5 say what was not found."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel


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


def test_a_message_that_the_client_refuses_makes_room_too() -> None:
    gateway = Gateway(in_flight_max=1)
    client = gateway.connect(level=5)
    client.subscribe("t", qos=2)
    for at in range(2):
        gateway.produce("t", bytes([at]), qos=2)
    gateway.round()
    client.send(Pubrec(client.got_one(Publish).packet_id, 0x97))
    assert client.got_one(Publish).payload == b"\1"


@pytest.mark.parametrize(("level", "reason"), [(4, 0), (5, 0x92)])
def test_an_unknown_id_is_answered_all_the_same(level: int, reason: int) -> None:
    client = Gateway().connect(level=level)
    client.send(Pubrec(9), Pubrel(9), Puback(9), Pubcomp(9))
    assert client.got() == [Pubrel(9, reason), Pubcomp(9, reason)]
