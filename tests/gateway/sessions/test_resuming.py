"""A session that was saved goes on where it was, at whichever gateway."""

from __future__ import annotations

import pytest
from linked_broker import RETAINING, LinkedBroker
from moving import gateway_at_moving_broker, move
from rig import Client, Gateway, HandClock

from gateway.brokers import Brokers
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from gateway.mqtt.packets import Subscription as Asked
from gateway.mqtt.properties import Properties
from gateway.sessions.endings import Ended
from gateway.sessions.saver import flow_of
from gateway.sessions.session_state import Place, encode_flow
from penstock.errors import OffsetOutOfRange, PenstockError, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Pull, QueryBounds
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.sessions import CONNECTED, SessionSave


def sent_to(client: Client) -> list[tuple[bytes, int, bool]]:
    return [(one.payload, one.packet_id, one.dup) for one in client.got() if isinstance(one, Publish)]


def lost_at_once(gateway: Gateway, name: str) -> Gateway:
    """The gateway dies before it has saved what it has just sent."""
    gateway.broker.leave_alone(gateway.settings.name)
    return Gateway(beside=gateway, name=name)


def retaining() -> Gateway:
    """A gateway at a broker whose log a test can fill."""
    return Gateway(name="one", broker=LinkedBroker(HandClock(), **RETAINING))


def lost(gateway: Gateway, name: str = "other") -> Gateway:
    """The gateway dies without a word, a second after its last save; another takes its place."""
    gateway.pass_time(1)
    return lost_at_once(gateway, name)


@pytest.mark.mqtt("4.4.0-1", "4.6.0-1", "3.3.1-1", old=("4.4.0-1", "4.6.0-1"))
def test_what_was_on_its_way_goes_again_with_its_ids_in_its_order_and_then_the_rest() -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=2)
    for at in range(4):
        one.produce("t", bytes([at]), qos=1 + at % 2)
    one.round()
    first = sent_to(client)
    assert [payload for payload, _, _ in first] == [b"\0", b"\1", b"\2", b"\3"]
    client.send(Puback(first[0][1]))
    client.send(Pubrec(first[1][1]))
    other = lost(one)
    one.produce("t", b"offline", qos=1)
    again = other.connect("c", clean_start=False)
    got = again.got()
    assert [(type(one), one.packet_id, getattr(one, "dup", None)) for one in got] == [  # type: ignore[union-attr]
        (Publish, first[2][1], True),
        (Publish, first[3][1], True),
        (Pubrel, first[1][1], None),
        (Publish, got[-1].packet_id, True),  # type: ignore[union-attr]
    ]
    assert [one.payload for one in got if isinstance(one, Publish)] == [b"\2", b"\3", b"offline"]
    again.send(Pubcomp(first[1][1]))
    other.pass_time(1)
    third = lost(other, "third").connect("c", clean_start=False)
    assert [payload for payload, _, _ in sent_to(third)] == [b"\2", b"\3", b"offline"]


@pytest.mark.mqtt("3.3.1-1", "3.3.1-2", "3.3.1-3", old=("3.3.1-1", "3.3.1-2"))
def test_what_a_lost_gateway_may_have_sent_goes_with_dup_and_what_comes_later_without() -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=2)
    one.pass_time(1)
    one.produce("t", b"a", qos=1)
    one.produce("t", b"b", qos=1)
    one.round()
    assert [(payload, dup) for payload, _, dup in sent_to(client)] == [(b"a", False), (b"b", False)]
    other = lost_at_once(one, "other")
    other.produce("t", b"once", qos=2)
    other.produce("t", b"fleeting", qos=0)
    again = other.connect("c", clean_start=False)
    other.pass_time(1)
    other.produce("t", b"later", qos=1)
    other.round()
    assert [(payload, dup) for payload, _, dup in sent_to(again)] == [
        (b"a", True),
        (b"b", True),
        (b"once", False),
        (b"fleeting", False),
        (b"later", False),
    ]


def test_what_comes_after_a_connection_that_ended_before_its_gateway_goes_without_dup() -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    client.cut()
    one.pass_time(1)
    other = lost_at_once(one, "other")
    other.produce("t", b"offline", qos=1)
    again = other.connect("c", clean_start=False)
    assert [(payload, dup) for payload, _, dup in sent_to(again)] == [(b"offline", False)]


