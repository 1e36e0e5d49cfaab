"""Who comes and who goes: admission, takeover, wills, keep-alive, expiry."""

from __future__ import annotations

import pytest
from circles import leaves_none_of
from own_topics import OnlyOwnTopics
from rig import Client, Gateway, HandClock

from gateway.devices.device import Device
from gateway.login.access import Access
from gateway.login.auth import Anonymous
from gateway.messages.delivery import Blob, Several
from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Subscribe, Subscription, Will
from gateway.mqtt.properties import Properties
from gateway.mqtt.reason_codes import ReasonCode
from gateway.sessions.session import Cursor, Session
from penstock.access.acl import parse_acl
from penstock.errors import Busy
from penstock.protocol.message import decode_message
from penstock.protocol.requests.sessions import OpenSession, SaveSessions

WILL = Will("will/topic", b"gone", 1)


def refused(gateway: Gateway, packet: Connect) -> tuple[Client, Connack]:
    client = gateway.open(packet.level)
    client.send(packet)
    assert client.is_closed
    return client, client.got_one(Connack)


def published(gateway: Gateway) -> list[tuple[str, bytes]]:
    return [(message.name, message.body) for message in map(decode_message, gateway.broker.log)]


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


@pytest.mark.mqtt(old=("3.1.3-7", "3.1.3-8"))
def test_an_empty_id_needs_a_clean_session_before_mqtt5() -> None:
    gateway = Gateway()
    assert refused(gateway, Connect("", clean_start=False))[1] == Connack(False, 2)
    assert gateway.connect("", clean_start=True).device.session is not None


@pytest.mark.mqtt("3.1 client id")
def test_mqtt_3_1_has_no_empty_ids_but_may_have_long_ones() -> None:
    gateway = Gateway()
    assert refused(gateway, Connect("", clean_start=True, level=3))[1] == Connack(False, 2)
    assert gateway.connect("x" * 24, level=3).device.session is not None


@pytest.mark.parametrize("client_id", ["x" * 257, "a\x7fb"])
@pytest.mark.mqtt("3.1.3-8", old=("3.1.3-9",))
def test_an_unfit_id_is_refused(client_id: str) -> None:
    gateway = Gateway()
    assert refused(gateway, Connect(client_id))[1] == Connack(False, 2)
    told = refused(gateway, Connect(client_id, level=5))[1]
    assert isinstance(told, Connack)
    assert told.reason_code == 0x85


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
    assert gateway.broker.log == []


@pytest.mark.mqtt("3.1.2-2", old=("3.1.2-2",))
def test_a_level_that_is_not_spoken_is_refused_with_its_return_code() -> None:
    client = Gateway().open()
    client.send_bytes(bytes.fromhex("100c00044d5154540602000000000000")[:14])
    assert client.got_one(Connack) == Connack(False, 1)
    assert client.is_closed


def test_sessions_have_a_limit() -> None:
    gateway = Gateway()
    gateway.broker.refuses[OpenSession] = Busy("the limit sessions_max is reached")
    connack = refused(gateway, Connect("b", level=5))[1]
    assert (connack.reason_code, connack.properties.reason_string) == (0x97, "the limit sessions_max is reached")
    assert len(gateway.reception.sessions) == 0
    assert refused(gateway, Connect("b"))[1] == Connack(False, 3)


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


def test_a_connection_that_never_says_connect_is_closed() -> None:
    gateway = Gateway(connect_wait_s=5.0)
    silent = gateway.open()
    assert gateway.reception.half_open == 1
    gateway.pass_time(4)
    assert not silent.is_closed
    gateway.pass_time(3)
    assert silent.is_closed
    assert gateway.reception.half_open == 0
    assert gateway.reception.connections == 0


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


@pytest.mark.mqtt("4.1.0-2", "3.1.2-23")
def test_a_session_ends_with_its_expiry_and_its_filters_close() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=60))
    client.subscribe("t")
    client.cut()
    gateway.pass_time(58)
    assert len(gateway.broker.state.sessions) == 1
    assert list(gateway.broker.queues) == ["~filter:t"]
    gateway.pass_time(4)
    assert len(gateway.broker.state.sessions) == 0
    assert gateway.broker.queues == {}


