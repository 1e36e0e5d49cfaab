"""Batches to the brokers, and what their replies mean for each device."""

from __future__ import annotations

import pytest
from moving import gateway_at_moving_broker, move, tell
from rig import Client, Gateway
from several import gateway_at

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Packet, Puback, Publish, Pubrec
from gateway.mqtt.reason_codes import ReasonCode
from gateway.net.rounds import Stage
from gateway.sessions.session_state import Will
from penstock.errors import Busy, InvalidMessage, NoRoute, PenstockError, StorageFull, TimedOut, TooLarge, Unavailable
from penstock.protocol.message import NEVER, PROPERTIES_BYTES_MAX
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import QueryRoute
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic


def test_publishers_are_acknowledged_before_what_they_have_sent_is_delivered() -> None:
    gateway = Gateway()
    publisher, subscriber = gateway.connect("p"), gateway.connect("s")
    subscriber.subscribe("a")
    publisher.publish("a", b"warm", 1, packet_id=6)
    publisher.got(), subscriber.got()
    sent: list[tuple[list[Packet], list[Packet]]] = []

    class AtOnce(Stage):
        """A broker in this process answers within the round."""

        def flush(self) -> None:
            gateway.broker.flush()

    class Output(Stage):
        def flush(self) -> None:
            sent.append((publisher.got(), subscriber.got()))

    gateway.rounds.ends_with(AtOnce())
    gateway.rounds.sent_by(Output())
    gateway.rounds.begin()
    publisher.device.receive(encode(Publish("a", b"one", 1, packet_id=7), 4))
    gateway.rounds.finish()
    assert sent == [([Puback(7)], [])]
    assert subscriber.payloads() == [b"one"]


def test_a_batch_that_grows_too_large_leaves_within_the_round() -> None:
    gateway = Gateway(append_bytes_max=10_000)
    client = gateway.connect()
    client.publish("a", b"warm")
    before = len(gateway.broker.made(AppendRuns))
    gateway.rounds.begin()
    for _ in range(10):
        client.device.receive(encode(Publish("a", bytes(3000)), 4))
    gateway.round()
    assert [request.count for request in gateway.broker.made(AppendRuns)[before:]] == [4, 4, 2]
    assert len(gateway.broker.messages()) == 11


def test_one_refused_record_concerns_only_its_device() -> None:
    gateway = Gateway()
    clients = [gateway.connect(str(at), level=5) for at in range(3)]
    for client in clients:
        client.publish("a", b"warm")
    gateway.broker.refused_records = {1: Busy("no room")}
    gateway.rounds.begin()
    for client in clients:
        client.device.receive(b"\x32\x06\x00\x01a\x00\x01\x00")
    gateway.round()
    assert [client.got() for client in clients] == [[Puback(1)], [Puback(1, 0x97)], [Puback(1)]]


def test_a_topic_with_several_brokers_is_spread_by_key_and_each_key_stays() -> None:
    gateway, brokers = gateway_at(2)
    for one in brokers:
        one.ask(CreateTopic("fresh", 1))
    lanes: dict[str, set[str]] = {}
    for at in range(20):
        client = gateway.connect(f"dev-{at}")
        client.publish("fresh/x")
        for name in ("fresh/x", "fresh/y"):
            lane = gateway.upstream.route(name, f"dev-{at}").lane()
            assert lane is not None
            lanes.setdefault(f"dev-{at}", set()).add(lane.broker.address)
    assert all(len(addresses) == 1 for addresses in lanes.values())
    assert set.union(*lanes.values()) == {"b0:1", "b1:1"}


def test_a_will_is_published_with_its_flags_and_properties() -> None:
    gateway = Gateway()
    gateway.upstream.publish_will("c", Will("w", b"gone", 2, True, 0, 60, b"\x01\x01"), None)
    gateway.round()
    [message] = gateway.broker.messages()
    assert (message.name, message.body, message.qos, message.retain) == ("w", b"gone", 2, True)


def test_what_nobody_waits_for_is_counted_when_it_is_refused() -> None:
    gateway = Gateway()
    gateway.upstream.publish_will("c", Will("w", b"", 1, False, 0, NEVER, b""), None)
    gateway.broker.refused_records = {0: InvalidMessage("x")}
    gateway.round()
    assert gateway.upstream.dropped == 1


