"""MQTT 5, 3.1 and 3.2 (3.1.1: the same): CONNECT and CONNACK as bytes."""

from __future__ import annotations

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import Connack, Connect, Packet, Pingreq, Properties, Publish, Will
from tests.conformance.wire_cases import MALFORMED, PROTOCOL_ERROR, block, case, connect, judge, packet, taken, text

UNSUPPORTED = 0x84


@pytest.mark.mqtt("3.1.0-1", old=("3.1.0-1",))
@pytest.mark.parametrize("first", [0x00, 0x20, 0x30, 0x40, 0x82, 0xC0, 0xE0, 0xF0, ord("G"), 0x16 | 0x20])
def test_anything_before_connect_is_refused_by_its_first_byte(first: int) -> None:
    assert judge(0, bytes((first,))).reason_code == PROTOCOL_ERROR
    assert judge(0, bytes((first, 0))).reason_code == PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("data", "value"),
    [
        case(
            "least 3.1.1",
            connect(0x02, text("c")),
            Connect("c", True, 60),
            mqtt=("3.1.3-1", "3.1.3-3"),
            old=("3.1.3-1", "3.1.3-3"),
        ),
        case("3.1", connect(0x00, text("c"), level=3, name="MQIsdp"), Connect("c", False, 60, level=3), mqtt=("3.1",)),
        case(
            "empty client id",
            connect(0x02, text("")),
            Connect("", True, 60),
            mqtt=("3.1.3-6",),
            old=("3.1.3-6",),
        ),
        case(
            "all fields 3.1.1",
            connect(0xF6, text("c"), text("w"), text("bye"), text("u"), text(b"\xff\x00")),
            Connect("c", True, 60, "u", b"\xff\x00", Will("w", b"bye", 2, True)),
            mqtt=("3.1.3-1", "3.1.2-9"),
            old=("3.1.3-1", "3.1.2-9", "3.1.2-18", "3.1.2-19", "3.1.2-20", "3.1.2-21"),
        ),
        case(
            "all fields 5.0",
            connect(
                0xEC,
                block(b"\x11\x00\x00\x00\x0a", b"\x21\x00\x05"),
                text("c"),
                block(b"\x18\x00\x00\x00\x02"),
                text("w"),
                text(""),
                text("u"),
                text("p"),
                level=5,
            ),
            Connect(
                "c",
                False,
                60,
                "u",
                b"p",
                Will("w", b"", 1, True, Properties(will_delay_interval=2)),
                Properties(session_expiry_interval=10, receive_maximum=5),
                5,
            ),
            mqtt=("3.1.3-1", "3.1.2-16", "3.1.2-17", "3.1.2-18", "3.1.2-19"),
        ),
        case(
            "password alone 5.0",
            connect(0x42, b"\x00", text("c"), text("p"), level=5),
            Connect("c", True, 60, None, b"p", level=5),
            mqtt=("3.1.2-18",),
        ),
        case(
            "23 characters",
            connect(0x02, text("0123456789ABCDEFGHIJxyz")),
            Connect("0123456789ABCDEFGHIJxyz", True, 60),
            mqtt=("3.1.3-5",),
            old=("3.1.3-5",),
        ),
        case(
            "3.1 with flags for fields that it leaves out",
            connect(0xC2, text("c"), level=3, name="MQIsdp"),
            Connect("c", True, 60, level=3),
            mqtt=("3.1 flags",),
        ),
        case(
            "3.1 with will QoS 3 and will retain but no will",
            connect(0x3A, text("c"), level=3, name="MQIsdp"),
            Connect("c", True, 60, level=3),
            mqtt=("3.1 will flags",),
        ),
    ],
)
def test_connect_is_read_field_by_field_as_its_flags_say(data: bytes, value: Packet) -> None:
    assert taken(0, data) == value


