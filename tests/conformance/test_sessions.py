"""MQTT 5, 3.1, 3.2, 4.1 (3.1.1: the same): sessions, wills, keep-alive and retained messages of a whole gateway."""

from __future__ import annotations

from typing import Any

import pytest
from rig import Client, Gateway

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
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import Properties


def kept(level: int) -> dict[str, Any]:
    asked: dict[str, Any] = {"level": level, "clean_start": False}
    return asked | ({"properties": Properties(session_expiry_interval=30)} if level == 5 else {})


def present(gateway: Gateway, packet: Connect) -> tuple[Client, bool]:
    client = gateway.open(packet.level)
    client.send(packet)
    connack = client._got.pop(0)
    assert isinstance(connack, Connack)
    return client, connack.session_present


@pytest.mark.mqtt("3.1.2-4", "3.1.2-5", "3.1.2-6", "3.1.4-4", old=("3.1.2-4", "3.1.2-6", "3.1.4-3"))
@pytest.mark.parametrize("level", [4, 5])
def test_a_session_is_made_resumed_and_discarded_as_the_connect_asks(level: int) -> None:
    gateway = Gateway()
    first, was_there = present(gateway, Connect("c", **kept(level)))
    assert not was_there
    first.subscribe("t", qos=1)
    first.cut()
    second, was_there = present(gateway, Connect("c", **kept(level)))
    assert was_there
    gateway.connect("p").publish("t", b"resumed", 1, packet_id=1)
    assert second.payloads() == [b"resumed"]
    second.cut()
    third, was_there = present(gateway, Connect("c", clean_start=True, level=level))
    assert not was_there
    gateway.connect("p").publish("t", b"gone", 1, packet_id=1)
    assert third.got() == []
    third.cut()
    assert present(gateway, Connect("c", **kept(level)))[1] is False


@pytest.mark.mqtt("3.1.3-2", old=("3.1.3-2",))
def test_the_client_identifier_alone_is_the_key_of_the_session() -> None:
    gateway = Gateway()
    one = gateway.connect("one", **kept(5))
    one.subscribe("t", qos=1)
    one.cut()
    assert present(gateway, Connect("One", **kept(5)))[1] is False
    assert present(gateway, Connect("one", user_name="somebody", **kept(5)))[1] is True


@pytest.mark.mqtt("4.1.0-1", old=("4.1.0-1",))
def test_a_session_is_kept_as_long_as_its_connection_however_short_its_expiry() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    short = gateway.connect("d", level=5, properties=Properties(session_expiry_interval=1))
    for one in (client, short):
        one.subscribe("t", qos=1)
    gateway.pass_time(3600)
    gateway.connect("p").publish("t", b"x", 1, packet_id=1)
    assert client.payloads() == short.payloads() == [b"x"]


@pytest.mark.mqtt("3.1.2-23", "4.1.0-2", old=("4.1.0-2", "3.1.2-5"))
def test_messages_wait_for_a_session_that_is_away_until_its_expiry() -> None:
    gateway = Gateway()
    for name, asked in (("old", kept(4)), ("new", kept(5)), ("late", kept(5))):
        client = gateway.connect(name, **asked)
        client.subscribe("t", qos=2)
        client.cut()
    publisher = gateway.connect("p")
    publisher.publish("t", b"1", 1, packet_id=1)
    publisher.publish("t", b"2", 2, packet_id=2)
    gateway.pass_time(20)
    assert gateway.connect("old", **kept(4)).payloads() == [b"1", b"2"]
    assert gateway.connect("new", **kept(5)).payloads() == [b"1", b"2"]
    gateway.pass_time(40)
    late, was_there = present(gateway, Connect("late", **kept(5)))
    assert not was_there
    assert late.got() == []


@pytest.mark.mqtt(old=("3.1.2-7",))
def test_retained_messages_outlive_the_session_that_made_them() -> None:
    gateway = Gateway()
    maker = gateway.connect("maker")
    maker.publish("t", b"kept", 1, packet_id=1, retain=True)
    maker.send(Disconnect())
    reader = gateway.connect("reader")
    reader.subscribe("t")
    assert reader.payloads() == [b"kept"]


# ---------------------------------------------------------------- retained


