"""A CONNECT that is refused before its client is asked who it is."""

from __future__ import annotations

import pytest
from rig import Client, Gateway

from gateway.mqtt.packets import Connack, Connect


def refused(gateway: Gateway, packet: Connect) -> tuple[Client, Connack]:
    client = gateway.open(packet.level)
    client.send(packet)
    assert client.is_closed
    return client, client.got_one(Connack)


@pytest.mark.mqtt(old=("3.1.3-7", "3.1.3-8"))
def test_an_empty_id_needs_a_clean_session_before_mqtt5() -> None:
    gateway = Gateway()
    assert refused(gateway, Connect("", clean_start=False))[1] == Connack(False, 2)
    assert gateway.connect("", clean_start=True).device.session is not None


@pytest.mark.mqtt("3.1 client id")
def test_mqtt_3_1_has_no_empty_ids_but_may_have_long_ones() -> None:
    gateway = Gateway()
    assert refused(gateway, Connect("", clean_start=True, level=3))[1] == Connack(False, 2)
    assert gateway.connect("x" * 24, level=3).device.session is not None


@pytest.mark.parametrize("client_id", ["x" * 257, "a\x7fb"])
@pytest.mark.mqtt("3.1.3-8", old=("3.1.3-9",))
def test_an_unfit_id_is_refused(client_id: str) -> None:
    gateway = Gateway()
    assert refused(gateway, Connect(client_id))[1] == Connack(False, 2)
    told = refused(gateway, Connect(client_id, level=5))[1]
    assert isinstance(told, Connack)
    assert told.reason_code == 0x85
