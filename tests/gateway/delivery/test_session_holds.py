"""Twin of gateway/delivery/session_holds.py: at QoS 0 nothing is kept open in a session's name, and nothing is lost of
what began before."""

from __future__ import annotations

import pytest
from draining import drain, publishes
from linked_broker import LinkedBroker
from rig import Client, Gateway

from gateway.mqtt.packets import (
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from gateway.mqtt.properties import Properties
from gateway.sessions.session_state import Place
from penstock.errors import Unavailable
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.sessions import SaveSessions

SHARE = "$share/g/a/#"
FILTERS = ["a/#", SHARE]
ENDINGS = [Subscribe(3, (Subscription("$share/g/a/#", 0),)), Unsubscribe(3, ("$share/g/a/#",))]
LASTING = Properties(session_expiry_interval=600)


def connect(gateway: Gateway, name: str = "c") -> Client:
    return gateway.connect(name, level=5, clean_start=False, properties=LASTING)


def held(gateway: Gateway) -> dict[str, list[str]]:
    """What is open in the names of sessions."""
    filters = gateway.broker.state.filters
    return {owner: filters.held_by(owner) for owner in filters.owners if owner.startswith("~session/")}


def downgraded(gateway: Gateway, filter: str) -> Client:
    """A client whose subscription was replaced by one of QoS 0."""
    client = connect(gateway)
    client.subscribe(filter, qos=1)
    assert list(held(gateway).values()) == [[filter]]
    assert client.subscribe(filter, qos=0) == Suback(1, (0,))
    return client


def ends_clean(gateway: Gateway) -> bool:
    """Whether nothing is open any more."""
    gateway.pass_time(2 * gateway.settings.filter_lease_s)
    return held(gateway) == {} and gateway.broker.filters() == [] and len(gateway.broker.state.shares) == 0


@pytest.mark.parametrize("filter", FILTERS)
def test_a_subscription_replaced_by_one_of_qos_0_is_not_open_in_its_sessions_name_any_more(filter: str) -> None:
    gateway = Gateway()
    client = downgraded(gateway, filter)
    assert held(gateway) == {}
    client.publish("a/b", b"x", 1, packet_id=9)
    assert [(one.payload, one.qos) for one in publishes(client)] == [(b"x", 0)]
    client.cut()
    assert ends_clean(gateway)


@pytest.mark.parametrize("filter", FILTERS)
def test_a_subscribe_at_qos_0_that_is_refused_leaves_what_stood_open_in_its_sessions_name(filter: str) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe(filter, qos=1)
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    assert client.subscribe(filter, qos=0).reason_codes == (0x80,)
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    client.cut()
    assert list(held(gateway).values()) == [[filter]]
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=1)
    again = connect(gateway)
    gateway.pass_time(1)
    assert [(one.payload, one.qos) for one in publishes(again)] == [(b"x", 1)]


