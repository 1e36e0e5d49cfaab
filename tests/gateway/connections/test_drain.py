"""Sending clients to another server."""

from __future__ import annotations

import pytest
from rig import Gateway, draining

from gateway.connections.drain import Drain
from gateway.mqtt.packets import Connack, Connect, Disconnect, Publish, Will
from gateway.mqtt.properties import Properties

AWAY = Properties(reason_string="this gateway is being drained", server_reference="b.example:1883")


def drain(gateway: Gateway, seconds: float, drained: Drain) -> None:
    for _ in range(int(seconds * 2)):
        gateway.pass_time(0.5)
        gateway.rounds.begin()
        drained.tick(gateway.clock.now_s)
        gateway.round()


@pytest.mark.mqtt("3.14.2-1", "4.13.2-1", "3.14.4-1")
def test_clients_are_sent_away_a_few_at_a_time() -> None:
    gateway = Gateway(redirect_to="b.example:1883")
    old = gateway.connect("old")
    clients = [gateway.connect(f"c{one}", level=5) for one in range(9)]
    drained = draining(gateway, 4)
    drain(gateway, 1, drained)
    assert not old.is_closed
    gateway.rounds.begin()
    drained.begin()
    drained.begin()
    drain(gateway, 1, drained)
    assert [one.is_closed for one in (old, *clients)] == [True] * 4 + [False] * 6
    assert old.got() == []
    assert clients[0].got() == [Disconnect(0x9C, AWAY)]
    drain(gateway, 3, drained)
    assert all(client.is_closed for client in clients)
    assert drained.sent_away == 10


def test_the_log_has_a_line_when_draining_begins_and_one_when_nobody_is_left(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway()
    for one in range(6):
        gateway.connect(f"c{one}")
    drained = draining(gateway, 4)
    drained.begin()
    drained.begin()
    begun = "draining begins: new clients are refused, 6 clients are sent away, 4 a second"
    drain(gateway, 1, drained)
    assert caplog.messages == [begun]
    drain(gateway, 4, drained)
    assert caplog.messages == [begun, "draining has ended: 6 clients were sent away, none is left"]


@pytest.mark.parametrize("per_s", [1, 3, 5])
def test_as_many_are_sent_away_a_second_as_the_operator_says(per_s: int) -> None:
    gateway = Gateway()
    for one in range(40):
        gateway.connect(f"c{one}")
    drained = draining(gateway, per_s)
    drained.begin()
    drain(gateway, 6, drained)
    assert drained.sent_away == 6 * per_s


@pytest.mark.mqtt("3.2.2-7", "3.2.2-8")
@pytest.mark.parametrize(
    ("level", "answer"), [(3, Connack(False, 3)), (4, Connack(False, 3)), (5, Connack(False, 0x9C, AWAY))]
)
@pytest.mark.mqtt("4.11")
def test_nobody_comes_in_any_more(level: int, answer: Connack) -> None:
    gateway = Gateway(redirect_to="b.example:1883")
    draining(gateway, 1).begin()
    client = gateway.open(level)
    client.send(Connect("c", level=level), Publish("a", b"x"))
    assert client.got() == [answer]
    assert client.is_closed
    assert gateway.broker.messages() == []


def test_a_client_that_is_sent_away_keeps_its_session_and_leaves_its_will() -> None:
    gateway = Gateway()
    client = gateway.connect(
        "c", level=5, will=Will("w", b"gone"), properties=Properties(session_expiry_interval=60), clean_start=False
    )
    client.subscribe("a", qos=1)
    drained = draining(gateway, 100)
    drained.begin()
    drain(gateway, 1, drained)
    assert [packet.reason_code for packet in client.got() if isinstance(packet, Disconnect)] == [0x9C]
    assert gateway.broker.bodies() == [b"gone"]
    gateway.connections.turns_away = 0
    again = gateway.open(5)
    again.send(Connect("c", False, properties=Properties(session_expiry_interval=60), level=5))
    [connack] = again.got()
    assert isinstance(connack, Connack)
    assert connack.session_present


@pytest.mark.mqtt("4.11")
def test_a_gateway_that_has_moved_says_so_for_good() -> None:
    gateway = Gateway(has_moved=True, redirect_to="b.example:1883")
    client = gateway.open(5)
    client.send(Connect("c", level=5))
    assert client.got() == [Connack(False, 0x9D, Properties(server_reference="b.example:1883"))]


def test_a_gateway_that_has_moved_to_nowhere_warns_of_it(caplog: pytest.LogCaptureFixture) -> None:
    draining(Gateway(has_moved=True, redirect_to="b.example:1883"))
    draining(Gateway(redirect_to=""))
    assert caplog.messages == []
    draining(Gateway(has_moved=True))
    [told] = caplog.messages
    assert "redirect_to is empty" in told
