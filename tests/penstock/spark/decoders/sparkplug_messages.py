"""Sparkplug B messages for tests, written field by field after its specification: independent of our decoder."""

from __future__ import annotations

import struct
from typing import Any


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def metric(
    name: str | None = None,
    alias: int | None = None,
    datatype: int | None = None,
    timestamp: int | None = None,
    is_null: bool = False,
    **value: Any,
) -> bytes:
    """``value``: one of ``int``, ``long``, ``float``, ``double``, ``boolean``, ``string`` and ``bytes``."""
    out = block(1, name.encode()) if name is not None else b""
    for field, given in ((2, alias), (3, timestamp), (4, datatype)):
        out += number(field, given) if given is not None else b""
    out += number(7, 1) if is_null else b""
    for kind, given in value.items():
        match kind:
            case "int":
                out += number(10, given & 0xFFFFFFFF)
            case "long":
                out += number(11, given & 0xFFFFFFFFFFFFFFFF)
            case "float":
                out += varint(12 << 3 | 5) + struct.pack("<f", given)
            case "double":
                out += varint(13 << 3 | 1) + struct.pack("<d", given)
            case "boolean":
                out += number(14, int(given))
            case "string":
                out += block(15, given.encode())
            case "bytes":
                out += block(16, given)
    return out


def payload(*metrics: bytes, seq: int | None = None, timestamp: int | None = 1_700_000_000_000) -> bytes:
    out = number(1, timestamp) if timestamp is not None else b""
    out += b"".join(block(2, one) for one in metrics)
    return out + (number(3, seq) if seq is not None else b"")
