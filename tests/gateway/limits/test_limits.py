"""Limits on packets, names and clients that take nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rig import Client, Gateway

from gateway.limits.limits import SWEEP_S, beginning
from gateway.limits.quotas import REASONS
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import Properties
from penstock.errors import TopicNotFound
from penstock.protocol.requests.topics import DescribeTopic


def pairs(count: int, size: int = 1) -> Properties:
    return Properties(user_properties=(("k", "v" * size),) * count)


def code_of(client: Client) -> tuple[type[Packet], int]:
    [packet] = client.got()
    assert isinstance(packet, Disconnect | Connack)
    return type(packet), packet.reason_code


def test_every_limit_in_the_table_is_held_somewhere() -> None:
    source = "".join(
        path.read_text() for path in (Path(__file__).parents[3] / "gateway").rglob("*.py") if path.name != "quotas.py"
    )
    assert [limit for limit in REASONS if f'"{limit}"' not in source] == []


@pytest.mark.parametrize("properties", [pairs(5), pairs(2, 60)])
@pytest.mark.mqtt("4.13.2-1")
def test_a_packet_with_too_many_user_properties_is_refused(properties: Properties) -> None:
    limits = {"user_properties_max": 4, "user_properties_bytes_max": 100}
    for packet in (
        Subscribe(1, (Subscription("a"),), properties),
        Unsubscribe(1, ("a",), properties),
        Disconnect(0, properties),
        Puback(9, 0, properties),
    ):
        client = Gateway(**limits).connect(level=5)
        client.send(packet)
        assert code_of(client) == (Disconnect, 0x97)
    for connect in (
        Connect("c", properties=properties, level=5),
        Connect("c", will=Will("w", b"", properties=properties), level=5),
    ):
        client = Gateway(**limits).open(5)
        client.send(connect)
        assert code_of(client) == (Connack, 0x97)


WHY = Properties(reason_string="the limit user_properties_max is reached")


@pytest.mark.parametrize(("qos", "answer"), [(0, []), (1, [Puback(7, 0x97, WHY)]), (2, [Pubrec(7, 0x97, WHY)])])
def test_a_publication_with_too_many_is_not_taken(qos: int, answer: list[Packet]) -> None:
    gateway = Gateway(user_properties_max=4)
    client = gateway.connect(level=5)
    client.publish("a", b"x", qos, packet_id=7 if qos else 0, properties=pairs(5))
    assert client.got() == answer
    assert not client.is_closed
    assert gateway.broker.messages() == []
    assert gateway.quotas.refused["user_properties_max"] == 1
    client.publish("a", b"x", qos, packet_id=7 if qos else 0, properties=pairs(4))
    assert len(gateway.broker.messages()) == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.mqtt("3.3.2-12")
def test_a_publication_that_is_not_taken_still_gives_its_alias_a_name(qos: int) -> None:
    gateway = Gateway(user_properties_max=4)
    client = gateway.connect(level=5)
    named = Properties(topic_alias=1, user_properties=(("k", "v"),) * 5)
    client.publish("a/b", b"1", qos, packet_id=7 if qos else 0, properties=named)
    client.got()
    client.publish("", b"2", 1, packet_id=8, properties=Properties(topic_alias=1))
    assert client.got() == [Puback(8)]
    assert [message.name for message in gateway.broker.messages()] == ["a/b"]


@pytest.mark.mqtt("4.3.3-10")
def test_an_open_exchange_outlives_a_resend_that_breaks_a_limit() -> None:
    gateway = Gateway(user_properties_max=4)
    client = gateway.connect(level=5)
    client.publish("a", b"x", 2, packet_id=7)
    client.publish("a", b"x", 2, packet_id=7, dup=True, properties=pairs(5))
    client.send(Pubrel(7))
    assert client.got() == [Pubrec(7), Pubrec(7), Pubcomp(7)]
    assert gateway.broker.bodies() == [b"x"]


def test_the_work_for_a_flood_of_properties_is_refused_before_it_is_done() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.publish("a", b"", properties=pairs(30_000))
    assert code_of(client) == (Disconnect, 0x97)
    assert gateway.quotas.refused["user_properties_bytes_max"] == 1


def test_user_properties_count_as_the_bytes_that_they_are() -> None:
    gateway = Gateway(user_properties_bytes_max=100)
    client = gateway.connect(level=5)
    for value in ("v" * 99, "\N{SNOWMAN}" * 33, "\N{SNOWMAN}" * 34):
        client.publish("a", b"", 1, packet_id=1, properties=Properties(user_properties=(("k", value),)))
    assert [packet.reason_code for packet in client.got() if isinstance(packet, Puback)] == [0, 0, 0x97]
    assert gateway.quotas.refused["user_properties_bytes_max"] == 1


@pytest.mark.parametrize("level", [4, 5])
def test_a_packet_with_too_many_filters_is_refused(level: int) -> None:
    for packet in (Subscribe(1, (Subscription("a"),) * 4), Unsubscribe(1, ("a",) * 4)):
        gateway = Gateway(filters_per_packet_max=3)
        client = gateway.connect(level=level)
        client.send(packet)
        assert client.is_closed
        assert gateway.quotas.refused["filters_per_packet_max"] == 1


@pytest.mark.parametrize("level", [4, 5])
def test_of_too_many_filters_no_more_are_read_than_it_takes_to_say_so(level: int) -> None:
    for packet in (Subscribe(1, (Subscription("a"),) * 4), Unsubscribe(1, ("a",) * 4)):
        gateway = Gateway(filters_per_packet_max=3)
        client = gateway.connect(level=level)
        encoded = encode(packet, level)
        damage = b"\x00\x01\xff"  # a filter that is no UTF-8
        client.send_bytes(bytes((encoded[0], encoded[1] + len(damage))) + encoded[2:] + damage)
        assert client.is_closed
        assert gateway.quotas.refused["filters_per_packet_max"] == 1


def test_as_many_filters_as_are_allowed_are_taken() -> None:
    gateway = Gateway(filters_per_packet_max=3)
    client = gateway.connect()
    client.send(Subscribe(1, (Subscription("a"),) * 3), Unsubscribe(2, ("a",) * 3))
    assert not client.is_closed
    assert sum(gateway.quotas.refused.values()) == 0


def test_a_name_or_filter_with_too_many_levels_is_refused() -> None:
    gateway = Gateway(topic_levels_max=3)
    client = gateway.connect(level=5)
    client.publish("a/b/c", b"x", 1, packet_id=1)
    client.publish("a/b/c/d", b"x", 1, packet_id=2)
    client.send(Subscribe(3, (Subscription("a/+/c"), Subscription("a/b/c/#"))))
    why = Properties(reason_string="the limit topic_levels_max is reached")
    assert client.got() == [Puback(1), Puback(2, 0x90, why), Suback(3, (0, 0x8F), why)]
    assert gateway.quotas.refused["topic_levels_max"] == 2


@pytest.mark.parametrize(
    ("limit", "data", "level"),
    [
        ("packet_bytes_max", b"\x30\xff\xff\xff\x7f", 5),
        ("topic_alias_max", b"\x30\x07\x00\x00\x03\x23\x00\x00x", 5),
        ("packet_bytes_max", b"\x30\xff\xff\xff\x7f", 4),
    ],
)
def test_faults_that_are_limits_are_counted(limit: str, data: bytes, level: int) -> None:
    gateway = Gateway()
    client = gateway.connect(level=level)
    client.send_bytes(data)
    assert gateway.quotas.refused[limit] == 1
    assert [one.properties.reason_string for one in client.got() if isinstance(one, Disconnect)] == (
        [f"the limit {limit} is reached"] if level == 5 else []
    )


@pytest.mark.parametrize("level", [4, 5])
def test_a_connect_that_is_too_large_is_counted_by_itself_and_closed_without_a_word(level: int) -> None:
    gateway = Gateway(connect_packet_bytes_max=1024)
    client = gateway.open(level)
    client.send(Connect("c", user_name="u", password=bytes(1024), level=level))
    assert gateway.quotas.refused["connect_packet_bytes_max"] == 1
    assert (client.got(), client.is_closed) == ([], True)


def test_a_client_that_takes_nothing_for_too_long_is_dropped() -> None:
    gateway = Gateway(stalled_s_max=60)
    client = gateway.connect()
    client.is_full = True
    gateway.pass_time(60)
    assert not client.is_closed
    gateway.pass_time(2 * SWEEP_S)
    assert client.is_closed
    assert client.got() == []
    assert gateway.quotas.refused["stalled_s_max"] == 1


def test_a_slow_client_that_takes_something_now_and_then_stays() -> None:
    gateway = Gateway(stalled_s_max=60)
    client = gateway.connect()
    for _ in range(10):
        client.is_full = True
        gateway.pass_time(40)
        client.device.writable()  # half of its output is gone; then it is full again
    assert not client.is_closed


def test_a_gateway_may_let_them_be() -> None:
    gateway = Gateway(stalled_s_max=0)
    client = gateway.connect()
    client.is_full = True
    gateway.pass_time(1000)
    assert not client.is_closed


def test_an_address_has_so_many_connections_at_a_time() -> None:
    gateway = Gateway(address_connections_max=2)

    def open_from(address: str) -> Client:
        client = gateway.open(5, address)
        client.send(Connect("", level=5))
        return client

    first, second, third, other = (open_from(one) for one in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"))
    assert [one.is_closed for one in (first, second, third, other)] == [False, False, True, False]
    [refusal] = third.got()
    assert isinstance(refusal, Connack)
    assert refusal.reason_code == 0x97
    first.cut()
    assert gateway.connections.crowd.has_room("10.0.0.1")
    assert not open_from("10.0.0.1").is_closed


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_client_has_not_acknowledged_is_bounded_in_bytes(qos: int) -> None:
    gateway = Gateway(in_flight_bytes_max=3000)
    client, publisher = gateway.connect("s"), gateway.connect("p")
    client.subscribe("a", qos=qos)
    for number in range(6):
        publisher.publish("a", b"%d" % number * 1000, 2, packet_id=number + 1)
    publisher.publish("a", b"big" * 2000, 2, packet_id=9)
    got: list[Any] = [packet for packet in client.got() if isinstance(packet, Publish)]
    assert len(got) == 2
    answers = Puback if qos == 1 else Pubrec
    taken = 0
    while got:
        taken += len(got)
        client.send(*[answers(packet.packet_id) for packet in got])
        if qos == 2:
            client.send(*[Pubcomp(packet.packet_id) for packet in got])
        got = [packet for packet in client.got() if isinstance(packet, Publish)]
        assert len(got) <= 3
    assert taken == 7
    assert client.device.session is not None
    assert client.device.session.in_flight_bytes == 0


def test_topics_that_no_broker_takes_fill_no_memory() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    gateway.broker.refuses[DescribeTopic] = TopicNotFound("no more topics")
    for number in range(50):
        client.publish(f"t{number}", b"x")
    assert len(gateway.upstream._placing._topics) == 0
    gateway.broker.refuses.clear()
    client.publish("t1", b"x", 1, packet_id=1)
    assert client.got() == [Puback(1)]


@pytest.mark.parametrize(
    ("first", "spoken"),
    [
        (b"\x16\x03\x01", "TLS"),
        (b"HEAD / ", "HTTP"),
        (b"\r\n\r\n\x00\r\nQUIT\n!", "the PROXY protocol"),
        (b"SSH-2.0", "SSH"),
        (b"\x30\x00", ""),
    ],
)
def test_what_is_no_connect_is_named_by_how_it_begins(first: bytes, spoken: str) -> None:
    assert beginning(first) == "what came first is no CONNECT" + (
        f"; the client seems to speak {spoken}" if spoken else ""
    )