def test_retained_messages_that_a_lost_gateway_may_have_sent_go_with_dup() -> None:
    one = Gateway(name="one")
    for at in range(3):
        one.produce(f"t/{at}", bytes([at]), qos=1, retain=True)
    client = one.connect("c", clean_start=False)
    client.subscribe("t/+", qos=1)
    sent = sent_to(client)
    assert [(payload, dup) for payload, _, dup in sent] == [(b"\0", False), (b"\1", False), (b"\2", False)]
    again = lost_at_once(one, "other").connect("c", clean_start=False)
    assert sorted({dup for _, _, dup in sent_to(again)}) == [True]
    again.subscribe("t/1", qos=1)
    assert [(payload, dup) for payload, _, dup in sent_to(again)] == [(b"\1", False)], "what is asked for anew"


def test_a_retained_message_on_its_way_goes_again_as_retained() -> None:
    one = Gateway(name="one")
    one.connect("p").publish("t/1", b"kept", 1, packet_id=1, retain=True)
    client = one.connect("c", clean_start=False)
    client.subscribe("t/+", qos=1)
    [first] = [packet for packet in client.got() if isinstance(packet, Publish)]
    again = lost(one).connect("c", clean_start=False)
    [second] = [packet for packet in again.got() if isinstance(packet, Publish)]
    assert (second.payload, second.retain, second.dup, second.packet_id) == (b"kept", True, True, first.packet_id)


@pytest.mark.mqtt("4.4.0-1", old=("4.4.0-1",))
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("later", [b"newer", b""])
def test_a_retained_message_on_its_way_goes_again_as_it_was_whatever_is_retained_by_then(
    qos: int, later: bytes
) -> None:
    one = Gateway(name="one")
    publisher = one.connect("p")
    publisher.publish("t/1", b"kept", 2, packet_id=1, retain=True)
    client = one.connect("c", clean_start=False)
    client.subscribe("t/+", qos=qos)
    [(_, packet_id, _)] = sent_to(client)
    publisher.publish("t/1", later, 1, packet_id=2, retain=True)
    again = lost(one).connect("c", clean_start=False)
    assert sent_to(again)[0] == (b"kept", packet_id, True)


def test_what_retention_has_passed_is_found_as_the_retained_message_and_takes_nothing_else_with_it() -> None:
    one = retaining()
    publisher = one.connect("p")
    publisher.publish("t/1", b"t/1", 1, packet_id=1, retain=True)
    border = one.broker.border()
    publisher.publish("t/2", b"t/2", 1, packet_id=1, retain=True)
    client = one.connect("c", clean_start=False)
    client.subscribe("t/+", qos=1)
    first = sent_to(client)
    one.pass_time(1)
    one.broker.lose_before(border)
    again = lost(one).connect("c", clean_start=False)
    assert sent_to(again) == [(payload, packet_id, True) for payload, packet_id, _ in first]
    assert [payload for payload, _, _ in first] == [b"t/1", b"t/2"]


def test_subscriptions_come_back_with_their_options_and_retained_messages_do_not_come_again() -> None:
    one = Gateway(name="one")
    one.connect("p").publish("t", b"kept", 1, packet_id=1, retain=True)
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    client = one.connect("c", **asked)
    client.subscribe("t", qos=1, no_local=True, properties=Properties(subscription_identifiers=(9,)))
    for packet in client.got():
        assert isinstance(packet, Publish)
        client.send(Puback(packet.packet_id))
    other = lost(one)
    again = other.connect("c", **asked)
    assert again.got() == []
    again.publish("t", b"own", 1, packet_id=1)
    other.produce("t", b"other's", qos=1)
    other.round()
    [puback, message] = again.got()
    assert puback == Puback(1)
    assert isinstance(message, Publish)
    assert (message.payload, message.properties.subscription_identifiers) == (b"other's", (9,))


def test_an_unsubscribed_filter_stays_unsubscribed() -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", "u", qos=1)
    client.send(Unsubscribe(2, ("t",)))
    assert client.got() == [Unsuback(2)]
    other = lost(one)
    one.produce("t", b"not for it", qos=1)
    one.produce("u", b"for it", qos=1)
    again = other.connect("c", clean_start=False)
    assert [payload for payload, _, _ in sent_to(again)] == [b"for it"]


def in_flight(count: int, *filters: str) -> tuple[Gateway, Client]:
    """A durable session with these subscriptions and so many messages ``t/0``, ``t/1``, ... on their way."""
    gateway = Gateway(name="one")
    client = gateway.connect("c", clean_start=False)
    client.subscribe(*filters, qos=1)
    gateway.connect("p").send(*[Publish(f"t/{at}", b"%d" % at, 1, packet_id=at + 1) for at in range(count)])
    return gateway, client


