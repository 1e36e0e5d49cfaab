"""Clients that connect and leave: admission, takeover, wills, keep-alive, expiry."""

from __future__ import annotations

import pytest
from own_topics import OnlyOwnTopics
from rig import Client, Gateway, HandClock

from gateway.login.access import Access
from gateway.login.auth import Anonymous
from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Will
from gateway.mqtt.properties import Properties
from gateway.mqtt.reason_codes import ReasonCode
from penstock.access.acl import parse_acl


def refused(gateway: Gateway, packet: Connect) -> tuple[Client, Connack]:
    client = gateway.open(packet.level)
    client.send(packet)
    assert client.is_closed
    return client, client.got_one(Connack)


def published(gateway: Gateway) -> list[tuple[str, bytes]]:
    return [(message.name, message.body) for message in gateway.broker.messages()]


# ---------------------------------------------------------------- admission


@pytest.mark.mqtt("3.2.2-15", "3.2.2-17", "3.2.2-21", "3.2.2-22", "3.3.4-7")
def test_the_connack_tells_mqtt5_every_limit_that_is_enforced() -> None:
    gateway = Gateway(receive_max=7, packet_bytes_max=5000, topic_alias_max=9, keep_alive_s_max=30)
    client = gateway.open(5)
    client.send(Connect("c", level=5, keep_alive_s=60))
    told = client.got_one(Connack).properties
    assert (told.receive_maximum, told.maximum_packet_size, told.topic_alias_maximum) == (7, 5000, 9)
    assert (told.server_keep_alive, told.shared_subscription_available) == (30, None)
    assert told.assigned_client_identifier is None


@pytest.mark.mqtt("3.1.3-6", "3.1.3-7", "3.2.2-16", old=("3.1.3-6",))
def test_an_empty_id_is_replaced_and_told() -> None:
    gateway = Gateway()
    ids = []
    for _ in range(2):
        client = gateway.open(5)
        client.send(Connect("", level=5))
        ids.append(client.got_one(Connack).properties.assigned_client_identifier)
    assert ids[0] != ids[1]
    assert all(ids)


@pytest.mark.mqtt("3.1.4-2", "3.2.2-7", old=("3.2.2-5",))
def test_a_client_that_is_not_admitted_is_told_so() -> None:
    gateway = Gateway(Anonymous("nobody"))
    assert refused(gateway, Connect("c"))[1] == Connack(False, 5)
    assert refused(gateway, Connect("c", user_name="u", password=b"p"))[1] == Connack(False, 4)
    assert refused(gateway, Connect("c", level=5))[1] == Connack(False, 0x87)


@pytest.mark.mqtt("3.1.4-6", old=("3.1.4-5",))
def test_what_follows_a_refused_connect_is_not_carried_out() -> None:
    gateway = Gateway(Anonymous("nobody"))
    client = gateway.open()
    client.send(Connect("c"), Publish("a", b"x"))
    assert gateway.broker.messages() == []


@pytest.mark.mqtt("3.1.2-2", old=("3.1.2-2",))
def test_a_level_that_is_not_spoken_is_refused_with_its_return_code() -> None:
    client = Gateway().open()
    client.send_bytes(bytes.fromhex("100c00044d5154540602000000000000")[:14])
    assert client.got_one(Connack) == Connack(False, 1)
    assert client.is_closed


def test_a_will_for_which_the_home_has_no_room_is_refused_by_the_name_of_the_limit() -> None:
    gateway = Gateway()
    gateway.broker.limit_sessions(5_000)
    large = Connect("c", level=5, will=Will("w", bytes(10_000)))
    connack = refused(gateway, large)[1]
    assert (connack.reason_code, connack.properties.reason_string) == (0x97, "the limit sessions_bytes_max is reached")
    assert (gateway.broker.state.sessions.bytes, gateway.home.refused) == (0, 1)
    gateway.connect("c", level=5, will=Will("w", bytes(1_000)))
    gateway.connect("d", level=5)
    assert gateway.home.refused == 1


# ---------------------------------------------------------------- sessions


