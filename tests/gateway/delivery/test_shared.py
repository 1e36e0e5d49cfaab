"""Twin of gateway/delivery/shared.py: whole gateways at one broker that shares."""

from __future__ import annotations

import pytest
from linked_broker import LinkedBroker
from rig import Client, Gateway

from broker.settings import BrokerSettings
from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec, Suback, Subscribe, Subscription, Unsubscribe
from gateway.mqtt.properties import Properties
from penstock.errors import Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import KeepFilters, OpenFilters
from penstock.protocol.requests.shares import SettleShared, TakeShared

SHARE = "$share/g/a/#"
ORDERED = "$oshare/g/a/#"


def published(client: Client) -> list[Publish]:
    return [packet for packet in client.got() if isinstance(packet, Publish)]


def acknowledge(client: Client, *packets: Publish, reason: int = 0) -> None:
    client.send(*[Puback(packet.packet_id, reason) for packet in packets])


def members(gateway: Gateway, count: int = 2, share: str = SHARE, **asked: object) -> list[Client]:
    clients = [gateway.connect(f"m{number}", **asked) for number in range(count)]  # type: ignore[arg-type]
    for client in clients:
        assert client.subscribe(share).reason_codes[0] in (0, 1, 2)
    return clients


def produce(gateway: Gateway, *bodies: bytes, qos: int = 1) -> None:
    for body in bodies:
        publisher = gateway.connect("publisher")
        publisher.publish("a/b", body, qos=qos, packet_id=1 if qos else 0)
        publisher.cut()


@pytest.mark.mqtt("4.8.2", "4.8.2-1")
def test_members_of_a_group_divide_the_messages_and_each_group_gets_all() -> None:
    gateway = Gateway()
    one, two = members(gateway)
    other = gateway.connect("other")
    other.subscribe("$share/h/a/#")
    produce(gateway, b"1", b"2", b"3", b"4")
    first, second = one.payloads(), two.payloads()
    assert (len(first), len(second)) == (2, 2)
    assert sorted(first + second) == [b"1", b"2", b"3", b"4"]
    assert other.payloads() == [b"1", b"2", b"3", b"4"]


@pytest.mark.mqtt("4.8.2")
def test_shared_and_plain_subscriptions_of_one_client_each_deliver() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    client.subscribe(SHARE, properties=Properties(subscription_identifiers=(7,)))
    client.subscribe("a/b", properties=Properties(subscription_identifiers=(8,)))
    produce(gateway, b"x")
    got = published(client)
    assert sorted(packet.properties.subscription_identifiers for packet in got) == [(7,), (8,)]


@pytest.mark.mqtt("4.8.2-3")
def test_the_granted_qos_of_the_chosen_member_counts() -> None:
    gateway = Gateway()
    one, two = gateway.connect("one"), gateway.connect("two")
    one.subscribe(SHARE, qos=0)
    two.subscribe(SHARE, qos=1)
    produce(gateway, b"1", b"2", qos=2)
    assert [packet.qos for packet in published(one)] == [0]
    assert [packet.qos for packet in published(two)] == [1]


@pytest.mark.mqtt("4.8.2")
def test_retained_messages_are_not_sent_to_shared_subscriptions() -> None:
    gateway = Gateway()
    gateway.connect("p").publish("a/b", b"kept", retain=True)
    client = gateway.connect("c")
    client.subscribe(SHARE)
    assert client.got() == []


@pytest.mark.mqtt("4.9.0-2")
def test_a_member_at_its_receive_maximum_gets_nothing_and_the_others_go_on() -> None:
    gateway = Gateway()
    slow = gateway.connect("slow", level=5, properties=Properties(receive_maximum=1))
    quick = gateway.connect("quick")
    for client in (slow, quick):
        client.subscribe(SHARE)
    produce(gateway, *[b"%d" % number for number in range(6)])
    assert (len(published(slow)), len(published(quick))) == (1, 5)


