"""One connection's protocol state: what may come when, and how it ends."""

from __future__ import annotations

import pytest

from gateway.mqtt.codec import encode
from gateway.mqtt.connection import Connection, Terms
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from gateway.mqtt.properties import Properties
from gateway.mqtt.reader import PacketReader

TERMS = Terms(True, None, None, None, 10, 1000, 5)


def connected(level: int = 5) -> Connection:
    connection = Connection(64 * 1024, 1000)
    assert connection.receive(encode(Connect("c", level=level), level)).fault is None
    connection.accept(TERMS)
    return connection


def read(data: bytes, level: int) -> Packet:
    reader = PacketReader(1 << 20)
    reader.level = level
    [packet] = reader.receive(data)
    return packet


@pytest.mark.mqtt("3.1.0-1", old=("3.1.0-1",))
def test_only_a_connect_may_come_first() -> None:
    received = Connection(1000, 1000).receive(encode(Pingreq(), 4))
    assert received.packets == []
    assert received.fault == 0x82


@pytest.mark.mqtt("3.1.0-2", old=("3.1.0-2",))
def test_a_second_connect_is_a_fault_after_what_came_before_it() -> None:
    received = connected().receive(encode(Pingreq(), 5) + encode(Connect("c", level=5), 5) + encode(Pingreq(), 5))
    assert received.packets == [Pingreq()]
    assert received.fault == 0x82


@pytest.mark.parametrize(
    "packet", [Connack(False), Suback(1, (0,)), Unsuback(1, (0,)), Pingresp(), Auth(0x18)], ids=repr
)
@pytest.mark.mqtt("4.13", "4.12.0-7")
def test_what_only_a_server_sends_or_was_never_agreed_is_a_fault(packet: Packet) -> None:
    received = connected().receive(encode(packet, 5))
    assert received.packets == []
    assert received.fault is not None


@pytest.mark.mqtt("3.3.4-6")
def test_a_client_must_not_send_subscription_identifiers() -> None:
    data = encode(Publish("a", b"", properties=Properties(subscription_identifiers=(1,))), 5)
    assert connected().receive(data).fault == 0x82


def test_packets_before_damage_are_given_and_then_the_fault() -> None:
    received = connected().receive(encode(Pingreq(), 5) + b"\x00\x00")
    assert received.packets == [Pingreq()]
    assert received.fault is not None


def test_a_connect_has_a_limit_of_its_own() -> None:
    data = encode(Connect("c", user_name="u" * 900, level=4), 4)
    assert Connection(500, 10_000).receive(data).fault == 0x95
    assert Connection(10_000, 500).receive(data).fault is None


def test_it_says_how_much_of_an_unfinished_packet_it_has() -> None:
    connection = connected()
    for data, unfinished in ((b"\xc0", 1), (b"\x00", 0), (b"\xc0\x00\x30\x09\x00", 3), (b"\x01", 4)):
        connection.receive(data)
        assert connection.unfinished_bytes == unfinished


@pytest.mark.mqtt("3.3.2-7", "3.3.2-8", "3.3.2-12")
def test_an_alias_counts_from_when_it_was_given_and_up_to_the_maximum() -> None:
    connection = connected()
    named = [Publish("a/b", b"", properties=Properties(topic_alias=alias)) for alias in (1, 5)]
    assert [connection.name_of(packet, 5) for packet in named] == ["a/b", "a/b"]
    assert connection.name_of(Publish("", b"", properties=Properties(topic_alias=5)), 5) == "a/b"
    assert connection.name_of(Publish("", b"", properties=Properties(topic_alias=2)), 5) == 0x82
    assert connection.name_of(Publish("a", b"", properties=Properties(topic_alias=6)), 5) == 0x94
    assert connection.name_of(Publish("a", b"", properties=Properties(topic_alias=0)), 5) == 0x94
    assert connected().name_of(Publish("", b"", properties=Properties(topic_alias=1)), 5) == 0x82


@pytest.mark.mqtt("3.3.2.3.4")
def test_an_alias_may_be_given_to_another_name() -> None:
    connection = connected()
    for name in ("a", "b"):
        given = Publish(name, b"", properties=Properties(topic_alias=1))
        used = Publish("", b"", properties=Properties(topic_alias=1))
        assert [connection.name_of(packet, 5) for packet in (given, used)] == [name, name]


