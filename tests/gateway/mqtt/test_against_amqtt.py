"""Our codec beside amqtt's, for 3.1.1, on damaged packets: what we take amqtt takes; what we refuse and it takes is
listed with the reason. (Legal packets: ``test_codec.py``.)"""

from __future__ import annotations

import os
import random

from gateway.mqtt.primitives import encode_variable_integer
from gateway.mqtt.reason_codes import PacketError
from tests.gateway.mqtt.mutation import corpus, damaged
from tests.gateway.mqtt.test_codec import decoded, read_by_amqtt

DAMAGED = int(os.environ.get("PENSTOCK_FUZZ_PACKETS", "20000"))

# What we refuse (part of our message) and amqtt takes -> why it does.
TAKES = {
    "follow the packet's last field": "it passes over what it does not need",
    "the packet ends within a field": "it stops where the bytes stop",
    "ends within its topic name or packet identifier": "the same",
    "not well-formed UTF-8": "it replaces what is no UTF-8",
    "U+0000": "it does not look at characters",
    "reserved flags": "it reads the kind of the packet only",
    "reserved acknowledge flags": "it reads the one bit that has a meaning",
    "reserved bits in the subscription options": "its server refuses the QoS later",
    "reserved connect flag": "its server judges it later",
    "is not spoken here": "its server judges name and level later",
    "reason code": "it takes any code, and none",
    "session present with an error": "it does not compare fields",
    "without a filter": "it takes empty lists",
    "an empty topic": "its server judges names later",
    "a topic name holds a wildcard": "the same",
    "a will topic is a topic name": "the same",
    "packet identifier 0": "it takes any identifier",
    "QoS 3": "its server judges it later",
    "DUP with QoS 0": "it does not compare fields",
    "without a will": "its server judges it later",
    "without a user name": "the same",
}


def test_damaged_packets_are_taken_by_both_or_refused_by_both_but_for_known_reasons() -> None:
    rng = random.Random(4)
    legal = []
    for data in corpus(4):
        try:
            decoded(data, 4)
            legal.append(data)
        except AssertionError:
            continue  # its payload is cut
    alike, unlike = 0, []
    for _ in range(DAMAGED):
        body = bytes(damaged(rng, legal))
        if not body or body[1:8] == b"\x00\x04MQTT\x05":
            continue  # MQTT 5 is unknown to it
        data = body[:1] + encode_variable_integer(len(body) - 1) + body[1:]
        try:
            decoded(data, 4)
            refusal = ""
        except PacketError as error:
            refusal = str(error)
        if bool(refusal) == refused_by_amqtt(data):
            alike += 1
        elif not any(part in refusal for part in TAKES):
            unlike.append((data.hex(), refusal or "amqtt refuses it"))
    assert unlike == []
    assert alike > DAMAGED // 3


def refused_by_amqtt(data: bytes) -> bool:
    try:
        read_by_amqtt(data)
    except Exception:  # whatever it raises
        return True
    return False
