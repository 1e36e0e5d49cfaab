"""MQTT 5, 3.8 to 3.11 (3.1.1: the same): SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK as bytes; DISCONNECT and AUTH."""

from __future__ import annotations

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import (
    Auth,
    Disconnect,
    Packet,
    Properties,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.conformance.wire_cases import MALFORMED, PROTOCOL_ERROR, block, case, judge, packet, taken, text

ID = b"\x00\x01"


@pytest.mark.parametrize(
    ("level", "data", "value"),
    [
        case(
            "three filters",
            4,
            packet(0x82, ID, text("a/#"), b"\x00", text("+"), b"\x01", text("/"), b"\x02"),
            Subscribe(1, (Subscription("a/#", 0), Subscription("+", 1), Subscription("/", 2))),
            mqtt=("3.8.3-1", "3.8.3-2"),
            old=("3.8.3-1", "3.8.3-3"),
        ),
        case(
            "all options",
            5,
            packet(0x82, ID, block(b"\x0b\x05"), text("a"), b"\x2e"),
            Subscribe(1, (Subscription("a", 2, True, True, 2),), Properties(subscription_identifiers=(5,))),
        ),
        case(
            "shared",
            5,
            packet(0x82, ID, b"\x00", text("$share/g/a"), b"\x01"),
            Subscribe(1, (Subscription("$share/g/a", 1),)),
        ),
        case("unsubscribe", 4, packet(0xA2, ID, text("a"), text("b")), Unsubscribe(1, ("a", "b")), mqtt=("3.10.3-1",)),
        case("unsubscribe 5.0", 5, packet(0xA2, ID, b"\x00", text("a")), Unsubscribe(1, ("a",)), mqtt=("3.10.3-1",)),
        case("suback", 4, packet(0x90, ID, b"\x00\x01\x02\x80"), Suback(1, (0, 1, 2, 0x80)), mqtt=("3.8.4-6",)),
        case("suback 5.0", 5, packet(0x90, ID, b"\x00\x02\x97"), Suback(1, (2, 0x97)), mqtt=("3.8.4-6", "3.9.3-1")),
        case("unsuback", 4, packet(0xB0, ID), Unsuback(1), mqtt=("3.10.4-4",), old=("3.10.4-4",)),
        case("unsuback 5.0", 5, packet(0xB0, ID, b"\x00\x00\x11"), Unsuback(1, (0, 0x11)), mqtt=("3.11.3-1",)),
    ],
)
def test_subscriptions_and_their_answers_are_read_and_written_byte_by_byte(
    level: int, data: bytes, value: Packet
) -> None:
    assert taken(level, data) == value
    assert codec.encode(value, level) == data


@pytest.mark.parametrize(
    ("level", "data", "reason_code"),
    [
        case("SUBSCRIBE without filters", 4, packet(0x82, ID), PROTOCOL_ERROR, mqtt=("3.8.3-2",), old=("3.8.3-3",)),
        case("SUBSCRIBE 5.0 without filters", 5, packet(0x82, ID, b"\x00"), PROTOCOL_ERROR, mqtt=("3.8.3-2",)),
        case("UNSUBSCRIBE without filters", 4, packet(0xA2, ID), PROTOCOL_ERROR, mqtt=("3.10.3-2",), old=("3.10.3-2",)),
        case("UNSUBSCRIBE 5.0 without filters", 5, packet(0xA2, ID, b"\x00"), PROTOCOL_ERROR, mqtt=("3.10.3-2",)),
        case("filter without options", 4, packet(0x82, ID, text("a")), MALFORMED, mqtt=("3.8.3-1",), old=("3.8.3-1",)),
        case("empty filter", 4, packet(0x82, ID, text(""), b"\x00"), PROTOCOL_ERROR, mqtt=("4.7.3-1",)),
        case("empty filter in UNSUBSCRIBE", 5, packet(0xA2, ID, b"\x00", text("")), PROTOCOL_ERROR, mqtt=("4.7.3-1",)),
        case("QoS 3", 4, packet(0x82, ID, text("a"), b"\x03"), PROTOCOL_ERROR, old=("3.8.3-4",)),
        case("QoS 3 at level 5", 5, packet(0x82, ID, b"\x00", text("a"), b"\x03"), PROTOCOL_ERROR, mqtt=("3.8.3-5",)),
        case("reserved bit 2", 4, packet(0x82, ID, text("a"), b"\x04"), MALFORMED, old=("3.8.3-4",)),
        case("reserved bit 7", 4, packet(0x82, ID, text("a"), b"\x80"), MALFORMED, old=("3.8.3-4",)),
        case(
            "reserved bit 6 at level 5", 5, packet(0x82, ID, b"\x00", text("a"), b"\x40"), MALFORMED, mqtt=("3.8.3-5",)
        ),
        case(
            "reserved bit 7 at level 5", 5, packet(0x82, ID, b"\x00", text("a"), b"\x80"), MALFORMED, mqtt=("3.8.3-5",)
        ),
        case(
            "retain handling 3",
            5,
            packet(0x82, ID, b"\x00", text("a"), b"\x30"),
            PROTOCOL_ERROR,
            mqtt=("4.13.1-1", "3.8.3.1"),
        ),
        case(
            "no local on a shared one",
            5,
            packet(0x82, ID, b"\x00", text("$share/g/a"), b"\x04"),
            PROTOCOL_ERROR,
            mqtt=("3.8.3-4",),
        ),
        case(
            "no local on an ordered shared one",
            5,
            packet(0x82, ID, b"\x00", text("$oshare/g/a"), b"\x04"),
            PROTOCOL_ERROR,
            mqtt=("3.8.3-4",),
        ),
        case("second filter broken", 4, packet(0x82, ID, text("a"), b"\x00", b"\x00\x09x"), MALFORMED),
        case("SUBACK without codes", 5, packet(0x90, ID, b"\x00"), MALFORMED, mqtt=("3.9.3-1",), old=("3.9.3-1",)),
        case("UNSUBACK 5.0 without codes", 5, packet(0xB0, ID, b"\x00"), MALFORMED, mqtt=("3.11.3-1",)),
        case("UNSUBACK with codes before 5.0", 4, packet(0xB0, ID, b"\x00"), MALFORMED),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_code(level: int, data: bytes, reason_code: int) -> None:
    assert judge(level, data).reason_code == reason_code


SUBACK_CODES = {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}
UNSUBACK_CODES = {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}
DISCONNECT_CODES = {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90} | set(
    range(0x93, 0xA3)
)


@pytest.mark.parametrize(
    ("level", "first", "before", "codes"),
    [
        case("SUBACK", 4, 0x90, ID, {0, 1, 2, 0x80}, old=("3.9.3-2",)),
        case("SUBACK 5.0", 5, 0x90, ID + b"\x00", SUBACK_CODES, mqtt=("3.9.3-2",)),
        case("UNSUBACK 5.0", 5, 0xB0, ID + b"\x00", UNSUBACK_CODES, mqtt=("3.11.3-2",)),
        case("DISCONNECT 5.0", 5, 0xE0, b"", DISCONNECT_CODES, mqtt=("3.14.2-1",)),
    ],
)
def test_only_the_codes_of_a_packet_are_taken_in_it(level: int, first: int, before: bytes, codes: set[int]) -> None:
    accepted = {code for code in range(256) if judge(level, packet(first, before, bytes((code,)))).reason_code is None}
    assert accepted == codes


@pytest.mark.mqtt("3.15.2-1")
def test_auth_takes_only_its_three_codes_and_needs_a_method() -> None:
    method = block(b"\x15" + text("m"))
    accepted = {code for code in range(256) if judge(5, packet(0xF0, bytes((code,)), method)).reason_code is None}
    assert accepted == {0x00, 0x18, 0x19}
    assert judge(5, packet(0xF0, b"\x18\x00")).reason_code == PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("level", "value", "data"),
    [
        (4, Disconnect(), "e000"),
        (5, Disconnect(), "e000"),
        (5, Disconnect(0x04), "e00104"),
        (5, Disconnect(0, Properties(session_expiry_interval=5)), "e00700051100000005"),
        (5, Disconnect(0x81, Properties(reason_string="x")), "e00681041f000178"),
        (5, Auth(0x18, Properties(authentication_method="m", authentication_data=b"d")), "f00a18081500016d16000164"),
    ],
)
def test_disconnect_and_auth_are_read_and_written_byte_by_byte(level: int, value: Packet, data: str) -> None:
    assert codec.encode(value, level) == bytes.fromhex(data)
    assert taken(level, bytes.fromhex(data)) == value


def test_a_disconnect_before_mqtt_5_says_nothing() -> None:
    assert judge(4, b"\xe0\x01\x00").reason_code == MALFORMED
    assert codec.encode(Disconnect(0x8E), 4) == b"\xe0\x00"
