"""Our codec beside npm's mqtt-packet, for 3.1.1 and 5.0: what is legal both read and write alike; what is damaged both
take or both refuse, but for a list of differences, each with its reason."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import Connect, Packet
from gateway.mqtt.primitives import FieldReader, encode_variable_integer
from gateway.mqtt.reason_codes import PacketError
from tests.gateway.mqtt.mqtt_packet import MqttPacket
from tests.gateway.mqtt.mutation import corpus, damaged

DAMAGED = int(os.environ.get("PENSTOCK_FUZZ_PACKETS", "20000")) // 2
BATCH = 2000

# mqtt-packet does not write what it has read, though the standard allows it.
DOES_NOT_WRITE = {
    "clientId must be given if cleanSession set to 0": "the codec takes it, and before MQTT 5 the gateway refuses it",
    "Username is required to use password": "allowed by MQTT 5 (3.1.2.9)",
}
# mqtt-packet refuses what the standard allows.
REFUSES = {"Invalid auth reason code": "an AUTH without content means success (MQTT 5, 3.15.2.1)"}
# What we refuse (part of our message) and mqtt-packet takes -> why it does.
TAKES = {
    "follow the packet's last field": "it passes over what it does not need",
    "the packet ends within a field": "it takes an absent number for a special one and goes on",
    "ends within its topic name or packet identifier": "the same",
    "not well-formed UTF-8": "it replaces what is no UTF-8",
    "U+0000": "it does not look at characters",
    "reason code": "it knows the codes of some packets only, and takes lists without codes",
    "session present with an error": "it does not compare fields",
    "without a filter": "it takes empty lists",
    "has no place in packet type": "it knows properties, not packets' properties",
    "comes twice": "the last one counts, or it becomes a list",
    "must not be": "it does not look at values",
    "longer than it must be": "it takes any length of a variable byte integer",
    "DUP with QoS 0": "it does not compare fields",
    "a will topic is a topic name": "it does not look at names",
    "a topic name holds a wildcard": "the same",
    "an empty topic": "the same",
    "no local on a shared subscription": "the same",
    "packet identifier 0": "it takes any identifier",
    "more than one subscription identifier": "it makes a list of them",
    "level 13": "it takes the bridge bit of old mosquitto bridges off the level",
    "a will with QoS 3": "it does not look at the value",
    "without a user name": "it reads what the flags say",
    "without a method": "it does not compare fields",
    "without an authentication method": "the same",
    "the properties are longer than the packet": "it reads as far as there are bytes",
}


def decoded(data: bytes, level: int) -> Packet:
    cursor = FieldReader(data, 1)
    assert cursor.variable_integer() == len(data) - cursor.at
    return codec.decode(data[0], cursor.rest(), level)


def in_one_order(packet: Packet) -> Packet:
    """mqtt-packet keeps user properties by name, and so in an order of its own."""
    properties = getattr(packet, "properties", None)
    if properties is not None and properties.user_properties:
        pairs = tuple(sorted(properties.user_properties))
        packet = replace(packet, properties=replace(properties, user_properties=pairs))  # type: ignore[call-arg]
    will = packet.will if isinstance(packet, Connect) else None
    if isinstance(packet, Connect) and will is not None and will.properties.user_properties:
        pairs = tuple(sorted(will.properties.user_properties))
        packet = replace(packet, will=replace(will, properties=replace(will.properties, user_properties=pairs)))
    return packet


@pytest.fixture(scope="module")
def other() -> Iterator[MqttPacket]:
    codec_of_node = MqttPacket()
    yield codec_of_node
    codec_of_node.close()


def legal(level: int) -> list[bytes]:
    """Legal packets without cut payloads."""
    found = []
    for data in corpus(level):
        cursor = FieldReader(data, 1)
        if cursor.variable_integer() == len(data) - cursor.at:
            found.append(data)
    return found


@pytest.mark.parametrize("level", [4, 5])
def test_mqtt_packet_reads_what_we_write_and_writes_what_we_read(other: MqttPacket, level: int) -> None:
    packets = legal(level)
    assert len(packets) > 100
    unlike = []
    for data, opinion in zip(packets, other.judge([(level, data) for data in packets]), strict=True):
        if opinion.again is not None:
            if in_one_order(decoded(opinion.again, level)) != in_one_order(decoded(data, level)):
                unlike.append((data.hex(), opinion.again.hex()))
        elif opinion.error.removeprefix("written: ") not in DOES_NOT_WRITE | REFUSES:
            unlike.append((data.hex(), opinion.error))
    assert unlike == []


@pytest.mark.parametrize("level", [4, 5])
def test_damaged_packets_are_taken_by_both_or_refused_by_both_but_for_known_reasons(
    other: MqttPacket, level: int
) -> None:
    rng = random.Random(level)
    packets = legal(level)
    unlike, alike = [], 0
    for _ in range(DAMAGED // BATCH):
        cases = []
        while len(cases) < BATCH:
            body = bytes(damaged(rng, packets))
            if body:
                cases.append((level, body[:1] + encode_variable_integer(len(body) - 1) + body[1:]))
        for (_, data), opinion in zip(cases, other.judge(cases), strict=True):
            refusal = refused_by_us(data, level)
            if (refusal is None) == opinion.is_taken:
                alike += 1
            elif refusal is None:
                if opinion.error not in REFUSES:
                    unlike.append((data.hex(), opinion.error))
            elif not any(part in refusal for part in TAKES):
                unlike.append((data.hex(), refusal))
    assert unlike == []
    assert alike > DAMAGED // 2


def refused_by_us(data: bytes, level: int) -> str | None:
    try:
        decoded(data, level)
    except PacketError as error:
        return str(error)
    return None
