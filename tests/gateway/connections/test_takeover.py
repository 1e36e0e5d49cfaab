"""A client that connects again: the connection that had its session goes."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.mqtt.packets import Disconnect, Will
from gateway.mqtt.properties import Properties


def published(gateway: Gateway) -> list[tuple[str, bytes]]:
    return [(message.name, message.body) for message in gateway.broker.messages()]


@pytest.mark.mqtt("3.1.4-3", old=("3.1.4-2",))
def test_a_second_connection_takes_the_session_over() -> None:
    gateway = Gateway()
    first = gateway.connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=60))
    first.subscribe("t", qos=1)
    second = gateway.connect("c", level=4, clean_start=False)
    assert first.got() == [Disconnect(0x8E)]
    assert first.is_closed
    second.publish("t", b"x", 1, packet_id=1)
    assert b"x" in second.payloads()
    first.cut()
    assert second.device.session is not None
    assert second.device.session.device is second.device


def test_a_taken_over_connection_carries_nothing_more_out() -> None:
    gateway = Gateway()
    first = gateway.connect("c")
    gateway.connect("c")
    first.is_closed = False
    first.publish("a", b"late")
    assert gateway.broker.messages() == []


def test_a_takeover_cancels_a_delayed_will_but_publishes_one_without_delay() -> None:
    gateway = Gateway()
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    gateway.connect("a", will=Will("w", b"a", properties=Properties(will_delay_interval=5)), **asked)
    gateway.connect("a", **asked)
    gateway.connect("b", will=Will("w", b"b"), **asked)
    gateway.connect("b", **asked)
    gateway.pass_time(20)
    assert published(gateway) == [("w", b"b")]