@pytest.mark.parametrize("filter", FILTERS)
def test_a_subscribe_at_qos_1_that_is_refused_leaves_nothing_open_in_its_sessions_name(filter: str) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe(filter, qos=0)
    gateway.broker.holds = (OpenFilters,)
    client.send(Subscribe(1, (Subscription(filter, 1),)))
    assert list(held(gateway).values()) == [[filter]]
    gateway.broker.lose_kept_back(Unavailable("cut"))
    gateway.round()
    assert client.got_one(Suback).reason_codes == (0x80,)
    assert held(gateway) == {}
    client.publish("a/b", b"x", 1, packet_id=9)
    assert [(one.payload, one.qos) for one in publishes(client)] == [(b"x", 0)]


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize(("at_once", "is_one_packet"), [(False, True), (True, False)])
@pytest.mark.parametrize(("first", "second"), [(1, 0), (0, 1)])
def test_of_two_subscriptions_in_one_breath_the_last_says_whether_it_is_open_in_its_sessions_name(
    filter: str, first: int, second: int, at_once: bool, is_one_packet: bool
) -> None:
    gateway = Gateway()
    client = connect(gateway)
    gateway.broker.answers_at_once = at_once
    asked = [Subscription(filter, first), Subscription(filter, second)]
    if is_one_packet:
        client.send(Subscribe(1, tuple(asked)))
    else:
        client.send(*[Subscribe(1, (one,)) for one in asked])
    codes = [code for one in client.got() if isinstance(one, Suback) for code in one.reason_codes]
    assert codes == [first, second]
    assert list(held(gateway).values()) == [[filter]] * second


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("takes_over", [False, True])
def test_a_subscribe_at_qos_0_whose_client_does_not_wait_for_the_answer_leaves_nothing_open_either(
    filter: str, takes_over: bool
) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe(filter, qos=1)
    gateway.broker.holds = (OpenFilters,)
    client.send(Subscribe(1, (Subscription(filter, 0),)))
    if not takes_over:
        client.cut()
    again = gateway.open(5)
    again.send(Connect("c", clean_start=False, level=5, properties=LASTING))
    gateway.broker.let_go()
    gateway.round()
    assert held(gateway) == {}
    again.send(Unsubscribe(2, (filter,)))
    assert ends_clean(gateway)


@pytest.mark.parametrize("filter", FILTERS)
def test_an_answer_for_an_earlier_connection_closes_nothing_that_a_later_one_has_opened(filter: str) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe(filter, qos=1)
    gateway.broker.holds = (OpenFilters,)
    client.send(Subscribe(1, (Subscription(filter, 0),)))
    client.cut()
    again = connect(gateway)
    again.send(Subscribe(2, (Subscription(filter, 1),)))
    gateway.broker.let_go()
    gateway.round()
    assert again.got_one(Suback).reason_codes == (1,)
    assert list(held(gateway).values()) == [[filter]]


def test_a_place_at_a_broker_that_has_not_come_back_goes_with_what_was_kept_there() -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("a", "b", qos=1)
    session = client.device.session
    assert session is not None
    assert session.lasting is not None
    session.lasting.places = {("a", "elsewhere"): Place(7, 7, 6, ()), ("b", "elsewhere"): Place(8, 8, 7, ())}
    client.subscribe("a", qos=0)
    assert list(session.lasting.places) == [("b", "elsewhere")]


def test_what_is_subscribed_to_at_qos_0_while_its_broker_is_away_begins_when_that_is_back() -> None:
    gateway = Gateway()
    gateway.learn_of_one_away()
    client = connect(gateway)
    client.subscribe("a", qos=1)
    client.subscribe("a", qos=0)
    back = LinkedBroker(gateway.clock, "b2", "broker:4")
    gateway.learn(back)
    gateway.pass_time(1)
    session = client.device.session
    assert session is not None
    assert [cursor.next >= 0 for cursor in session.overlap.cursors] == [True] * 3
    assert back.state.filters.owners == [gateway.downstream.shared.taker]


@pytest.mark.mqtt("4.4.0-1", "3.10.4-3")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("has_other", [False, True])
def test_what_was_on_its_way_through_a_share_that_its_session_holds_no_more_is_sent_again(
    ending: Subscribe | Unsubscribe, qos: int, has_other: bool
) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("$share/g/a/#", qos=2)
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=qos)
    [first] = publishes(client)
    other = gateway.connect("other")
    if has_other:
        other.subscribe("$share/g/a/#", qos=1)
    client.send(ending)
    client.cut()
    assert held(gateway) == {}
    gateway.pass_time(2 * gateway.settings.filter_lease_s)
    assert other.got() == []
    assert gateway.broker.shares.unsettled == 0
    again = connect(gateway)
    [repeated] = publishes(again)
    assert (repeated.payload, repeated.qos, repeated.packet_id, repeated.dup) == (b"x", qos, first.packet_id, True)
    if qos == 1:
        again.send(Puback(repeated.packet_id))
    again.cut()
    assert drain(connect(gateway)) == [b"x"] * (qos - 1)


