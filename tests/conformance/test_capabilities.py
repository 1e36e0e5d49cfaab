"""What an operator may switch off, and how clients of each version learn of it."""

from __future__ import annotations

from typing import Any

import pytest
from rig import Client, Gateway

from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from gateway.mqtt.properties import Properties

LEVELS = (3, 4, 5)


def asked(gateway: Gateway, level: int, client_id: str = "c", **fields: Any) -> tuple[Client, Connack | None]:
    """A client that has sent a CONNECT, and what it was answered."""
    client = gateway.open(level)
    client.send(Connect(client_id, level=level, **fields))
    answers = client.got()
    assert len(answers) < 2
    connack = answers[0] if answers else None
    assert connack is None or isinstance(connack, Connack)
    return client, connack


def code(connack: Connack | None) -> int:
    assert connack is not None
    return connack.reason_code


def flags(gateway: Gateway) -> list[tuple[int, bool]]:
    """QoS and RETAIN of everything stored."""
    stored = gateway.broker.messages()
    return [(message.qos, message.retain) for message in stored]


# ---------------------------------------------------------------- versions, ids, keep-alive


@pytest.mark.parametrize("level", LEVELS)
def test_a_version_that_is_not_accepted_is_refused_with_its_code(level: int) -> None:
    versions = {3: "3.1", 4: "3.1.1", 5: "5"}
    refused, connack = asked(Gateway(protocol_versions=tuple(v for k, v in versions.items() if k != level)), level)
    assert (code(connack), refused.is_closed) == (0x84 if level == 5 else 0x01, True)
    for other in LEVELS:
        assert code(asked(Gateway(protocol_versions=(versions[other],)), other)[1]) == 0


@pytest.mark.parametrize("level", [4, 5])
def test_an_empty_client_id_is_refused_where_the_gateway_makes_up_none(level: int) -> None:
    client, connack = asked(Gateway(empty_client_ids=False), level, "")
    assert (code(connack), client.is_closed) == (0x85 if level == 5 else 0x02, True)
    assert code(asked(Gateway(empty_client_ids=False), level, "x")[1]) == 0
    assert code(asked(Gateway(), level, "")[1]) == 0


@pytest.mark.parametrize("level", [3, 4])
@pytest.mark.parametrize(("keep_alive_s", "silence_s"), [(100, 140), (0, 1_000)])
def test_an_older_client_keeps_the_keep_alive_that_it_asked_for(level: int, keep_alive_s: int, silence_s: int) -> None:
    gateway = Gateway(keep_alive_s_max=10)
    client, connack = asked(gateway, level, keep_alive_s=keep_alive_s)
    assert code(connack) == 0
    gateway.pass_time(silence_s)
    assert not client.is_closed
    gateway.pass_time(20)
    assert client.is_closed == (keep_alive_s > 0)


@pytest.mark.parametrize("level", [3, 4])
@pytest.mark.parametrize(("keep_alive_s", "is_refused"), [(0, True), (11, True), (10, False), (1, False)])
def test_an_older_client_is_refused_for_its_keep_alive_where_the_setting_says_so(
    level: int, keep_alive_s: int, is_refused: bool
) -> None:
    gateway = Gateway(keep_alive_s_max=10, keep_alive_over_max="refuse")
    client, connack = asked(gateway, level, keep_alive_s=keep_alive_s)
    assert (code(connack), client.is_closed) == ((0x05, True) if is_refused else (0, False))
    assert gateway.quotas.refused["keep_alive_s_max"] == is_refused
    _, told = asked(gateway, 5, "five", keep_alive_s=keep_alive_s)
    assert told is not None
    assert told.properties.server_keep_alive == (10 if is_refused else None)


# ---------------------------------------------------------------- the maximum QoS


@pytest.mark.mqtt("3.2.2-9")
@pytest.mark.parametrize("qos_max", [0, 1, 2])
def test_the_maximum_qos_is_told_unless_it_is_2(qos_max: int) -> None:
    connack = asked(Gateway(qos_max=qos_max), 5)[1]
    assert connack is not None
    assert connack.properties.maximum_qos == (None if qos_max == 2 else qos_max)


