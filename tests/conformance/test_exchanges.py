"""MQTT 5, 4.3 to 4.6, 4.9 (3.1.1: the same): the QoS exchanges of a whole gateway, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from rig import Client, Gateway

from gateway.mqtt.packets import Connack, Connect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback
from gateway.mqtt.properties import Properties

KEPT = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=1000)}


def subscribed(gateway: Gateway, client_id: str = "s", qos: int = 2, **asked: Any) -> Client:
    client = gateway.connect(client_id, **({"level": 5} | asked))
    client.subscribe("t/#", qos=qos)
    return client


def deliveries(client: Client) -> list[Publish]:
    return [packet for packet in client.got() if isinstance(packet, Publish)]


@pytest.mark.mqtt("3.3.1-3", old=("3.3.1-3",))
@pytest.mark.parametrize("qos", [1, 2])
def test_the_publishers_dup_does_not_reach_the_subscriber(qos: int) -> None:
    gateway = Gateway()
    subscriber = subscribed(gateway)
    gateway.connect("p").publish("t/1", b"x", qos, packet_id=1, dup=True)
    assert [packet.dup for packet in deliveries(subscriber)] == [False]


@pytest.mark.mqtt("4.3.1-1", "3.3.1-2", old=("4.3.1-1",))
def test_a_qos_0_delivery_comes_once_without_dup_or_identifier_and_not_again() -> None:
    gateway = Gateway()
    subscriber = subscribed(gateway, **KEPT)
    gateway.connect("p").publish("t/1", b"x")
    [delivery] = deliveries(subscriber)
    assert (delivery.qos, delivery.dup, delivery.packet_id) == (0, False, 0)
    subscriber.cut()
    assert deliveries(gateway.connect("s", **KEPT)) == []


@pytest.mark.mqtt("2.2.1-4", "4.3.2-1", "4.3.2-2", "4.3.3-1", "4.3.3-2", old=("2.3.1-4", "4.3.2-1", "4.3.3-1"))
@pytest.mark.parametrize("qos", [1, 2])
def test_each_delivery_has_an_unused_identifier_its_qos_and_no_dup(qos: int) -> None:
    gateway = Gateway()
    subscriber, publisher = subscribed(gateway), gateway.connect("p")
    for number in range(20):
        publisher.publish("t/1", bytes([number]), qos, packet_id=1 + number)
    got = deliveries(subscriber)
    assert [(packet.qos, packet.dup) for packet in got] == [(qos, False)] * 20
    assert len({packet.packet_id for packet in got} - {0}) == 20


@pytest.mark.mqtt("4.3.2-3", "4.4.0-1", "3.3.1-1", "4.6.0-1", old=("4.4.0-1", "3.3.1-1", "4.6.0-1"))
def test_qos_1_is_unacknowledged_until_puback_and_only_then_not_sent_again() -> None:
    gateway = Gateway()
    subscriber, publisher = subscribed(gateway, **KEPT), gateway.connect("p")
    for number in range(3):
        publisher.publish("t/1", bytes([number]), 1, packet_id=1 + number)
    first = deliveries(subscriber)
    subscriber.send(Puback(first[1].packet_id))
    subscriber.cut()
    again = deliveries(gateway.connect("s", **KEPT))
    expected = [(one.packet_id, one.payload, True) for one in (first[0], first[2])]
    assert [(one.packet_id, one.payload, one.dup) for one in again] == expected


@pytest.mark.mqtt("4.4.0-1", old=("4.4.0-1",))
@pytest.mark.parametrize("level", [4, 5])
def test_nothing_is_sent_again_while_the_connection_stands(level: int) -> None:
    gateway = Gateway()
    subscriber = subscribed(gateway, level=level)
    gateway.connect("p").publish("t/1", b"x", 1, packet_id=1)
    assert len(deliveries(subscriber)) == 1
    gateway.pass_time(120)
    assert deliveries(subscriber) == []


@pytest.mark.mqtt("4.3.2-5")
@pytest.mark.parametrize("dup", [False, True])
def test_after_its_puback_an_identifier_is_a_new_message_with_dup_or_without(dup: bool) -> None:
    gateway = Gateway()
    publisher = gateway.connect("p", level=5)
    for body in (b"1", b"2"):
        publisher.publish("t/1", body, 1, packet_id=7, dup=dup)
    assert publisher.got() == [Puback(7), Puback(7)]
    assert gateway.broker.bodies() == [b"1", b"2"]


@pytest.mark.mqtt("4.3.3-3", "4.3.3-4", "4.3.3-5", "4.3.3-6", "4.4.0-1")
def test_qos_2_waits_first_for_pubrec_and_then_for_pubcomp() -> None:
    gateway = Gateway()
    client = subscribed(gateway, **KEPT)
    gateway.connect("p").publish("t/1", b"x", 2, packet_id=1)
    [delivery] = deliveries(client)
    packet_id = delivery.packet_id
    client.cut()
    client = gateway.connect("s", **KEPT)
    assert [(one.packet_id, one.dup) for one in deliveries(client)] == [(packet_id, True)]
    client.send(Pubrec(packet_id))
    assert client.got() == [Pubrel(packet_id)]
    client.cut()
    client = gateway.connect("s", **KEPT)
    assert client.got() == [Pubrel(packet_id)]
    client.send(Pubcomp(packet_id))
    client.cut()
    assert gateway.connect("s", **KEPT).got() == []


@pytest.mark.mqtt("4.3.3-7", "4.3.3-13")
def test_an_exchange_that_has_begun_goes_on_though_the_message_expires() -> None:
    gateway = Gateway()
    client = subscribed(gateway, **KEPT)
    expiring = Properties(message_expiry_interval=5)
    gateway.connect("p", level=5).publish("t/1", b"x", 2, packet_id=1, properties=expiring)
    [delivery] = deliveries(client)
    gateway.pass_time(60)
    client.send(Pubrec(delivery.packet_id))
    assert client.got() == [Pubrel(delivery.packet_id)]
    client.send(Pubcomp(delivery.packet_id))
    client.cut()
    assert gateway.connect("s", **KEPT).got() == []


@pytest.mark.mqtt("4.3.3-13")
def test_our_own_pubrec_and_pubcomp_do_not_depend_on_the_expiry() -> None:
    gateway = Gateway()
    publisher = gateway.connect("p", level=5)
    publisher.publish("t/1", b"x", 2, packet_id=1, properties=Properties(message_expiry_interval=1))
    gateway.pass_time(30)
    publisher.send(Pubrel(1))
    assert publisher.got() == [Pubrec(1), Pubcomp(1)]


@pytest.mark.mqtt("4.4.0-2", "4.3.3-9")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_answered_with_an_error_is_not_sent_again(qos: int) -> None:
    gateway = Gateway()
    client = subscribed(gateway, **KEPT)
    gateway.connect("p").publish("t/1", b"x", qos, packet_id=1)
    [delivery] = deliveries(client)
    client.send(Puback(delivery.packet_id, 0x97) if qos == 1 else Pubrec(delivery.packet_id, 0x97))
    assert client.got() == []
    client.cut()
    assert gateway.connect("s", **KEPT).got() == []


@pytest.mark.mqtt("3.7.2-1", "3.6.2-1", "4.3.3-4")
def test_a_pubrec_that_nobody_waits_for_is_answered_with_the_reason() -> None:
    gateway = Gateway()
    client, old = gateway.connect("c", level=5), gateway.connect("o")
    for one in (client, old):
        one.send(Pubrec(99))
    assert client.got() == [Pubrel(99, 0x92)]
    assert old.got() == [Pubrel(99)]


@pytest.mark.mqtt("4.9.0-1", "4.9.0-2", "4.9.0-3", "3.3.4-9", "3.3.4-10")
@pytest.mark.parametrize("qos", [1, 2])
def test_at_quota_0_everything_but_qos_1_and_2_publications_goes_on(qos: int) -> None:
    gateway = Gateway()
    client = gateway.connect("s", level=5, properties=Properties(receive_maximum=2))
    client.subscribe("t/#")
    publisher = gateway.connect("p")
    for number in range(4):
        publisher.publish("t/1", bytes([number]), qos, packet_id=number + 1)
    first = deliveries(client)
    assert [one.payload for one in first] == [b"\x00", b"\x01"]
    client.send(Pingreq())
    client.publish("other", b"x", 1, packet_id=5)
    assert client.got() == [Pingresp(), Puback(5)]
    assert isinstance(client.subscribe("u"), Suback)
    publisher.publish("u", b"zero")
    assert client.payloads() == [b"zero"]
    if qos == 1:
        client.send(Puback(first[0].packet_id))
    else:
        client.send(Pubrec(first[0].packet_id))
        assert client.got() == [Pubrel(first[0].packet_id)]  # not room yet
        client.send(Pubcomp(first[0].packet_id))
    assert client.payloads() == [b"\x02"]


@pytest.mark.mqtt("4.6.0-5", "4.6.0-6", "4.5.0-1", old=("4.6.0-5", "4.6.0-6", "4.5.0-1"))
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_publisher_and_topic_reach_every_session_in_their_order(qos: int) -> None:
    gateway = Gateway()
    subscribers = [subscribed(gateway, f"s{number}", level=3 + number) for number in range(3)]
    publisher = gateway.connect("p")
    for number in range(50):
        publisher.publish(f"t/{number % 2}", bytes([number]), qos, packet_id=number + 1 if qos else 0)
    for one in subscribers:
        for parity in (0, 1):
            assert [at for at in range(50) if at % 2 == parity] == [
                packet.payload[0]
                for packet in one._got
                if isinstance(packet, Publish) and packet.payload[0] % 2 == parity
            ]


@pytest.mark.mqtt("4.6.0-2", "4.6.0-3", old=("4.6.0-2", "4.6.0-3"))
def test_our_answers_come_in_the_order_of_the_publications() -> None:
    gateway = Gateway()
    publisher = gateway.connect("p", level=5)
    ids = [9, 3, 65_535, 1]
    publisher.send(*[Publish("t", b"", 1 + at % 2, packet_id=packet_id) for at, packet_id in enumerate(ids)])
    assert publisher.got() == [Puback(9), Pubrec(3), Puback(65_535), Pubrec(1)]


@pytest.mark.mqtt("4.6.0-4", old=("4.6.0-4",))
def test_our_pubrels_come_in_the_order_of_the_pubrecs() -> None:
    gateway = Gateway()
    client, publisher = subscribed(gateway), gateway.connect("p")
    for number in range(4):
        publisher.publish("t/1", bytes([number]), 2, packet_id=number + 1)
    ids = [packet.packet_id for packet in deliveries(client)]
    order = [ids[2], ids[0], ids[3], ids[1]]
    client.send(*[Pubrec(packet_id) for packet_id in order])
    assert client.got() == [Pubrel(packet_id) for packet_id in order]


@pytest.mark.mqtt("3.4.2.1")
@pytest.mark.parametrize("level", [4, 5])
def test_a_publication_that_nobody_subscribes_to_is_acknowledged_with_success(level: int) -> None:
    publisher = Gateway().connect("p", level=level)
    publisher.publish("nobody", b"x", 1, packet_id=1)
    publisher.publish("nobody", b"x", 2, packet_id=2)
    assert publisher.got() == [Puback(1), Pubrec(2)]


@pytest.mark.mqtt("3.2.0-1", "3.2.0-2", "3.1.4-5", old=("3.2.0-1", "3.1.4-4"))
@pytest.mark.parametrize("level", [3, 4, 5])
def test_the_first_packet_to_a_client_is_its_one_connack(level: int) -> None:
    gateway = Gateway()
    asked: dict[str, Any] = {"clean_start": False}
    if level == 5:
        asked["properties"] = Properties(session_expiry_interval=1000)
    before = gateway.connect("s", level=level, **asked)
    before.subscribe("t/#", qos=1)
    before.cut()
    gateway.connect("p").publish("t/1", b"waiting", 1, packet_id=1)
    client = gateway.open(level)
    client.send(Connect("s", level=level, **asked), Pingreq())
    gateway.pass_time(5)
    got = client.got()
    assert isinstance(got[0], Connack)
    assert got[0].reason_code == 0
    assert [type(one) for one in got].count(Connack) == 1
    assert [one.payload for one in got if isinstance(one, Publish)] == [b"waiting"]