@pytest.mark.mqtt("3.3.2-5", "3.3.2-6")
def test_a_message_that_expires_while_nobody_has_room_for_it_goes_to_nobody() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, properties=Properties(receive_maximum=1))
    client.subscribe(SHARE)
    publisher = gateway.connect("p", level=5)
    for at, expiry_s in enumerate((60, 5, 60)):
        lives = Properties(message_expiry_interval=expiry_s)
        publisher.publish("a/b", b"%d" % at, 1, packet_id=at + 1, properties=lives)
    [first] = published(client)
    gateway.pass_time(10)
    acknowledge(client, first)
    [last] = published(client)
    assert (last.payload, last.properties.message_expiry_interval) == (b"2", 50)
    acknowledge(client, last)
    assert gateway.broker.shares.unsettled == 0


def test_what_a_lost_member_has_not_acknowledged_goes_to_another_without_dup() -> None:
    gateway = Gateway()
    one, two = members(gateway)
    produce(gateway, b"1", b"2")
    [mine], [theirs] = published(one), published(two)
    acknowledge(one, mine)
    two.cut()
    [again] = published(one)
    assert (again.payload, again.dup) == (theirs.payload, False)


@pytest.mark.mqtt("4.8.2-6")
def test_a_refused_message_is_discarded_and_goes_to_nobody() -> None:
    gateway = Gateway()
    one, two = members(gateway, level=5)
    produce(gateway, b"1")
    [packet] = published(one)
    acknowledge(one, packet, reason=0x80)
    one.cut()
    assert published(two) == []
    assert gateway.broker.shares.unsettled == 0


@pytest.mark.mqtt("4.8.2-4")
def test_a_qos_2_message_on_its_way_stays_with_its_session_and_nobody_else_gets_it() -> None:
    gateway = Gateway()
    one = gateway.connect("one", level=5, clean_start=False, properties=Properties(session_expiry_interval=100))
    two = gateway.connect("two", level=5)
    for client in (one, two):
        client.subscribe(SHARE)
    produce(gateway, b"1", qos=2)
    [first] = published(one)
    one.cut()
    gateway.pass_time(1.0)
    assert two.got() == []
    again = gateway.connect("one", level=5, clean_start=False, properties=Properties(session_expiry_interval=100))
    [repeated] = published(again)
    assert (repeated.payload, repeated.packet_id, repeated.dup) == (b"1", first.packet_id, True)
    again.send(Pubrec(repeated.packet_id))
    assert gateway.broker.shares.unsettled == 0


@pytest.mark.mqtt("4.8.2-5")
def test_a_qos_2_message_of_a_session_that_ends_with_its_connection_goes_to_nobody_else() -> None:
    gateway = Gateway()
    one, two = members(gateway)
    produce(gateway, b"1", qos=2)
    assert len(published(one)) == 1
    one.cut()
    gateway.pass_time(1.0)
    assert two.got() == []


def test_a_lost_link_neither_loses_nor_repeats_messages() -> None:
    gateway = Gateway()
    [client] = members(gateway, 1)
    produce(gateway, b"1")
    [first] = published(client)
    gateway.broker.refuses = {TakeShared: Unavailable("cut"), SettleShared: Unavailable("cut")}
    acknowledge(client, first)
    gateway.pass_time(2.0)
    gateway.broker.refuses = {}
    produce(gateway, b"2")
    gateway.pass_time(1.0)
    assert client.payloads() == [b"2"]
    assert gateway.broker.shares.unsettled == 1