@pytest.mark.parametrize("expiry_s", [0, 60])
def test_a_session_goes_with_its_connection_and_waits_for_no_collector(expiry_s: int) -> None:
    """With all that was in flight to it: clients that come and go left that to the collector, which seldom looks."""
    gateway = Gateway()
    with leaves_none_of(Session, Cursor, Blob, Several):
        client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=expiry_s))
        client.subscribe("a/#", "a/b", qos=1)
        client.subscribe("n/#", qos=1, properties=Properties(user_properties=(("penstock-start", "named=p"),)))
        for topic in ("a/b", "n/c"):
            client.publish(topic, b"x", 1, packet_id=7)
        assert client.device.session is not None
        assert client.device.session.in_flight
        client.cut()
        del client.device


def test_a_connection_that_breaks_before_its_session_is_saved_waits_for_no_collector() -> None:
    """With what it had read of a packet, and what was to be sent to it."""
    gateway = Gateway()
    with leaves_none_of(Session, Device):
        client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=60))
        gateway.broker.holds = (SaveSessions,)
        for number in (1, 2):
            client.send(Subscribe(number, (Subscription(f"a/{number}", 1),)))
        client.cut()
        gateway.broker.let_go()
        gateway.round()
        assert client.got() == []
        del client.device


def test_disconnect_may_shorten_the_expiry() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=60))
    client.send(Disconnect(0, Properties(session_expiry_interval=0)))
    assert len(gateway.broker.state.sessions) == 0


def test_an_expiry_beyond_ours_is_cut_and_told() -> None:
    gateway = Gateway(session_expiry_s_max=50)
    client = gateway.open(5)
    client.send(Connect("c", level=5, properties=Properties(session_expiry_interval=0xFFFFFFFF)))
    assert client.got_one(Connack).properties.session_expiry_interval == 50


@pytest.mark.mqtt("3.1.4-3", old=("3.1.4-2",))
def test_a_second_connection_takes_the_session_over() -> None:
    gateway = Gateway()
    first = gateway.connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=60))
    first.subscribe("t", qos=1)
    second = gateway.connect("c", level=4, clean_start=False)
    assert first.got() == [Disconnect(0x8E)]
    assert first.is_closed
    second.publish("t", b"x", 1, packet_id=1)
    assert b"x" in second.payloads()
    first.cut()
    assert second.device.session is not None
    assert second.device.session.device is second.device


def test_a_taken_over_connection_carries_nothing_more_out() -> None:
    gateway = Gateway()
    first = gateway.connect("c")
    gateway.connect("c")
    first.is_closed = False
    first.publish("a", b"late")
    assert gateway.broker.log == []


# ---------------------------------------------------------------- wills


@pytest.mark.mqtt("3.1.2-8", old=("3.1.2-8",))
def test_a_will_is_published_when_the_connection_breaks() -> None:
    gateway = Gateway()
    client = gateway.connect(will=WILL)
    client.cut()
    assert published(gateway) == [("will/topic", b"gone")]


@pytest.mark.mqtt("3.1.2-10", "3.14.4-3", old=("3.1.2-10", "3.14.4-3"))
def test_a_will_is_not_published_after_a_normal_disconnect() -> None:
    gateway = Gateway()
    gateway.connect("a", will=WILL).send(Disconnect())
    gateway.connect("b", level=5, will=WILL).send(Disconnect(0))
    assert published(gateway) == []


@pytest.mark.parametrize("reason", [0x04, *range(0x80, 0x84), 0x90, 0x93, 0x95, 0x97, 0x98, 0x99])
@pytest.mark.mqtt("3.1.2-8", "3.14.4-3")
def test_a_client_that_leaves_with_a_reason_other_than_0_leaves_its_will(reason: int) -> None:
    gateway = Gateway()
    gateway.connect(level=5, will=WILL).send(Disconnect(reason))
    assert published(gateway) == [("will/topic", b"gone")]


@pytest.mark.parametrize("end", ["garbage", "silence", "shutdown"])
@pytest.mark.mqtt("3.1.2.5")
def test_every_other_end_counts_as_abnormal(end: str) -> None:
    gateway = Gateway()
    client = gateway.connect(will=WILL, keep_alive_s=10)
    if end == "garbage":
        client.send_bytes(b"\x00\x00")
    elif end == "silence":
        gateway.pass_time(20)
    else:
        gateway.reception.close()
        gateway.round()
    assert client.is_closed
    assert published(gateway) == [("will/topic", b"gone")]