@pytest.mark.mqtt("3.3.1-5", "3.3.1-8", "3.3.1-9", old=("3.3.1-5", "3.3.1-6", "3.3.1-7", "3.3.1-8", "3.3.1-12"))
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_only_a_publication_with_retain_changes_the_value_of_its_topic(qos: int) -> None:
    gateway = Gateway()
    maker = gateway.connect("maker")
    maker.publish("t", b"first", 1, packet_id=1, retain=True)
    maker.publish("t", b"second", qos, packet_id=2 if qos else 0, retain=True)
    maker.publish("t", b"passing", 1, packet_id=3)
    maker.publish("t", b"", 1, packet_id=4)
    reader = gateway.connect("reader")
    reader.subscribe("t", qos=2)
    assert [(one.payload, one.retain, one.qos) for one in reader.got() if isinstance(one, Publish)] == [
        (b"second", True, qos)
    ]


@pytest.mark.mqtt("3.3.1-12", "3.3.1-13", old=("3.3.1-9",))
@pytest.mark.parametrize(("level", "as_published", "flag"), [(4, False, False), (5, False, False), (5, True, True)])
def test_a_live_message_has_retain_only_where_the_subscriber_asked(level: int, as_published: bool, flag: bool) -> None:
    gateway = Gateway()
    reader = gateway.connect("reader", level=level)
    reader.subscribe("t", retain_as_published=as_published)
    gateway.connect("maker").publish("t", b"x", 1, packet_id=1, retain=True)
    assert [one.retain for one in reader.got() if isinstance(one, Publish)] == [flag]


@pytest.mark.mqtt("3.8.4-3", "3.8.4-4", "3.3.1-10", "3.3.1-11", old=("3.8.4-3",))
@pytest.mark.parametrize(("handling", "times"), [(0, 2), (1, 1), (2, 0)])
def test_a_subscription_that_is_replaced_gets_the_retained_messages_as_it_asks(handling: int, times: int) -> None:
    gateway = Gateway()
    gateway.connect("maker").publish("t", b"kept", 1, packet_id=1, retain=True)
    reader = gateway.connect("reader", level=5)
    for _ in range(2):
        reader.send(Subscribe(1, (Subscription("t", 1, retain_handling=handling),)))
    assert reader.payloads() == [b"kept"] * times


# ---------------------------------------------------------------- subscriptions


@pytest.mark.mqtt("3.8.4-5", "3.8.4-1", "3.8.4-2", "3.8.4-7", "3.2.2-10", "2.2.1-6", old=("3.8.4-4", "3.8.4-1"))
def test_several_filters_in_one_packet_are_as_several_packets_with_one_answer() -> None:
    gateway = Gateway()
    client = gateway.connect("c")
    client.send(Subscribe(77, tuple(Subscription(f"t{qos}", qos) for qos in (0, 1, 2))))
    [suback] = client.got()
    assert (suback.packet_id, suback.reason_codes) == (77, (0, 1, 2))  # type: ignore[union-attr]
    publisher = gateway.connect("p")
    for qos in (0, 1, 2):
        publisher.publish(f"t{qos}", b"x", 2, packet_id=qos + 1)
    assert [one.qos for one in client.got() if isinstance(one, Publish)] == [0, 1, 2]


@pytest.mark.mqtt("3.10.4-1", "3.10.4-2", "3.10.4-5", "3.10.4-6", "3.11.3-1", old=("3.10.4-5", "3.10.4-6", "3.10.4-1"))
def test_unsubscribe_takes_exactly_the_filters_that_it_names() -> None:
    gateway = Gateway()
    old, new = gateway.connect("old"), gateway.connect("new", level=5)
    for client in (old, new):
        client.subscribe("a/b", "a/+", "c", "C")
        client.send(Unsubscribe(9, ("a/b", "A/+", "a/b/", "c")))
    assert old.got() == [Unsuback(9)]
    assert new.got() == [Unsuback(9, (0, 0x11, 0x11, 0))]
    publisher = gateway.connect("p")
    publisher.publish("a/b", b"by the wildcard", 1, packet_id=1)
    publisher.publish("c", b"by nothing", 1, packet_id=2)
    publisher.publish("C", b"by its capital", 1, packet_id=3)
    assert old.payloads() == new.payloads() == [b"by the wildcard", b"by its capital"]