@pytest.mark.interpreted
def test_a_gateway_that_lost_its_link_keeps_more_than_one_request_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.delivery.shared.OFFSETS_PER_REQUEST", 2)
    gateway = Gateway()
    [client] = members(gateway, 1)
    produce(gateway, *[b"%d" % number for number in range(7)])
    assert len(published(client)) == 7
    gateway.broker.refuses = {TakeShared: Unavailable("cut")}
    lost(gateway)
    gateway.pass_time(1.0)
    gateway.broker.refuses = {}
    gateway.broker.requests.clear()
    gateway.pass_time(1.0)
    other = Gateway(beside=gateway, name="other")
    stranger = other.connect("stranger")
    stranger.subscribe(SHARE)
    produce(gateway, b"7")
    other.pass_time(1.0)
    assert set(stranger.payloads() + client.payloads()) == {b"7"}
    assert gateway.broker.shares.unsettled == 8
    told = [(len(one.held), one.count_max > 0) for one in gateway.broker.made(TakeShared) if one.resumes]
    assert told[:4] == [(2, False), (2, False), (2, False), (1, True)]


def lost(gateway: Gateway) -> None:
    """The link breaks under the request for messages that waits."""
    gateway.broker.answer(TakeShared, Unavailable("cut"))


@pytest.mark.interpreted
def test_a_resume_of_which_a_part_was_not_heard_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.delivery.shared.OFFSETS_PER_REQUEST", 2)
    gateway = Gateway()
    [client] = members(gateway, 1)
    produce(gateway, b"0", b"1", b"2")
    [feed] = gateway.downstream.shared._feeds.values()
    assert len(published(client)) == 3
    lost(gateway)
    gateway.broker.holds = (TakeShared,)
    gateway.pass_time(0.5)
    gateway.broker.lose_first(Unavailable("cut"))
    gateway.broker.requests.clear()
    gateway.broker.let_go()
    produce(gateway, b"3")  # the last part is answered
    gateway.pass_time(1.0)
    assert [one.held for one in gateway.broker.made(TakeShared) if one.resumes] == [
        tuple(feed.sent)[:2],
        tuple(feed.sent)[2:],
    ]


@pytest.mark.mqtt("3.10.4-3", old=("3.10.4-3",))
def test_unsubscribing_ends_the_share_and_what_is_on_its_way_goes_on() -> None:
    gateway = Gateway()
    one, two = members(gateway)
    produce(gateway, b"1")
    [packet] = published(one)
    one.send(Unsubscribe(2, (SHARE,)))
    one.got()
    produce(gateway, b"2", b"3")
    assert (one.got(), two.payloads()) == ([], [b"2", b"3"])
    acknowledge(one, packet)
    assert gateway.broker.shares.unsettled == 2
    two.send(Unsubscribe(2, (SHARE,)))
    gateway.pass_time(1.0)
    assert (len(gateway.broker.state.shares), gateway.broker.filters()) == (0, [])
    shared = gateway.downstream.shared
    assert (shared._feeds, shared._by_origin) == ({}, {})


@pytest.mark.parametrize("share", [SHARE, ORDERED])
def test_what_is_leased_again_to_the_gateway_that_has_it_goes_out_once_and_binds_its_key_to_nobody(share: str) -> None:
    """The gateway has said nothing for longer than its lease, and its clients have stayed connected."""
    gateway = Gateway()
    [client] = members(gateway, 1, share)
    gateway.produce("a", b"1", mqtt_topic="a/x", key="k", qos=1)
    [first] = published(client)
    gateway.broker.shares.tick(gateway.broker.now_s + BrokerSettings().share_lease_s + 1, 0, 0)
    gateway.pass_time(4.0)
    gateway.produce("a", b"2", mqtt_topic="a/x", key="k", qos=1)
    [second] = published(client)
    assert (first.payload, second.payload) == (b"1", b"2")
    acknowledge(client, first, second)
    other = gateway.connect("other")
    other.subscribe(share)
    client.cut()
    gateway.produce("a", b"3", mqtt_topic="a/x", key="k", qos=1)
    assert other.payloads() == [b"3"]
    assert gateway.broker.shares.unsettled == 1