@pytest.mark.mqtt("4.4.0-1", "4.8.2-4", "4.8.2-5")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("has_other", [False, True])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("is_member", [False, True])
def test_a_qos_2_message_through_such_a_share_goes_on_also_if_its_gateway_dies(
    ending: Subscribe | Unsubscribe, has_other: bool, waits: bool, is_member: bool
) -> None:
    here = Gateway(name="here")
    client = connect(here)
    client.subscribe("$share/g/a/#", qos=2)
    there = Gateway(beside=here, name="there")
    other = there.connect("other")
    here.produce("a", b"w", mqtt_topic="a/b", qos=2)  # so that the next one is not the first of its topic's queue
    client.send(Pubrec(publishes(client)[0].packet_id), Pubcomp(1))
    here.produce("a", b"x", mqtt_topic="a/b", qos=2)
    [first] = publishes(client)
    client.send(ending)
    client.got()
    if is_member:
        client.subscribe("$share/g/a/#", qos=2)
    if has_other:
        other.subscribe("$share/g/a/#", qos=2)
    here.broker.leave_alone("here")
    if waits:
        here.broker.outlive("here")
        there.pass_time(2 * there.settings.filter_lease_s)
    again = connect(there)
    [repeated] = publishes(again)
    assert (repeated.payload, repeated.qos, repeated.packet_id, repeated.dup) == (b"x", 2, first.packet_id, True)
    again.send(Pubrec(first.packet_id))
    assert again.got() == [Pubrel(first.packet_id)]
    again.send(Pubcomp(first.packet_id), Unsubscribe(3, ("$share/g/a/#",)))
    here.broker.outlive("here")
    there.pass_time(2 * there.settings.filter_lease_s)
    there.produce("a", b"y", mqtt_topic="a/b", qos=2)
    assert [one.payload for one in publishes(other)] == [b"y"] * has_other
    again.cut()
    assert drain(connect(there)) == []


@pytest.mark.mqtt("3.10.4-3", "4.4.0-1")
def test_a_qos_2_message_through_a_share_goes_on_though_its_member_has_left_and_come_again() -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("$share/g/a/#", qos=2)
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=2)
    [first] = publishes(client)
    client.send(Unsubscribe(3, ("$share/g/a/#",)), Subscribe(4, (Subscription("$share/g/a/#", 2),)))
    gateway.produce("a", b"y", mqtt_topic="a/b", qos=2)
    client.cut()
    again = publishes(connect(gateway))
    assert [(one.payload, one.dup) for one in again] == [(b"x", True), (b"y", True)]
    assert again[0].packet_id == first.packet_id


def test_what_is_on_its_way_through_a_share_goes_to_others_if_its_session_is_another_gateways() -> None:
    gateway = Gateway()
    client, other = connect(gateway), gateway.connect("other")
    client.subscribe("$share/g/a/#", qos=1)
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=1)
    assert len(publishes(client)) == 1
    other.subscribe("$share/g/a/#", qos=1)
    session = client.device.session
    assert session is not None
    session.lose()
    gateway.round()
    assert drain(other) == [b"x"]


def test_what_is_on_its_way_through_a_share_goes_to_others_if_its_session_ends() -> None:
    gateway = Gateway()
    other = gateway.connect("other")
    client = gateway.connect("c", clean_start=False, level=5, properties=Properties(session_expiry_interval=600))
    client.subscribe("$share/g/a/#", qos=1)
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=1)
    assert len(publishes(client)) == 1
    client.subscribe("$share/g/a/#", qos=0)
    other.subscribe("$share/g/a/#", qos=1)
    gateway.connect("c", clean_start=True).cut()
    gateway.pass_time(1)
    assert [one.payload for one in publishes(other)] == [b"x"]
    assert all(isinstance(one, Publish) for one in other.got())


