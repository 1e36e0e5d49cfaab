"""What an operator is told of connected clients, and asks to be done."""

from __future__ import annotations

from rig import Gateway

from gateway.mqtt.properties import Properties
from penstock.protocol.requests.sessions import AskSubscriptions, SessionTerms


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