def test_an_ordered_share_grants_qos_1_at_most() -> None:
    client = Gateway().connect("c")
    assert client.subscribe(ORDERED, qos=2).reason_codes == (1,)


@pytest.mark.mqtt("3.1.2-24", "3.1.2-25")
def test_a_message_too_large_for_one_member_goes_to_another_and_for_all_is_dropped() -> None:
    gateway = Gateway()
    narrow = gateway.connect("narrow", level=5, properties=Properties(maximum_packet_size=60))
    wide = gateway.connect("wide", level=5, properties=Properties(maximum_packet_size=300))
    for client in (narrow, wide):
        client.subscribe(SHARE)
    produce(gateway, b"x" * 200, b"x" * 500, b"small")
    assert (len(published(wide)) + len(published(narrow))) == 2
    gateway.pass_time(1.0)
    assert gateway.broker.shares.unsettled == 2
    assert gateway.downstream.shared.dropped == 1


@pytest.mark.parametrize("share", [SHARE, ORDERED])
def test_a_message_too_large_for_who_has_room_waits_for_the_others(share: str) -> None:
    gateway = Gateway()
    narrow = gateway.connect("narrow", level=5, properties=Properties(maximum_packet_size=60))
    wide = gateway.connect("wide", level=5, properties=Properties(receive_maximum=1))
    wide.subscribe(share)
    produce(gateway, b"first")
    [first] = published(wide)
    narrow.subscribe(share)
    produce(gateway, b"x" * 500)
    gateway.pass_time(2.0)
    assert published(wide) == published(narrow) == []
    acknowledge(wide, first)
    gateway.pass_time(2.0)
    assert [len(one.payload) for one in published(wide)] == [500]
    assert gateway.downstream.shared.dropped == 0


def test_a_gateway_may_have_no_shared_subscriptions() -> None:
    gateway = Gateway(shared_subscriptions=False)
    client = gateway.open(5)
    client.send(Connect("c", level=5))
    assert client.got_one(Connack).properties.shared_subscription_available == 0
    assert client.subscribe(SHARE, "a").reason_codes == (0x9E, 2)


def test_no_more_members_than_the_limit() -> None:
    gateway = Gateway(share_members_max=1)
    [client] = members(gateway, 1, level=5)
    assert client.subscribe(SHARE).reason_codes == (2,)
    assert gateway.connect("other", level=5).subscribe(SHARE).reason_codes == (0x97,)
    assert gateway.quotas.refused["share_members_max"] == 1


@pytest.mark.parametrize("share", ["$share/g", "$share//a", "$share/+/a", "$oshare/g/", "$share/g/a#"])
@pytest.mark.mqtt("4.8.2-1", "4.8.2-2")
def test_a_share_without_a_name_or_filter_is_refused(share: str) -> None:
    assert Gateway().connect("c", level=5).subscribe(share).reason_codes == (0x8F,)


@pytest.mark.parametrize("group", ["g\x07", "g" * 1025])
def test_a_group_has_a_name_as_short_and_printable_as_a_filter(group: str) -> None:
    client = Gateway().connect("c", level=5)
    assert client.subscribe(f"$share/{group}/a", f"$share/{group[:1]}/a").reason_codes == (0x8F, 2)


def test_a_broker_that_appears_later_shares_too() -> None:
    gateway = Gateway()
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    client = gateway.connect("c", **asked)  # type: ignore[arg-type]
    client.subscribe(SHARE)
    later = LinkedBroker(gateway.clock, "b2", "broker:2")
    gateway.learn(later)
    later.produce(Message(topic="a", body=b"1", mqtt_topic="a/b"))
    gateway.round()
    assert client.payloads() == [b"1"]
    lasting = gateway.sessions["c"].lasting
    assert lasting is not None
    gateways = gateway.downstream.shared.taker
    assert sorted(later.state.filters.owners) == [gateways, f"~{SHARE}", lasting.holder("b2")]


