"""The reason codes of MQTT 5, which packet may carry which, and the two errors that end a connection.

One table, ``ALLOWED``, from packet type to the codes that a receiver accepts in it (MQTT-3.2.2-8, 3.4.2-1, 3.5.2-1,
3.6.2-1, 3.7.2-1, 3.9.3-2, 3.11.3-2, 3.14.2-1, 3.15.2-1). The codes of MQTT 3.1 and 3.1.1 are ``RETURN_CODES`` and
``GRANTED_OR_FAILED``.

An error is *malformed* where the bytes cannot be read as the packet that they claim to be, and a *violation* where
they can be read but say what the protocol forbids (MQTT 5, 1.2); a few rules name their code themselves. Nothing
here knows bytes or connections.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.errors import ProtocolError


class ReasonCode(IntEnum):
    """All codes of MQTT 5, 2.4. Where one number has several names the first stands for it."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


_TAKEN_OR_NOT: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_KNOWN_OR_NOT: Final = frozenset({0x00, 0x92})

# Packet type (the upper half of the first byte) -> codes that it may carry, whoever sends it.
ALLOWED: Final = MappingProxyType(
    {
        2: frozenset({0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}),
        4: _TAKEN_OR_NOT,
        5: _TAKEN_OR_NOT,
        6: _KNOWN_OR_NOT,
        7: _KNOWN_OR_NOT,
        9: frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}),
        11: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),
        14: frozenset({0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3)}),
        15: frozenset({0x00, 0x18, 0x19}),
    }
)
RETURN_CODES: Final = frozenset(range(6))  # CONNACK before MQTT 5 (MQTT 3.1.1, 3.2.2.3)
GRANTED_OR_FAILED: Final = frozenset({0x00, 0x01, 0x02, 0x80})  # SUBACK before MQTT 5 (MQTT-3.9.3-2 of 3.1.1)


class Told(NamedTuple):
    """A reason code with what it means here, in words for a person: ``why`` becomes the reason string where there is
    room for one."""

    code: int
    why: str


Reason = int | Told


def code_of(reason: Reason) -> int:
    """The code alone."""
    return reason.code if isinstance(reason, Told) else reason


class PacketError(ProtocolError):
    """Bytes for which the connection must close (MQTT-4.13.1-1; 4.8.0-1 of 3.1.1).

    Attributes:
        reason_code: the code for an MQTT 5 peer.
    """

    def __init__(self, message: str, reason_code: int) -> None:
        super().__init__(message)
        self.reason_code = int(reason_code)


class MalformedPacket(PacketError):
    """The bytes are no packet: the stream cannot be read on."""

    def __init__(self, message: str, reason_code: int = ReasonCode.MALFORMED_PACKET) -> None:
        super().__init__(message, reason_code)


class ProtocolViolation(PacketError):
    """The bytes are a packet that says what it must not."""

    def __init__(self, message: str, reason_code: int = ReasonCode.PROTOCOL_ERROR) -> None:
        super().__init__(message, reason_code)
