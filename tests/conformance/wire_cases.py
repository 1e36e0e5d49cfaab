"""Bytes as a peer would send them, written out field by field, and what the reader makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from gateway.mqtt.packets import Packet
from gateway.mqtt.reader import PacketReader
from gateway.mqtt.reason_codes import PacketError

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82


def text(value: str | bytes) -> bytes:
    """A string field; bytes for one that is no UTF-8."""
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2, "big") + raw


def number(value: int) -> bytes:
    """A variable byte integer."""
    encoded = bytearray()
    while True:
        value, low = divmod(value, 128)
        encoded.append(low | (128 if value else 0))
        if not value:
            return bytes(encoded)


def packet(first: int, *fields: bytes) -> bytes:
    """A packet of a first byte and fields, with the remaining length that they have."""
    body = b"".join(fields)
    return bytes((first,)) + number(len(body)) + body


def block(*properties: bytes) -> bytes:
    """A property block with its length."""
    joined = b"".join(properties)
    return number(len(joined)) + joined


def connect(flags: int = 0x02, *fields: bytes, level: int = 4, name: str | bytes = "MQTT") -> bytes:
    """A CONNECT with keep-alive 60 whose fields after it are given."""
    return packet(0x10, text(name), bytes((level, flags)), b"\x00\x3c", *fields)


class Judged(NamedTuple):
    """Packets taken and, if there was damage, its reason code."""

    packets: list[Packet]
    reason_code: int | None


def judge(level: int, data: bytes, packet_bytes_max: int = 1 << 20) -> Judged:
    """What a reader at ``level`` (0: before the CONNECT) makes of ``data``."""
    reader = PacketReader(packet_bytes_max)
    reader.level = level
    try:
        packets = reader.receive(data)
    except PacketError as error:
        return Judged(list(reader.before_damage), error.reason_code)
    assert reader.pending == 0, "the case is no whole packet"
    return Judged(packets, None)


def taken(level: int, data: bytes) -> Packet:
    """The one packet that ``data`` is."""
    packets, reason_code = judge(level, data)
    assert reason_code is None
    assert len(packets) == 1
    return packets[0]


def case(name: str, *values: Any, mqtt: tuple[str, ...] = (), old: tuple[str, ...] = ()) -> Any:
    """A named case that shows normative statements (of MQTT 5.0, and under ``old`` of 3.1.1)."""
    return pytest.param(*values, id=name, marks=pytest.mark.mqtt(*mqtt, old=old))
