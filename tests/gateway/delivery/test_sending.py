"""In which form messages go to sessions, and what becomes of those that there is no room for."""

from __future__ import annotations

import pytest
from draining import drain, publishes
from making import arrival, subscribed
from rig import Client, Gateway

from gateway.delivery.sending import variant_for
from gateway.messages.outgoing import Variant
from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Subscription
from gateway.mqtt.properties import Properties
from gateway.sessions.session import Session
from penstock.errors import Unavailable
from penstock.protocol.requests.sessions import SaveSessions

# with several subscriptions a client is sent messages one by one, with one the form that is shared with others
OTHERS = pytest.mark.parametrize("others", [(), ("elsewhere",)])


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@OTHERS
@pytest.mark.mqtt("3.8.4-8", "3.3.1-2", old=("3.8.4-6", "3.3.1-2"))
def test_the_delivered_qos_is_the_lower_of_published_and_granted(
    published: int, granted: int, others: tuple[str, ...]
) -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.subscribe("a", *others, qos=granted)
    client.publish("a", b"x", published, packet_id=5 if published else 0)
    [delivered] = publishes(client)
    assert (delivered.qos, delivered.dup, delivered.retain) == (min(published, granted), False, False)


@OTHERS
@pytest.mark.mqtt("3.3.1-12", "3.3.1-13", old=("3.3.1-9",))
def test_retain_is_kept_only_as_published(others: tuple[str, ...]) -> None:
    gateway = Gateway()
    old, plain, asking = gateway.connect("o"), gateway.connect("p", level=5), gateway.connect("a", level=5)
    old.subscribe("t", *others)
    plain.subscribe("t", *others)
    asking.subscribe("t", *others, retain_as_published=True)
    plain.publish("t", b"x", retain=True)
    plain.publish("t", b"y")
    assert [packet.retain for packet in publishes(old)] == [False, False]
    assert [packet.retain for packet in publishes(plain)] == [False, False]
    assert [packet.retain for packet in publishes(asking)] == [True, False]


@pytest.mark.mqtt("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-20")
def test_mqtt5_properties_are_forwarded_unaltered_and_in_order() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.subscribe("t")
    sent = Properties(
        payload_format_indicator=1,
        content_type="x",
        response_topic="r/t",
        correlation_data=b"\x00\xff",
        user_properties=(("b", "1"), ("a", "2"), ("b", "1")),
    )
    client.publish("t", b"x", properties=sent)
    [delivered] = publishes(client)
    assert delivered.properties == sent


@pytest.mark.mqtt("3.3.2-5", "3.3.2-6")
def test_a_message_expires_while_it_waits_and_says_how_long_it_has_left() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=100))
    client.subscribe("t")
    client.cut()
    other = gateway.connect("p", level=5)
    for at, expiry_s in ((1, 10), (2, 60)):
        other.publish("t", bytes([at]), 1, packet_id=at, properties=Properties(message_expiry_interval=expiry_s))
    gateway.pass_time(20)
    again = gateway.connect("c", level=5, clean_start=False)
    [delivered] = publishes(again)
    assert delivered.payload == b"\x02"
    assert delivered.properties.message_expiry_interval == 40


def test_qos_0_for_a_full_connection_is_dropped_and_counted() -> None:
    gateway = Gateway()
    client, publisher = gateway.connect(), gateway.connect("p")
    client.subscribe("t", qos=0)
    client.is_full = True
    publisher.publish("t", b"lost")
    client.is_full = False
    publisher.publish("t", b"kept")
    assert client.payloads() == [b"kept"]
    assert gateway.downstream.sending.dropped == 1


def test_qos_1_for_a_full_connection_waits_in_the_log() -> None:
    gateway = Gateway()
    client, publisher = gateway.connect(), gateway.connect("p")
    client.subscribe("t", qos=1)
    client.is_full = True
    publisher.publish("t", b"kept", 1, packet_id=1)
    assert client.payloads() == []
    client.is_full = False
    client.device.writable()
    gateway.round()
    assert client.payloads() == [b"kept"]


def behind_a_save(qos: int) -> tuple[Gateway, Client]:
    """A client of a gateway whose session's home does not answer: what is new for it waits, until that is too much."""
    gateway = Gateway(output_bytes_max=16 * 1024)
    client = durable(gateway)
    client.subscribe("q", qos=qos)
    gateway.broker.holds = (SaveSessions,)
    client.send(Subscribe(2, (Subscription("other", 1),)))
    return gateway, client


