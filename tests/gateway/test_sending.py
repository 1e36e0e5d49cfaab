"""In which form messages go to sessions, and what becomes of those that there is no room for."""

from __future__ import annotations

import pytest
from rig import Gateway
from test_downstream import drain, publishes

from gateway.mqtt.properties import Properties
from penstock.requests.messages import Pull


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.mqtt("3.8.4-8", "3.3.1-2", old=("3.8.4-6", "3.3.1-2"))
def test_the_delivered_qos_is_the_lower_of_published_and_granted(published: int, granted: int) -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.subscribe("a", qos=granted)
    client.publish("a", b"x", published, packet_id=5 if published else 0)
    [delivered] = publishes(client)
    assert (delivered.qos, delivered.dup, delivered.retain) == (min(published, granted), False, False)


@pytest.mark.mqtt("3.3.1-12", "3.3.1-13")
def test_retain_is_kept_only_as_published() -> None:
    gateway = Gateway()
    plain, asking = gateway.connect("p", level=5), gateway.connect("a", level=5)
    plain.subscribe("t")
    asking.subscribe("t", retain_as_published=True)
    plain.publish("t", b"x", retain=True)
    assert [packet.retain for packet in publishes(plain)] == [False]
    assert [packet.retain for packet in publishes(asking)] == [True]


@pytest.mark.mqtt("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-20")
def test_mqtt5_properties_are_forwarded_unaltered_and_in_order() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.subscribe("t")
    sent = Properties(
        payload_format_indicator=1,
        content_type="x",
        response_topic="r/t",
        correlation_data=b"\x00\xff",
        user_properties=(("b", "1"), ("a", "2"), ("b", "1")),
    )
    client.publish("t", b"x", properties=sent)
    [delivered] = publishes(client)
    assert delivered.properties == sent


@pytest.mark.mqtt("3.3.2-5", "3.3.2-6")
def test_a_message_expires_while_it_waits_and_says_how_long_it_has_left() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=100))
    client.subscribe("t")
    client.cut()
    other = gateway.connect("p", level=5)
    for at, expiry_s in ((1, 10), (2, 60)):
        other.publish("t", bytes([at]), 1, packet_id=at, properties=Properties(message_expiry_interval=expiry_s))
    gateway.pass_time(20)
    again = gateway.connect("c", level=5, clean_start=False)
    [delivered] = publishes(again)
    assert delivered.payload == b"\x02"
    assert delivered.properties.message_expiry_interval == 40


def test_a_fan_out_is_encoded_once_and_pulled_once() -> None:
    gateway = Gateway()
    clients = [gateway.connect(f"s{at}") for at in range(10)]
    for client in clients:
        client.subscribe("t", qos=1)
    pulls = len(gateway.broker.made(Pull))
    publisher = gateway.connect("p")
    publisher.publish("t", b"x", 1, packet_id=1)
    assert [drain(client) for client in clients] == [[b"x"]] * 10
    assert len(gateway.broker.made(Pull)) == pulls + 1
    assert gateway.downstream.sending.delivered == 10


def test_qos_0_for_a_full_connection_is_dropped_and_counted() -> None:
    gateway = Gateway()
    client, publisher = gateway.connect(), gateway.connect("p")
    client.subscribe("t", qos=0)
    client.is_full = True
    publisher.publish("t", b"lost")
    client.is_full = False
    publisher.publish("t", b"kept")
    assert client.payloads() == [b"kept"]
    assert gateway.downstream.sending.dropped == 1


def test_qos_1_for_a_full_connection_waits_in_the_log() -> None:
    gateway = Gateway()
    client, publisher = gateway.connect(), gateway.connect("p")
    client.subscribe("t", qos=1)
    client.is_full = True
    publisher.publish("t", b"kept", 1, packet_id=1)
    assert client.payloads() == []
    client.is_full = False
    client.device.writable()
    gateway.round()
    assert client.payloads() == [b"kept"]


@pytest.mark.mqtt("3.1.2-24", "3.1.2-25")
def test_a_message_larger_than_the_client_takes_is_passed_over() -> None:
    gateway = Gateway()
    client, publisher = (
        gateway.connect("s", level=5, properties=Properties(maximum_packet_size=100)),
        gateway.connect("p"),
    )
    client.subscribe("t", qos=1)
    for at, size in enumerate((10, 200, 20)):
        publisher.publish("t", bytes(size), 1, packet_id=at + 1)
    assert [len(packet.payload) for packet in publishes(client)] == [10, 20]
