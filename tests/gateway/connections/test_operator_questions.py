"""What an operator is told of connected clients, and asks to be done."""

from __future__ import annotations

from rig import Gateway

from gateway.connections.taps import ASKED_WITHIN_S
from gateway.mqtt.packets import Pingreq, Publish
from gateway.mqtt.properties import Properties
from penstock.protocol.requests.sessions import AskSubscriptions, SeenPacket, SessionTerms


def ask(gateway: Gateway, *clients: str, disconnects: bool = False) -> dict[str, SessionTerms]:
    answers: list[object] = []
    gateway.broker.submit(AskSubscriptions(clients, False, 2.0, disconnects), answers.append)
    gateway.round()
    gateway.pass_time(3)
    [answer] = answers
    return {one.client: one for one in answer.told}  # type: ignore[attr-defined]


def test_an_operator_is_told_where_clients_are_and_disconnects_one_whose_session_stays() -> None:
    gateway = Gateway()
    gateway.pass_time(1)
    gateway.connect("one", level=4)
    kept = Properties(session_expiry_interval=60)
    two = gateway.connect("two", level=5, properties=kept)
    two.subscribe("a")
    gateway.pass_time(30)
    told = ask(gateway, "one", "two", "nobody")
    assert [told[client].protocol for client in ("one", "two")] == ["MQTT 3.1.1 tcp", "MQTT 5 tcp"]
    assert all(one.address and one.connected_s >= 30 for one in told.values())
    assert list(ask(gateway, "two", disconnects=True)) == ["two"]
    assert two.is_closed
    assert set(ask(gateway, "one", "two")) == {"one"}
    again = gateway.connect("two", level=5, clean_start=False, properties=kept)
    assert list(again.device.session.subscriptions) == ["a"]


def watch(gateway: Gateway, client: str, after: int = 0) -> list[SeenPacket]:
    answers: list[object] = []
    gateway.broker.submit(AskSubscriptions((client,), False, 2.0, watch_after=after), answers.append)
    gateway.round()
    gateway.pass_time(1)
    [answer] = answers
    [told] = answer.told  # type: ignore[attr-defined]
    return list(told.packets)


def test_an_operator_follows_the_packets_of_one_client_over_its_connections() -> None:
    gateway = Gateway()
    gateway.pass_time(1)
    kept = Properties(session_expiry_interval=60)
    one = gateway.connect("one", level=5, properties=kept)
    assert watch(gateway, "one") == []
    one.subscribe("a/+", qos=1)
    one.send(Publish("a/b", b"12345", qos=1, packet_id=7))
    gateway.round()
    seen = watch(gateway, "one")
    came = [packet for packet in seen if not packet.is_sent]
    assert [(packet.kind, packet.name, packet.qos, packet.payload_bytes) for packet in came] == [
        ("SUBSCRIBE", "a/+", 1, 0),
        ("PUBLISH", "a/b", 1, 5),
    ]
    went = {packet.kind: packet for packet in seen if packet.is_sent}
    assert (went["SUBACK"].reasons, went["PUBACK"].packet_id, went["PUBLISH"].payload_bytes) == ((1,), 7, 5)
    assert [packet.number for packet in seen] == list(range(1, len(seen) + 1))
    assert watch(gateway, "one", seen[-1].number) == []
    again = gateway.connect("one", level=5, clean_start=False, properties=kept)
    assert [packet.kind for packet in watch(gateway, "one", seen[-1].number)] == ["DISCONNECT"]
    again.send(Pingreq())
    gateway.round()
    assert {packet.kind for packet in watch(gateway, "one", seen[-1].number + 1)} >= {"PINGREQ", "PINGRESP"}
    assert again.device.tap is not None
    gateway.pass_time(ASKED_WITHIN_S + 5)
    again.send(Pingreq())
    gateway.round()
    assert again.device.tap is None, "an operator who has gone costs nothing"