def test_qos_0_behind_a_save_that_is_not_answered_is_dropped_beyond_what_a_connection_may_hold() -> None:
    gateway, client = behind_a_save(qos=0)
    for at in range(100):
        gateway.produce("q", bytes([at]) * 10_000)
        gateway.round()
    assert gateway.downstream.sending.dropped == 98
    gateway.broker.let_go()
    gateway.round()
    gateway.produce("q", b"new")
    gateway.round()
    assert [payload[:1] for payload in client.payloads()] == [b"\0", b"\1", b"n"]


@pytest.mark.parametrize("is_refused_first", [False, True])
def test_qos_1_behind_a_save_that_is_not_answered_waits_in_the_log_and_comes_when_it_is(is_refused_first: bool) -> None:
    gateway, client = behind_a_save(qos=1)
    for at in range(20):
        gateway.produce("q", bytes([at]) * 10_000, qos=1)
        gateway.round()
    lasting = gateway.sessions["s"].lasting
    assert lasting is not None
    assert sum(map(len, lasting.unsaved)) < 32 * 1024
    if is_refused_first:
        gateway.broker.lose_kept_back(Unavailable("away"))
        gateway.pass_time(1)
    gateway.broker.let_go()
    gateway.round()
    assert [payload[0] for payload in client.payloads()] == list(range(20))
    assert (lasting.unsaved_bytes, lasting.is_full) == (0, False)


@pytest.mark.mqtt("3.1.2-24", "3.1.2-25")
def test_a_message_larger_than_the_client_takes_is_passed_over() -> None:
    gateway = Gateway()
    client, publisher = (
        gateway.connect("s", level=5, properties=Properties(maximum_packet_size=100)),
        gateway.connect("p"),
    )
    client.subscribe("t", qos=1)
    for at, size in enumerate((10, 200, 20)):
        publisher.publish("t", bytes(size), 1, packet_id=at + 1)
    assert [len(packet.payload) for packet in publishes(client)] == [10, 20]
    publisher.send(*[Publish("t", bytes(size), 1, packet_id=at + 1) for at, size in enumerate((11, 200, 21))])
    assert [len(packet.payload) for packet in publishes(client)] == [11, 21]
    assert gateway.downstream.sending.dropped == 2


def durable(gateway: Gateway, **limits: int) -> Client:
    properties = Properties(session_expiry_interval=1000, **limits)
    return gateway.connect("s", level=5, clean_start=False, properties=properties)


def cut_off_with(gateway: Gateway, count: int, qos: int = 1, expiry_s: int | None = None) -> list[int]:
    """A durable session is cut off with so many messages on their way; their packet ids."""
    client = durable(gateway)
    client.subscribe("t", qos=qos)
    properties = Properties(message_expiry_interval=expiry_s)
    sent = [Publish("t", bytes([at]) * 100, qos, packet_id=at + 1, properties=properties) for at in range(count)]
    gateway.connect("p", level=5).send(*sent)
    ids = [packet.packet_id for packet in publishes(client)]
    assert len(ids) == count
    client.cut()
    return ids


def bodies(packets: list[Publish]) -> list[tuple[int, int, bool]]:
    """First byte, packet id, DUP."""
    return [(packet.payload[0], packet.packet_id, packet.dup) for packet in packets]


@pytest.mark.mqtt("3.3.4-9", "4.9.0-1", "4.9.0-2", "4.4.0-1", "4.6.0-1")
def test_what_is_sent_again_keeps_to_the_receive_maximum_and_goes_before_anything_new() -> None:
    gateway = Gateway()
    ids = cut_off_with(gateway, 5)
    client = durable(gateway, receive_maximum=2)
    gateway.produce("t", b"\x05", qos=1)
    assert bodies(publishes(client)) == [(0, ids[0], True), (1, ids[1], True)]
    client.send(Puback(ids[1]))
    assert bodies(publishes(client)) == [(2, ids[2], True)]
    client.send(Puback(ids[0]))
    assert bodies(publishes(client)) == [(3, ids[3], True)]
    client.send(Puback(ids[2]), Puback(ids[3]))
    last, new = bodies(publishes(client))
    assert (last, new[0], new[2]) == ((4, ids[4], True), 5, False)


@pytest.mark.mqtt("3.3.4-9", "4.9.0-2")
def test_an_exchange_that_waits_for_pubcomp_takes_room_from_what_is_sent_again() -> None:
    gateway = Gateway()
    client = durable(gateway)
    client.subscribe("t", qos=2)
    for at in range(3):
        gateway.produce("t", bytes([at]), qos=2)
    first = publishes(client)
    client.send(Pubrec(first[0].packet_id))
    client.cut()
    again = durable(gateway, receive_maximum=1)
    assert again.got() == [Pubrel(first[0].packet_id)]
    again.send(Pubcomp(first[0].packet_id))
    assert bodies(publishes(again)) == [(1, first[1].packet_id, True)]
    again.send(Pubrec(first[1].packet_id))
    assert again.got() == [Pubrel(first[1].packet_id)]
    again.send(Pubcomp(first[1].packet_id))
    assert bodies(publishes(again)) == [(2, first[2].packet_id, True)]


