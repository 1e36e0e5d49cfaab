"""From the log to subscribers: one copy each, in order, and nobody's memory grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from draining import drain, publishes
from linked_broker import RETAINING, LinkedBroker
from moving import gateway_at_moving_broker, move, tell
from rig import Client, Gateway, HandClock

from gateway.delivery.scheduler import LOOKS_MAX
from gateway.messages.batch import EVEN_FROM
from gateway.messages.envelope import Arrival
from gateway.mqtt.packets import (
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from gateway.mqtt.properties import Properties
from gateway.sessions.session import Cursor, Overlap
from penstock.errors import OffsetOutOfRange, PenstockError, Unavailable
from penstock.protocol.link import OnResult
from penstock.protocol.message import MQTT_TOPIC, Message, encode_properties, record_tail
from penstock.protocol.requests.filters import CloseFilters, KeepFilters, OpenFilters
from penstock.protocol.requests.given import GivenPull, GivenPulled
from penstock.protocol.requests.messages import Pull, Pulled, QueryBounds
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.sessions import FetchExchanges
from penstock.protocol.runs import Run


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize(
    ("filter", "gets"),
    [("a/b/c", True), ("a/+/c", True), ("a/#", True), ("#", True), ("a/b/c/#", True), ("a/+", False), ("b/#", False)],
)
@pytest.mark.mqtt("4.7.1-1", "4.7.1-2", "3.3.2-3", old=("4.7.1-2", "4.7.1-3", "3.3.2-3"))
def test_a_message_reaches_those_whose_filter_matches(level: int, filter: str, gets: bool) -> None:
    gateway = Gateway()
    subscriber, publisher = gateway.connect("s", level=level), gateway.connect("p")
    subscriber.subscribe(filter, qos=0)
    publisher.publish("a/b/c", b"x")
    assert subscriber.payloads() == ([b"x"] if gets else [])


@pytest.mark.mqtt("3.3.4-2", "3.3.4-3", "3.3.4-4", old=("3.3.5-1",))
def test_overlapping_subscriptions_deliver_one_copy_with_the_highest_qos_and_all_identifiers() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    for at, (one, qos) in enumerate((("a/#", 0), ("a/+", 2), ("a/b", 1), ("z", 2))):
        client.subscribe(one, qos=qos, properties=Properties(subscription_identifiers=(at + 1,)))
    client.publish("a/b", b"x", 2, packet_id=9)
    [delivered] = publishes(client)
    assert delivered.qos == 2
    assert delivered.properties.subscription_identifiers == (1, 2, 3)


@pytest.mark.mqtt("4.6.0-5", "4.6.0-6", old=("4.6.0-5", "4.6.0-6"))
def test_messages_of_one_topic_come_in_order_through_overlapping_subscriptions() -> None:
    gateway = Gateway()
    client, publisher = gateway.connect(), gateway.connect("p")
    for one in ("a/#", "+/b", "a/b"):
        client.subscribe(one, qos=1)
    for at in range(20):
        publisher.publish("a/b", bytes([at]), 1, packet_id=at + 1)
    assert drain(client) == [bytes([at]) for at in range(20)]


@pytest.mark.mqtt("3.8.3-3")
def test_no_local_keeps_a_clients_own_messages_from_it() -> None:
    gateway = Gateway()
    client, other = gateway.connect("me", level=5), gateway.connect("other", level=5)
    client.subscribe("a", no_local=True)
    client.publish("a", b"mine")
    other.publish("a", b"theirs")
    assert client.payloads() == [b"theirs"]


@pytest.mark.mqtt("3.3.4-9", "4.9.0-1", "4.9.0-2")
def test_nothing_beyond_the_clients_receive_maximum_is_in_flight() -> None:
    gateway = Gateway()
    client = gateway.connect("s", level=5, properties=Properties(receive_maximum=3))
    client.subscribe("t", qos=1)
    publisher = gateway.connect("p")
    publisher.send(*[Publish("t", bytes([at]), 1, packet_id=at + 1) for at in range(10)])
    assert [packet.payload for packet in publishes(client)] == [b"\0", b"\1", b"\2"]
    client.send(Puback(2))
    [fourth] = publishes(client)
    client.send(Puback(1), Puback(3), Puback(fourth.packet_id))
    assert drain(client) == [bytes([at]) for at in range(4, 10)]


def test_a_slow_subscriber_falls_behind_in_the_log_and_gets_everything_in_order() -> None:
    gateway = Gateway(pull_bytes_max=2000, in_flight_max=2)
    slow, fast = gateway.connect("slow"), gateway.connect("fast")
    for client in (slow, fast):
        client.subscribe("t", qos=1)
    publisher = gateway.connect("p")
    got_fast: list[bytes] = []
    for at in range(200):
        publisher.publish("t", at.to_bytes(2, "big") + bytes(100), 1, packet_id=at + 1)
        got_fast += drain(fast)
    assert len(got_fast) == 200
    [cursor] = slow.device.session.overlap.cursors  # type: ignore[union-attr]
    assert len(cursor.feed.window or ()) < 20
    assert [int.from_bytes(body[:2], "big") for body in drain(slow)] == list(range(200))
    assert cursor.feed.window is None
    assert cursor.backlog is None


@pytest.mark.mqtt("4.5.0-1", old=("3.1.2-5", "4.5.0-1"))
def test_a_durable_session_gets_what_came_while_it_was_away() -> None:
    gateway = Gateway()
    client = gateway.connect("s", clean_start=False)
    client.subscribe("t/#", qos=1)
    client.send(Disconnect())
    publisher = gateway.connect("p")
    publisher.send(*[Publish(f"t/{at % 2}", bytes([at]), 1, packet_id=at + 1) for at in range(10)])
    again = gateway.connect("s", clean_start=False)
    assert drain(again) == [bytes([at]) for at in range(10)]


def test_an_absent_session_costs_no_memory_per_message() -> None:
    gateway = Gateway()
    client = gateway.connect("s", clean_start=False)
    client.subscribe("t", qos=1)
    session = client.device.session
    assert session is not None
    [cursor] = session.overlap.cursors
    client.cut()
    pulls = len(gateway.broker.made(Pull))
    publisher = gateway.connect("p")
    publisher.send(*[Publish("t", bytes(100), 1, packet_id=at + 1) for at in range(100)])
    assert (cursor.backlog, cursor.feed.window, session.in_flight, session.behind) == (None, None, {}, {})
    assert len(gateway.broker.made(Pull)) <= pulls + 1


@pytest.mark.mqtt("3.3.1-1", "4.4.0-1", "4.3.3-6", old=("3.3.1-1", "4.4.0-1", "4.6.0-1"))
def test_what_was_in_flight_is_sent_again_with_dup_and_then_comes_the_rest() -> None:
    gateway = Gateway(in_flight_max=3)
    client = gateway.connect("s", clean_start=False)
    client.subscribe("t", qos=2)
    publisher = gateway.connect("p")
    publisher.send(*[Publish("t", bytes([at]), 1 + at % 2, packet_id=at + 1) for at in range(5)])
    first = publishes(client)
    client.send(Pubrec(first[1].packet_id))
    client.cut()
    again = gateway.connect("s", clean_start=False)
    resent = again.got()
    assert [(type(p), p.packet_id) for p in resent] == [  # type: ignore[union-attr]
        (Publish, first[0].packet_id),
        (Publish, first[2].packet_id),
        (Pubrel, first[1].packet_id),
    ]
    assert all(packet.dup for packet in resent if isinstance(packet, Publish))
    again.send(Puback(first[0].packet_id), Puback(first[2].packet_id), Pubcomp(first[1].packet_id))
    assert drain(again) == [b"\x03", b"\x04"]


@pytest.mark.mqtt("3.10.4-1", "3.10.4-2", old=("3.10.4-1", "3.10.4-2"))
def test_unsubscribe_stops_new_messages_and_closes_the_filter_with_its_last_session() -> None:
    gateway = Gateway()
    one, two = gateway.connect("1"), gateway.connect("2")
    for client in (one, two):
        client.subscribe("t")
    one.send(Unsubscribe(2, ("t", "never")))
    assert gateway.broker.made(CloseFilters) == []
    one.got()
    two.publish("t", b"x")
    assert one.payloads() == []
    assert two.payloads() == [b"x"]
    two.send(Unsubscribe(2, ("t",)))
    assert gateway.broker.made(CloseFilters) == [CloseFilters(gateway.downstream.shared.taker, ("t",))]
    assert gateway.broker.filters() == []


def test_a_gateway_keeps_nothing_open_that_an_earlier_life_of_its_name_had() -> None:
    dead = Gateway()
    dead.connect("a").subscribe("t", "$share/g/s")
    dead.clock.now_s += 1.0
    gateway = Gateway(beside=dead)
    gateway.connect("b").subscribe("u", "$share/h/s")
    gateway.broker.requests.clear()
    gateway.pass_time(gateway.settings.filter_lease_s)
    [owner] = {request.owner for request in gateway.broker.made(KeepFilters)}
    assert gateway.broker.state.filters.held_by(owner) == ["u", "$share/h/s"]


def test_a_clean_session_leaves_nothing_behind() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.subscribe("a", "b/#")
    client.cut()
    assert gateway.broker.filters() == []
    assert len(gateway.sessions) == 0


@pytest.mark.parametrize("answers_at_once", [False, True])
@pytest.mark.parametrize("in_between", [{}, {Pull: OffsetOutOfRange("passed"), QueryBounds: Unavailable("away")}])
def test_a_filter_that_the_broker_has_closed_is_opened_again_where_all_its_readers_lag(
    answers_at_once: bool, in_between: dict[type[Request], PenstockError]
) -> None:
    gateway = Gateway(in_flight_max=1, pull_bytes_max=100)
    one, two, publisher = gateway.connect("1"), gateway.connect("2"), gateway.connect("p")
    for client in (one, two):
        client.subscribe("t", qos=1)
    for at in range(4):
        publisher.publish("t", bytes([at]) * 200, 1, packet_id=at + 1)
    first = publishes(one) + publishes(two)
    assert [packet.payload[:1] for packet in first] == [b"\0", b"\0"]
    gateway.broker.lose_filter("t")
    gateway.broker.answers_at_once = answers_at_once
    gateway.broker.refuses = in_between
    for client, packet in zip((one, two), first, strict=True):
        client.send(Puback(packet.packet_id))
    gateway.broker.refuses = {}
    gateway.pass_time(1)
    publisher.publish("t", b"x", 1, packet_id=9)
    assert (drain(one), drain(two)) == ([b"x"], [b"x"])
    assert gateway.downstream.lost == 2
    [cursor] = one.device.session.overlap.cursors  # type: ignore[union-attr]
    assert (cursor.feed.lagging, cursor.feed.reading) == (0, 2)


def test_a_reader_that_leaves_while_its_closed_filter_is_opened_again_holds_up_no_other() -> None:
    gateway = Gateway(in_flight_max=1, pull_bytes_max=100)
    one, two = gateway.connect("1"), gateway.connect("2")
    for client in (one, two):
        client.subscribe("t", qos=1)
    for at in range(2):
        gateway.produce("t", bytes([at]) * 200, qos=1)
    [first], [second] = publishes(one), publishes(two)
    gateway.broker.lose_filter("t")
    gateway.broker.answers_at_once = True
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    one.send(Puback(first.packet_id))
    one.cut()
    gateway.broker.refuses.clear()
    two.send(Puback(second.packet_id))
    gateway.pass_time(1)
    gateway.produce("t", b"x", qos=1)
    assert drain(two) == [b"x"]


def test_messages_that_retention_took_are_counted_and_passed_over() -> None:
    gateway = retaining()
    client = gateway.connect("s", clean_start=False)
    client.subscribe("t", qos=1)
    client.cut()
    for at in range(10):
        if at == 4:
            border = gateway.broker.border()
        gateway.produce("t", bytes([at]), qos=1)
    gateway.broker.lose_before(border)
    again = gateway.connect("s", clean_start=False)
    assert drain(again) == [bytes([at]) for at in range(4, 10)]
    assert gateway.downstream.lost == 4


def retaining(**settings: Any) -> Gateway:
    """A gateway at a broker whose log a test can fill."""
    return Gateway(broker=LinkedBroker(HandClock(), **RETAINING), **settings)


def test_what_retention_took_is_counted_for_each_reader_at_the_head() -> None:
    gateway = retaining()
    clients = [gateway.connect(name) for name in ("1", "2")]
    for client in clients:
        client.subscribe("t", qos=1)
    gateway.broker.refuses[Pull] = Unavailable("lost")
    gateway.broker.answer(Pull, Unavailable("lost"))
    for at in range(5):
        if at == 3:
            border = gateway.broker.border()
        gateway.produce("t", b"<%d>" % at, qos=1)
    gateway.broker.lose_before(border)
    del gateway.broker.refuses[Pull]
    gateway.pass_time(1)
    assert [drain(client) for client in clients] == [[b"<3>", b"<4>"]] * 2
    assert gateway.downstream.lost == 6


def test_a_reader_that_has_come_to_the_head_by_itself_leaves_no_gap_in_the_window_to_others() -> None:
    """All in one round: it counts as lagging until the round's end, and gets a batch together with the others."""
    gateway = Gateway(in_flight_max=1, pull_bytes_max=2600)
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    slow, quick, away = gateway.connect("slow"), gateway.connect("quick"), gateway.connect("away", **asked)
    for client in (slow, quick, away):
        client.subscribe("t", qos=1)
    gateway.produce("t", b"<0>", qos=1)
    [first] = publishes(slow)
    gateway.broker.holds = (Pull, FetchExchanges)
    for number in range(1, 6):
        assert len(drain(quick)) == len(drain(away)) == 1
        if number == 5:
            away.cut()
        gateway.produce("t", b"<%d>" % number * 100, qos=1)
    drain(quick)
    slow.send(Puback(first.packet_id))
    back = gateway.open(5)
    back.send(Connect("away", **asked))
    bounds = gateway.broker.bounds("~filter:t")  # the window did not reach back so far
    gateway.broker.lose_first(Pulled(0, bounds.end, bounds.min, bounds.end, b""))  # damage has taken them
    gateway.broker.let_first_go()
    gateway.broker.produce(Message(topic="t", body=b"<6>", qos=1))
    gateway.broker.let_go()
    gateway.round()
    assert [body[:3] for body in drain(back)] == [b"<5>", b"<6>"]
    assert (drain(slow), drain(quick)) == ([b"<6>"], [b"<6>"])


