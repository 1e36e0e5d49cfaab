"""The connections of a gateway are counted, and all told when it stops."""

from __future__ import annotations

from rig import Client, Gateway

from gateway.mqtt.packets import Connack, Connect, Disconnect
from penstock.errors import Busy
from penstock.protocol.requests.sessions import OpenSession


def refused(gateway: Gateway, packet: Connect) -> tuple[Client, Connack]:
    client = gateway.open(packet.level)
    client.send(packet)
    assert client.is_closed
    return client, client.got_one(Connack)


def test_sessions_have_a_limit() -> None:
    gateway = Gateway()
    gateway.broker.refuses[OpenSession] = Busy("the limit sessions_max is reached")
    connack = refused(gateway, Connect("b", level=5))[1]
    assert (connack.reason_code, connack.properties.reason_string) == (0x97, "the limit sessions_max is reached")
    assert len(gateway.sessions) == 0
    assert refused(gateway, Connect("b"))[1] == Connack(False, 3)


def test_a_connection_that_never_says_connect_is_closed() -> None:
    gateway = Gateway(connect_wait_s=5.0)
    silent = gateway.open()
    assert gateway.connections.half_open == 1
    gateway.pass_time(4)
    assert not silent.is_closed
    gateway.pass_time(3)
    assert silent.is_closed
    assert gateway.connections.half_open == 0
    assert len(gateway.connections) == 0


def test_a_gateway_that_stops_tells_every_client() -> None:
    gateway = Gateway()
    old, new = gateway.connect("a"), gateway.connect("b", level=5)
    gateway.connections.close()
    gateway.round()
    assert (old.is_closed, new.is_closed) == (True, True)
    assert new.got() == [Disconnect(0x8B)]