@pytest.mark.mqtt("3.10.4-3", old=("3.10.4-3",))
def test_a_delivery_that_has_begun_is_completed_after_the_unsubscribe() -> None:
    gateway = Gateway()
    client = gateway.connect("c", **kept(5))
    client.subscribe("t")
    publisher = gateway.connect("p")
    publisher.publish("t", b"1", 1, packet_id=1)
    publisher.publish("t", b"2", 2, packet_id=2)
    first, second = [one for one in client.got() if isinstance(one, Publish)]
    client.send(Unsubscribe(9, ("t",)))
    assert client.got() == [Unsuback(9, (0,))]
    client.send(Pubrec(second.packet_id))
    assert client.got() == [Pubrel(second.packet_id)]
    client.cut()
    client = gateway.connect("c", **kept(5))
    again = client.got()
    assert [(one.payload, one.packet_id, one.dup) for one in again if isinstance(one, Publish)] == [
        (b"1", first.packet_id, True)
    ]
    assert Pubrel(second.packet_id) in again
    client.send(Puback(first.packet_id), Pubcomp(second.packet_id))
    assert client.device.session is not None
    assert client.device.session.room() == client.device.session.window


# ---------------------------------------------------------------- wills


@pytest.mark.mqtt("3.1.2-5", "4.1.0-1", old=("3.1.2-4",))
def test_a_subscription_comes_back_as_it_was_asked_for() -> None:
    gateway = Gateway()
    identified = Properties(subscription_identifiers=(7,))
    before = gateway.connect("c", **kept(5))
    before.subscribe("t", qos=1, no_local=True, retain_as_published=True, properties=identified)
    before.cut()
    client = gateway.connect("c", **kept(5))
    client.publish("t", b"its own", 2, packet_id=1)
    gateway.connect("p").publish("t", b"another's", 2, packet_id=1, retain=True)
    [came] = [one for one in client.got() if isinstance(one, Publish)]
    assert (came.payload, came.qos, came.retain, came.properties) == (b"another's", 1, True, identified)


@pytest.mark.mqtt("3.1.2-7", "3.1.2-14", "3.1.2-15", old=("3.1.2-16", "3.1.2-17"))
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_with_its_own_qos_and_retain(retain: bool, qos: int) -> None:
    gateway = Gateway()
    watcher = gateway.connect("watcher", level=5)
    watcher.subscribe("w", retain_as_published=True)
    gateway.connect("c", will=Will("w", b"gone", qos, retain)).cut()
    assert [(one.qos, one.retain) for one in watcher.got() if isinstance(one, Publish)] == [(qos, retain)]
    assert ("w" in gateway.broker.retained()) is retain


@pytest.mark.mqtt(old=("3.1.2-12",))
def test_without_a_will_nothing_is_published_at_the_end() -> None:
    gateway = Gateway()
    for level in (3, 4, 5):
        gateway.connect("c", level=level).cut()
    gateway.pass_time(10)
    assert gateway.broker.messages() == []


@pytest.mark.mqtt("3.1.2-10", old=("3.1.2-10",))
def test_a_will_is_published_once() -> None:
    gateway = Gateway()
    gateway.connect("c", will=Will("w", b"gone"), **kept(5)).cut()
    gateway.connect("c", **kept(5)).cut()
    gateway.pass_time(100)
    assert gateway.broker.bodies() == [b"gone"]


# ---------------------------------------------------------------- keep-alive, DISCONNECT


@pytest.mark.mqtt("3.2.2-21", "3.2.2-22")
def test_the_keep_alive_that_the_server_told_is_the_one_that_counts() -> None:
    gateway = Gateway(keep_alive_s_max=10)
    cut, none, shorter = clients = [gateway.open(5) for _ in range(3)]
    for client, asked, told in zip(clients, (100, 0, 4), (10, 10, None), strict=True):
        client.send(Connect(f"c{asked}", level=5, keep_alive_s=asked))
        assert client.got_one(Connack).properties.server_keep_alive == told
    gateway.pass_time(7)
    assert (cut.is_closed, none.is_closed, shorter.is_closed) == (False, False, True)
    gateway.pass_time(9)
    assert (cut.is_closed, none.is_closed) == (True, True)


