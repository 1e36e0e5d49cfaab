"""MQTT control packets as bytes and back, for protocol levels 3 (MQTT 3.1), 4 (3.1.1) and 5 (5.0).

docs/formats/mqtt.md is the page of this format. ``decode`` is total and strict: any first byte and body give one legal
packet, or ``MalformedPacket`` / ``ProtocolViolation`` with the reason code to close with; each check cites its
statement, the MQTT 5 one first. What needs more than the one packet (aliases, quotas, what may come when, names
against policy) is not judged here. Of a SUBSCRIBE or UNSUBSCRIBE with more filters than the caller takes, ``decode``
looks at one more than those: enough to be told from a good one, for little work. ``encode`` writes what it is given, in
the shortest form.

Pure functions on bytes. The tables ``_DECODERS`` and ``_ENCODERS`` say which function is whose.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from gateway.mqtt import properties as of
from gateway.mqtt.connect_codec import decode_connect, encode_connect
from gateway.mqtt.packets import (
    LEVEL_3_1,
    LEVEL_5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from gateway.mqtt.primitives import ANY_NUMBER, FieldReader, encode_text, encode_variable_integer, text_of
from gateway.mqtt.properties import NO_PROPERTIES, Properties, encode_properties, property_block, read_properties
from gateway.mqtt.reason_codes import ALLOWED, GRANTED_OR_FAILED, RETURN_CODES, MalformedPacket, ProtocolViolation

__all__ = ["decode", "decode_publish", "encode", "encode_properties", "publish_head", "read_properties"]

_DUP: Final = 0x08
_RESERVED_OPTIONS: Final = 0xC0


# ---------------------------------------------------------------- decoding


def decode(first: int, body: bytes, level: int, filters_max: int = ANY_NUMBER) -> Packet:
    """The packet of a fixed header's first byte and the body that it announced.

    Raises ``MalformedPacket`` or ``ProtocolViolation``. ``level`` is not looked at for a CONNECT, which brings its own.
    ``filters_max``: how many topic filters the caller takes; of more it gets one more.
    """
    kind = first >> 4
    if kind == of.PUBLISH:
        return decode_publish(first, body, 0, len(body), level)
    found = _DECODERS.get(kind)
    if found is None or (kind == of.AUTH and level < LEVEL_5):
        raise MalformedPacket(f"packet type {kind} is forbidden (MQTT 2.1.2)")
    flags, decoder = found
    if first & 0x0F != flags and not (level == LEVEL_3_1 and kind in _DUP_IN_3_1 and first & 0x0F == flags | _DUP):
        raise MalformedPacket(f"reserved flags 0x{first & 15:x} in packet type {kind} (MQTT-2.1.3-1; 2.2.2-2)")
    cursor = FieldReader(body, 0, None, filters_max)
    packet = decoder(cursor, level)
    cursor.finish()
    return packet


def decode_publish(first: int, data: bytes, at: int, stop: int, level: int) -> Publish:
    """The PUBLISH whose body is ``data[at:stop]``. Raises as ``decode`` does."""
    qos = (first >> 1) & 3
    if qos == 3:
        raise MalformedPacket("QoS 3 (MQTT-3.3.1-4)")
    body = at + 2
    if body <= stop:
        body += data[at] << 8 | data[at + 1]
    packet_id = 0
    name_end = body
    if qos:
        body += 2
    elif first & _DUP:
        raise ProtocolViolation("DUP with QoS 0 (MQTT-3.3.1-2)")
    if body > stop:
        raise MalformedPacket("a PUBLISH ends within its topic name or packet identifier")
    if qos:
        packet_id = data[name_end] << 8 | data[name_end + 1]
        if not packet_id:
            raise ProtocolViolation("packet identifier 0 (MQTT-2.2.1-3; 2.3.1-1)")
    topic = text_of(data[at + 2 : name_end])
    if "+" in topic or "#" in topic:
        raise ProtocolViolation("a topic name holds a wildcard (MQTT-3.3.2-2)")
    properties, raw = NO_PROPERTIES, b""
    if level >= LEVEL_5:
        if body < stop and not data[body]:
            body += 1
        else:
            properties, raw, body = _publish_properties(data, body, stop)
    if not topic and properties.topic_alias is None:
        raise ProtocolViolation("an empty topic name without a topic alias (MQTT-4.7.3-1; MQTT 5, 3.3.2.3.4)")
    return Publish(topic, data[body:stop], qos, first & 1 == 1, first & _DUP != 0, packet_id, properties, raw)


def _publish_properties(data: bytes, at: int, stop: int) -> tuple[Properties, bytes, int]:
    cursor = FieldReader(data, at, stop)
    properties = read_properties(cursor, of.PUBLISH)
    block = FieldReader(data, at, stop)
    block.variable_integer()
    return properties, data[block.at : cursor.at], cursor.at


def _packet_id(cursor: FieldReader) -> int:
    packet_id = cursor.two_bytes()
    if not packet_id:
        raise ProtocolViolation("packet identifier 0 (MQTT-2.2.1-3; 2.3.1-1)")
    return packet_id


def _reason(cursor: FieldReader, kind: int) -> int:
    return _legal_reason(cursor.byte(), kind, ALLOWED[kind])


def _legal_reason(code: int, kind: int, allowed: frozenset[int]) -> int:
    if code not in allowed:
        raise ProtocolViolation(f"reason code 0x{code:02x} in packet type {kind} (MQTT 2.4)")
    return code


def _decode_answer(cls: Callable[[int, int, Properties], Packet], kind: int) -> Callable[[FieldReader, int], Packet]:
    """For PUBACK, PUBREC, PUBREL, PUBCOMP: an id and, in MQTT 5, perhaps a reason and properties (3.4.2)."""

    def decode_answer(cursor: FieldReader, level: int) -> Packet:
        packet_id = _packet_id(cursor)
        if level < LEVEL_5 or cursor.is_at_end:
            return cls(packet_id, 0, NO_PROPERTIES)
        reason = _reason(cursor, kind)
        return cls(packet_id, reason, NO_PROPERTIES if cursor.is_at_end else read_properties(cursor, kind))

    return decode_answer


def _decode_connack(cursor: FieldReader, level: int) -> Connack:
    flags = cursor.byte()
    if flags > 1:
        raise MalformedPacket("reserved acknowledge flags (MQTT-3.2.2-1)")
    if level < LEVEL_5:
        code = _legal_reason(cursor.byte(), of.CONNACK, RETURN_CODES)
        packet = Connack(flags == 1, code)
    else:
        code = _reason(cursor, of.CONNACK)
        packet = Connack(flags == 1, code, read_properties(cursor, of.CONNACK))
    if code and flags:
        raise ProtocolViolation("session present with an error (MQTT-3.2.2-6; 3.2.2-4)")
    return packet


def _decode_subscribe(cursor: FieldReader, level: int) -> Subscribe:
    packet_id = _packet_id(cursor)
    properties = read_properties(cursor, of.SUBSCRIBE) if level >= LEVEL_5 else NO_PROPERTIES
    if len(properties.subscription_identifiers) > 1:
        raise ProtocolViolation("more than one subscription identifier (MQTT 5, 3.8.2.1.2)")
    subscriptions = []
    while not cursor.is_at_end:
        subscriptions.append(_subscription(cursor, level))
        if len(subscriptions) > cursor.filters_max:
            cursor.skip_rest()
    if not subscriptions:
        raise ProtocolViolation("a SUBSCRIBE without a filter (MQTT-3.8.3-2; 3.8.3-3)")
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _filter(cursor: FieldReader) -> str:
    topic_filter = cursor.text()
    if not topic_filter:
        raise ProtocolViolation("an empty topic filter (MQTT-4.7.3-1)")
    return topic_filter


def _subscription(cursor: FieldReader, level: int) -> Subscription:
    topic_filter = _filter(cursor)
    options = cursor.byte()
    if options & (_RESERVED_OPTIONS if level >= LEVEL_5 else ~3):
        raise MalformedPacket("reserved bits in the subscription options (MQTT-3.8.3-5; 3.8.3-4)")
    qos, handling = options & 3, options >> 4
    if qos == 3:
        raise ProtocolViolation("a subscription with QoS 3 (MQTT 5, 3.8.3.1; MQTT-3.8.3-4 of 3.1.1)")
    if handling == 3:
        raise ProtocolViolation("retain handling 3 (MQTT 5, 3.8.3.1)")
    no_local = options & 4 != 0
    if no_local and topic_filter.startswith(("$share/", "$oshare/")):
        raise ProtocolViolation("no local on a shared subscription (MQTT-3.8.3-4)")
    return Subscription(topic_filter, qos, no_local, options & 8 != 0, handling)


def _decode_suback(cursor: FieldReader, level: int) -> Suback:
    packet_id = _packet_id(cursor)
    properties = read_properties(cursor, of.SUBACK) if level >= LEVEL_5 else NO_PROPERTIES
    allowed = ALLOWED[of.SUBACK] if level >= LEVEL_5 else GRANTED_OR_FAILED
    return Suback(packet_id, _codes(cursor, of.SUBACK, allowed), properties)


def _codes(cursor: FieldReader, kind: int, allowed: frozenset[int]) -> tuple[int, ...]:
    """One code per filter, and there was at least one (MQTT-3.9.3-1, 3.11.3-1)."""
    if cursor.is_at_end:
        raise MalformedPacket(f"packet type {kind} without a reason code (MQTT-3.9.3-1, 3.11.3-1)")
    return tuple([_legal_reason(code, kind, allowed) for code in cursor.rest()])


def _decode_unsubscribe(cursor: FieldReader, level: int) -> Unsubscribe:
    packet_id = _packet_id(cursor)
    properties = read_properties(cursor, of.UNSUBSCRIBE) if level >= LEVEL_5 else NO_PROPERTIES
    filters = []
    while not cursor.is_at_end:
        filters.append(_filter(cursor))
        if len(filters) > cursor.filters_max:
            cursor.skip_rest()
    if not filters:
        raise ProtocolViolation("an UNSUBSCRIBE without a filter (MQTT-3.10.3-2)")
    return Unsubscribe(packet_id, tuple(filters), properties)


def _decode_unsuback(cursor: FieldReader, level: int) -> Unsuback:
    packet_id = _packet_id(cursor)
    if level < LEVEL_5:
        return Unsuback(packet_id)
    properties = read_properties(cursor, of.UNSUBACK)
    return Unsuback(packet_id, _codes(cursor, of.UNSUBACK, ALLOWED[of.UNSUBACK]), properties)


def _decode_disconnect(cursor: FieldReader, level: int) -> Disconnect:
    if level < LEVEL_5 or cursor.is_at_end:
        return Disconnect()
    reason = _reason(cursor, of.DISCONNECT)
    return Disconnect(reason, NO_PROPERTIES if cursor.is_at_end else read_properties(cursor, of.DISCONNECT))


def _decode_auth(cursor: FieldReader, level: int) -> Auth:
    if cursor.is_at_end:
        return Auth()
    reason = _reason(cursor, of.AUTH)
    properties = read_properties(cursor, of.AUTH)
    if properties.authentication_method is None:
        raise ProtocolViolation("an AUTH without an authentication method (MQTT 5, 3.15.2.2.2)")
    return Auth(reason, properties)


# Packet type -> the flags that it must have, and what reads its body.
_DECODERS: Final = MappingProxyType[int, tuple[int, Callable[[FieldReader, int], Packet]]](
    {
        of.CONNECT: (0, lambda cursor, level: decode_connect(cursor)),
        of.CONNACK: (0, _decode_connack),
        of.PUBACK: (0, _decode_answer(Puback, of.PUBACK)),
        of.PUBREC: (0, _decode_answer(Pubrec, of.PUBREC)),
        of.PUBREL: (2, _decode_answer(Pubrel, of.PUBREL)),
        of.PUBCOMP: (0, _decode_answer(Pubcomp, of.PUBCOMP)),
        of.SUBSCRIBE: (2, _decode_subscribe),
        of.SUBACK: (0, _decode_suback),
        of.UNSUBSCRIBE: (2, _decode_unsubscribe),
        of.UNSUBACK: (0, _decode_unsuback),
        12: (0, lambda cursor, level: Pingreq()),
        13: (0, lambda cursor, level: Pingresp()),
        of.DISCONNECT: (0, _decode_disconnect),
        of.AUTH: (0, _decode_auth),
    }
)
# MQTT 3.1 lets a client repeat these with DUP set (MQTT 3.1, 3.6, 3.8, 3.10).
_DUP_IN_3_1: Final = frozenset({of.PUBREL, of.SUBSCRIBE, of.UNSUBSCRIBE})


# ---------------------------------------------------------------- encoding


def encode(packet: Packet, level: int) -> bytes:
    """The packet's bytes at a protocol level; what the level does not have is left out.

    Raises ``ValueError`` or ``OverflowError`` for a field that has no encoding.
    """
    if type(packet) is Publish:
        return _encode_publish(packet, level)
    first, encoder = _ENCODERS[type(packet)]
    body: bytes = encoder(packet, level)
    return b"".join((first, encode_variable_integer(len(body)), body))


def publish_head(name: bytes, tail_bytes: int, qos: int, retain: bool = False, dup: bool = False) -> bytes:
    """A PUBLISH up to the end of its topic name, which is where its packet id has its place.

    The rest, ``tail_bytes``, depends on neither subscriber nor id: for MQTT 5 the property block, then the
    payload. So one head and one tail serve all subscribers of a message.
    """
    size = 2 + len(name) + (2 if qos else 0) + tail_bytes
    first = 0x30 | dup << 3 | qos << 1 | retain
    return b"".join((bytes((first,)), encode_variable_integer(size), len(name).to_bytes(2, "big"), name))


def _encode_publish(packet: Publish, level: int) -> bytes:
    name = packet.topic.encode()
    block = property_block(encode_properties(packet.properties)) if level >= LEVEL_5 else b""
    head = publish_head(name, len(block) + len(packet.payload), packet.qos, packet.retain, packet.dup)
    packet_id = packet.packet_id.to_bytes(2, "big") if packet.qos else b""
    return b"".join((head, packet_id, block, packet.payload))


def _block(properties: Properties, level: int) -> bytes:
    return property_block(encode_properties(properties)) if level >= LEVEL_5 else b""


def _shortest(reason: int, properties: Properties, level: int) -> bytes:
    """Reason and properties where both may be left out if they say nothing (MQTT 5, 3.4.2.1, 3.14.2.1, 3.15.2.1)."""
    if level < LEVEL_5:
        return b""
    encoded = encode_properties(properties)
    if encoded:
        return bytes((reason,)) + property_block(encoded)
    return bytes((reason,)) if reason else b""


def _encode_answer(packet: Puback | Pubrec | Pubrel | Pubcomp, level: int) -> bytes:
    return packet.packet_id.to_bytes(2, "big") + _shortest(packet.reason_code, packet.properties, level)


def _encode_connack(packet: Connack, level: int) -> bytes:
    return bytes((packet.session_present, packet.reason_code)) + _block(packet.properties, level)


def _encode_subscribe(packet: Subscribe, level: int) -> bytes:
    parts = [packet.packet_id.to_bytes(2, "big"), _block(packet.properties, level)]
    for one in packet.subscriptions:
        options = one.qos
        if level >= LEVEL_5:
            options |= one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        parts += (encode_text(one.filter), bytes((options,)))
    return b"".join(parts)


def _encode_suback(packet: Suback, level: int) -> bytes:
    return b"".join((packet.packet_id.to_bytes(2, "big"), _block(packet.properties, level), bytes(packet.reason_codes)))


def _encode_unsubscribe(packet: Unsubscribe, level: int) -> bytes:
    filters = [encode_text(one) for one in packet.filters]
    return b"".join((packet.packet_id.to_bytes(2, "big"), _block(packet.properties, level), *filters))


def _encode_unsuback(packet: Unsuback, level: int) -> bytes:
    codes = bytes(packet.reason_codes) if level >= LEVEL_5 else b""
    return b"".join((packet.packet_id.to_bytes(2, "big"), _block(packet.properties, level), codes))


def _encode_disconnect(packet: Disconnect, level: int) -> bytes:
    return _shortest(packet.reason_code, packet.properties, level)


def _encode_auth(packet: Auth, level: int) -> bytes:
    if not packet.reason_code and packet.properties == NO_PROPERTIES:
        return b""
    return bytes((packet.reason_code,)) + _block(packet.properties, level)


def _encode_ping(packet: Pingreq | Pingresp, level: int) -> bytes:
    return b""


_ENCODERS: Final = MappingProxyType[type, tuple[bytes, Callable[[Any, int], bytes]]](
    {
        Connect: (b"\x10", encode_connect),
        Connack: (b"\x20", _encode_connack),
        Puback: (b"\x40", _encode_answer),
        Pubrec: (b"\x50", _encode_answer),
        Pubrel: (b"\x62", _encode_answer),
        Pubcomp: (b"\x70", _encode_answer),
        Subscribe: (b"\x82", _encode_subscribe),
        Suback: (b"\x90", _encode_suback),
        Unsubscribe: (b"\xa2", _encode_unsubscribe),
        Unsuback: (b"\xb0", _encode_unsuback),
        Pingreq: (b"\xc0", _encode_ping),
        Pingresp: (b"\xd0", _encode_ping),
        Disconnect: (b"\xe0", _encode_disconnect),
        Auth: (b"\xf0", _encode_auth),
    }
)
