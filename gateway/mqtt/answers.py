"""The short packets of the QoS exchanges, as bytes: each is its first byte, its length, the packet id, and at most
a reason code and properties.

A reason code of 0 is left out, which is the same to an MQTT 5 client and all that an older one knows
(MQTT-3.4.2.1); codes other than 0 are only for clients of MQTT 5. No state, no decisions.
"""

from __future__ import annotations

from typing import Final

PINGRESP: Final = b"\xd0\x00"
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70


def answer(first: int, packet_id: int, reason: int = 0) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP."""
    if reason:
        return bytes((first, 3, packet_id >> 8, packet_id & 0xFF, reason))
    return bytes((first, 2, packet_id >> 8, packet_id & 0xFF))


def mark(qos: int, packet_id: int) -> bytes:
    """The acknowledgement of a PUBLISH once it is stored: nothing, PUBACK or PUBREC."""
    return answer(PUBACK if qos == 1 else PUBREC, packet_id) if qos else b""


def with_properties(mark: bytes, block: bytes) -> bytes:
    """The same answer with properties, which with their length are at most 124 bytes."""
    return b"".join((mark[:1], bytes((3 + len(block),)), mark[2:4], b"\x00", block))


def refusal(mark: bytes, reason: int) -> bytes:
    """The same answer with a reason for not taking the message."""
    return b"".join((mark[:1], b"\x03", mark[2:4], bytes((reason,))))
