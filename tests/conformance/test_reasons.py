"""MQTT 5: reason strings, user properties and server references, where they may be and when they have to stay away."""

from __future__ import annotations

import pytest

from gateway.mqtt.answers import mark
from gateway.mqtt.codec import encode
from gateway.mqtt.connection import Connection, Terms
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.mqtt.properties import Properties
from gateway.mqtt.reader import PacketReader
from gateway.mqtt.reason_codes import Told
from tests.conformance.test_subscribe import ID

WHY = "the limit of something is reached"
ASKED = Subscribe(int.from_bytes(ID, "big"), (Subscription("a"),))
PLAIN = 12  # bytes: more than each of these packets has without a reason string


def speaking(**asked: int) -> Connection:
    connection = Connection(1 << 16, 1 << 16)
    assert connection.receive(encode(Connect("c", properties=Properties(**asked), level=5), 5)).fault is None
    return connection


def only(data: bytes) -> Packet:
    reader = PacketReader(1 << 16)
    reader.level = 5
    [packet] = reader.receive(data)
    return packet


@pytest.mark.mqtt("3.2.2-19")
def test_a_connack_has_its_reason_string_where_the_client_takes_a_packet_of_that_size() -> None:
    assert only(speaking().refuse(Told(0x97, WHY))) == Connack(False, 0x97, Properties(reason_string=WHY))
    assert only(speaking(maximum_packet_size=PLAIN).refuse(Told(0x97, WHY))) == Connack(False, 0x97)


@pytest.mark.mqtt("3.14.2-3")
def test_a_disconnect_has_its_reason_string_where_the_client_takes_a_packet_of_that_size() -> None:
    for size, expected in ((1 << 16, Properties(reason_string=WHY)), (PLAIN, Properties())):
        connection = speaking(maximum_packet_size=size)
        connection._is_accepted = True
        assert only(connection.farewell(Told(0x97, WHY))) == Disconnect(0x97, expected)


@pytest.mark.mqtt("3.9.2-1")
def test_a_suback_has_its_reason_string_where_the_client_takes_a_packet_of_that_size() -> None:
    expected = Suback(ASKED.packet_id, (0x97,), Properties(reason_string=WHY))
    assert only(speaking().suback(ASKED, [0x97], WHY)) == expected
    assert only(speaking(maximum_packet_size=PLAIN).suback(ASKED, [0x97], WHY)) == Suback(ASKED.packet_id, (0x97,))


@pytest.mark.mqtt("3.1.2-29")
def test_who_wants_no_problem_information_gets_it_in_connack_and_disconnect_only() -> None:
    connection = speaking(request_problem_information=0)
    assert only(connection.suback(ASKED, [0x97], WHY)) == Suback(ASKED.packet_id, (0x97,))
    assert only(connection.refuse(Told(0x97, WHY))) == Connack(False, 0x97, Properties(reason_string=WHY))


@pytest.mark.mqtt("3.4.2-2", "3.5.2-2", "3.1.2-29")
@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_a_publication_that_is_not_taken_is_answered_with_the_reason_where_it_may_be_said(
    qos: int, answer: type[Puback] | type[Pubrec]
) -> None:
    sent = mark(qos, 7)
    assert only(speaking().refusal(sent, Told(0x97, WHY))) == answer(7, 0x97, Properties(reason_string=WHY))
    assert only(speaking().refusal(sent, 0x97)) == answer(7, 0x97)
    assert only(speaking(maximum_packet_size=PLAIN).refusal(sent, Told(0x97, WHY))) == answer(7, 0x97)
    assert only(speaking(request_problem_information=0).refusal(sent, Told(0x97, WHY))) == answer(7, 0x97)


def accepted(**said: int) -> tuple[Connection, Connack]:
    """A connection that is to be told levels, and its CONNACK."""
    connection = speaking(**said)
    connack = only(connection.accept(Terms(False, None, None, None, 10, 1 << 20, 0, tells_level=True)))
    assert isinstance(connack, Connack)
    return connection, connack


def user_properties(packet: Packet) -> tuple[tuple[str, str], ...]:
    assert isinstance(packet, Connack | Puback | Pubrec)
    return packet.properties.user_properties


@pytest.mark.mqtt("3.2.2-20", "3.1.2-29")
def test_a_connack_has_its_user_property_where_the_client_takes_a_packet_of_that_size() -> None:
    _, connack = accepted()
    assert user_properties(connack) == (("penstock-level", "true"),)
    size = len(encode(connack, 5))
    assert user_properties(accepted(maximum_packet_size=size)[1]) == (("penstock-level", "true"),)
    assert user_properties(accepted(maximum_packet_size=size - 1)[1]) == ()
    assert user_properties(accepted(request_problem_information=0)[1]) == ()


@pytest.mark.mqtt("3.4.2-3", "3.5.2-3", "3.1.2-29")
@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_an_acknowledgement_says_the_level_where_the_client_takes_a_packet_of_that_size(
    qos: int, answer: type[Puback] | type[Pubrec]
) -> None:
    said = answer(7, 0, Properties(user_properties=(("penstock-level", "disk"),)))
    sent, size = mark(qos, 7), len(encode(said, 5))
    connection, _ = accepted()
    assert connection.tells_level
    assert connection.with_level([sent, b""], "disk") == [encode(said, 5), b""]
    assert connection.with_level([], "disk") == []
    assert accepted(maximum_packet_size=size)[0].with_level([sent], "disk") == [encode(said, 5)]
    assert accepted(maximum_packet_size=size - 1)[0].with_level([sent], "disk") == [sent]
    assert not accepted(request_problem_information=0)[0].tells_level


@pytest.mark.mqtt("3.9.2-1", "3.4.2-2")
def test_a_reason_that_is_too_long_for_a_string_is_cut() -> None:
    long = "\u0600" * 40_000
    suback = only(speaking().suback(ASKED, [0x97], long))
    puback = only(speaking().refusal(mark(1, 7), Told(0x97, long)))
    for packet in (suback, puback):
        assert isinstance(packet, Suback | Puback)
        assert packet.properties.reason_string == long[:997] + "..."


@pytest.mark.parametrize("code", [0x9C, 0x9D])
def test_only_a_client_that_is_sent_elsewhere_is_told_where(code: int) -> None:
    assert only(speaking().refuse(code, "b.example:1883")) == Connack(
        False, code, Properties(server_reference="b.example:1883")
    )
    assert only(speaking().refuse(code)) == Connack(False, code)
    assert only(speaking().refuse(0x97, "b.example:1883")) == Connack(False, 0x97)


@pytest.mark.mqtt("3.2.2-19")
def test_the_server_to_go_to_stays_where_the_reason_string_does_not_fit() -> None:
    expected = Connack(False, 0x9C, Properties(server_reference="b"))
    assert only(speaking(maximum_packet_size=PLAIN).refuse(Told(0x9C, WHY), "b")) == expected


def test_before_mqtt_5_a_refusal_is_its_return_code() -> None:
    connection = Connection(1 << 16, 1 << 16)
    connection.receive(encode(Connect("c", level=4), 4))
    assert connection.refuse(Told(0x9C, WHY), "b") == b"\x20\x02\x00\x03"
    assert connection.suback(ASKED, [0x97], WHY) == b"\x90\x03" + ID + b"\x80"