def test_a_broker_that_is_away_refuses_no_share_and_has_it_when_it_is_back() -> None:
    gateway = Gateway()
    gateway.learn_of_one_away()
    client = gateway.connect("c")
    assert client.subscribe(SHARE, "$share/h/b").reason_codes == (2, 2)
    client.send(Unsubscribe(2, ("$share/h/b",)))
    gateway.pass_time(5.0)
    back = LinkedBroker(gateway.clock, "b2", "broker:4")
    gateway.learn(back)
    gateway.pass_time(1.0)
    assert [request.filters for request in back.made(OpenFilters)] == [(SHARE,)]
    back.produce(Message(topic="a", body=b"1", mqtt_topic="a/b"))
    gateway.round()
    assert client.payloads() == [b"1"]


def test_a_share_of_a_lasting_session_is_open_in_its_name_too_at_a_broker_that_was_away() -> None:
    gateway = Gateway()
    gateway.learn_of_one_away()
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    clients = [gateway.connect(name, **asked) for name in ("stays", "leaves", "gives up")]  # type: ignore[arg-type]
    for client in clients:
        assert client.subscribe(SHARE).reason_codes == (2,)
    lasting = gateway.sessions["stays"].lasting
    assert lasting is not None
    clients[1].cut()
    clients[2].send(Unsubscribe(2, (SHARE,)))
    back = LinkedBroker(gateway.clock, "b2", "broker:4")
    back.refuses[OpenFilters] = Unavailable("restarting")
    gateway.learn(back)
    gateway.pass_time(1.0)
    assert back.state.filters.owners == []
    back.refuses.clear()
    gateway.pass_time(1.0)
    owners = [gateway.downstream.shared.taker, f"~{SHARE}", lasting.holder("b2")]
    assert sorted(back.state.filters.owners) == owners
    back.requests.clear()
    gateway.pass_time(5.0)
    assert back.made(OpenFilters) == []


def test_where_no_broker_is_anywhere_a_share_is_refused_as_a_filter_is() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    for broker in gateway.brokers.known:
        broker.address = ""
    assert client.subscribe(SHARE, "a").reason_codes == (0x80, 0x80)


def test_a_share_that_the_broker_has_given_up_begins_anew() -> None:
    gateway = Gateway()
    [client] = members(gateway, 1)
    gateway.broker.lose_filter(SHARE)
    gateway.round()
    gateway.pass_time(1.0)
    produce(gateway, b"1")
    assert client.payloads() == [b"1"]


def test_what_a_lost_reply_leased_goes_back_though_its_members_have_left_meanwhile() -> None:
    gateway = Gateway()
    other = Gateway(beside=gateway, name="other")
    [client] = members(gateway, 1)
    left = other.connect("left")
    left.subscribe(SHARE)
    gateway.broker.rig.submit(TakeShared(SHARE, other.downstream.shared.taker, 1))
    gateway.produce("a", b"1", mqtt_topic="a/b")
    gateway.broker.rig.submit(TakeShared(SHARE, other.downstream.shared.taker, 1))  # nobody hears of this lease
    [feed] = other.downstream.shared._feeds.values()
    left.cut()
    other.downstream.shared._taken(feed, Unavailable("cut"))
    other.pass_time(1.0)
    gateway.round()
    assert client.payloads() == [b"1"]


def test_a_member_that_never_acknowledges_holds_up_nobody_with_messages_too_large_for_the_others() -> None:
    gateway = Gateway()
    narrow = gateway.connect("narrow", level=5, properties=Properties(maximum_packet_size=100))
    stuck = gateway.connect("stuck", level=5, properties=Properties(receive_maximum=1))
    stuck.subscribe(SHARE)
    produce(gateway, b"first")
    assert len(published(stuck)) == 1
    narrow.subscribe(SHARE)
    got: list[bytes] = []
    for number in range(40):
        produce(gateway, b"x" * 500 if number % 4 == 0 else b"%d" % number)
        came = published(narrow)
        got += [one.payload for one in came]
        if came:
            acknowledge(narrow, *came)
    assert got == [b"%d" % number for number in range(40) if number % 4]
    returned = gateway.downstream.shared.returned
    gateway.pass_time(5)
    assert gateway.downstream.shared.returned == returned
    stuck.cut()
    gateway.pass_time(1)
    assert gateway.downstream.shared.dropped == 10


