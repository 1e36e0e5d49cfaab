"""The properties of MQTT 5 packets: which there are, of what type, in which packets, and how often.

One table, ``TABLE``, says all of it (MQTT 5, 2.2.2.2); decoding and encoding only follow it. Decoding is strict: an
identifier that is unknown or not allowed in its packet, and a value that is not of its type, are *malformed* (0x81);
one that comes twice, or has a value that its section forbids, is a *protocol error* (0x82). User properties keep
their order (MQTT-3.3.2-18). A value equal to ``NO_PROPERTIES`` stands for an empty block and for the levels that
have none.

``application_properties`` works on a received block without decoding its values, so that what a server must forward
unaltered (MQTT-3.3.2-4, -15, -16, -17, -20) goes out byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.mqtt.primitives import FieldReader, encode_binary, encode_text, encode_variable_integer
from gateway.mqtt.reason_codes import MalformedPacket, ProtocolViolation, ReasonCode
from penstock.values import value

# What can carry properties: packet types by number, and the will inside a CONNECT.
WILL: Final = 0
CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
DISCONNECT: Final = 14
AUTH: Final = 15


@value
class Properties:
    """All properties by their names in the standard; ``None`` or empty where absent. Flags are 0 or 1, times are
    in seconds."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifiers_available: int | None = None
    shared_subscription_available: int | None = None

    def __repr__(self) -> str:
        given = {row.name: getattr(self, row.name) for row in TABLE}
        return (
            f"Properties({', '.join(f'{name}={value!r}' for name, value in given.items() if value not in (None, ()))})"
        )


NO_PROPERTIES: Final = Properties()


# ---------------------------------------------------------------- types of values


def _read_pair(cursor: FieldReader) -> tuple[str, str]:
    return cursor.text(), cursor.text()  # both strings are checked (MQTT-1.5.7-1)


class Kind(NamedTuple):
    """A data type: how it is read, skipped and written."""

    read: Callable[[FieldReader], Any]
    write: Callable[[Any], bytes]


BYTE: Final = Kind(FieldReader.byte, lambda value: value.to_bytes(1, "big"))
TWO_BYTES: Final = Kind(FieldReader.two_bytes, lambda value: value.to_bytes(2, "big"))
FOUR_BYTES: Final = Kind(FieldReader.four_bytes, lambda value: value.to_bytes(4, "big"))
VARIABLE: Final = Kind(FieldReader.variable_integer, encode_variable_integer)
TEXT: Final = Kind(FieldReader.text, encode_text)
BINARY: Final = Kind(FieldReader.binary, encode_binary)
PAIR: Final = Kind(_read_pair, lambda pair: encode_text(pair[0]) + encode_text(pair[1]))


# ---------------------------------------------------------------- values that are of the right type and still wrong


def _any(value: Any) -> bool:
    return True


def _zero_or_one(value: int) -> bool:
    return value < 2


def _not_zero(value: int) -> bool:
    return value > 0


def _topic_name(value: str) -> bool:
    return value != "" and "+" not in value and "#" not in value  # (MQTT-3.3.2-14, 4.7.3-1)


class Row(NamedTuple):
    """One property: identifier, field of ``Properties``, type, where it may stand, which values it may have."""

    identifier: int
    name: str
    kind: Kind
    packets: frozenset[int]
    is_legal: Callable[[Any], bool] = _any
    is_repeatable: bool = False


def _in(*packets: int) -> frozenset[int]:
    return frozenset(packets)


_APPLICATION: Final = _in(PUBLISH, WILL)
_ANSWERS: Final = _in(CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH)

TABLE: Final = (
    Row(0x01, "payload_format_indicator", BYTE, _APPLICATION, _zero_or_one),
    Row(0x02, "message_expiry_interval", FOUR_BYTES, _APPLICATION),
    Row(0x03, "content_type", TEXT, _APPLICATION),
    Row(0x08, "response_topic", TEXT, _APPLICATION, _topic_name),
    Row(0x09, "correlation_data", BINARY, _APPLICATION),
    Row(0x0B, "subscription_identifiers", VARIABLE, _in(PUBLISH, SUBSCRIBE), _not_zero, True),
    Row(0x11, "session_expiry_interval", FOUR_BYTES, _in(CONNECT, CONNACK, DISCONNECT)),
    Row(0x12, "assigned_client_identifier", TEXT, _in(CONNACK)),
    Row(0x13, "server_keep_alive", TWO_BYTES, _in(CONNACK)),
    Row(0x15, "authentication_method", TEXT, _in(CONNECT, CONNACK, AUTH)),
    Row(0x16, "authentication_data", BINARY, _in(CONNECT, CONNACK, AUTH)),
    Row(0x17, "request_problem_information", BYTE, _in(CONNECT), _zero_or_one),
    Row(0x18, "will_delay_interval", FOUR_BYTES, _in(WILL)),
    Row(0x19, "request_response_information", BYTE, _in(CONNECT), _zero_or_one),
    Row(0x1A, "response_information", TEXT, _in(CONNACK)),
    Row(0x1C, "server_reference", TEXT, _in(CONNACK, DISCONNECT)),
    Row(0x1F, "reason_string", TEXT, _ANSWERS),
    Row(0x21, "receive_maximum", TWO_BYTES, _in(CONNECT, CONNACK), _not_zero),
    Row(0x22, "topic_alias_maximum", TWO_BYTES, _in(CONNECT, CONNACK)),
    Row(0x23, "topic_alias", TWO_BYTES, _in(PUBLISH)),
    Row(0x24, "maximum_qos", BYTE, _in(CONNACK), _zero_or_one),
    Row(0x25, "retain_available", BYTE, _in(CONNACK), _zero_or_one),
    Row(0x26, "user_properties", PAIR, _ANSWERS | _APPLICATION | _in(CONNECT, SUBSCRIBE, UNSUBSCRIBE), _any, True),
    Row(0x27, "maximum_packet_size", FOUR_BYTES, _in(CONNECT, CONNACK), _not_zero),
    Row(0x28, "wildcard_subscription_available", BYTE, _in(CONNACK), _zero_or_one),
    Row(0x29, "subscription_identifiers_available", BYTE, _in(CONNACK), _zero_or_one),
    Row(0x2A, "shared_subscription_available", BYTE, _in(CONNACK), _zero_or_one),
)
BY_IDENTIFIER: Final = MappingProxyType({row.identifier: row for row in TABLE})