@pytest.mark.mqtt("3.2.2-9", "3.2.2-10")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("qos_max", [0, 1, 2])
def test_a_subscription_may_ask_for_any_qos_and_is_granted_the_maximum(level: int, qos_max: int) -> None:
    gateway = Gateway(qos_max=qos_max)
    client = gateway.connect(level=level)
    for qos in (0, 1, 2):
        assert client.subscribe(f"a/{qos}", qos=qos).reason_codes == (min(qos, qos_max),)
        gateway.produce("a", b"x", qos=2, mqtt_topic=f"a/{qos}")
        gateway.round()
        assert client.got_one(Publish).qos == min(qos, qos_max)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("qos_max", [0, 1])
@pytest.mark.parametrize("is_known", [False, True])  # what is known goes the straight way
def test_a_publish_above_the_maximum_qos_ends_the_connection(level: int, qos_max: int, is_known: bool) -> None:
    gateway = Gateway(qos_max=qos_max)
    client = gateway.connect(level=level)
    for _ in range(2 * is_known):
        client.publish("a", b"good", qos_max, packet_id=qos_max and 1)
    client.got()
    client.publish("a", b"bad", qos_max + 1, packet_id=2)
    assert client.is_closed
    ends = [packet.reason_code for packet in client.got() if isinstance(packet, Disconnect)]
    assert ends == ([0x9B] if level == 5 else [])
    assert gateway.broker.bodies() == [b"good"] * (2 * is_known)


@pytest.mark.mqtt("3.2.2-12")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("qos_max", [0, 1])
def test_a_will_above_the_maximum_qos_is_refused(level: int, qos_max: int) -> None:
    gateway = Gateway(qos_max=qos_max)
    client, connack = asked(gateway, level, will=Will("w", b"gone", qos_max + 1, retain=False))
    assert (code(connack), client.is_closed) == (0x9B if level == 5 else 0x05, True)
    assert code(asked(gateway, level, will=Will("w", b"gone", qos_max, retain=False))[1]) == 0


# ---------------------------------------------------------------- retained messages


@pytest.mark.mqtt("3.2.2-13")
def test_an_mqtt_5_client_is_told_that_nothing_is_retained_and_refused_if_it_retains() -> None:
    gateway = Gateway(retained_messages=False)
    client, connack = asked(gateway, 5)
    assert connack is not None
    assert connack.properties.retain_available == 0
    client.publish("a", b"x", 1, packet_id=1, retain=True)
    assert (client.got(), client.is_closed) == (
        [Disconnect(0x9A, Properties(reason_string="retained_messages is off"))],
        True,
    )
    assert code(asked(gateway, 5, will=Will("w", b"gone", 0, retain=True))[1]) == 0x9A
    assert gateway.broker.messages() == []
    available = asked(Gateway(), 5)[1]
    assert available is not None
    assert available.properties.retain_available is None


@pytest.mark.parametrize("level", [3, 4])
def test_an_older_client_that_retains_is_served_and_nothing_is_retained(level: int) -> None:
    gateway = Gateway(retained_messages=False)
    client, connack = asked(gateway, level, will=Will("w", b"gone", 1, retain=True))
    assert code(connack) == 0
    for qos in (0, 1, 2):
        client.publish("a", b"x", qos, packet_id=qos, retain=True)
    client.send(Pubrel(2))
    assert client.got() == [Puback(1), Pubrec(2), Pubcomp(2)]
    client.cut()
    assert sorted(flags(gateway)) == [(0, False), (1, False), (1, False), (2, False)]


@pytest.mark.parametrize("level", LEVELS)
def test_what_was_retained_before_is_not_sent(level: int) -> None:
    for is_on in (True, False):
        gateway = Gateway(retained_messages=is_on)
        gateway.produce("a", b"kept", retain=True, mqtt_topic="a/1")
        client = gateway.connect(level=level)
        client.subscribe("a/#")
        assert client.payloads() == ([b"kept"] if is_on else [])