@pytest.mark.mqtt("3.10.4-3", old=("3.10.4-3",))
@pytest.mark.parametrize("is_back", [False, True])
def test_what_is_on_its_way_outlives_its_filter_also_where_that_is_opened_again_at_once(is_back: bool) -> None:
    one, client = in_flight(2, "t/#", "u/#")
    before = sent_to(client)
    one.produce("u", b"other", qos=1)
    client.send(Unsubscribe(2, ("t/#",)), Subscribe(3, (Asked("t/#" if is_back else "t/2", 1),)))
    one.connect("p").publish("t/2", b"2", 1, packet_id=1)
    before += sent_to(client)
    assert [payload for payload, _, _ in before] == [b"0", b"1", b"other", b"2"]
    again = lost(one).connect("c", clean_start=False)
    assert sent_to(again) == [(payload, packet_id, True) for payload, packet_id, _ in before]


def test_qos_0_is_not_kept_for_a_client_that_is_away() -> None:
    one = Gateway(name="one")
    one.connect("c", clean_start=False).subscribe("t", qos=0)
    other = lost(one)
    one.produce("t", b"missed", qos=1)
    again = other.connect("c", clean_start=False)
    other.produce("t", b"live", qos=1)
    other.round()
    assert [payload for payload, _, _ in sent_to(again)] == [b"live"]


def test_a_message_that_retention_has_taken_is_given_up() -> None:
    one = retaining()
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    one.produce("t", b"old", qos=1)
    one.round()
    other = lost(one)
    one.broker.lose_before(one.broker.border())
    again = other.connect("c", clean_start=False)
    other.produce("t", b"new", qos=1)
    other.round()
    assert [payload for payload, _, _ in sent_to(again)] == [b"new"]
    session = again.device.session
    assert session is not None
    assert len(session.in_flight) == 1


@pytest.mark.parametrize(
    "refuses", [{Pull: Unavailable("away")}, {Pull: OffsetOutOfRange("passed"), QueryBounds: Unavailable("away")}]
)
def test_a_client_is_not_admitted_while_its_messages_cannot_be_read(
    refuses: dict[type[Request], PenstockError],
) -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    one.produce("t", b"x", qos=1)
    other = lost(one)
    one.broker.refuses = refuses
    refused = other.open()
    refused.send(Connect("c", clean_start=False))
    assert refused.got_one(Connack).reason_code == 3
    one.broker.refuses = {}
    again = other.connect("c", clean_start=False)
    assert [(payload, dup) for payload, _, dup in sent_to(again)] == [(b"x", True)]


def test_the_session_comes_back_at_another_protocol_level() -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    one.produce("t", b"x", qos=1)
    again = lost(one).connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=9))
    [message] = [packet for packet in again.got() if isinstance(packet, Publish)]
    assert (message.payload, message.dup) == (b"x", True)


def test_a_session_finds_its_places_again_when_its_broker_has_moved() -> None:
    """Nothing lost, nothing twice: not what was on its way, not what it has, not what came while it was away."""
    one = gateway_at_moving_broker(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=2)
    for at in range(3):
        one.produce("t", bytes([at]), qos=1)
    first = sent_to(client)
    client.send(Puback(first[0][1]))
    client.cut()
    one.produce("t", b"offline", qos=1)
    move(one)
    again = lost(one).connect("c", clean_start=False)
    assert [(payload, dup) for payload, _, dup in sent_to(again)] == [(b"\1", True), (b"\2", True), (b"offline", False)]


def test_what_was_on_its_way_from_a_log_that_is_another_now_is_given_up() -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    second = LinkedBroker(one.clock, "c", "broker:2")
    one.learn(second)
    client.subscribe("t", qos=1)
    second.produce(Message(topic="t", body=b"1", qos=1))
    one.round()
    assert [payload for payload, _, _ in sent_to(client)] == [b"1"]
    one.pass_time(1)
    second.lose_log()
    again = lost(one).connect("c", clean_start=False)
    assert sent_to(again) == []


def test_what_an_older_gateway_has_saved_without_positions_is_found_by_its_offsets() -> None:
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    for number in range(5):
        one.produce("t", b"%d" % number * 600_000, qos=1)  # more than one pull brings
    before = sent_to(client)
    session = client.device.session
    assert session is not None
    saved = flow_of(session)
    one.saver.flush()
    flow = encode_flow(saved._replace(sent=[sent._replace(position=-1) for sent in saved.sent]))
    one.home.save(SessionSave("c", session.epoch, CONNECTED, session.expiry_s, b"", b"", flow), lambda _: None)
    one.home.flush()
    one.round()
    other = Gateway(beside=one, name="other")
    one.broker.leave_alone("one")
    again = other.connect("c", clean_start=False)
    assert sent_to(again) == [(payload, packet_id, True) for payload, packet_id, _ in before]