def test_unsubscribing_a_primary_that_has_come_to_a_part_of_its_messages_leaves_the_rest_to_the_others() -> None:
    gateway = Gateway()
    publisher = gateway.connect("p")
    client = gateway.connect(level=5, properties=Properties(receive_maximum=1))
    for one in ("a/b", "a/#"):
        client.subscribe(one, qos=1)
    gateway.broker.stall("~filter:a/b")
    for at in range(3):
        publisher.publish("a/b", bytes([at]), 1, packet_id=at + 1)
    assert publishes(client) == []
    gateway.broker.go_on()
    gateway.round()
    [first] = publishes(client)
    client.send(Unsubscribe(7, ("a/b",)))
    client.send(Puback(first.packet_id))
    assert drain(client) == [bytes([1]), bytes([2])]


def test_an_answer_that_was_on_its_way_when_a_filter_went_back_for_its_primarys_messages_hides_none_of_them() -> None:
    """Nothing lost: all that was stored while the client was away, whichever filter it is sent for."""
    count = 600
    gateway = Gateway(in_flight_max=2, pull_bytes_max=4096)
    for filter in ("a/+", "a/#"):
        gateway.connect(f"reader of {filter}").subscribe(filter, qos=0)
    client = gateway.connect("s", clean_start=False)
    client.subscribe("a/+", qos=1)
    client.subscribe("a/#", qos=1)
    client.cut()
    for number in range(count):
        gateway.produce("a", b"%d" % number, mqtt_topic="a/x")
    broker, seen = gateway.broker, list[Pull]()
    submit = broker.submit
    late: list[tuple[Request, OnResult]] = []

    def delayed(request: Request, on_result: OnResult) -> None:
        if isinstance(request, Pull) and request.queue == "~filter:a/#" and not request.wait_s:
            seen.append(request)
        if len(seen) == 2 and request is seen[1]:
            late.append((request, on_result))
        else:
            submit(request, on_result)

    broker.submit = delayed  # type: ignore[method-assign]
    again = gateway.connect("s", clean_start=False)
    first = publishes(again)
    assert len(late) == 1, "the second filter reads on while the first one waits for the client"
    again.send(Unsubscribe(9, ("a/+",)))
    broker.submit = submit  # type: ignore[method-assign]
    submit(*late[0])
    gateway.round()
    again.send(*[Puback(packet.packet_id) for packet in first])
    got = [packet.payload for packet in first] + drain(again)
    gateway.pass_time(1)
    got += drain(again)
    assert sorted(set(got), key=int) == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("qos", [0, 1])