def test_properties_have_a_limit_once_stored() -> None:
    gateway = Gateway()
    route = gateway.upstream.route("a", "c")
    assert gateway.upstream.properties(route, "c", NEVER, b"") == b""  # the route's own
    assert len(gateway.upstream.properties(route, "c", NEVER, bytes(190_000))) <= PROPERTIES_BYTES_MAX
    with pytest.raises(InvalidMessage, match="262144"):
        gateway.upstream.properties(route, "c", NEVER, bytes(200_000))


def test_what_waits_of_a_connection_that_is_over_is_given_up() -> None:
    gateway = Gateway()
    stays = gateway.connect("stays")
    stays.publish("a", b"warm")
    gateway.broker.refuses[AppendRuns] = Unavailable("no connection")
    stays.publish("a", b"x", 1, packet_id=1)
    for _ in range(10):  # none of these was acknowledged: who still wants it sends it again
        client = gateway.connect("leaves")
        client.publish("a", bytes(1000), 1, packet_id=1)
        client.cut()
        gateway.pass_time(1)
    del gateway.broker.refuses[AppendRuns]
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"warm", b"x"]
    assert stays.got() == [Puback(1)]
    assert gateway.upstream.dropped == 10


def test_a_record_that_is_refused_for_itself_does_not_wait_and_closes_an_older_client() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a", b"warm")
    gateway.broker.refused_records = {0: Busy("retained_max")}
    client.publish("a", b"x", 1, packet_id=1, retain=True)
    assert client.is_closed
    assert client.got() == []


def test_a_batch_that_a_busy_broker_refuses_waits() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a", b"warm")
    gateway.broker.refuses[AppendRuns] = Busy("requests are waiting")
    client.publish("a", b"x", 1, packet_id=1)
    del gateway.broker.refuses[AppendRuns]
    gateway.pass_time(1)
    assert client.got() == [Puback(1)]


def test_what_a_client_may_have_waiting_is_bounded_however_often_it_is_tried_again() -> None:
    gateway = Gateway(unstored_bytes_max=10_000)
    client = gateway.connect()
    client.publish("a", b"warm")
    gateway.broker.refuses[AppendRuns] = StorageFull("full")
    client.send(*[Publish("a", bytes(1000), 1, packet_id=at) for at in range(1, 21)])
    for at in range(100, 130):
        gateway.broker.holds_replies = True
        gateway.pass_time(0.5)
        if client.is_read:
            client.send(*[Publish("a", bytes(1000), 1, packet_id=at * 10 + more) for more in range(10)])
        gateway.broker.holds_replies = False
        gateway.round()
    assert sum(request.count for request in gateway.broker.made(AppendRuns)[-1:]) <= 20
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert client.is_read
    assert client.got() == [Puback(at) for at in range(1, 21)]
    assert client.device.unstored == 0


def overtaken(gateway: Gateway) -> Client:
    """A client of which the broker refused one batch and has stored the next; nothing is answered yet."""
    client = gateway.connect()
    client.publish("a", b"warm")
    gateway.broker.holds_replies = True
    gateway.broker.refuses[AppendRuns] = StorageFull("full")
    client.publish("a", b"first", 1, packet_id=1)
    del gateway.broker.refuses[AppendRuns]
    client.publish("a", b"second", 1, packet_id=2)
    return client


def test_a_client_whose_message_was_overtaken_is_closed_and_sends_both_again() -> None:
    gateway = Gateway()
    client = overtaken(gateway)
    gateway.broker.holds_replies = False
    gateway.round()
    gateway.pass_time(1)
    assert client.is_closed
    assert client.got() == []
    assert gateway.broker.bodies() == [b"warm", b"second"]


def test_what_was_overtaken_is_not_tried_again_before_that_is_known() -> None:
    gateway = Gateway()
    client = overtaken(gateway)
    gateway.broker.give(0)
    gateway.pass_time(2)
    assert gateway.broker.bodies() == [b"warm", b"second"]
    gateway.broker.holds_replies = False
    gateway.round()
    gateway.pass_time(1)
    assert client.is_closed
    assert gateway.broker.bodies() == [b"warm", b"second"]