def test_what_still_waits_to_be_sent_again_is_saved_with_the_session() -> None:
    gateway = Gateway()
    ids = cut_off_with(gateway, 4)
    client = durable(gateway, receive_maximum=1)
    assert bodies(publishes(client)) == [(0, ids[0], True)]
    client.send(Puback(ids[0]))
    gateway.pass_time(1)
    other = Gateway(beside=gateway, name="other")
    gateway.broker.leave_alone("gw")
    assert bodies(publishes(durable(other))) == [(at, ids[at], True) for at in (1, 2, 3)]


@pytest.mark.mqtt("3.1.2-24", "3.1.2-25")
def test_what_the_client_does_not_take_any_more_is_as_if_it_had_been_sent() -> None:
    gateway = Gateway()
    cut_off_with(gateway, 3)
    gateway.produce("t", b"\x05", qos=1)
    client = durable(gateway, maximum_packet_size=50)
    assert [(packet.payload, packet.dup) for packet in publishes(client)] == [(b"\x05", False)]
    assert gateway.downstream.sending.dropped == 3
    client.cut()
    assert [(packet.payload, packet.dup) for packet in publishes(durable(gateway))] == [(b"\x05", True)]


@pytest.mark.mqtt("3.1.2-25", "4.3.3-6")
def test_of_a_qos_2_message_that_is_not_taken_any_more_the_pubrel_goes_once_that_is_durable() -> None:
    gateway = Gateway()
    ids = cut_off_with(gateway, 2, qos=2)
    gateway.broker.holds = (SaveSessions,)
    client = durable(gateway, maximum_packet_size=50)
    assert client.got() == []
    gateway.broker.let_go()
    gateway.round()
    assert client.got() == [Pubrel(ids[0]), Pubrel(ids[1])]
    client.send(Pubcomp(ids[0], 0x92), Pubcomp(ids[1]))
    client.cut()
    assert durable(gateway).got() == []


@pytest.mark.mqtt("4.3.3-7", "4.4.0-1", "3.3.2-6")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_does_not_expire_once_it_has_been_sent(qos: int) -> None:
    gateway = Gateway()
    ids = cut_off_with(gateway, 2, qos, expiry_s=10)
    client = durable(gateway, receive_maximum=1)
    gateway.pass_time(4)
    [first] = publishes(client)
    assert (first.packet_id, first.properties.message_expiry_interval) == (ids[0], 10)
    client.send(Puback(ids[0]) if qos == 1 else Pubrec(ids[0]))
    if qos == 2:
        client.send(Pubcomp(ids[0]))
    [second] = publishes(client)
    assert (second.packet_id, second.properties.message_expiry_interval) == (ids[1], 6)
    client.cut()
    gateway.pass_time(60)
    [second] = publishes(durable(gateway))
    assert (second.packet_id, second.dup, second.properties.message_expiry_interval) == (ids[1], True, 0)


MANY = [b"%d" % number for number in range(10)]


def moved_under(gateway: Gateway, qos: int, *, acknowledges: bool) -> Client:
    """A durable client that has been sent messages from a queue that damage at the broker then moves."""
    client = gateway.connect("c", clean_start=False)
    client.subscribe("t", qos=qos)
    gateway.produce("rots", b"x")
    for body in MANY:
        gateway.produce("t", body, qos=qos)
    if acknowledges:
        assert drain(client) == MANY
    gateway.pass_time(1)
    return client