@pytest.mark.mqtt("3.1.3-9")
def test_a_will_waits_for_its_delay_and_is_cancelled_by_a_return() -> None:
    gateway = Gateway()
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    delayed = Will("w", b"gone", 1, properties=Properties(will_delay_interval=10))
    gateway.connect("c", will=delayed, **asked).cut()
    gateway.pass_time(9)
    back = gateway.connect("c", will=delayed, **asked)
    gateway.pass_time(20)
    assert published(gateway) == []
    back.cut()
    gateway.pass_time(9)
    assert published(gateway) == []
    gateway.pass_time(3)
    assert published(gateway) == [("w", b"gone")]
    gateway.pass_time(200)
    assert published(gateway) == [("w", b"gone")]


@pytest.mark.mqtt("3.1.2-8")
def test_a_will_does_not_outwait_its_session() -> None:
    gateway = Gateway()
    delayed = Will("w", b"gone", properties=Properties(will_delay_interval=1000))
    gateway.connect("a", level=5, will=delayed).cut()
    assert published(gateway) == [("w", b"gone")]
    gateway.connect("b", level=5, will=delayed, properties=Properties(session_expiry_interval=10)).cut()
    gateway.pass_time(12)
    assert len(published(gateway)) == 2


@pytest.mark.mqtt("3.1.2-8")
def test_a_clean_start_ends_the_old_session_and_its_will_comes_at_once() -> None:
    gateway = Gateway()
    delayed = Will("w", b"gone", properties=Properties(will_delay_interval=1000))
    gateway.connect("c", level=5, will=delayed, properties=Properties(session_expiry_interval=2000))
    gateway.connect("c", level=5, clean_start=True)
    assert published(gateway) == [("w", b"gone")]


def test_a_takeover_cancels_a_delayed_will_but_publishes_one_without_delay() -> None:
    gateway = Gateway()
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    gateway.connect("a", will=Will("w", b"a", properties=Properties(will_delay_interval=5)), **asked)
    gateway.connect("a", **asked)
    gateway.connect("b", will=Will("w", b"b"), **asked)
    gateway.connect("b", **asked)
    gateway.pass_time(20)
    assert published(gateway) == [("w", b"b")]


@pytest.mark.mqtt("3.1.2-15", "3.1.3-10", "3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-20", old=("3.1.2-17",))
def test_a_will_carries_its_properties_and_retain() -> None:
    gateway = Gateway()
    watcher = gateway.connect("w", level=5)
    watcher.subscribe("will")
    sent = Properties(
        payload_format_indicator=1,
        message_expiry_interval=60,
        content_type="t",
        response_topic="r/t",
        correlation_data=b"\x00\xff",
        user_properties=(("b", "1"), ("a", "2"), ("b", "1")),
    )
    will = Will("will", b"x", 1, retain=True, properties=sent)
    gateway.connect("c", level=5, will=will).cut()
    [delivered] = [packet for packet in watcher.got() if isinstance(packet, Publish)]
    assert delivered.properties == sent
    assert "will" in gateway.broker.retained


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


def test_a_gateway_that_stops_tells_every_client() -> None:
    gateway = Gateway()
    old, new = gateway.connect("a"), gateway.connect("b", level=5)
    gateway.reception.close()
    gateway.round()
    assert (old.is_closed, new.is_closed) == (True, True)
    assert new.got() == [Disconnect(0x8B)]


def test_changed_rules_end_what_a_connected_client_may_no_longer_do() -> None:
    access = Access("everyone", 1, 0, b"key", lambda: None, HandClock().monotonic)
    access.set_acl(parse_acl("allow all all #"))
    gateway = Gateway(access)
    access.on_rules = gateway.reception.judge_again
    client, other = gateway.connect("c", level=5), gateway.connect("d", level=5)
    client.subscribe("a", "b", qos=1)
    client.publish("a", b"1", qos=1, packet_id=1)
    assert client.payloads() == [b"1"]
    access.set_acl(parse_acl("allow all all b"))
    gateway.round()
    client.publish("a", b"2", qos=1, packet_id=2)
    assert client.got_one(Puback).reason_code == ReasonCode.NOT_AUTHORIZED
    gateway.produce("a", b"3")
    other.publish("b", b"4")
    assert client.payloads() == [b"4"]