def refuse_next(gateway: Gateway, *clients: Client) -> None:
    """The next batch of each is refused for want of room; nothing is answered."""
    gateway.broker.holds_replies = True
    gateway.broker.refuses[AppendRuns] = StorageFull("full")
    for client in clients:
        client.publish("a", client.device.session.client_id.encode() + b"1", 2, packet_id=1)  # type: ignore[union-attr]
    del gateway.broker.refuses[AppendRuns]


def attempts(gateway: Gateway) -> list[int]:
    return [request.attempt for request in gateway.broker.made(AppendRuns)]


def test_after_a_refusal_for_want_of_room_the_next_attempt_begins_when_all_of_it_is_answered() -> None:
    gateway = Gateway()
    first, second, third = [gateway.connect(name) for name in ("first", "second", "third")]
    first.publish("a", b"warm")
    refuse_next(gateway, first, second)
    gateway.broker.give(0)
    gateway.round()
    third.publish("a", b"third1", 2, packet_id=1)
    assert attempts(gateway) == [0, 0, 0], "the second's is under way, and is refused too"
    gateway.broker.holds_replies = False
    gateway.round()
    assert attempts(gateway) == [0, 0, 0, 1]
    assert [client.got() for client in (first, second, third)] == [[], [], [Pubrec(1)]]
    gateway.pass_time(1)
    assert [client.got() for client in (first, second)] == [[Pubrec(1)]] * 2
    assert gateway.broker.bodies() == [b"warm", b"third1", b"first1", b"second1"]


def test_what_follows_something_kept_goes_behind_it_and_qos_0_goes_on() -> None:
    gateway = Gateway()
    client = gateway.connect("c")
    client.publish("a", b"warm")
    refuse_next(gateway, client)
    gateway.broker.holds_replies = False
    gateway.round()
    client.publish("a", b"c2", 1, packet_id=2)
    client.publish("a", b"zero")
    assert gateway.broker.bodies() == [b"warm", b"zero"]
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"warm", b"zero", b"c1", b"c2"]
    assert client.got() == [Pubrec(1), Puback(2)]
    assert client.is_read
    assert client.device.unstored == 0


def test_an_answer_that_comes_late_to_an_earlier_batch_closes_nobody() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a", b"warm")
    gateway.broker.holds_replies = True
    client.publish("a", b"first", 1, packet_id=1)
    gateway.broker.refuses[AppendRuns] = StorageFull("full")
    client.publish("a", b"second", 1, packet_id=2)
    del gateway.broker.refuses[AppendRuns]
    gateway.broker.holds_replies = False
    gateway.round()
    gateway.pass_time(1)
    assert client.got() == [Puback(1), Puback(2)]
    assert gateway.broker.bodies() == [b"warm", b"first", b"second"]


def test_publications_go_on_in_their_order_when_the_broker_comes_back_at_another_address() -> None:
    """The network never says that nobody is at the old one: what waits there must not be overtaken."""
    gateway = gateway_at_moving_broker()
    client = gateway.connect()
    client.publish("a", b"1", 1, packet_id=1)
    move(gateway)
    client.publish("a", b"2", 1, packet_id=2)
    client.publish("a", b"3", 2, packet_id=3)
    assert client.got() == [Puback(1)]
    tell(gateway)
    assert not client.is_read
    gateway.pass_time(1.0)
    assert client.is_read
    client.publish("a", b"4", 1, packet_id=4)
    assert gateway.broker.bodies() == [b"1", b"2", b"3", b"4"]
    assert client.got() == [Puback(2), Pubrec(3), Puback(4)]


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (QueryRoute, Unavailable("away")),
        (QueryRoute, NoRoute("not yet")),
        (DescribeTopic, Unavailable("away")),
        (DescribeTopic, TimedOut("late")),
    ],
)
def test_a_topic_that_nobody_can_say_a_broker_of_is_looked_up_again(
    asked: type[Request], error: PenstockError, level: int
) -> None:
    gateway = Gateway()
    client = gateway.connect(level=level)
    gateway.broker.refuses[asked] = error
    client.send(Publish("new/x", b"1", 1, packet_id=1), Publish("new/x", b"2", 2, packet_id=2))
    gateway.pass_time(2)
    assert client.got() == []
    assert not client.is_read
    assert client.device.unstored > 0
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert client.got() == [Puback(1), Pubrec(2)]
    assert gateway.broker.bodies() == [b"1", b"2"]
    assert client.is_read
    assert client.device.unstored == 0