def rot(gateway: Gateway) -> None:
    """A record before these messages rots, and the broker starts again: their entries move (docs/decisions/0007). The
    gateway has not had a round since."""
    before = gateway.broker.bounds("~filter:t")
    [place] = [message.position for message in gateway.broker.messages() if message.topic == "rots"]
    gateway.rounds.begin()
    gateway.broker.restart_over_rot(place)
    assert gateway.broker.bounds("~filter:t").min > before.end


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("count", [1, 10])
def test_what_a_session_has_acknowledged_does_not_come_again_when_damage_has_moved_it(
    qos: int, is_away: bool, count: int
) -> None:
    gateway = Gateway()
    client = moved_under(gateway, qos, acknowledges=True)
    if is_away:
        client.cut()
    rot(gateway)
    news = [b"new %d" % number for number in range(count)]
    for body in news:
        gateway.produce("t", body, qos=qos)
    if is_away:
        client = gateway.connect("c", clean_start=False)
    gateway.pass_time(1)
    assert drain(client) == news
    gateway.produce("t", b"last", qos=qos)
    assert drain(client) == [b"last"]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_in_flight_when_damage_moves_it_goes_again_under_its_id(qos: int) -> None:
    """Nothing lost and nothing twice, also at the gateway that takes the session over."""
    gateway = Gateway(in_flight_max=3)
    client = moved_under(gateway, qos, acknowledges=False)
    first = publishes(client)
    assert [one.payload for one in first] == MANY[:3]
    rot(gateway)
    gateway.pass_time(1)
    client.send(Puback(first[0].packet_id) if qos == 1 else Pubrec(first[0].packet_id))
    gateway.pass_time(1)
    gateway.broker.leave_alone(gateway.settings.name)
    other = Gateway(beside=gateway, name="other", in_flight_max=3).connect("c", clean_start=False)
    again = publishes(other)
    assert [(one.packet_id, one.payload) for one in again[:2]] == [(one.packet_id, one.payload) for one in first[1:]]
    assert all(one.dup for one in again[:2])
    other.send(*[Puback(one.packet_id) if qos == 1 else Pubrec(one.packet_id) for one in again])
    assert [one.payload for one in again] + drain(other) == MANY[1:]


def test_what_was_in_flight_at_a_gateway_that_is_lost_before_it_knows_of_the_damage_comes_all_the_same() -> None:
    gateway = Gateway()
    moved_under(gateway, 1, acknowledges=False)
    rot(gateway)
    gateway.broker.leave_alone(gateway.settings.name)
    other = Gateway(beside=gateway, name="other").connect("c", clean_start=False)
    assert drain(other) == MANY


def test_each_message_that_is_sent_counts_however_it_is_sent() -> None:
    gateway = Gateway()
    plain, overlapping = gateway.connect("p"), gateway.connect("o")
    plain.subscribe("t", qos=1)
    overlapping.subscribe("t", "#", qos=1)
    for at in range(3):
        gateway.produce("t", bytes([at]), qos=1)
    assert [len(publishes(client)) for client in (plain, overlapping)] == [3, 3]
    tallies = {id(client.device.tally): client.device.tally.publications_out for client in (plain, overlapping)}
    assert sum(tallies.values()) == gateway.downstream.sending.delivered == 6


def key_of(form: Variant | None) -> object:
    assert form is not None
    return form.key


@pytest.mark.mqtt("3.3.1-12", "3.3.1-13", "3.3.4-2", "3.3.4-4")
def test_the_one_copy_has_the_highest_qos_all_identifiers_and_retain_if_any_subscription_wants_it() -> None:
    session = Session("c", 10)
    cursors = [
        subscribed(session, "a/b", qos=0, identifier=7),
        subscribed(session, "a/+", qos=2),
        subscribed(session, "#", qos=1, identifier=9, as_published=True),
    ]
    message = arrival(qos=2, retain=True)
    assert key_of(variant_for(cursors, message, b"c", True)) == Variant(True, 2, True, (7, 9)).key
    assert key_of(variant_for(cursors[:2], message, b"c", True)) == Variant(True, 2, False, (7,)).key
    assert key_of(variant_for(cursors, arrival(qos=2), b"c", True)) == Variant(True, 2, False, (7, 9)).key


def test_the_one_copy_says_where_it_is_stored_if_any_subscription_wants_that() -> None:
    session = Session("c", 10)
    silent, asking = subscribed(session, "a/b"), subscribed(session, "a/+", shows_place=True)
    assert key_of(variant_for([silent, asking], arrival(), b"c", True)) == Variant(True, 1, False, (), True).key
    assert key_of(variant_for([silent, silent], arrival(), b"c", True)) == Variant(True, 1, False).key


@pytest.mark.mqtt("3.8.3-3")
def test_no_local_leaves_out_the_clients_own_messages_only_for_that_subscription() -> None:
    session = Session("c", 10)
    silent = subscribed(session, "a/b", no_local=True, qos=2)
    other = subscribed(session, "a/+", qos=1)
    mine, theirs = arrival(sender="c", qos=2), arrival(sender="d", qos=2)
    assert variant_for([silent], mine, b"c", True) is None
    assert key_of(variant_for([silent], theirs, b"c", True)) == Variant(True, 2, False).key
    assert key_of(variant_for([silent, other], mine, b"c", True)) == Variant(True, 1, False).key
