"""Brokers learn which messages of traced topics devices acknowledge, and nothing of other topics."""

from __future__ import annotations

from rig import Client, Gateway

from gateway.delivery.tracing import ROWS_MAX
from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec
from penstock.errors import UnknownRequest
from penstock.protocol.requests.filters import KeepFilters
from penstock.protocol.requests.messages import DeviceAck, TellAcknowledged
from penstock.protocol.requests.topics import ChangeTopic, CreateTopic


def told(gateway: Gateway) -> list[DeviceAck]:
    """What the broker has heard after a tick."""
    gateway.pass_time(0.5)
    return [row for request in gateway.broker.made(TellAcknowledged) for row in request.rows]


def received(client: Client) -> list[Publish]:
    return [packet for packet in client.got() if isinstance(packet, Publish)]


def trace(gateway: Gateway, topic: str) -> None:
    """The topic is traced from now on."""
    gateway.broker.ask(ChangeTopic(topic, trace=1))
    gateway.pass_time(gateway.settings.filter_lease_s / 3 + 1)


def gateway_with(*traced: str, **settings: int) -> tuple[Gateway, Client]:
    gateway = Gateway(**settings)
    for topic in ("t", "u"):
        gateway.broker.ask(CreateTopic(topic, 1, trace=int(topic in traced)))
    client = gateway.connect("d7", level=5)
    client.subscribe("#", qos=2)
    gateway.pass_time(gateway.settings.filter_lease_s / 3 + 1)
    return gateway, client


def test_acknowledged_messages_of_traced_topics_are_told_with_their_client_and_place() -> None:
    gateway, client = gateway_with("t")
    for number, (topic, qos) in enumerate((("t", 1), ("u", 1), ("t", 2), ("t", 0))):
        gateway.produce(topic, bytes([number]), qos=qos)
    gateway.round()
    first, other, second, _ = received(client)
    assert told(gateway) == [], "nothing is acknowledged"
    client.send(Puback(first.packet_id), Puback(other.packet_id), Pubrec(second.packet_id))
    client.send(Puback(first.packet_id), Pubrec(second.packet_id), Pubcomp(second.packet_id))
    rows = told(gateway)
    assert [(row.queue, row.client) for row in rows] == [("t:0", "d7")] * 2
    assert [row.offset for row in rows] == [0, 1]
    assert rows[0].position < rows[1].position
    [request] = gateway.broker.made(TellAcknowledged)
    assert request.gateway == "gw"


def test_a_refused_message_is_not_acknowledged() -> None:
    gateway, client = gateway_with("t")
    gateway.produce("t", b"x", qos=2)
    gateway.round()
    client.send(Pubrec(received(client)[0].packet_id, 0x80))
    assert told(gateway) == []


def test_no_more_is_told_between_two_ticks_than_the_limit() -> None:
    gateway, client = gateway_with("t", in_flight_max=ROWS_MAX + 100)
    for _ in range(ROWS_MAX + 10):
        gateway.produce("t", b"x", qos=1)
    gateway.round()
    client.send(*[Puback(packet.packet_id) for packet in received(client)])
    assert len(told(gateway)) == ROWS_MAX


def test_nothing_is_looked_at_while_no_topic_is_traced_or_no_broker_says_so() -> None:
    gateway, client = gateway_with()
    assert not gateway.downstream.trace.is_on
    trace(gateway, "t")
    assert gateway.downstream.trace.is_on
    gateway.broker.refuses[KeepFilters] = UnknownRequest("an older broker")
    gateway.pass_time(gateway.settings.filter_lease_s / 3 + 1)
    assert not gateway.downstream.trace.is_on
    gateway.produce("t", b"x", qos=1)
    gateway.round()
    client.send(Puback(received(client)[0].packet_id))
    assert told(gateway) == []
