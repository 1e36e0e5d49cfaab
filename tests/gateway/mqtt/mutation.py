"""Damaged MQTT packets: legal ones of every kind with bits turned and bytes put in, taken out and doubled.

The same generator gives the same bytes.
"""

from __future__ import annotations

import random

from hypothesis import given, settings

from gateway.mqtt import codec
from gateway.mqtt.packets import Packet
from tests.gateway.mqtt.packet_strategies import streams


def corpus(level: int) -> list[bytes]:
    """Legal packets of every kind, a few of each, always the same."""
    made: list[bytes] = []

    @settings(max_examples=60, derandomize=True, database=None)
    @given(streams(level))
    def collect(packets: list[Packet]) -> None:
        made.extend(codec.encode(packet, level)[:300] for packet in packets)

    collect()
    return made


def _mutate(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(6)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind == 2:
        data[at:at] = rng.randbytes(rng.randrange(1, 4))
    elif kind == 3:
        del data[at : at + rng.randrange(1, 4)]
    elif kind == 4:
        del data[at:]
    else:
        data[at:at] = data[: rng.randrange(len(data) + 1)]
    if len(data) > 1 and rng.randrange(2):
        data[1] = min(len(data) - 2, 127)  # so that damage lies within a packet as often as around it


def mutated(rng: random.Random, legal: list[bytes]) -> bytes:
    """One of the packets with one to three kinds of damage."""
    data = bytearray(rng.choice(legal))
    for _ in range(rng.randrange(1, 4)):
        _mutate(rng, data)
    return bytes(data)


def damaged(rng: random.Random, legal: list[bytes]) -> bytearray:
    """First byte and body of one of the packets, damaged: all but its length, which whoever sends it writes anew."""
    whole = rng.choice(legal)
    size = 1
    while whole[size] > 127:
        size += 1
    data = bytearray(whole[:1] + whole[size + 1 :])
    for _ in range(rng.randrange(1, 3)):
        _mutate(rng, data)
    return data