def test_a_qos_0_message_whose_topic_cannot_be_looked_up_is_dropped_at_once() -> None:
    gateway = Gateway()
    client = gateway.connect()
    gateway.broker.refuses[QueryRoute] = Unavailable("away")
    client.publish("new/x", b"1")
    assert gateway.upstream.dropped == 1
    assert client.is_read
    gateway.broker.refuses.clear()
    client.publish("new/x", b"2")
    assert gateway.broker.bodies() == [b"2"]


def test_an_older_client_waits_also_for_room_for_a_new_topic() -> None:
    gateway = Gateway()
    old, new = gateway.connect("old"), gateway.connect("new", level=5)
    gateway.broker.refuses[DescribeTopic] = StorageFull("full")
    for client in (old, new):
        client.publish("new/x", b"x", 1, packet_id=1)
    gateway.pass_time(1)
    assert [packet.reason_code for packet in new.got() if isinstance(packet, Puback)] == [0x97]
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert old.got() == [Puback(1)]
    assert gateway.broker.bodies() == [b"x"]


def test_what_waits_for_its_topic_is_given_up_with_its_connection() -> None:
    gateway = Gateway()
    stays = gateway.connect("stays")
    gateway.broker.refuses[DescribeTopic] = Unavailable("away")
    for at in range(10):
        client = gateway.connect("leaves")
        client.publish(f"new{at}/x", bytes(1000), 1, packet_id=1)
        client.cut()
    stays.publish("new0/x", b"x", 1, packet_id=1)
    gateway.pass_time(1)
    asked = len(gateway.broker.made(DescribeTopic))
    gateway.pass_time(0.5)
    assert [request.topic for request in gateway.broker.made(DescribeTopic)[asked:]] == ["new0"]
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"x"]
    assert stays.got() == [Puback(1)]
    assert gateway.upstream.dropped == 10


def ten_of_which_some_are_refused(gateway: Gateway, level: int, refused: dict[int, PenstockError]) -> Client:
    """A client that sent ten messages in one write, in one batch."""
    client = gateway.connect(level=level)
    client.publish("a", b"warm")
    gateway.broker.refused_records = refused
    client.send(*[Publish("a", b"%d" % at, 1, packet_id=at) for at in range(1, 11)])
    return client


def test_what_the_disk_had_no_room_for_behind_the_first_part_of_a_batch_goes_again_in_order() -> None:
    gateway = Gateway()
    full: dict[int, PenstockError] = {at: StorageFull("full") for at in range(4, 10)}
    client = ten_of_which_some_are_refused(gateway, 4, full)
    assert client.got() == [Puback(at) for at in range(1, 5)]
    client.send(Publish("a", b"11", 1, packet_id=11))
    gateway.pass_time(1)
    assert client.got() == [Puback(at) for at in range(5, 12)]
    assert gateway.broker.bodies() == [b"warm", *[b"%d" % at for at in range(1, 12)]]
    assert attempts(gateway)[-1] > attempts(gateway)[0]
    assert client.device.unstored == 0


def test_an_mqtt_5_client_is_told_of_each_message_that_the_disk_had_no_room_for() -> None:
    gateway = Gateway()
    full: dict[int, PenstockError] = {at: StorageFull("full") for at in range(4, 10)}
    client = ten_of_which_some_are_refused(gateway, 5, full)
    got = [(one.packet_id, one.reason_code) for one in client.got() if isinstance(one, Puback)]
    assert [packet_id for packet_id, _ in got] == list(range(1, 11))
    assert [reason for _, reason in got] == [ReasonCode.SUCCESS] * 4 + [ReasonCode.QUOTA_EXCEEDED] * 6


def test_a_message_that_no_segment_holds_is_refused_alone_with_a_reason_of_its_own() -> None:
    gateway = Gateway()
    client = ten_of_which_some_are_refused(gateway, 5, {4: TooLarge("a message does not fit a segment")})
    got = [one for one in client.got() if isinstance(one, Puback)]
    assert [one.packet_id for one in got] == list(range(1, 11))
    assert [one.packet_id for one in got if one.reason_code != ReasonCode.SUCCESS] == [5]
    assert got[4].reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert "larger than a broker stores" in str(got[4])
    assert len(gateway.broker.bodies()) == 10