@pytest.mark.parametrize(
    ("data", "reason_code"),
    [
        case("other name", connect(name="MQTTX"), UNSUPPORTED, mqtt=("3.1.2-1",), old=("3.1.2-1",)),
        case("name in small letters", connect(name="mqtt"), UNSUPPORTED, mqtt=("3.1.2-1",), old=("3.1.2-1",)),
        case("name that is no text", connect(name=b"\xff\xfe"), UNSUPPORTED, mqtt=("3.1.2-1",), old=("3.1.2-1",)),
        case("level 6", connect(0x02, text("c"), level=6), UNSUPPORTED, mqtt=("3.1.2-2",), old=("3.1.2-2",)),
        case("level 0", connect(0x02, text("c"), level=0), UNSUPPORTED, mqtt=("3.1.2-2",), old=("3.1.2-2",)),
        case("bridge bit", connect(0x02, text("c"), level=0x84), UNSUPPORTED, mqtt=("3.1.2-2",), old=("3.1.2-2",)),
        case("new name, old level", connect(0x02, text("c"), level=3), UNSUPPORTED, old=("3.1.2-2",)),
        case("old name, new level", connect(0x02, text("c"), name="MQIsdp"), UNSUPPORTED, old=("3.1.2-2",)),
        case("reserved flag", connect(0x03, text("c")), MALFORMED, mqtt=("3.1.2-3",), old=("3.1.2-3",)),
        case("reserved flag 5.0", connect(0x03, b"\x00", text("c"), level=5), MALFORMED, mqtt=("3.1.2-3",)),
        case(
            "will QoS 3",
            connect(0x1E, text("c"), text("w"), text("")),
            MALFORMED,
            mqtt=("3.1.2-12",),
            old=("3.1.2-14",),
        ),
        case("will QoS without will", connect(0x0A, text("c")), PROTOCOL_ERROR, mqtt=("3.1.2-11",), old=("3.1.2-13",)),
        case("will retain, no will", connect(0x22, text("c")), PROTOCOL_ERROR, mqtt=("3.1.2-13",), old=("3.1.2-15",)),
        case(
            "will QoS 3 in 3.1",
            connect(0x1E, text("c"), text("w"), text(""), level=3, name="MQIsdp"),
            MALFORMED,
            mqtt=("3.1 will flags",),
        ),
        case("will flag, no will", connect(0x06, text("c")), MALFORMED, mqtt=("3.1.2-9",), old=("3.1.2-9",)),
        case("will without flag", connect(0x02, text("c"), text("w"), text("x")), MALFORMED, old=("3.1.2-11",)),
        case("user flag, no name", connect(0x82, text("c")), MALFORMED, mqtt=("3.1.2-17",), old=("3.1.2-19",)),
        case(
            "name without flag", connect(0x02, text("c"), text("u")), MALFORMED, mqtt=("3.1.2-16",), old=("3.1.2-18",)
        ),
        case("password without flag", connect(0x82, text("c"), text("u"), text("p")), MALFORMED, old=("3.1.2-20",)),
        case("password flag alone", connect(0x42, text("c"), text("p")), PROTOCOL_ERROR, old=("3.1.2-22",)),
        case(
            "password flag, no password",
            connect(0xC2, text("c"), text("u")),
            MALFORMED,
            mqtt=("3.1.2-19",),
            old=("3.1.2-21",),
        ),
        case("no client id", connect(0x02), MALFORMED, mqtt=("3.1.3-3",), old=("3.1.3-3", "3.1.4-1")),
        case("no properties 5.0", connect(0x02, level=5), MALFORMED, mqtt=("3.1.4-1", "2.2.2-1")),
        case("nothing at all", packet(0x10), MALFORMED, mqtt=("3.1.4-1",), old=("3.1.4-1",)),
        case("will topic with +", connect(0x06, text("c"), text("a/+"), text("")), PROTOCOL_ERROR, mqtt=("4.7.0-1",)),
        case("will topic with #", connect(0x06, text("c"), text("#"), text("")), PROTOCOL_ERROR, mqtt=("4.7.0-1",)),
        case("empty will topic", connect(0x06, text("c"), text(""), text("")), PROTOCOL_ERROR, mqtt=("4.7.3-1",)),
        case(
            "authentication data without a method",
            connect(0x02, block(b"\x16\x00\x01x"), text("c"), level=5),
            PROTOCOL_ERROR,
            mqtt=("3.1.4-1", "3.1.2.11.10"),
        ),
    ],
)
def test_a_connect_that_breaks_a_rule_is_refused_with_its_code(data: bytes, reason_code: int) -> None:
    assert judge(0, data).reason_code == reason_code