@pytest.mark.mqtt("3.14.4-1", "3.14.4-2", old=("3.14.4-1", "3.14.4-2"))
@pytest.mark.parametrize("level", [3, 4, 5])
def test_after_a_disconnect_nothing_is_carried_out_or_sent_and_the_line_closes(level: int) -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=level)
    client.subscribe("t")
    client.send(Disconnect(), Publish("t", b"late", 1, packet_id=1))
    assert client.is_closed
    assert client.got() == []
    assert gateway.broker.messages() == []


@pytest.mark.mqtt("3.14.4-1", old=("3.14.4-1",))
@pytest.mark.parametrize(("last", "said"), [(Disconnect(), []), (Connect("c", level=5), [Disconnect(0x82)])])
def test_what_brokers_answer_after_a_disconnect_is_not_sent(last: Packet, said: list[Packet]) -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    gateway.broker.holds_replies = True
    client.send(Subscribe(2, (Subscription("t"),)), Publish("t", b"x", 1, packet_id=1))
    client.send(last)
    gateway.broker.holds_replies = False
    gateway.round()
    assert len(gateway.broker.messages()) == 1
    assert client.got() == said


@pytest.mark.mqtt("3.14.2-2", "3.14.2-1")
def test_no_disconnect_of_the_server_has_an_expiry() -> None:
    gateway = Gateway()
    clients = [gateway.connect(f"c{number}", **kept(5)) for number in range(3)]
    clients[0].send_bytes(b"\x00\x00")
    gateway.connect("c1", **kept(5))
    gateway.connections.close()
    gateway.round()
    for client in clients:
        assert client.got_one(Disconnect).properties.session_expiry_interval is None


@pytest.mark.mqtt("3.14.0-1")
def test_no_disconnect_is_sent_before_the_connack() -> None:
    gateway = Gateway()
    for data in (b"\x00\x00", b"\xe0\x00", b"\x10\x05\x00\x04MQ", b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x01a"):
        client = gateway.open(5)
        client.send_bytes(data)
        gateway.pass_time(20)
        assert client.is_closed
        assert Disconnect not in [type(packet) for packet in client.got()]


@pytest.mark.mqtt("3.2.2-17", "3.2.2-18", "3.3.2-9")
@pytest.mark.parametrize(("maximum", "alias"), [(0, 1), (3, 4), (3, 65_535)])
def test_an_alias_beyond_the_servers_maximum_closes_with_its_reason(maximum: int, alias: int) -> None:
    client = Gateway(topic_alias_max=maximum).connect("c", level=5)
    client.publish("t", b"x", properties=Properties(topic_alias=alias))
    assert client.got_one(Disconnect).reason_code == 0x94
    assert client.is_closed


@pytest.mark.mqtt("3.3.2-7")
def test_an_alias_is_not_carried_over_to_the_next_connection() -> None:
    gateway = Gateway()
    first = gateway.connect("c", **kept(5))
    first.publish("t", b"1", 1, packet_id=1, properties=Properties(topic_alias=1))
    assert first.got() == [Puback(1)]
    first.cut()
    second = gateway.connect("c", **kept(5))
    second.publish("", b"2", 1, packet_id=2, properties=Properties(topic_alias=1))
    assert second.got_one(Disconnect).reason_code == 0x82


# ---------------------------------------------------------------- authentication


@pytest.mark.mqtt("4.12.0-1", "4.12.0-4", "3.1.2-30")
def test_a_method_that_is_not_offered_is_refused_and_nothing_behind_it_carried_out() -> None:
    gateway = Gateway()
    client = gateway.open(5)
    method = Properties(authentication_method="unheard-of", authentication_data=b"x")
    client.send(Connect("c", level=5, properties=method), Publish("t", b"x", 1, packet_id=1))
    assert client.got() == [Connack(False, 0x8C)]
    assert client.is_closed
    assert gateway.broker.messages() == []
    assert gateway.connections.half_open == len(gateway.connections) == 0


@pytest.mark.mqtt("4.12.0-6", "4.12.0-7")
@pytest.mark.parametrize("level", [4, 5])
def test_without_a_method_there_is_no_auth_either_way(level: int) -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=level)
    client.send_bytes(b"\xf0\x00")
    assert client.got() == ([Disconnect(0x82)] if level == 5 else [])
    assert client.is_closed
