"""Retained messages for new subscriptions."""

from __future__ import annotations

import pytest
from rig import Client, Gateway

from gateway.delivery.lookups import WORK_MAX
from gateway.delivery.retained import PAGE, WORK
from gateway.delivery.scheduler import LOOKS_MAX
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription, Unsubscribe
from gateway.mqtt.properties import Properties
from penstock.errors import Unavailable
from penstock.protocol.requests.filters import FetchRetained

FETCHES_MAX = WORK_MAX // WORK


def with_retained(*names: str, qos: int = 1, **settings: object) -> Gateway:
    gateway = Gateway(**settings)
    publisher = gateway.connect("p")
    for at, name in enumerate(names):
        publisher.publish(name, name.encode(), qos, retain=True, packet_id=at + 1 if qos else 0)
    return gateway


def retained(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.got() if isinstance(packet, Publish) and packet.retain]


@pytest.mark.mqtt("3.3.1-5", "3.3.1-9", old=("3.3.1-5", "3.3.1-6", "3.3.1-8"))
def test_a_new_subscription_gets_the_last_value_of_each_matching_topic_after_its_suback() -> None:
    gateway = with_retained("a/1", "a/2", "b/1", "a/1")
    client = gateway.connect()
    client.send(Subscribe(1, (Subscription("a/+", 1),)))
    got = client.got()
    assert isinstance(got[0], Suback)
    assert [(p.topic, p.retain, p.qos) for p in got[1:] if isinstance(p, Publish)] == [
        ("a/1", True, 1),
        ("a/2", True, 1),
    ]


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.mqtt("3.8.4-8", "3.3.4-3", old=("3.8.4-6",))
def test_they_come_with_the_lower_qos_and_the_identifier_of_the_subscription(published: int, granted: int) -> None:
    gateway = with_retained("a", qos=published)
    client = gateway.connect(level=5)
    client.subscribe("a", qos=granted, properties=Properties(subscription_identifiers=(7,)))
    packet = client.got_one(Publish)
    assert (packet.qos, packet.properties.subscription_identifiers) == (min(published, granted), (7,))


@pytest.mark.mqtt("3.3.1-6", "3.3.1-7", old=("3.3.1-10", "3.3.1-11"))
def test_an_empty_value_removes_and_is_still_delivered_live() -> None:
    gateway = with_retained("a")
    watcher = gateway.connect("w")
    watcher.subscribe("a")
    watcher.got()
    gateway.connect("p2").publish("a", b"", retain=True)
    assert [(p.payload, p.retain) for p in watcher.got() if isinstance(p, Publish)] == [(b"", False)]
    late = gateway.connect("l")
    late.subscribe("a")
    assert retained(late) == []


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
@pytest.mark.mqtt("3.3.1-9", "3.3.1-10", "3.3.1-11")
def test_retain_handling_says_when_they_are_sent(handling: int, first: int, second: int) -> None:
    gateway = with_retained("a")
    client = gateway.connect(level=5)
    for expected in (first, second):
        client.subscribe("a", retain_handling=handling)
        assert len(retained(client)) == expected