def test_an_answer_that_comes_late_for_a_feed_that_is_gone_takes_no_new_one_with_it() -> None:
    gateway = Gateway()
    shared = gateway.downstream.shared
    first = gateway.connect("first")
    first.subscribe("$share/g/a", qos=1)
    [gone] = shared._feeds.values()
    first.send(Unsubscribe(2, ("$share/g/a",)))
    gateway.pass_time(60)  # what it had asked for is answered
    assert shared._feeds == {}
    second = gateway.connect("second")
    gateway.broker.holds = (OpenFilters,)
    second.send(Subscribe(1, (Subscription("$share/g/a", 1),)))
    shared._change(gone)
    gateway.round()
    gateway.broker.let_go()
    gateway.round()
    assert second.got_one(Suback).reason_codes == (1,)
    gateway.produce("a", b"x", qos=1)
    assert second.payloads() == [b"x"]


@pytest.mark.mqtt("4.8.2-4")
def test_a_qos_2_message_that_a_lost_gateway_could_not_settle_any_more_goes_to_nobody_else() -> None:
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    here = Gateway(name="here")
    one = here.connect("one", **asked)  # type: ignore[arg-type]
    one.subscribe(SHARE)
    here.broker.silent = {SettleShared}
    produce(here, b"1", qos=2)
    [first] = published(one)
    here.broker.silent = set()
    there = Gateway(beside=here, name="there")
    two = there.connect("two")
    two.subscribe(SHARE)
    here.broker.leave_alone("here")
    again = there.connect("one", **asked)  # type: ignore[arg-type]
    [repeated] = published(again)
    assert (repeated.payload, repeated.packet_id, repeated.dup) == (b"1", first.packet_id, True)
    there.pass_time(20.0)  # the leases of "here" are over
    assert (again.got(), two.got()) == ([], [])
    assert here.broker.shares.unsettled == 0


def test_a_share_that_could_not_be_opened_for_a_session_that_is_back_is_opened_later() -> None:
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    here = Gateway(name="here")
    here.connect("c", **asked).subscribe(SHARE)  # type: ignore[arg-type]
    here.pass_time(1.0)
    here.broker.leave_alone("here")
    there = Gateway(beside=here, name="there")
    there.broker.refuses = {OpenFilters: Unavailable("away")}
    again = there.connect("c", **asked)  # type: ignore[arg-type]
    there.broker.refuses = {}
    there.pass_time(1.0)
    produce(there, b"1", b"2")
    there.pass_time(20.0)  # the leases of "here" are over
    assert sorted(again.payloads()) == [b"1", b"2"]


@pytest.mark.mqtt("3.3.1-12", "3.3.1-13")
@pytest.mark.parametrize("is_kept", [True, False])
def test_retain_is_kept_only_as_published_in_a_share_too(is_kept: bool) -> None:
    gateway = Gateway()
    client, publisher = gateway.connect("c", level=5), gateway.connect("p")
    client.subscribe(SHARE, retain_as_published=is_kept)
    publisher.publish("a/b", b"x", 1, packet_id=1, retain=True)
    assert [one.retain for one in published(client)] == [is_kept]


def test_a_gateway_that_has_nothing_but_shares_renews_its_lease_on_their_filters() -> None:
    gateway = Gateway()
    members(gateway, 1)
    gateway.broker.requests.clear()
    gateway.pass_time(gateway.settings.filter_lease_s)
    assert len(gateway.broker.made(KeepFilters)) >= 2