def test_the_names_with_an_alias_take_no_more_than_1024_bytes_each_beside_one_long_one() -> None:
    connection = connected()

    def given(alias: int, size: int, alias_max: int = 64) -> str | int:
        packet = Publish("é" * (size // 2), b"", properties=Properties(topic_alias=alias))
        return connection.name_of(packet, alias_max)

    assert [len(str(given(alias, 65_534))) for alias in (1, 1)] == [32_767, 32_767]
    assert given(2, 1000) == "é" * 500
    assert given(3, 65_534) == 0x94


@pytest.mark.mqtt("3.2.2-2", "3.1 connack", old=("3.2.2-2",))
@pytest.mark.parametrize(("level", "present"), [(3, False), (4, True), (5, True)])
def test_session_present_is_told_by_the_versions_that_have_it(level: int, present: bool) -> None:
    connection = Connection(1000, 1000)
    connection.receive(encode(Connect("c", level=level), level))
    connack = read(connection.accept(TERMS), level)
    assert isinstance(connack, Connack)
    assert connack.session_present is present


@pytest.mark.parametrize(("reason", "code"), [(0x85, 2), (0x86, 4), (0x87, 5), (0x97, 3)])
def test_a_refusal_is_told_in_the_versions_own_code(reason: int, code: int) -> None:
    for level, told in ((4, code), (5, reason)):
        connection = Connection(1000, 1000)
        connection.receive(encode(Connect("c", level=level), level))
        assert read(connection.refuse(reason), level) == Connack(False, told)


@pytest.mark.mqtt(old=("3.2.2-6",))
def test_a_refusal_without_a_return_code_is_no_connack_before_mqtt5() -> None:
    connection = Connection(1000, 1000)
    connection.receive(encode(Connect("c", level=4), 4))
    assert connection.refuse(0x90) == b""


@pytest.mark.mqtt("3.14.0-1", "3.14.2-1")
def test_the_farewell_follows_version_and_progress() -> None:
    assert Connection(1000, 1000).farewell(0x81) == b""
    assert read(Connection(1000, 1000).farewell(0x84), 4) == Connack(False, 1)
    assert connected(4).farewell(0x8D) == b""
    assert read(connected(5).farewell(0x8D), 5) == Disconnect(0x8D)
    assert read(connected(5).farewell(0x85), 5) == Disconnect(0x80)
    before = Connection(1000, 1000)
    before.receive(encode(Connect("c", level=5), 5))
    assert read(before.farewell(0x82), 5) == Connack(False, 0x82)


@pytest.mark.mqtt("3.9.3-1", "3.9.3-2", old=("3.9.3-1", "3.9.3-2"))
def test_a_suback_has_the_codes_that_the_version_knows() -> None:
    packet = Subscribe(9, (Subscription("a"), Subscription("b")))
    assert read(connected(5).suback(packet, [2, 0x97]), 5) == Suback(9, (2, 0x97))
    assert read(connected(4).suback(packet, [2, 0x97]), 4) == Suback(9, (2, 0x80))
    asked = Subscribe(9, (Subscription("a", 0), Subscription("b", 1), Subscription("c", 2)))
    assert read(connected(3).suback(asked, [0x80, 0, 0x97]), 3) == Suback(9, (0, 0, 2)), "3.1 has no failure"


@pytest.mark.mqtt("3.11.3-1", "3.11.3-2", "3.10.4-5")
def test_an_unsuback_has_codes_only_for_mqtt5() -> None:
    packet = Unsubscribe(9, ("a", "b"))
    assert read(connected(5).unsuback(packet, [True, False]), 5) == Unsuback(9, (0, 0x11))
    assert read(connected(4).unsuback(packet, [True, False]), 4) == Unsuback(9)


def test_a_client_may_send_all_that_is_its_to_send() -> None:
    packets = [Publish("a", b"x"), Puback(1), Subscribe(1, (Subscription("a"),)), Unsubscribe(2, ("a",)), Disconnect()]
    for packet in packets:
        assert len(connected().receive(encode(packet, 5), has_turn=True).packets) == 1