BLOCK_BYTES_MAX: Final = 128 * 1024
"""No application needs more; each property costs far more time than a byte of payload."""
_TOPIC_ALIAS: Final = 0x23
_MESSAGE_EXPIRY: Final = 0x02
_SUBSCRIPTION_IDENTIFIER: Final = 0x0B
_WILL_DELAY: Final = 0x18
_PER_HOP: Final = frozenset({_TOPIC_ALIAS, _MESSAGE_EXPIRY, _SUBSCRIPTION_IDENTIFIER, _WILL_DELAY})


# ---------------------------------------------------------------- decoding


def read_properties(cursor: FieldReader, packet: int) -> Properties:
    """The property block at the cursor, with its length before it, as ``packet`` may carry it.

    Raises ``MalformedPacket`` (0x81) or ``ProtocolViolation`` (0x82; 0x97 for a block that is too long).
    """
    size = cursor.variable_integer()
    if not size:
        return NO_PROPERTIES
    if size > BLOCK_BYTES_MAX:
        raise ProtocolViolation(
            f"{size} bytes of properties; the limit is {BLOCK_BYTES_MAX}", ReasonCode.QUOTA_EXCEEDED
        )
    outer_end, cursor.end = cursor.end, cursor.at + size
    if cursor.end > outer_end:
        raise MalformedPacket("the properties are longer than the packet")
    values: dict[str, Any] = {}
    while cursor.at < cursor.end:
        _read_one(cursor, packet, values)
    cursor.end = outer_end
    for name in values.keys() & _REPEATABLE:
        values[name] = tuple(values[name])
    return Properties(**values)


def _read_one(cursor: FieldReader, packet: int, values: dict[str, Any]) -> None:
    identifier = cursor.variable_integer()
    row = BY_IDENTIFIER.get(identifier)
    if row is None or packet not in row.packets:
        raise MalformedPacket(f"property 0x{identifier:02x} has no place in packet type {packet} (MQTT 2.2.2.2)")
    value = row.kind.read(cursor)
    if not row.is_legal(value):
        raise ProtocolViolation(f"{row.name} must not be {value!r}")
    if row.is_repeatable:
        values.setdefault(row.name, []).append(value)
    elif row.name in values:
        raise ProtocolViolation(f"{row.name} comes twice (MQTT 2.2.2.2)")
    else:
        values[row.name] = value


_REPEATABLE: Final = frozenset(row.name for row in TABLE if row.is_repeatable)


# ---------------------------------------------------------------- encoding


def encode_properties(properties: Properties) -> bytes:
    """The block without its length, properties in the order of their identifiers.

    Raises ``ValueError`` or ``OverflowError`` for a value that its type cannot hold.
    """
    if properties is NO_PROPERTIES:
        return b""
    parts: list[bytes] = []
    for row in TABLE:
        value = getattr(properties, row.name)
        if value is None:
            continue
        values: Sequence[Any] = value if row.is_repeatable else (value,)
        for one in values:
            parts.append(encode_variable_integer(row.identifier))
            parts.append(row.kind.write(one))
    return b"".join(parts)


def property_block(encoded: bytes) -> bytes:
    """Encoded properties with their length before them: a zero where there are none (MQTT-2.2.2-1)."""
    return encode_variable_integer(len(encoded)) + encoded


# ---------------------------------------------------------------- forwarding


class Application(NamedTuple):
    """Properties that go from the publisher to the subscribers.

    Attributes:
        expiry_s: the message expiry interval, ``None`` where there is none.
        encoded: the other properties that the server forwards, as they came, without their length.
    """

    expiry_s: int | None
    encoded: bytes


def application_properties(raw: bytes) -> Application:
    """Splits the (already checked) property block of a PUBLISH or will into what is per hop and what is forwarded."""
    if not raw:
        return _NOTHING
    cursor = FieldReader(raw)
    expiry_s: int | None = None
    kept: list[bytes] = []
    while cursor.at < cursor.end:
        start = cursor.at
        identifier = cursor.variable_integer()
        value = BY_IDENTIFIER[identifier].kind.read(cursor)
        if identifier == _MESSAGE_EXPIRY:
            expiry_s = value
        elif identifier not in _PER_HOP:
            kept.append(raw[start : cursor.at])
    return Application(expiry_s, b"".join(kept))


_NOTHING: Final = Application(None, b"")