@pytest.mark.mqtt("4.4.0-1")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("waits", [False, True])
def test_what_was_on_its_way_through_a_filter_that_is_replaced_at_qos_0_is_sent_again(qos: int, waits: bool) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("a/#", qos=2)
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=qos)
    [first] = publishes(client)
    if not waits:
        gateway.broker.holds = (OpenFilters,)
    client.send(Subscribe(3, (Subscription("a/#", 0),)))
    client.cut()
    gateway.broker.let_go()
    gateway.pass_time(2 * gateway.settings.filter_lease_s)
    again = connect(gateway)
    [repeated] = publishes(again)
    assert (repeated.payload, repeated.qos, repeated.packet_id, repeated.dup) == (b"x", qos, first.packet_id, True)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_on_its_way_before_a_filter_was_let_go_and_held_again_is_sent_again(qos: int) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("a/#", qos=2)
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=qos)
    [first] = publishes(client)
    client.subscribe("a/#", qos=0)
    client.subscribe("a/#", qos=2)
    gateway.produce("a", b"y", mqtt_topic="a/b", qos=qos)
    client.cut()
    gateway.produce("a", b"z", mqtt_topic="a/b", qos=qos)
    gateway.pass_time(2 * gateway.settings.filter_lease_s)
    again = publishes(connect(gateway))
    assert [(one.payload, one.dup) for one in again] == [(b"x", True), (b"y", True), (b"z", False)]
    assert again[0].packet_id == first.packet_id


def in_flight(gateway: Gateway, filter: str, qos: int) -> tuple[Client, Publish]:
    """A client with a message on its way through a filter or a share, and that message."""
    client = connect(gateway)
    client.subscribe(filter, qos=2)
    gateway.produce("a", b"w", mqtt_topic="a/b", qos=1)  # so that the next one is not the first of its topic's queue
    client.send(Puback(publishes(client)[0].packet_id))
    gateway.produce("a", b"x", mqtt_topic="a/b", qos=qos)
    [first] = publishes(client)
    return client, first


def ending(filter: str, is_replaced: bool) -> Subscribe | Unsubscribe:
    return Subscribe(3, (Subscription(filter, 0),)) if is_replaced else Unsubscribe(3, (filter,))


@pytest.mark.mqtt("3.10.4-3", "4.4.0-1")
@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_saved", [False, True])
def test_a_gateway_that_dies_before_it_hears_that_a_filter_is_let_go_of_loses_nothing_that_is_on_its_way(
    filter: str, is_replaced: bool, qos: int, is_saved: bool
) -> None:
    here = Gateway(name="here")
    there = Gateway(beside=here, name="there")
    client, first = in_flight(here, filter, qos)
    here.pass_time(1)
    here.broker.holds, here.broker.silent = (SaveSessions,), set() if is_saved else {SaveSessions}
    client.send(ending(filter, is_replaced))
    assert client.got() == []
    assert list(held(here).values()) == [[filter]]
    here.broker.holds, here.broker.silent = (), set()
    here.broker.outlive("here")
    there.pass_time(2 * there.settings.filter_lease_s)
    again = connect(there)
    there.pass_time(1)
    [repeated] = publishes(again)
    # a message of QoS 1 that came through a share which stands is any member's again
    is_anyones = qos == 1 and filter.startswith("$") and not is_saved
    assert (repeated.payload, repeated.qos, repeated.dup) == (b"x", qos, not is_anyones)
    assert is_anyones or repeated.packet_id == first.packet_id
    assert list(held(there).values()) == ([] if is_saved else [[filter]])


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_who_lets_go_of_a_filter_of_a_session_that_another_gateway_has_closes_and_settles_nothing(
    filter: str, is_replaced: bool, qos: int
) -> None:
    here = Gateway(name="here")
    there = Gateway(beside=here, name="there")
    client, _ = in_flight(here, filter, qos)
    here.pass_time(1)
    here.broker.leave_alone("here")
    again = connect(there)
    got = publishes(again)
    client.send(ending(filter, is_replaced))
    assert client.is_closed
    assert list(held(there).values()) == [[filter]]
    there.pass_time(2 * there.settings.filter_lease_s)
    assert [one.payload for one in [*got, *publishes(again)]] == [b"x"]
    again.cut()
    there.produce("a", b"y", mqtt_topic="a/b", qos=1)
    assert b"y" in drain(connect(there))


