"""CONNECT as bytes and back: protocol name and level, the connect flags, and the fields that follow from them, in the
one order that there is (MQTT-3.1.3-1).

Which name goes with which level is the table ``_NAMES``. The flags decide which fields are there (MQTT-3.1.2-16 to
-19; 3.1.2-18 to -21 of 3.1.1). Pure, like the rest of the codec.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gateway.mqtt import properties as of
from gateway.mqtt.packets import LEVEL_3_1, LEVEL_3_1_1, LEVEL_5, Connect, Will
from gateway.mqtt.primitives import FieldReader, encode_binary, encode_text
from gateway.mqtt.properties import NO_PROPERTIES, Properties, encode_properties, property_block, read_properties
from gateway.mqtt.reason_codes import MalformedPacket, PacketError, ProtocolViolation, ReasonCode

_NAMES: Final = MappingProxyType({LEVEL_3_1: b"MQIsdp", LEVEL_3_1_1: b"MQTT", LEVEL_5: b"MQTT"})

_FIRST: Final = 0x10
_RESERVED: Final = 0x01
_CLEAN: Final = 0x02
_WILL: Final = 0x04
_WILL_QOS: Final = 0x18
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80


# ---------------------------------------------------------------- decoding


def decode_connect(cursor: FieldReader) -> Connect:
    """The CONNECT in a body. Raises ``MalformedPacket`` or ``ProtocolViolation``; 0x84 for another protocol."""
    level = _level(cursor)
    flags = _legal_flags(cursor.byte(), level)
    keep_alive_s = cursor.two_bytes()
    properties = NO_PROPERTIES
    if level >= LEVEL_5:
        properties = read_properties(cursor, of.CONNECT)
        if properties.authentication_data is not None and properties.authentication_method is None:
            raise ProtocolViolation("authentication data without a method (MQTT 5, 3.1.2.11.10)")
    client_id = cursor.text()
    will = _will(cursor, flags, level) if flags & _WILL else None
    if level == LEVEL_3_1 and cursor.is_at_end:
        flags &= ~(_USER_NAME | _PASSWORD)  # MQTT 3.1, 3.1: the length counts more than the flags
    user_name = cursor.text() if flags & _USER_NAME else None
    if level == LEVEL_3_1 and cursor.is_at_end:
        flags &= ~_PASSWORD
    password = cursor.binary() if flags & _PASSWORD else None
    is_clean = flags & _CLEAN != 0
    return Connect(client_id, is_clean, keep_alive_s, user_name, password, will, properties, level)


def level_asked(first: int, body: bytes) -> int:
    """The level that a CONNECT asks for, however wrong the rest of it is; 0 where fixed header, name and level are not
    good."""
    try:
        return _level(FieldReader(body)) if first == _FIRST else 0
    except PacketError:
        return 0


def _level(cursor: FieldReader) -> int:
    name = cursor.binary()
    level = cursor.byte()
    if _NAMES.get(level) != name:
        raise ProtocolViolation(
            f"protocol {name[:16]!r} level {level} is not spoken here (MQTT-3.1.2-1, 3.1.2-2)",
            ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        )
    return level


def _legal_flags(flags: int, level: int) -> int:
    if flags & _RESERVED:
        raise MalformedPacket("the reserved connect flag is set (MQTT-3.1.2-3)")
    if level == LEVEL_3_1 and not flags & _WILL:
        flags &= ~(_WILL_QOS | _WILL_RETAIN)  # they say nothing there (MQTT 3.1, 3.1)
    if flags & _WILL_QOS == _WILL_QOS:
        raise MalformedPacket("a will with QoS 3 (MQTT-3.1.2-12; 3.1.2-14)")
    if not flags & _WILL and flags & (_WILL_QOS | _WILL_RETAIN):
        raise ProtocolViolation("will QoS or will retain without a will (MQTT-3.1.2-11, -13; 3.1.2-13, -15)")
    if level < LEVEL_5 and flags & _PASSWORD and not flags & _USER_NAME:
        raise ProtocolViolation("a password without a user name (MQTT-3.1.2-22 of 3.1.1)")
    return flags


def _will(cursor: FieldReader, flags: int, level: int) -> Will:
    properties: Properties = read_properties(cursor, of.WILL) if level >= LEVEL_5 else NO_PROPERTIES
    topic = cursor.text()
    if not topic or "+" in topic or "#" in topic:
        raise ProtocolViolation("a will topic is a topic name (MQTT-4.7.0-1, 4.7.3-1; 4.7.1-1)")
    payload = cursor.binary()
    return Will(topic, payload, (flags & _WILL_QOS) >> 3, flags & _WILL_RETAIN != 0, properties)


# ---------------------------------------------------------------- encoding


def encode_connect(packet: Connect, level: int) -> bytes:
    """The body of a CONNECT that asks for ``level``. Raises ``ValueError`` for a field that has no encoding."""
    parts = [encode_binary(_NAMES[level]), bytes((level, _flags(packet))), packet.keep_alive_s.to_bytes(2, "big")]
    if level >= LEVEL_5:
        parts.append(property_block(encode_properties(packet.properties)))
    parts.append(encode_text(packet.client_id))
    will = packet.will
    if will is not None:
        if level >= LEVEL_5:
            parts.append(property_block(encode_properties(will.properties)))
        parts += (encode_text(will.topic), encode_binary(will.payload))
    if packet.user_name is not None:
        parts.append(encode_text(packet.user_name))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return b"".join(parts)


def _flags(packet: Connect) -> int:
    flags = _CLEAN if packet.clean_start else 0
    if packet.user_name is not None:
        flags |= _USER_NAME
    if packet.password is not None:
        flags |= _PASSWORD
    if packet.will is not None:
        flags |= _WILL | packet.will.qos << 3 | (_WILL_RETAIN if packet.will.retain else 0)
    return flags