@pytest.mark.mqtt("3.1.2-17", "3.1.2-19", "3.1.3-11")
@pytest.mark.parametrize("level", [4, 5])
def test_a_connect_cut_short_anywhere_is_refused(level: int) -> None:
    whole = codec.encode(Connect("client", True, 60, "u", b"p", Will("w", b"bye", 1, True)), level)
    for size in range(len(whole) - 2):
        assert judge(0, packet(0x10, whole[2 : 2 + size])).reason_code in (MALFORMED, UNSUPPORTED)


@pytest.mark.mqtt("3.1.4-6", old=("3.1.4-5",))
def test_packets_behind_a_connect_in_the_same_piece_are_read_at_its_level() -> None:
    data = connect(0x02, b"\x00", text("c"), level=5) + packet(0x30, text("a"), b"\x00x") + b"\xc0\x00"
    assert judge(0, data).packets == [Connect("c", True, 60, level=5), Publish("a", b"x"), Pingreq()]


@pytest.mark.mqtt("3.2.2-1", "3.2.2-8", old=("3.2.2-4", "3.2.2-5"))
@pytest.mark.parametrize(
    ("level", "value", "data"),
    [
        (4, Connack(False, 0), "20020000"),
        (4, Connack(True, 0), "20020100"),
        (4, Connack(False, 5), "20020005"),
        (5, Connack(True, 0), "2003010000"),
        (5, Connack(False, 0x87, Properties(reason_string="no")), "2008008705 1f0002 6e6f"),
        (
            5,
            Connack(False, 0, Properties(assigned_client_identifier="x", server_keep_alive=9)),
            "200a0000071200017813 0009",
        ),
    ],
)
def test_connack_is_written_byte_by_byte_and_read_back(level: int, value: Connack, data: str) -> None:
    assert codec.encode(value, level) == bytes.fromhex(data)
    assert taken(level, bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("level", "data", "reason_code"),
    [
        case("reserved flags", 4, "20020200", MALFORMED, mqtt=("3.2.2-1",)),
        case("session present with an error", 4, "20020105", PROTOCOL_ERROR, mqtt=("3.2.2-6",), old=("3.2.2-4",)),
        case("return code 6", 4, "20020006", PROTOCOL_ERROR, old=("3.2.2-6",)),
        case("reason of another packet", 5, "2003000400", PROTOCOL_ERROR, mqtt=("3.2.2-8",)),
        case("no properties", 5, "20020000", MALFORMED, mqtt=("2.2.2-1",)),
    ],
)
def test_a_connack_that_breaks_a_rule_is_refused(level: int, data: str, reason_code: int) -> None:
    assert judge(level, bytes.fromhex(data)).reason_code == reason_code


# MQTT 5, table 3-1
CONNACK_CODES = {
    *(0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99),
    *(0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
}


@pytest.mark.mqtt("3.2.2-8", old=("3.2.2-6",))
@pytest.mark.parametrize(
    ("level", "after", "codes"), [(4, b"", set(range(6))), (5, b"\x00", CONNACK_CODES)], ids=["3.1.1", "5.0"]
)
def test_only_the_codes_of_a_connack_are_taken_in_it(level: int, after: bytes, codes: set[int]) -> None:
    assert {
        code for code in range(256) if judge(level, packet(0x20, b"\x00", bytes((code,)), after)).reason_code is None
    } == codes
