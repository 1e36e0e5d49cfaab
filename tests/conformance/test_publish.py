"""MQTT 5, 3.3 to 3.7 (3.1.1: the same): PUBLISH and the answers to it, as bytes."""

from __future__ import annotations

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import Packet, Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import application_properties
from tests.conformance.wire_cases import MALFORMED, PROTOCOL_ERROR, block, case, judge, packet, taken, text


@pytest.mark.parametrize(
    ("level", "data", "value"),
    [
        case("QoS 0", 4, packet(0x30, text("a/b"), b"x"), Publish("a/b", b"x"), mqtt=("3.3.2-1",), old=("3.3.2-1",)),
        case("no payload", 4, packet(0x31, text("a")), Publish("a", b"", 0, True)),
        case(
            "QoS 1 repeated",
            4,
            packet(0x3A, text("a"), b"\x01\x00x"),
            Publish("a", b"x", 1, False, True, 256),
            mqtt=("3.3.1-1",),
            old=("3.3.1-1",),
        ),
        case("QoS 2 retained", 4, packet(0x35, text("a"), b"\xff\xffx"), Publish("a", b"x", 2, True, False, 65535)),
        case("level 3", 3, packet(0x32, text("a"), b"\x00\x01"), Publish("a", b"", 1, packet_id=1)),
        case("empty properties", 5, packet(0x30, text("a"), b"\x00x"), Publish("a", b"x")),
        case(
            "alias for a name",
            5,
            packet(0x30, text(""), block(b"\x23\x00\x05"), b"x"),
            Publish("", b"x", properties=Properties(topic_alias=5)),
            mqtt=("3.3.2-7",),
        ),
        case("payload of zeros", 5, packet(0x30, text("a"), b"\x00\x00\x00"), Publish("a", b"\x00\x00")),
    ],
)
def test_publish_is_read_and_written_byte_by_byte(level: int, data: bytes, value: Packet) -> None:
    assert taken(level, data) == value
    assert codec.encode(value, level) == data


@pytest.mark.parametrize(
    ("level", "data", "reason_code"),
    [
        case("QoS 3", 4, packet(0x36, text("a"), b"\x00\x01"), MALFORMED, mqtt=("3.3.1-4",), old=("3.3.1-4",)),
        case("QoS 3 at level 5", 5, packet(0x3F, text("a"), b"\x00\x01\x00"), MALFORMED, mqtt=("3.3.1-4",)),
        case("DUP with QoS 0", 4, packet(0x38, text("a")), PROTOCOL_ERROR, mqtt=("3.3.1-2",), old=("3.3.1-2",)),
        case("wildcard +", 4, packet(0x30, text("a/+")), PROTOCOL_ERROR, mqtt=("3.3.2-2",), old=("3.3.2-2",)),
        case("wildcard #", 5, packet(0x30, text("a/#"), b"\x00"), PROTOCOL_ERROR, mqtt=("3.3.2-2",), old=("3.3.2-2",)),
        case("+ within a level", 4, packet(0x30, text("a+b")), PROTOCOL_ERROR, mqtt=("3.3.2-2",), old=("3.3.2-2",)),
        case("no name", 4, packet(0x30), MALFORMED, mqtt=("3.3.2-1",), old=("3.3.2-1",)),
        case("half a length", 4, packet(0x30, b"\x00"), MALFORMED, mqtt=("3.3.2-1",), old=("3.3.2-1",)),
        case("name beyond the packet", 4, packet(0x30, b"\x00\x02a"), MALFORMED, mqtt=("3.3.2-1",), old=("3.3.2-1",)),
        case("nothing of its name", 4, packet(0x30, b"\x00\x02"), MALFORMED, mqtt=("3.3.2-1",), old=("3.3.2-1",)),
        case("empty name", 4, packet(0x30, text("")), PROTOCOL_ERROR, mqtt=("4.7.3-1",), old=("4.7.3-1",)),
        case("empty name, no alias", 5, packet(0x30, text(""), b"\x00"), PROTOCOL_ERROR, mqtt=("4.7.3-1",)),
        case("half an identifier", 4, packet(0x32, text("a"), b"\x00"), MALFORMED, mqtt=("2.2.1-3",), old=("2.3.1-1",)),
        case("no property length", 5, packet(0x30, text("a")), MALFORMED, mqtt=("2.2.2-1",)),
        case("no property length, QoS 1", 5, packet(0x32, text("a"), b"\x00\x01"), MALFORMED, mqtt=("2.2.2-1",)),
    ],
)
def test_a_publish_that_breaks_a_rule_is_refused_with_its_code(level: int, data: bytes, reason_code: int) -> None:
    assert judge(level, data).reason_code == reason_code