@pytest.mark.mqtt("3.8.4-3", "3.8.4-5", "3.3.1-10")
@pytest.mark.parametrize("in_one_packet", [True, False])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (0, 1), (0, 2), (1, 2), (2, 0)])
def test_they_are_sent_also_where_the_subscription_is_replaced_before_it_stands(
    first: int, second: int, in_one_packet: bool
) -> None:
    gateway = with_retained("a")
    client = gateway.connect(level=5)
    filters = tuple([Subscription("a", 1, retain_handling=handling) for handling in (first, second)])
    if in_one_packet:
        client.send(Subscribe(1, filters))
    else:
        client.send(*[Subscribe(at + 1, (one,)) for at, one in enumerate(filters)])
    assert retained(client) == [b"a"]
    client.send(Unsubscribe(1, ("a",)), Subscribe(2, filters[:1]), Unsubscribe(3, ("a",)), Subscribe(4, filters[1:]))
    assert retained(client) == [b"a"][second // 2 :]  # what ended with its subscription is not sent


def test_the_value_from_before_the_first_live_message_comes_first_and_no_newer_one_twice() -> None:
    gateway = with_retained("t/1")
    client, publisher = gateway.connect(level=5), gateway.connect("q")
    publisher.publish("t/1", b"old", 1, retain=True, packet_id=1)
    gateway.broker.refuses[FetchRetained] = Unavailable("later")
    client.subscribe("t/#", retain_as_published=True)
    publisher.publish("t/2", b"new topic", 1, retain=True, packet_id=2)
    publisher.publish("t/1", b"plain", 1, packet_id=3)
    assert client.got() == []
    del gateway.broker.refuses[FetchRetained]
    gateway.pass_time(1)
    assert client.payloads() == [b"old", b"new topic", b"plain"]


def test_many_are_fetched_page_by_page_and_only_as_the_client_takes_them() -> None:
    names = [f"n/{at:03}" for at in range(2 * PAGE + 10)]
    gateway = with_retained(*names, in_flight_max=10)
    client = gateway.connect()
    client.subscribe("n/+", qos=1)
    assert len(gateway.broker.made(FetchRetained)) == 1
    got: list[bytes] = []
    while packets := [packet for packet in client.got() if isinstance(packet, Publish)]:
        got += [packet.payload for packet in packets]
        client.send(*[Puback(packet.packet_id) for packet in packets])
    assert got == [name.encode() for name in names]
    assert len(gateway.broker.made(FetchRetained)) == 3


def test_a_full_connection_gets_them_when_it_has_room_also_of_qos_0() -> None:
    gateway = with_retained("a", "b", qos=0)
    client = gateway.connect()
    client.is_full = True
    client.subscribe("#")
    assert retained(client) == []
    client.is_full = False
    client.device.writable()
    gateway.round()
    assert retained(client) == [b"a", b"b"]


@pytest.mark.mqtt("3.3.2-5", "3.3.2-6")
def test_an_expired_value_is_not_sent_and_a_living_one_says_what_is_left() -> None:
    gateway = Gateway()
    publisher = gateway.connect("p", level=5)
    for name, expiry_s in (("short", 5), ("long", 60)):
        publisher.publish(name, b"x", retain=True, properties=Properties(message_expiry_interval=expiry_s))
    gateway.pass_time(10)
    client = gateway.connect(level=5)
    client.subscribe("#")
    [packet] = client.got()
    assert isinstance(packet, Publish)
    assert (packet.topic, packet.properties.message_expiry_interval) == ("long", 50)


@pytest.mark.mqtt("3.8.3-3")
def test_no_local_holds_for_retained_messages_too() -> None:
    gateway = Gateway()
    client = gateway.connect("me", level=5)
    client.publish("a", b"mine", retain=True)
    gateway.connect("other").publish("b", b"theirs", retain=True)
    client.subscribe("#", no_local=True)
    assert retained(client) == [b"theirs"]


@pytest.mark.parametrize("lasts", [False, True])
def test_a_connection_that_breaks_meanwhile_leaves_nothing_under_way(lasts: bool) -> None:
    gateway = with_retained(*[f"n/{at:03}" for at in range(100)], in_flight_max=10)
    client = gateway.connect("c", clean_start=not lasts)
    client.subscribe("n/+", qos=1)
    client.cut()
    assert gateway.downstream.retained._fetches == {}
    again = gateway.connect("c", clean_start=not lasts)
    gateway.produce("n", b"live", mqtt_topic="n/new", qos=1)
    got: list[bytes] = []
    while packets := [packet for packet in again.got() if isinstance(packet, Publish)]:
        got += [packet.payload for packet in packets]
        again.send(*[Puback(packet.packet_id) for packet in packets])
    assert got == ([b"n/%03d" % at for at in range(100)] + [b"live"] if lasts else [])


def test_few_pages_are_asked_for_at_a_time_and_each_session_gets_its_turn() -> None:
    gateway = with_retained("a/1", "b/1")
    greedy, modest, gone = (gateway.connect(name, level=5) for name in ("greedy", "modest", "gone"))
    gateway.broker.holds = (FetchRetained,)
    greedy.subscribe(*[f"a/{'+/' * at}#" for at in range(40)])
    modest.subscribe("b/+")
    gone.subscribe("a/+")
    assert len(gateway.broker.made(FetchRetained)) == FETCHES_MAX
    gone.cut()
    gateway.broker.let_go()
    gateway.broker.holds = (FetchRetained,)
    gateway.round()
    filters = [request.filter for request in gateway.broker.made(FetchRetained)]
    assert len(filters) == 2 * FETCHES_MAX
    assert "b/+" in filters[FETCHES_MAX:], "the forty filters of another client do not go first"
    assert retained(modest) == []
    gateway.broker.let_go()
    gateway.round()
    assert retained(modest) == [b"b/1"]
    assert b"a/1" in retained(greedy)
    assert sorted({one.filter for one in gateway.broker.made(FetchRetained)}) == sorted(
        {"b/+", *[f"a/{'+/' * at}#" for at in range(40)]}
    )


def test_pages_that_are_answered_at_once_leave_time_for_others_too() -> None:
    gateway = with_retained("a/1")
    client = gateway.connect(level=5)
    gateway.broker.answers_at_once = True
    asked = tuple([Subscription(f"a/{'+/' * at}#") for at in range(100)])
    gateway.rounds.begin()
    client.device.receive(encode(Subscribe(1, asked), 5))
    gateway.rounds.finish()
    assert 0 < len(gateway.broker.made(FetchRetained)) <= 8 * FETCHES_MAX, "a round's end has eight turns at most"
    gateway.round()
    assert len(gateway.broker.made(FetchRetained)) == 100
    assert retained(client) == [b"a/1"] * 2  # "a/#" and "a/+/#" match


@pytest.mark.mqtt("3.1.2-24", "3.1.2-25")
def test_one_that_is_larger_than_the_client_takes_is_passed_over_and_one_that_is_as_large_is_not() -> None:
    gateway = with_retained("c")
    publisher = gateway.connect("q")
    for at, (name, size) in enumerate((("a", 51), ("b", 50))):
        publisher.publish(name, name.encode() * size, 1, retain=True, packet_id=at + 1)
    largest = len(encode(Publish("b", b"b" * 50, 1, packet_id=1), 5))
    client = gateway.connect(level=5, properties=Properties(maximum_packet_size=largest))
    counted = client.device.tally.publications_out
    client.subscribe("#", qos=1)
    assert retained(client) == [b"b" * 50, b"c"]
    assert client.device.tally.publications_out == counted + 2


def test_a_page_on_its_way_is_not_asked_for_again_when_the_client_gains_room() -> None:
    """Nothing twice."""
    gateway = with_retained("t/1", "t/2", in_flight_max=2)
    client = gateway.connect()
    client.subscribe("u", qos=1)
    gateway.produce("u", b"x", qos=1)
    [live] = [packet for packet in client.got() if isinstance(packet, Publish)]
    gateway.broker.holds_replies = True
    client.send(Subscribe(2, (Subscription("t/#", 1),)))
    asked = len(gateway.broker.made(FetchRetained))
    while len(gateway.broker.made(FetchRetained)) == asked:
        gateway.broker.release()
        gateway.round()
    client.send(Puback(live.packet_id))
    gateway.broker.holds_replies = False
    gateway.round()
    assert retained(client) == [b"t/1", b"t/2"]
    assert len(gateway.broker.made(FetchRetained)) == asked + 1


def test_who_waits_for_many_pages_costs_nothing_until_they_come() -> None:
    """Rounds end while more filters wait than are looked at in one flush."""
    gateway = with_retained("a/1")
    client = gateway.connect(level=5)
    gateway.broker.holds = (FetchRetained,)
    client.subscribe(*[f"a/{'+/' * at}#" for at in range(100)], *[f"b/{at}/+" for at in range(LOOKS_MAX)])
    gateway.round()
    assert len(gateway.broker.made(FetchRetained)) == FETCHES_MAX
    gateway.broker.let_go()
    gateway.round()
    assert len(gateway.broker.made(FetchRetained)) == 100 + LOOKS_MAX
    assert retained(client) == [b"a/1"] * 2