def test_a_place_at_a_broker_that_nobody_knows_loses_nothing_of_those_that_live() -> None:
    """Its session begins where its filter was opened in its name, as at a broker that joined."""
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    one.produce("t", b"1", qos=1)
    session = client.device.session
    assert session is not None
    saved = flow_of(session)
    places = {(filter, "elsewhere:1"): place for (filter, _), place in saved.places.items()}
    one.saver.flush()
    flow = encode_flow(saved._replace(places=places, sent=[]))
    one.home.save(SessionSave("c", session.epoch, CONNECTED, session.expiry_s, b"", b"", flow), lambda _: None)
    one.home.flush()
    one.round()
    other = Gateway(beside=one, name="other")
    one.broker.leave_alone("one")
    again = other.connect("c", clean_start=False)
    assert [payload for payload, _, _ in sent_to(again)] == [b"1"]


def test_a_subscription_that_has_ended_leaves_no_place_at_a_broker_that_nobody_knows() -> None:
    """A later one to the same filter would begin there, with what it never asked for."""
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    client.subscribe("t", "u", qos=1)
    session = client.device.session
    assert session is not None
    assert session.lasting is not None
    place = Place(7, 0, 0, ())
    session.lasting.places = {("t", "elsewhere"): place, ("u", "elsewhere"): place}
    client.send(Unsubscribe(2, ("t",)))
    client.got_one(Unsuback)
    client.subscribe("t", qos=1)
    assert [broker for filter, broker in flow_of(session).places if filter == "t"] == ["b"]
    assert ("u", "elsewhere") in flow_of(session).places


def test_what_ended_subscriptions_had_delivered_at_a_broker_that_is_away_is_known_when_it_is_back() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    client.subscribe("t", "u", qos=1)
    session = client.device.session
    assert session is not None
    assert session.lasting is not None
    session.lasting.places = {("t", "elsewhere"): Place(7, 5, 5, ()), ("u", "elsewhere"): Place(7, 5, 5, ())}
    counts = [Ended("elsewhere", "#", 5, 9, (), 1), Ended("elsewhere", "t", 5, 9, (), 0)]
    others = [Ended("elsewhere", "t", 5, 9, (), 1), Ended("elsewhere", "#", 5, 5, (), 0), Ended("b", "#", 5, 9, (), 0)]
    session.overlap.restore([*counts, *others])
    assert flow_of(session).ended == tuple(counts)


@pytest.mark.mqtt("4.4.0-1", old=("4.4.0-1",))
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.interpreted
def test_what_is_on_its_way_from_a_broker_that_is_not_known_waits_for_a_later_connection(
    qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing lost: it goes again, under its ids, when the broker is known; nobody else has these ids meanwhile."""
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=qos)
    for body in (b"1", b"2"):
        one.produce("t", body, qos=qos)
    one.pass_time(1)
    first = sent_to(client)
    other = lost(one)
    other.connect("warm")
    with monkeypatch.context() as patch:
        patch.setattr(Brokers, "known", [])
        again = other.connect("c", clean_start=False)
    assert sent_to(again) == []
    other.produce("t", b"3", qos=qos)
    other.pass_time(1)
    [third] = sent_to(again)
    assert (third[0], third[1] in {packet_id for _, packet_id, _ in first}) == (b"3", False)
    again.cut()
    later = other.connect("c", clean_start=False)
    other.pass_time(1)
    assert sorted(sent_to(later)) == [(payload, packet_id, True) for payload, packet_id, _ in [*first, third]]


def test_what_was_on_its_way_goes_again_whole_although_one_answer_cannot_hold_it() -> None:
    """Nothing lost: messages on their way may be larger together than what a broker answers at once."""
    one = Gateway(name="one")
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    for at in range(4):
        one.produce("t", bytes([at]) * 600_000, qos=1)
    first = sent_to(client)
    assert len(first) == 4
    again = lost(one).connect("c", clean_start=False)
    assert [(payload[:1], packet_id, dup) for payload, packet_id, dup in sent_to(again)] == [
        (payload[:1], packet_id, True) for payload, packet_id, _ in first
    ]