@pytest.mark.mqtt("3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("comes_again", [False, True])
def test_what_ends_with_its_connection_before_a_share_is_let_go_of_is_not_settled_before_that_is_heard(
    qos: int, comes_again: bool
) -> None:
    here = Gateway(name="here")
    there = Gateway(beside=here, name="there")
    client, _ = in_flight(here, SHARE, qos)
    here.pass_time(1)
    here.broker.holds, here.broker.silent = (SaveSessions,), {SaveSessions}
    client.send(Unsubscribe(3, (SHARE,)), *[Subscribe(4, (Subscription(SHARE, 2),))] * comes_again)
    here.broker.holds, here.broker.silent = (), set()
    here.broker.leave_alone("here")
    again = connect(there)
    got = publishes(again)
    client.cut()
    assert list(held(there).values()) == [[SHARE]]
    there.pass_time(2 * there.settings.filter_lease_s)
    assert [one.payload for one in [*got, *publishes(again)]] == [b"x"]


@pytest.mark.mqtt("3.10.4-3", "4.8.2-4")
@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("is_member", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_a_qos_2_message_whose_save_was_pending_as_its_share_was_let_go_of_is_its_sessions(
    is_replaced: bool, is_member: bool, dies: bool
) -> None:
    here = Gateway(name="here")
    there = Gateway(beside=here, name="there")
    client = connect(here)
    client.subscribe(SHARE, qos=2)
    here.produce("a", b"w", mqtt_topic="a/b", qos=0)
    assert client.payloads() == [b"w"]
    here.broker.holds = (SaveSessions,)
    here.produce("a", b"x", mqtt_topic="a/b", qos=2)
    client.send(ending(SHARE, is_replaced), *[Subscribe(4, (Subscription(SHARE, 2),))] * is_member)
    assert client.got() == []
    here.broker.let_go()
    here.round()
    [first] = publishes(client)
    assert here.broker.shares.unsettled == 0
    assert list(held(here).values()) == [[SHARE]] * is_member
    if dies:
        here.broker.outlive("here")
        there.pass_time(2 * there.settings.filter_lease_s)
    else:
        client.cut()
    again = connect(there)
    [repeated] = publishes(again)
    assert (repeated.payload, repeated.qos, repeated.packet_id, repeated.dup) == (b"x", 2, first.packet_id, True)


@pytest.mark.mqtt("3.10.4-3", "4.4.0-1")
@pytest.mark.parametrize("share", [SHARE, "$oshare/g/a/#"])
@pytest.mark.parametrize("comes_at_once", [False, True])
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("has_other", [False, True])
def test_a_qos_1_message_of_a_member_that_leaves_and_joins_again_goes_to_some_member_again(
    share: str, comes_at_once: bool, dies: bool, has_other: bool
) -> None:
    here = Gateway(name="here")
    there = Gateway(beside=here, name="there")
    client, _ = in_flight(here, share, 1)
    if has_other:
        other = there.connect("other")
        other.subscribe(share, qos=1)
    both = Unsubscribe(3, (share,)), Subscribe(4, (Subscription(share, 1),))
    if comes_at_once:
        client.send(*both)
    else:
        for one in both:
            client.send(one)
    here.produce("a", b"y", mqtt_topic="a/b", qos=1)
    if dies:
        here.broker.outlive("here")
    else:
        client.cut()
    there.pass_time(2 * there.settings.filter_lease_s)
    if has_other:
        others = drain(other)
    again = drain(connect(there))
    assert {b"x", b"y"} == {*again, *(others if has_other else ())}


def test_what_an_earlier_gateway_had_let_go_of_and_not_closed_is_left_open_where_it_is_wanted_again() -> None:
    here = Gateway(name="here")
    there = Gateway(beside=here, name="there")
    client = connect(here)
    client.subscribe("a", "b", qos=1)
    here.broker.holds = (SaveSessions,)
    client.send(Unsubscribe(3, ("a", "b")), Subscribe(4, (Subscription("a", 1),)))
    here.broker.holds = ()
    here.broker.outlive("here")
    assert [sorted(one) for one in held(here).values()] == [["a", "b"]]
    connect(there)
    assert list(held(there).values()) == [["a"]]


def test_a_filter_that_is_wanted_again_before_its_end_is_saved_stays_open() -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("a", qos=1)
    gateway.broker.holds = (SaveSessions,)
    client.send(Unsubscribe(3, ("a",)))
    client.send(Subscribe(4, (Subscription("a", 1),)))
    client.send(Unsubscribe(5, ("a",)))
    gateway.broker.let_first_go()
    gateway.round()
    assert list(held(gateway).values()) == [["a"]], "the end that is saved is not the last one"
    gateway.broker.let_go()
    gateway.round()
    assert held(gateway) == {}


def test_what_the_rules_allow_no_more_is_closed_when_that_is_saved_though_its_client_says_nothing() -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("a", qos=1)
    session = client.device.session
    assert session is not None
    gateway.downstream.unsubscribe(session, "a")
    gateway.round()
    assert list(held(gateway).values()) == [["a"]]
    gateway.pass_time(1)
    assert held(gateway) == {}


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_close_that_was_not_heard_is_not_repeated_for_what_is_wanted_again(filter: str, comes_back: bool) -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe(filter, qos=1)
    gateway.broker.refuses[CloseFilters] = Unavailable("away")
    client.send(Unsubscribe(3, (filter,)))
    if comes_back:
        client.cut()
        client = connect(gateway)
    client.got()
    client.subscribe(filter, qos=1)
    gateway.broker.refuses.clear()
    gateway.pass_time(2)
    assert list(held(gateway).values()) == [[filter]]


@pytest.mark.parametrize("dies", [False, True])
def test_a_filter_that_is_wanted_again_before_its_end_is_saved_begins_anew(dies: bool) -> None:
    here = Gateway(name="here")
    there = Gateway(beside=here, name="there")
    client = connect(here)
    client.subscribe("a/#", qos=2)
    here.produce("a", b"x", mqtt_topic="a/b", qos=2)
    assert drain(client) == [b"x"]
    here.broker.holds = (SaveSessions,)
    client.send(Unsubscribe(3, ("a/#",)), Subscribe(4, (Subscription("a/#", 2),)))
    here.broker.holds = ()
    if dies:
        here.broker.outlive("here")
    else:
        client.cut()
    again = connect(there)
    there.produce("a", b"y", mqtt_topic="a/b", qos=2)
    assert drain(again) == [b"y"]
    assert list(held(there).values()) == [["a/#"]]
    again.cut()
    there.produce("a", b"z", mqtt_topic="a/b", qos=2)
    assert drain(connect(there)) == [b"z"]


def test_what_is_wanted_again_is_opened_behind_its_close() -> None:
    gateway = Gateway()
    client = connect(gateway)
    client.subscribe("a/#", qos=2)
    before = len(gateway.broker.requests)
    client.send(Unsubscribe(3, ("a/#",)), Subscribe(4, (Subscription("a/#", 2),)))
    made = [one for one in gateway.broker.requests[before:] if isinstance(one, OpenFilters | CloseFilters)]
    assert [type(one) for one in made if one.owner.startswith("~session/")] == [CloseFilters, OpenFilters]
    assert [type(one).__name__ for one in client.got()] == ["Unsuback", "Suback"]
    gateway.produce("a", b"y", mqtt_topic="a/b", qos=2)
    assert drain(client) == [b"y"]