# ---------------------------------------------------------------- PUBACK, PUBREC, PUBREL, PUBCOMP

ANSWERS = {0x40: Puback, 0x50: Pubrec, 0x62: Pubrel, 0x70: Pubcomp}
CODES = {
    0x40: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    0x50: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    0x62: {0x00, 0x92},
    0x70: {0x00, 0x92},
}


@pytest.mark.mqtt("3.4.2-1", "3.5.2-1", "3.6.2-1", "3.7.2-1")
@pytest.mark.parametrize("first", ANSWERS)
def test_an_answer_carries_only_the_reasons_that_it_may(first: int) -> None:
    accepted = {code for code in range(256) if judge(5, packet(first, b"\x00\x07", bytes((code,)))).reason_code is None}
    assert accepted == CODES[first]


@pytest.mark.mqtt("2.2.1-5", old=("2.3.1-6",))
@pytest.mark.parametrize("first", ANSWERS)
def test_an_answer_is_read_and_written_in_its_three_lengths(first: int) -> None:
    make = ANSWERS[first]
    refusal = max(CODES[first])
    for level, value, data in (
        (4, make(0x1234), packet(first, b"\x12\x34")),
        (5, make(0x1234), packet(first, b"\x12\x34")),
        (5, make(0x1234, refusal), packet(first, b"\x12\x34", bytes((refusal,)))),
        (5, make(1, 0, Properties(reason_string="r")), packet(first, b"\x00\x01\x00", block(b"\x1f" + text("r")))),
    ):
        assert codec.encode(value, level) == data
        assert taken(level, data) == value


@pytest.mark.parametrize("first", ANSWERS)
def test_an_answer_before_mqtt_5_has_nothing_but_its_identifier(first: int) -> None:
    assert judge(4, packet(first, b"\x00\x01\x00")).reason_code == MALFORMED
    assert codec.encode(ANSWERS[first](1, max(CODES[first])), 4) == packet(first, b"\x00\x01")


@pytest.mark.mqtt("3.6.1-1", old=("3.6.1-1",))
@pytest.mark.parametrize("flags", [flags for flags in range(16) if flags != 2])
def test_pubrel_has_flags_2(flags: int) -> None:
    assert judge(5, packet(0x60 | flags, b"\x00\x01")).reason_code == MALFORMED


# ---------------------------------------------------------------- forwarding

FORWARDED = (
    b"\x26" + text("b") + text("2"),
    b"\x01\x01",
    b"\x26" + text("a") + text("1"),
    b"\x09" + text(b"\x00\xff"),
    b"\x08" + text("r/t"),
    b"\x03" + text("é"),
)


@pytest.mark.mqtt("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-20")
def test_application_properties_are_forwarded_byte_for_byte_and_in_order() -> None:
    raw = b"".join(FORWARDED)
    value = taken(5, packet(0x30, text("a"), block(raw), b"x"))
    assert isinstance(value, Publish)
    assert value.properties_raw == raw
    assert application_properties(value.properties_raw) == (None, raw)


@pytest.mark.mqtt("3.3.2-6", "3.3.2-7", "3.3.4-6")
def test_what_is_between_two_neighbours_only_is_not_forwarded() -> None:
    per_hop = (b"\x02\x00\x00\x01\x00", b"\x23\x00\x07", b"\x0b\x80\x01")
    mixed = b"".join(one for pair in zip(FORWARDED, (*per_hop, b"", b"", b""), strict=True) for one in pair)
    assert application_properties(mixed) == (256, b"".join(FORWARDED))


def test_a_message_without_properties_forwards_none() -> None:
    assert application_properties(b"") == (None, b"")
