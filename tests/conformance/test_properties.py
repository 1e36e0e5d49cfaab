"""MQTT 5, 2.2.2: every property in every packet, twice, with values that it must not have, and cut short.

Where a property may stand is written here a second time, by packet, so that a slip in the table of
``gateway/mqtt/properties.py`` shows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import Connect, Properties, Publish
from gateway.mqtt.properties import TABLE
from tests.conformance.wire_cases import MALFORMED, PROTOCOL_ERROR, block, case, judge, packet, taken, text

# One legal value of each property, as bytes.
VALUES = {
    0x01: b"\x01",
    0x02: b"\x00\x00\x00\x3c",
    0x03: text("json"),
    0x08: text("answers/here"),
    0x09: b"\x00\x02\x00\xff",
    0x0B: b"\xff\xff\xff\x7f",
    0x11: b"\xff\xff\xff\xff",
    0x12: text("auto-1"),
    0x13: b"\x00\x3c",
    0x15: text("SCRAM-SHA-256"),
    0x16: b"\x00\x01x",
    0x17: b"\x00",
    0x18: b"\x00\x00\x00\x05",
    0x19: b"\x01",
    0x1A: text("answers"),
    0x1C: text("other:1883"),
    0x1F: text("because"),
    0x21: b"\x00\x14",
    0x22: b"\x00\x0a",
    0x23: b"\x00\x01",
    0x24: b"\x01",
    0x25: b"\x00",
    0x26: text("name") + text("value"),
    0x27: b"\x00\x10\x00\x00",
    0x28: b"\x01",
    0x29: b"\x01",
    0x2A: b"\x00",
}

# Each packet that has properties, as bytes around its property block.
METHOD = b"\x15" + text("m")
PACKETS: dict[str, Callable[[bytes], bytes]] = {
    "CONNECT": lambda properties: packet(0x10, text("MQTT"), b"\x05\x02\x00\x00", properties, text("c")),
    "will": lambda properties: packet(
        0x10, text("MQTT"), b"\x05\x06\x00\x00\x00", text("c"), properties, text("w"), text("bye")
    ),
    "CONNACK": lambda properties: packet(0x20, b"\x00\x00", properties),
    "PUBLISH": lambda properties: packet(0x32, text("a"), b"\x00\x01", properties),
    "PUBACK": lambda properties: packet(0x40, b"\x00\x01\x00", properties),
    "PUBREC": lambda properties: packet(0x50, b"\x00\x01\x00", properties),
    "PUBREL": lambda properties: packet(0x62, b"\x00\x01\x00", properties),
    "PUBCOMP": lambda properties: packet(0x70, b"\x00\x01\x00", properties),
    "SUBSCRIBE": lambda properties: packet(0x82, b"\x00\x01", properties, text("a"), b"\x00"),
    "SUBACK": lambda properties: packet(0x90, b"\x00\x01", properties, b"\x00"),
    "UNSUBSCRIBE": lambda properties: packet(0xA2, b"\x00\x01", properties, text("a")),
    "UNSUBACK": lambda properties: packet(0xB0, b"\x00\x01", properties, b"\x00"),
    "DISCONNECT": lambda properties: packet(0xE0, b"\x00", properties),
    "AUTH": lambda properties: packet(0xF0, b"\x18", properties),
}

LEGAL = {
    "CONNECT": {0x11, 0x15, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27},
    "will": {0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26},
    "CONNACK": {*range(0x11, 0x14), 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, *range(0x24, 0x2B)},
    "PUBLISH": {0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26},
    "PUBACK": {0x1F, 0x26},
    "PUBREC": {0x1F, 0x26},
    "PUBREL": {0x1F, 0x26},
    "PUBCOMP": {0x1F, 0x26},
    "SUBSCRIBE": {0x0B, 0x26},
    "SUBACK": {0x1F, 0x26},
    "UNSUBSCRIBE": {0x26},
    "UNSUBACK": {0x1F, 0x26},
    "DISCONNECT": {0x11, 0x1C, 0x1F, 0x26},
    "AUTH": {0x15, 0x16, 0x1F, 0x26},
}
REPEATABLE = {("PUBLISH", 0x0B)} | {(name, 0x26) for name in PACKETS}


def level_of(name: str) -> int:
    return 0 if name in ("CONNECT", "will") else 5


def made(name: str, *properties: bytes) -> bytes:
    """The packet with these properties; an AUTH gets the method that it needs unless it is among them."""
    needs_method = name == "AUTH" and not any(one[0] == 0x15 for one in properties)
    return PACKETS[name](block(*properties, *([METHOD] if needs_method else [])))


def judged(name: str, *properties: bytes) -> int | None:
    return judge(level_of(name), made(name, *properties)).reason_code


def test_every_property_of_the_standard_has_a_value_here() -> None:
    assert {row.identifier for row in TABLE} == set(VALUES)


@pytest.mark.mqtt("4.13.1-1", "3.1.3-11")
@pytest.mark.parametrize("name", PACKETS)
@pytest.mark.parametrize("identifier", VALUES)
@pytest.mark.mqtt("2.2.2.2")
def test_a_property_stands_only_where_it_may(name: str, identifier: int) -> None:
    expected = None if identifier in LEGAL[name] else MALFORMED
    if (name, identifier) == ("CONNECT", 0x16):
        expected = PROTOCOL_ERROR  # data without a method
    assert judged(name, bytes((identifier,)) + VALUES[identifier]) == expected


@pytest.mark.mqtt("4.13.1-1")
@pytest.mark.parametrize(
    ("name", "identifier"), [(name, identifier) for name, legal in LEGAL.items() for identifier in sorted(legal)]
)
@pytest.mark.mqtt("2.2.2.2")
def test_a_property_that_comes_twice_is_a_protocol_error_unless_it_may(name: str, identifier: int) -> None:
    one = bytes((identifier,)) + VALUES[identifier]
    expected = None if (name, identifier) in REPEATABLE else PROTOCOL_ERROR
    assert judged(name, one, one) == expected


@pytest.mark.mqtt("4.13.1-1")
@pytest.mark.parametrize("name", PACKETS)
@pytest.mark.parametrize("unknown", [b"\x00", b"\x04\x00", b"\x2b\x01", b"\x7f", b"\x80\x01\x00"])
@pytest.mark.mqtt("2.2.2.2")
def test_an_unknown_property_is_malformed(name: str, unknown: bytes) -> None:
    assert judged(name, unknown) == MALFORMED


@pytest.mark.mqtt("4.13.1-1")
@pytest.mark.parametrize(
    ("name", "identifier"), [(name, identifier) for name, legal in LEGAL.items() for identifier in sorted(legal)]
)
def test_a_property_cut_short_is_malformed_and_takes_nothing_from_what_follows(name: str, identifier: int) -> None:
    assert judge(level_of(name), PACKETS[name](block(bytes((identifier,)) + VALUES[identifier][:-1]))).reason_code == (
        MALFORMED
    )


@pytest.mark.mqtt("4.13.1-1")
@pytest.mark.parametrize("name", PACKETS)
def test_a_property_block_longer_than_its_packet_is_malformed(name: str) -> None:
    assert judge(level_of(name), PACKETS[name](b"\x7f\x26")).reason_code == MALFORMED


@pytest.mark.mqtt("4.13.1-1", "2.2.2-1")
@pytest.mark.parametrize("name", PACKETS)
def test_every_packet_cut_short_behind_its_length_is_refused(name: str) -> None:
    whole = made(name, b"\x26" + VALUES[0x26])
    body = whole[2:]
    may_end = {"PUBACK": 2, "PUBREC": 2, "PUBREL": 2, "PUBCOMP": 2, "DISCONNECT": 0, "AUTH": 0}
    taken_at = {
        size for size in range(len(body)) if judge(level_of(name), packet(whole[0], body[:size])).reason_code is None
    }
    # an id alone, or an id and a reason, is a whole answer (MQTT 5, 3.4.2.1, 3.14.2.1, 3.15.2.1)
    shortest = may_end.get(name)
    expected = set() if shortest is None else {0} if name == "AUTH" else {shortest, shortest + 1}
    assert taken_at == expected


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        case("payload format indicator 2", "PUBLISH", b"\x01\x02", mqtt=("3.3.2-4",)),
        case("response topic with a wildcard", "PUBLISH", b"\x08" + text("a/+"), mqtt=("3.3.2-14",)),
        case("response topic with #", "will", b"\x08" + text("#"), mqtt=("3.3.2-14",)),
        case("empty response topic", "PUBLISH", b"\x08" + text(""), mqtt=("4.7.3-1",)),
        case("subscription identifier 0", "SUBSCRIBE", b"\x0b\x00", mqtt=("4.13.1-1", "3.8.2.1.2")),
        case("receive maximum 0", "CONNECT", b"\x21\x00\x00", mqtt=("4.13.1-1", "3.1.2.11")),
        case("maximum packet size 0", "CONNECT", b"\x27\x00\x00\x00\x00", mqtt=("4.13.1-1", "3.1.2.11")),
        case("request problem information 2", "CONNECT", b"\x17\x02", mqtt=("4.13.1-1", "3.1.2.11")),
        case("request response information 255", "CONNECT", b"\x19\xff", mqtt=("4.13.1-1", "3.1.2.11")),
        case("maximum QoS 2", "CONNACK", b"\x24\x02", mqtt=("4.13.1-1",)),
        case("retain available 2", "CONNACK", b"\x25\x02", mqtt=("4.13.1-1",)),
        case("wildcards available 2", "CONNACK", b"\x28\x02", mqtt=("4.13.1-1",)),
    ],
)
def test_a_value_that_its_section_forbids_is_a_protocol_error(name: str, wrong: bytes) -> None:
    assert judged(name, wrong) == PROTOCOL_ERROR


@pytest.mark.mqtt("3.8.2.1.2")
def test_a_second_subscription_identifier_in_a_subscribe_is_a_protocol_error() -> None:
    assert judged("SUBSCRIBE", b"\x0b\x01", b"\x0b\x02") == PROTOCOL_ERROR


@pytest.mark.mqtt("3.3.4-3", "3.3.4-4")
def test_a_delivery_carries_all_its_subscription_identifiers_in_order() -> None:
    delivery = taken(5, made("PUBLISH", b"\x0b\x07", b"\x0b\x80\x01", b"\x0b\x07"))
    assert isinstance(delivery, Publish)
    assert delivery.properties.subscription_identifiers == (7, 128, 7)
    assert codec.encode(delivery, 5) == made("PUBLISH", b"\x0b\x07", b"\x0b\x80\x01", b"\x0b\x07")


@pytest.mark.mqtt("3.3.2-18", "3.3.2-17", "3.1.3-10")
@pytest.mark.parametrize("name", PACKETS)
def test_user_properties_keep_their_order_and_their_duplicates(name: str) -> None:
    pairs = (("b", "1"), ("a", "2"), ("b", "1"), ("", ""))
    raw = made(name, *[b"\x26" + text(left) + text(right) for left, right in pairs])
    value = taken(level_of(name), raw)
    properties = value.will.properties if name == "will" and isinstance(value, Connect) and value.will else None
    if properties is None:
        properties = value.properties  # type: ignore[union-attr]
    assert isinstance(properties, Properties)
    assert properties.user_properties == pairs


@pytest.mark.mqtt("3.3.2-4", "3.3.2-13", "3.3.2-15", "3.3.2-16", "3.3.2-19", "3.3.2-20")
def test_application_properties_come_out_as_they_went_in() -> None:
    properties = Properties(
        payload_format_indicator=1,
        message_expiry_interval=0,
        content_type="é",
        response_topic="r/\ufeff",
        correlation_data=bytes(range(256)),
        user_properties=(("k", "v"), ("k", "w")),
    )
    value = Publish("a", b"x", 1, packet_id=1, properties=properties)
    assert taken(5, codec.encode(value, 5)) == value


@pytest.mark.mqtt("3.3.2-4")
def test_a_block_of_thousands_of_user_properties_is_read_once_through() -> None:
    value = taken(5, made("PUBLISH", *[b"\x26\x00\x00\x00\x00"] * 10_000))
    assert isinstance(value, Publish)
    assert value.properties.user_properties == (("", ""),) * 10_000