@pytest.mark.parametrize(("level", "properties"), [(4, Properties()), (5, Properties(session_expiry_interval=100))])
@pytest.mark.mqtt("3.2.2-2", "3.2.2-3", old=("3.2.2-1", "3.2.2-2", "3.2.2-3"))
def test_session_present_is_told_only_where_there_is_one(level: int, properties: Properties) -> None:
    gateway = Gateway()
    for expected in (False, True):
        client = gateway.open(level)
        client.send(Connect("c", clean_start=False, level=level, properties=properties))
        assert client.got_one(Connack).session_present is expected
        client.cut()
    client = gateway.open(level)
    client.send(Connect("c", clean_start=True, level=level, properties=properties))
    assert client.got_one(Connack).session_present is False


def test_an_expiry_beyond_ours_is_cut_and_told() -> None:
    gateway = Gateway(session_expiry_s_max=50)
    client = gateway.open(5)
    client.send(Connect("c", level=5, properties=Properties(session_expiry_interval=0xFFFFFFFF)))
    assert client.got_one(Connack).properties.session_expiry_interval == 50


# ---------------------------------------------------------------- wills


@pytest.mark.mqtt("3.1.2-8")
def test_a_clean_start_ends_the_old_session_and_its_will_comes_at_once() -> None:
    gateway = Gateway()
    delayed = Will("w", b"gone", properties=Properties(will_delay_interval=1000))
    gateway.connect("c", level=5, will=delayed, properties=Properties(session_expiry_interval=2000))
    gateway.connect("c", level=5, clean_start=True)
    assert published(gateway) == [("w", b"gone")]


def test_a_failed_login_touches_neither_the_connection_nor_the_will_of_its_victim() -> None:
    gateway = Gateway(OnlyOwnTopics())
    victim = gateway.connect("victim", user_name="v", password=b"right", will=Will("victim/w", b"gone"))
    refused(gateway, Connect("victim", user_name="v", password=b"wrong", will=Will("victim/w", b"forged")))
    assert not victim.is_closed
    assert published(gateway) == []
    victim.cut()
    assert published(gateway) == [("victim/w", b"gone")]


def test_a_will_that_its_client_may_not_publish_is_refused_at_connect() -> None:
    gateway = Gateway(OnlyOwnTopics())
    assert refused(gateway, Connect("c", level=5, will=Will("other/w", b"x")))[1] == Connack(False, 0x87)
    assert published(gateway) == []


def test_a_will_with_a_name_beyond_our_limits_is_refused_at_connect() -> None:
    gateway = Gateway()
    too_deep = Will("/".join("a" * 200), b"x")
    assert refused(gateway, Connect("c", level=5, will=too_deep))[1] == Connack(False, 0x90)


@pytest.mark.mqtt("3.1.2-7", "3.1.2-8")
def test_a_will_that_could_not_be_published_is_refused_at_connect() -> None:
    gateway = Gateway()
    much = tuple([("name", "x" * 9_000)] * 2)
    long = Will("w", b"x", properties=Properties(user_properties=much))
    told = refused(gateway, Connect("c", level=5, will=long))[1]
    assert told.reason_code == 0x97
    assert "the limit user_properties_bytes_max" in str(told.properties.reason_string)
    fits = Will("w", b"x", properties=Properties(correlation_data=bytes(24_000)))
    gateway.connect("c", level=5, will=fits).cut()
    assert published(gateway) == [("w", b"x")]


def test_changed_rules_end_what_a_connected_client_may_no_longer_do() -> None:
    access = Access("everyone", 1, 0, b"key", lambda: None, HandClock().monotonic)
    access.set_acl(parse_acl("allow all all #"))
    gateway = Gateway(access)
    client, other = gateway.connect("c", level=5), gateway.connect("d", level=5)
    client.subscribe("a", "b", qos=1)
    client.publish("a", b"1", qos=1, packet_id=1)
    assert client.payloads() == [b"1"]
    access.set_acl(parse_acl("allow all all b"))
    gateway.judge_again()
    gateway.round()
    client.publish("a", b"2", qos=1, packet_id=2)
    assert client.got_one(Puback).reason_code == ReasonCode.NOT_AUTHORIZED
    gateway.produce("a", b"3")
    other.publish("b", b"4")
    assert client.payloads() == [b"4"]
