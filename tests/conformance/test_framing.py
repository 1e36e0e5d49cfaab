"""MQTT 5, 1.5, 2.1, 2.2, 4.13 (3.1.1: 1.5, 2.2, 2.3, 4.8): fixed headers, data types, properties, malformed input."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.conformance.wire_cases import (
    MALFORMED,
    PROTOCOL_ERROR,
    block,
    case,
    connect,
    judge,
    number,
    packet,
    taken,
    text,
)

# A legal body of each packet type at level 4, and the flags that its first byte must have.
LEGAL = {
    2: (0, b"\x00\x00"),
    4: (0, b"\x00\x01"),
    5: (0, b"\x00\x01"),
    6: (2, b"\x00\x01"),
    7: (0, b"\x00\x01"),
    8: (2, b"\x00\x01" + text("a") + b"\x00"),
    9: (0, b"\x00\x01\x00"),
    10: (2, b"\x00\x01" + text("a")),
    11: (0, b"\x00\x01"),
    12: (0, b""),
    13: (0, b""),
    14: (0, b""),
}


@pytest.mark.mqtt("2.1.3-1", "3.6.1-1", "3.8.1-1", "3.10.1-1", "3.14.1-1", old=("2.2.2-1", "2.2.2-2", "3.6.1-1"))
@pytest.mark.mqtt(old=("3.8.1-1", "3.10.1-1", "3.14.1-1"))
@pytest.mark.parametrize(("kind", "flags"), [(kind, flags) for kind in LEGAL for flags in range(16)])
def test_reserved_flags_must_be_as_the_standard_says(kind: int, flags: int) -> None:
    legal, body = LEGAL[kind]
    expected = None if flags == legal else MALFORMED
    assert judge(4, packet(kind << 4 | flags, body)).reason_code == expected


@pytest.mark.mqtt("2.1.3-1", "3.1.0-1", "3.15.1-1", old=("2.2.2-1", "3.1.0-1"))
@pytest.mark.parametrize("flags", range(1, 16))
def test_reserved_flags_of_connect_and_auth_must_be_zero(flags: int) -> None:
    assert judge(0, packet(0x10 | flags, text("MQTT"), b"\x04\x02\x00\x00", text("c"))).reason_code == MALFORMED
    assert judge(5, packet(0xF0 | flags)).reason_code == MALFORMED


@pytest.mark.parametrize(("first", "allowed"), [(0x6A, True), (0x8A, True), (0xAA, True), (0x4A, False), (0xE8, False)])
@pytest.mark.mqtt("3.1 dup")
def test_mqtt_3_1_clients_may_set_dup_on_what_they_repeat(first: int, allowed: bool) -> None:
    body = LEGAL[first >> 4][1]
    assert (judge(3, packet(first, body)).reason_code is None) == allowed
    assert judge(4, packet(first, body)).reason_code == MALFORMED


@pytest.mark.parametrize(
    ("level", "data"),
    [
        case("five bytes", 4, b"\x30\xff\xff\xff\xff\x01", mqtt=("1.5.5-1",)),
        case("zero padded to two bytes", 4, b"\xc0\x80\x00", mqtt=("1.5.5-1",)),
        case("one padded to four bytes", 4, b"\x40\x82\x80\x80\x00\x00\x01", mqtt=("1.5.5-1",)),
        case("five bytes at level 5", 5, b"\xe0\x80\x80\x80\x80\x01", mqtt=("1.5.5-1",)),
        case("padded property length", 5, packet(0x30, text("a"), b"\x80\x00"), mqtt=("1.5.5-1",)),
        case("property length of five bytes", 5, packet(0x30, text("a"), b"\xff" * 5), mqtt=("1.5.5-1",)),
        case("padded property identifier", 5, packet(0x30, text("a"), block(b"\x81\x00\x01")), mqtt=("1.5.5-1",)),
    ],
)
def test_a_variable_byte_integer_has_its_shortest_form_and_at_most_four_bytes(level: int, data: bytes) -> None:
    assert judge(level, data).reason_code == MALFORMED


@pytest.mark.mqtt("1.5.5-1")
@pytest.mark.parametrize(("value", "encoded"), [(127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001")])
def test_lengths_at_the_edges_are_written_in_their_shortest_form(value: int, encoded: str) -> None:
    payload = bytes(value - 3)
    data = codec.encode(Publish("a", payload), 4)
    assert data == b"\x30" + bytes.fromhex(encoded) + text("a") + payload
    assert taken(4, data) == Publish("a", payload)


# Where strings stand, as bytes around one.
STRINGS = {
    "client id": (0, lambda raw: connect(0x02, text(raw))),
    "will topic": (0, lambda raw: connect(0x06, text("c"), text(raw), text(""))),
    "user name": (0, lambda raw: connect(0x82, text("c"), text(raw))),
    "topic name": (4, lambda raw: packet(0x30, text(raw))),
    "subscribed filter": (4, lambda raw: packet(0x82, b"\x00\x01", text(raw), b"\x00")),
    "unsubscribed filter": (4, lambda raw: packet(0xA2, b"\x00\x01", text(raw))),
    "content type": (5, lambda raw: packet(0x30, text("a"), block(b"\x03" + text(raw)))),
    "response topic": (5, lambda raw: packet(0x30, text("a"), block(b"\x08" + text(raw)))),
    "user property name": (5, lambda raw: packet(0x30, text("a"), block(b"\x26" + text(raw) + text("v")))),
    "user property value": (5, lambda raw: packet(0x30, text("a"), block(b"\x26" + text("n") + text(raw)))),
    "reason string": (5, lambda raw: packet(0xE0, b"\x00", block(b"\x1f" + text(raw)))),
    "authentication method": (5, lambda raw: packet(0xF0, b"\x18", block(b"\x15" + text(raw)))),
}

BAD_TEXT = [
    case("surrogate D800", b"a\xed\xa0\x80", mqtt=("1.5.4-1", "1.5.7-1"), old=("1.5.3-1",)),
    case("surrogate DFFF", b"a\xed\xbf\xbf", mqtt=("1.5.4-1",), old=("1.5.3-1",)),
    case("surrogate pair", b"\xed\xa0\xbd\xed\xb8\x80", mqtt=("1.5.4-1",), old=("1.5.3-1",)),
    case("overlong slash", b"\xc0\xaf", mqtt=("1.5.4-1",), old=("1.5.3-1",)),
    case("overlong NUL", b"\xc0\x80", mqtt=("1.5.4-1", "1.5.4-2"), old=("1.5.3-1", "1.5.3-2")),
    case("above U+10FFFF", b"\xf4\x90\x80\x80", mqtt=("1.5.4-1",), old=("1.5.3-1",)),
    case("truncated sequence", b"a\xe2\x82", mqtt=("1.5.4-1",), old=("1.5.3-1",)),
    case("lone continuation", b"\x80", mqtt=("1.5.4-1",), old=("1.5.3-1",)),
    case("NUL", b"a\x00b", mqtt=("1.5.4-2",), old=("1.5.3-2",)),
]


@pytest.mark.mqtt("3.1.3-4", "3.1.3-11", "3.1.3-12", "4.7.3-2", "3.8.3-1", "3.10.3-1")
@pytest.mark.mqtt(old=("3.1.3-4", "3.1.3-10", "3.1.3-11", "4.7.3-2", "3.8.3-1", "3.10.3-1"))
@pytest.mark.parametrize("place", STRINGS)
@pytest.mark.parametrize("raw", BAD_TEXT)
def test_a_string_that_is_no_legal_utf8_is_malformed_wherever_it_stands(place: str, raw: bytes) -> None:
    level, make = STRINGS[place]
    assert judge(level, make(raw)).reason_code == MALFORMED


@pytest.mark.parametrize("place", STRINGS)
@pytest.mark.parametrize("raw", ["a", "\ufeffa", "é/ß", "温度", "\U0001f321", "\uffff"])
def test_a_string_of_any_other_characters_is_taken(place: str, raw: str) -> None:
    level, make = STRINGS[place]
    assert judge(level, make(raw.encode())).reason_code is None


@pytest.mark.mqtt("1.5.4-3", old=("1.5.3-3",))
def test_a_byte_order_mark_is_kept() -> None:
    assert taken(4, packet(0x30, text(b"\xef\xbb\xbfa"))) == Publish("\ufeffa", b"")
    assert codec.encode(Publish("\ufeffa", b""), 4) == packet(0x30, text(b"\xef\xbb\xbfa"))


@pytest.mark.mqtt("2.2.2-1")
@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Connect("", level=5), "100d 0004 4d515454 05 02 0000 00 0000"),
        (Connack(False), "2003 00 00 00"),
        (Publish("a", b"x"), "3005 0001 61 00 78"),
        (Subscribe(1, (Subscription("a"),)), "8207 0001 00 0001 61 00"),
        (Suback(1, (0,)), "9004 0001 00 00"),
        (Unsubscribe(1, ("a",)), "a206 0001 00 0001 61"),
        (Unsuback(1, (0,)), "b004 0001 00 00"),
        (Auth(), "f000"),
    ],
)
def test_a_packet_without_properties_says_so_with_a_zero(value: Packet, data: str) -> None:
    assert codec.encode(value, 5) == bytes.fromhex(data)


@pytest.mark.parametrize(
    ("value", "data"), [(Puback(9), "40020009"), (Disconnect(), "e000"), (Puback(9, 0x10), "4003000910")]
)
def test_a_reason_that_says_nothing_is_left_out(value: Packet, data: str) -> None:
    assert codec.encode(value, 5) == bytes.fromhex(data)
    assert taken(5, bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("level", "data"),
    [
        case("QoS 1 PUBLISH", 4, packet(0x32, text("a"), b"\x00\x00x"), mqtt=("2.2.1-3",), old=("2.3.1-1",)),
        case("QoS 2 PUBLISH at level 5", 5, packet(0x34, text("a"), b"\x00\x00\x00"), mqtt=("2.2.1-3",)),
        case("SUBSCRIBE", 4, packet(0x82, b"\x00\x00", text("a"), b"\x00"), mqtt=("2.2.1-3",), old=("2.3.1-1",)),
        case("UNSUBSCRIBE", 4, packet(0xA2, b"\x00\x00", text("a")), mqtt=("2.2.1-3",), old=("2.3.1-1",)),
        case("PUBACK", 4, packet(0x40, b"\x00\x00"), mqtt=("2.2.1-5",), old=("2.3.1-6",)),
        case("PUBREC", 5, packet(0x50, b"\x00\x00"), mqtt=("2.2.1-5",), old=("2.3.1-6",)),
        case("PUBREL", 4, packet(0x62, b"\x00\x00"), mqtt=("2.2.1-5",), old=("2.3.1-6",)),
        case("PUBCOMP", 4, packet(0x70, b"\x00\x00"), mqtt=("2.2.1-5",), old=("2.3.1-6",)),
    ],
)
def test_packet_identifier_zero_is_a_protocol_error(level: int, data: bytes) -> None:
    assert judge(level, data).reason_code == PROTOCOL_ERROR


@pytest.mark.mqtt("2.2.1-2", "2.2.1-5", "2.2.1-6", old=("2.3.1-5", "2.3.1-6", "2.3.1-7"))
def test_only_publications_above_qos_0_carry_a_packet_identifier_and_answers_carry_it_back() -> None:
    assert taken(4, packet(0x30, text("a"), b"\x00\x07")) == Publish("a", b"\x00\x07")
    assert taken(4, packet(0x32, text("a"), b"\x00\x07")) == Publish("a", b"", 1, packet_id=7)
    for value in (Puback(0x1234), Pubrec(0x1234), Pubrel(0x1234), Suback(0x1234, (1,)), Unsuback(0x1234)):
        assert codec.encode(value, 4)[2:4] == b"\x12\x34"


@pytest.mark.mqtt("4.13.1-1", "4.13", old=("4.8.0-1",))
@pytest.mark.parametrize("kind", LEGAL)
def test_a_body_that_is_too_short_or_too_long_is_refused(kind: int) -> None:
    legal, body = LEGAL[kind]
    first = kind << 4 | legal
    shortened = {judge(4, packet(first, body[:size])).reason_code for size in range(len(body))}
    assert shortened <= {MALFORMED, PROTOCOL_ERROR}
    assert judge(4, packet(first, body, b"\x07")).reason_code in (MALFORMED, PROTOCOL_ERROR)


@pytest.mark.mqtt("4.13.1-1", "2.1.2", old=("4.8.0-1",))
@pytest.mark.parametrize(
    ("level", "data"),
    [(4, b"\x00\x00"), (5, b"\x00\x00"), (4, b"\xf0\x00"), (3, b"\xf0\x00"), (5, b"\x0f\x02\x00\x00")],
)
def test_packet_types_that_do_not_exist_are_malformed(level: int, data: bytes) -> None:
    assert judge(level, data).reason_code == MALFORMED


@pytest.mark.mqtt("3.2.2-15")
def test_a_packet_over_the_limit_is_refused_when_its_length_is_read() -> None:
    assert judge(4, b"\x30" + number(1000), packet_bytes_max=1000).reason_code == 0x95
    assert judge(4, packet(0x30, text("a"), bytes(94)), packet_bytes_max=99).reason_code is None
    assert judge(4, packet(0x30, text("a"), bytes(95)), packet_bytes_max=99).reason_code == 0x95


@pytest.mark.mqtt("4.13.1-1", old=("4.8.0-1",))
def test_what_came_before_the_damage_is_still_delivered() -> None:
    good = packet(0x30, text("a"), b"1") + packet(0x40, b"\x00\x05")
    judged: Any = judge(4, good + b"\x36\x00" + good)
    assert judged.packets == [Publish("a", b"1"), Puback(5)]
    assert judged.reason_code == MALFORMED


def test_pings_hold_nothing() -> None:
    assert taken(5, b"\xc0\x00") == Pingreq()
    assert judge(5, b"\xc0\x01\x00").reason_code == MALFORMED