def test_an_error_nobody_has_foreseen_ends_the_connection_that_met_it_and_no_other(
    qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway()
    clients = [gateway.connect(f"c{number}", level=5, clean_start=False) for number in range(3)]
    for client in clients:
        client.subscribe("t", "s", qos=qos)
    write = clients[1].write

    def faulty(data: bytes) -> None:
        if data[0] >> 4 == 3:
            raise ZeroDivisionError("poison")
        write(data)

    clients[1].write = faulty  # type: ignore[method-assign]
    gateway.produce("t", b"x", qos=1)
    assert [client.payloads() for client in (clients[0], clients[2])] == [[b"x"]] * 2
    assert clients[1].got() == [Disconnect(0x80)]
    assert [client.is_closed for client in clients] == [False, True, False]
    assert gateway.downstream.failures == 1
    assert "poison" in caplog.text
    gateway.produce("s", b"y", qos=1)
    assert [client.payloads() for client in (clients[0], clients[2])] == [[b"y"]] * 2


def left_behind(count: int) -> tuple[Gateway, Client, Client, Publish]:
    """A subscriber that has been sent the first of so many messages, and has to pull the others by itself; the
    publisher, and that message."""
    gateway = Gateway(in_flight_max=1, pull_bytes_max=100)
    client, publisher = gateway.connect("s"), gateway.connect("p")
    client.subscribe("t", qos=1)
    publisher.send(*[Publish("t", bytes([at]) * 200, 1, packet_id=at + 1) for at in range(count)])
    [first] = publishes(client)
    return gateway, client, publisher, first


def test_nothing_is_read_for_who_can_be_sent_nothing() -> None:
    """What was read and has to wait is in memory; and nothing is lost."""
    gateway, client, _, first = left_behind(40)
    assert own_pulls(gateway) == []
    client.is_full = True
    client.send(Puback(first.packet_id))
    assert own_pulls(gateway) == []
    client.is_full = False
    client.device.writable()
    gateway.round()
    assert [body[:1] for body in drain(client)] == [bytes([at]) for at in range(1, 40)]
    assert own_pulls(gateway) != []


def own_pulls(gateway: Gateway) -> list[Pull]:
    """Those of a session for itself: its feed's wait for what is still to come."""
    return [request for request in gateway.broker.made(Pull) if request.wait_s == 0]


def test_who_waits_where_retention_has_passed_goes_on_when_the_broker_answers_again() -> None:
    gateway, client, _, first = left_behind(4)
    gateway.broker.refuses = {Pull: OffsetOutOfRange("passed"), QueryBounds: Unavailable("away")}
    client.send(Puback(first.packet_id))
    gateway.broker.refuses = {}
    gateway.pass_time(1)
    assert [body[:1] for body in drain(client)] == [b"\1", b"\2", b"\3"]


def test_subscribers_read_on_at_the_address_where_their_broker_comes_back() -> None:
    gateway = gateway_at_moving_broker()
    client = gateway.connect()
    client.subscribe("t", "$share/g/s", qos=1)
    gateway.produce("t", b"1", qos=1)
    move(gateway)
    gateway.produce("t", b"2", qos=1)
    gateway.produce("s", b"3", qos=1)
    tell(gateway)
    gateway.pass_time(2.0)
    assert sorted(client.payloads()) == [b"1", b"2", b"3"]


def test_who_left_behind_others_and_comes_back_gets_what_came_meanwhile() -> None:
    """Nothing lost: not what the others had read together before, nor what they read alone."""
    gateway = Gateway(in_flight_max=1)
    gateway.connect("quick").subscribe("t", qos=0)
    slow = gateway.connect("slow", clean_start=False)
    slow.subscribe("t", qos=1)
    for number in range(3):
        gateway.produce("t", b"%d" % number, qos=1)
    assert slow.payloads() == [b"0"]
    slow.cut()
    for number in range(3, 5):
        gateway.produce("t", b"%d" % number, qos=1)
    again = gateway.connect("slow", clean_start=False)
    gateway.produce("t", b"5", qos=1)
    assert drain(again) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_who_waits_for_what_many_filters_have_fallen_behind_costs_nothing_until_it_comes() -> None:
    """Rounds end while more filters wait than are looked at in one flush, and nothing is lost."""
    gateway = Gateway()
    filters = [f"t/{number}" for number in range(LOOKS_MAX + 50)]
    gateway.connect("quick").subscribe(*filters, qos=0)
    slow = gateway.connect("slow", clean_start=False)
    slow.subscribe(*filters, qos=1)
    slow.cut()
    for one in filters:
        gateway.produce("t", one.encode(), mqtt_topic=one, qos=1)
    gateway.broker.holds = (Pull,)
    again = gateway.connect("slow", clean_start=False)
    gateway.produce("t", b"last", mqtt_topic="t/0", qos=1)
    gateway.broker.let_go()
    gateway.round()
    assert sorted(drain(again)) == sorted([*[one.encode() for one in filters], b"last"])


@pytest.mark.interpreted
def test_filters_that_have_fallen_behind_are_not_gone_through_for_the_room_of_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that takes one message at a time has a few looked at with each, however many filters wait."""
    gateway = Gateway()
    client = gateway.connect("c", level=5, properties=Properties(receive_maximum=1))
    filters = [f"t/{number}" for number in range(40)]
    client.subscribe(*filters, qos=1)
    for turn in range(3):
        for one in filters:
            gateway.produce("t", b"%d" % turn, mqtt_topic=one, qos=1)
    looked_at: list[Cursor] = []
    matching = Overlap.matching

    def noted(overlap: Overlap, cursor: Cursor, arrival: Arrival) -> Sequence[Cursor]:
        looked_at.append(cursor)
        return matching(overlap, cursor, arrival)

    monkeypatch.setattr(Overlap, "matching", noted)
    got = publishes(client)
    while len(got) < 3 * len(filters):
        client.send(Puback(got[-1].packet_id))
        got += publishes(client)
    assert len(looked_at) <= 3 * len(got), "what is sent is looked at, what is next in its filter, and each filter once"
    assert Counter(one.topic for one in got) == dict.fromkeys(filters, 3)


@pytest.mark.mqtt("3.3.4-4", "3.3.1-13")
def test_what_was_stored_while_the_client_was_away_has_the_identifiers_of_its_qos_0_subscriptions_too() -> None:
    gateway = Gateway()
    lasting = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=60)}
    client = gateway.connect("c", **lasting)
    client.send(Subscribe(1, (Subscription("o/a", 1),), Properties(subscription_identifiers=(1,))))
    client.send(
        Subscribe(2, (Subscription("o/+", 0, retain_as_published=True),), Properties(subscription_identifiers=(2,)))
    )
    client.send(Subscribe(3, (Subscription("o/b", 0),), Properties(subscription_identifiers=(3,))))
    client.cut()
    gateway.connect("p", level=5).publish("o/a", b"away", 1, packet_id=1, retain=True)
    client = gateway.connect("c", **lasting)
    gateway.connect("q", level=5).publish("o/a", b"live", 1, packet_id=1, retain=True)
    got = [one for one in client.got() if isinstance(one, Publish)]
    assert [(one.payload, sorted(one.properties.subscription_identifiers), one.retain) for one in got] == [
        (b"away", [1, 2], True),
        (b"live", [1, 2], True),
    ]


def test_who_has_fallen_behind_and_goes_away_holds_up_nobody_of_those_who_stay() -> None:
    gateway = Gateway(in_flight_max=1)
    slow, quick = gateway.connect("slow"), gateway.connect("quick")
    for client in (slow, quick):
        client.subscribe("t", qos=1)
    for number in range(3):
        gateway.produce("t", b"%d" % number, qos=1)
    assert drain(quick) == [b"0", b"1", b"2"]
    assert slow.payloads() == [b"0"]
    slow.cut()
    for number in range(3, 6):
        gateway.produce("t", b"%d" % number, qos=1)
    assert drain(quick) == [b"3", b"4", b"5"]


def test_a_slow_subscriber_goes_on_where_retention_has_passed_what_it_had_not_read() -> None:
    gateway = retaining(in_flight_max=1, pull_bytes_max=100)
    client, publisher = gateway.connect("s"), gateway.connect("p")
    client.subscribe("t", qos=1)
    for at in range(6):
        if at == 3:
            border = gateway.broker.border()
        publisher.publish("t", bytes([at]) * 200, 1, packet_id=at + 1)
    [first] = publishes(client)
    gateway.broker.lose_before(border)
    client.send(Puback(first.packet_id))
    assert [body[:1] for body in drain(client)] == [b"\3", b"\4", b"\5"]
    publisher.publish("t", b"on", 1, packet_id=9)
    assert drain(client) == [b"on"]


@pytest.mark.interpreted
def test_who_cannot_be_sent_what_all_are_sent_is_disconnected_and_nobody_else() -> None:
    gateway = Gateway()
    clients = [gateway.connect(f"c{number}", level=5) for number in range(3)]
    for client in clients:
        client.subscribe("t", qos=1)
    clients[1].device.accepts_bytes_max = None  # type: ignore[assignment]
    gateway.produce("t", b"x", qos=1)
    assert [client.payloads() for client in (clients[0], clients[2])] == [[b"x"]] * 2
    assert clients[1].got() == [Disconnect(0x80)]
    assert gateway.downstream.failures == 1


def test_what_a_broker_in_this_process_hands_over_goes_to_devices_and_is_read_on_behind_it() -> None:
    gateway = Gateway()
    client = gateway.connect()
    asked: list[tuple[GivenPull, OnResult]] = []
    submit = gateway.broker.submit

    def given(request: Request, on_result: OnResult) -> None:
        if isinstance(request, GivenPull):
            asked.append((request, on_result))
        else:
            submit(request, on_result)

    gateway.broker.submit = given  # type: ignore[method-assign]
    client.subscribe("t", qos=1)
    tail = record_tail(b"t", encode_properties({MQTT_TOPIC: "t"}))
    at = gateway.broker.bounds("~filter:t").end
    for count in (3, EVEN_FROM, 1):
        [(pull, on_result)] = asked
        asked.clear()
        assert (pull.queue, pull.offset) == ("~filter:t", at)
        run = Run(tail, 1, 0, [b"%d" % number for number in range(at, at + count)])
        gateway.rounds.begin()
        on_result(GivenPulled(count, at + count, [run.placed(5000 + 200 * at, 200, 0, at, 0)]))
        gateway.round()
        got = publishes(client)
        assert [(int(one.payload), one.packet_id) for one in got] == [(one, one + 1) for one in range(at, at + count)]
        client.send(*[Puback(one.packet_id) for one in got])
        at += count


@pytest.mark.interpreted  # counts calls of a compiled class
def test_many_overlapping_filters_hold_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every message of one client is looked at for each of its 64 filters. Nothing of it is lost, doubled or out of
    order, and a neighbour with two filters waits for a part of it only."""
    gateway = Gateway(pull_count_max=100)
    filters = ["/".join(levels) for levels in product("a+", repeat=6)]
    many, neighbour = gateway.connect("many"), gateway.connect("neighbour")
    many.subscribe(*filters, qos=0)
    neighbour.subscribe("near/#", "far/#", qos=0)
    looks = 0
    some = gateway.downstream.sending.some

    def counted(cursor: Cursor, batch: Sequence[Arrival]) -> int:
        nonlocal looks
        done = some(cursor, batch)
        looks += done
        return done

    monkeypatch.setattr(gateway.downstream.sending, "some", counted)
    gateway.rounds.begin()
    for number in range(1000):
        gateway.broker.produce(Message(topic="a", body=b"%d" % number, mqtt_topic="a/a/a/a/a/a"))
    gateway.broker.produce(Message(topic="near", body=b"here", mqtt_topic="near/1"))
    most = before = 0
    came_at = -1
    while before < 64 * 1000:
        gateway.downstream.flush()
        gateway.broker.flush()
        most, before = max(most, looks - before), looks
        if came_at < 0 and publishes(neighbour):
            came_at = looks
    assert [int(packet.payload) for packet in publishes(many)] == list(range(1000))
    assert most <= 2 * (LOOKS_MAX + 100)
    assert 0 <= came_at < 64 * 1000 / 10
