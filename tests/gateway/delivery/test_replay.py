"""History for a new subscription, and where it meets what comes live."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linked_broker import RETAINING, LinkedBroker
from own_topics import OnlyOwnTopics
from past import another, asking, gateway_with, numbers, stored_at
from rig import Gateway, HandClock

from gateway.delivery import lookups, replay
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connect, Puback, Publish, Pubrec, Suback, Subscribe, Subscription, Unsubscribe
from gateway.mqtt.properties import Properties
from penstock.errors import Busy
from penstock.protocol.requests.filters import FetchRetained, OpenFilters
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.topics import CreateTopic, DeleteTopic, DescribeTopic


@pytest.fixture(autouse=True, params=[False, True], ids=["later", "at once"])
def _replies(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Pages are small, and the broker's replies come later, or at once."""
    monkeypatch.setattr(replay, "PAGE_COUNT", 2)
    monkeypatch.setattr(LinkedBroker, "answers_at_once", request.param)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", range(20)),
        ("time=0", range(20)),
        ("time=1012000", range(12, 20)),
        ("time=9999000", []),
        ("last=5", range(15, 20)),
        ("last=0", []),
        ("last=1000", range(20)),
        ("offset=3", range(9, 20)),
        ("offset=0", range(20)),
        ("offset=99", []),
        ("offset=1:0", [1, 4, 7, 10, 13, 16, 19]),
    ],
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_history_comes_in_order_from_where_it_was_asked_for(start: str, expected: range, qos: int) -> None:
    gateway, _ = gateway_with(20)
    client = gateway.connect("s", level=5)
    assert client.subscribe("plant/#", qos=qos, properties=asking(start)) == Suback(1, (qos,))
    assert numbers(client) == list(expected)


def test_only_what_the_filter_matches_is_replayed_and_counted_for_the_last_n() -> None:
    gateway, _ = gateway_with(20)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/1", properties=asking("last=3"))
    assert numbers(client) == [15, 17, 19]


def test_history_is_as_the_subscription_wants_it() -> None:
    gateway, publisher = gateway_with(2)
    publisher.publish("plant/0", b"7", 2, packet_id=9, retain=True)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/+", qos=1, properties=asking("last=2", identifier=5), retain_as_published=True)
    got = [one for one in client.got() if isinstance(one, Publish)]
    assert [(one.payload, one.qos, one.retain, one.properties.subscription_identifiers) for one in got] == [
        (b"1", 1, False, (5,)),
        (b"7", 1, True, (5,)),
    ]


def test_history_takes_the_place_of_retained_messages() -> None:
    gateway, publisher = gateway_with(0)
    publisher.publish("plant/0", b"1", retain=True)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("beginning"))
    assert numbers(client) == [1]
    assert not gateway.broker.made(FetchRetained)


def test_a_clients_own_messages_stay_away_where_it_wants_no_local_ones() -> None:
    gateway, _ = gateway_with(4)
    gateway.connect("s").publish("plant/0", b"99")
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("beginning"), no_local=True)
    assert numbers(client) == [0, 1, 2, 3]


def test_what_has_expired_is_not_replayed() -> None:
    gateway, _ = gateway_with(0)
    other = gateway.connect("p5", level=5)
    other.publish("plant/0", b"1", properties=Properties(message_expiry_interval=5))
    other.publish("plant/0", b"2")
    gateway.pass_time(6)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("beginning"))
    assert numbers(client) == [2]


def test_places_name_the_queue_the_offset_and_the_time_of_each_message_replayed_or_live() -> None:
    gateway, _ = gateway_with(3, queues=2)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("beginning", place="true"))
    gateway.produce("plant/0", b"3", 1)
    places = [dict(one.properties.user_properties) for one in client.got() if isinstance(one, Publish)]
    assert [(one["penstock-queue"], one["penstock-offset"]) for one in places] == [
        ("plant:0", "0"),
        ("plant:1", "0"),
        ("plant:0", "1"),
        ("plant:1", "1"),
    ]
    assert [int(one["penstock-time"]) for one in places] == [1_000_000, 1_001_000, 1_002_000, 1_003_000]


def test_a_place_stands_before_what_its_publisher_calls_the_same() -> None:
    gateway, _ = gateway_with(0, queues=1)
    made_up = (("penstock-offset", "7"), ("penstock-queue", "tank:9"))
    gateway.connect("p", level=5).publish("plant/0", b"1", properties=Properties(user_properties=made_up))
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("beginning", place="true"))
    said = client.got_one(Publish).properties.user_properties
    assert [name for name, _ in said] == [f"penstock-{one}" for one in ("queue", "offset", "time", "offset", "queue")]
    assert said[:2] == (("penstock-queue", "plant:0"), ("penstock-offset", "0"))


def test_a_retained_message_says_where_it_is_stored_too() -> None:
    gateway, publisher = gateway_with(4, queues=2)
    publisher.publish("plant/0", b"4", retain=True)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking(place="true"))
    [kept] = [packet for packet in client.got() if isinstance(packet, Publish)]
    said = dict(kept.properties.user_properties)
    assert kept.retain
    assert (said["penstock-queue"], said["penstock-offset"]) == ("plant:0", "2")


def test_a_place_is_where_another_subscriber_may_begin() -> None:
    gateway, _ = gateway_with(12)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("time=1008000", place="true"))
    places = {}
    for one in reversed([packet for packet in client.got() if isinstance(packet, Publish)]):
        said = dict(one.properties.user_properties)
        places[said["penstock-queue"].rpartition(":")[2]] = said["penstock-offset"]
    other = gateway.connect("t", level=5)
    other.subscribe("plant/#", properties=asking(*[f"offset={queue}:{offset}" for queue, offset in places.items()]))
    assert numbers(other) == [8, 9, 10, 11]


@given(st.data())
def test_history_and_live_messages_meet_without_gap_or_duplicate(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 1 << 32))
    rng = random.Random(seed)
    gateway, publisher = gateway_with(
        rng.randrange(30), rng.choice((1, 2, 5)), rng, in_flight_max=rng.choice((1, 3, 100))
    )
    stored = len(gateway.broker.messages())
    client = gateway.connect("s", level=5)
    got: list[int] = []

    def take() -> None:
        for packet in client.got():
            if isinstance(packet, Publish):
                got.append(int(packet.payload))
                client.device.receive(b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))

    gateway.broker.holds_replies = True
    client.send(Subscribe(1, (Subscription("plant/#", 1),), asking("beginning")))
    for _ in range(300):
        match rng.randrange(4):
            case 0:
                publisher.publish("plant/0", b"%d" % stored, 1, packet_id=stored + 1)
                stored += 1
            case 1:
                gateway.broker.release()
                gateway.round()
            case 2:
                take()
            case 3:
                client.is_full = not client.is_full
                if not client.is_full:
                    client.device.writable()
                gateway.round()
    client.is_full = False
    client.device.writable()
    gateway.broker.holds_replies = False
    for _ in range(stored + 2):
        gateway.round()
        take()
    assert got == list(range(stored)), seed


def test_subscribing_anew_with_a_start_repeats_history_and_loses_nothing_live() -> None:
    gateway, publisher = gateway_with(3)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#")
    publisher.publish("plant/0", b"3")
    assert numbers(client) == [3]
    client.subscribe("plant/#", properties=asking("last=2"))
    publisher.publish("plant/0", b"4")
    assert numbers(client) == [2, 3, 4]


def test_a_topic_that_nobody_has_published_to_has_no_history() -> None:
    gateway, publisher = gateway_with(0)
    client = gateway.connect("s", level=5)
    assert client.subscribe("plant/#", properties=asking("beginning")) == Suback(1, (2,))
    publisher.publish("plant/0", b"1")
    assert numbers(client) == [1]


def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    gateway, _ = gateway_with(5)
    gateway.broker.refuses[Pull] = Busy("later")
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("beginning"))
    assert numbers(client) == []
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert numbers(client) == [0, 1, 2, 3, 4]


def test_history_that_retention_takes_meanwhile_is_passed_over() -> None:
    gateway, _ = gateway_with(2, queues=1, broker=LinkedBroker(HandClock(), **RETAINING))
    border = gateway.broker.border()
    for number in range(2, 6):
        gateway.produce("plant", b"%d" % number, mqtt_topic="plant/0", qos=1)
    client = gateway.connect("s", level=5)
    gateway.broker.refuses[Pull] = Busy("later")
    client.subscribe("plant/#", properties=asking("beginning"))
    gateway.broker.lose_before(border)
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert numbers(client) == [2, 3, 4, 5]


@pytest.mark.parametrize("start", ["beginning", "last=3"])
def test_a_topic_that_is_deleted_meanwhile_has_no_more_history_and_what_is_live_goes_on(start: str) -> None:
    gateway, publisher = gateway_with(6)
    client = gateway.connect("s", level=5)
    gateway.broker.refuses[Pull] = Busy("later")
    client.subscribe("plant/#", properties=asking(start))
    gateway.broker.ask(DeleteTopic("plant"))
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    asked = len(gateway.broker.made(Pull))
    gateway.pass_time(5)
    assert len(gateway.broker.made(Pull)) == asked, "nobody asks for it any more"
    publisher.publish("plant/0", b"7")
    gateway.pass_time(1)
    assert numbers(client) == [7]


def test_the_last_few_are_looked_for_from_the_end_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "LOOKED_AT_MAX", 100)
    gateway, _ = gateway_with(300, queues=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/1", properties=asking("last=2"))
    assert numbers(client) == [297, 299]
    assert min(one.offset for one in gateway.broker.made(Pull) if one.queue == "plant:0") >= 200
    client.subscribe("plant/none", properties=asking("last=2"))
    assert min(one.offset for one in gateway.broker.made(Pull) if one.queue == "plant:0") >= 100


def test_the_last_few_are_found_where_one_answer_does_not_hold_all_that_is_looked_at() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    for number in range(6):
        publisher.publish("plant/0", b"%d" % number + b" " * (replay.BYTES // 2), 1, packet_id=number + 1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("last=4"))
    assert numbers(client) == [2, 3, 4, 5]


def test_the_last_few_are_looked_for_anew_when_retention_has_passed_what_was_looked_at() -> None:
    broker = LinkedBroker(HandClock(), **RETAINING)
    gateway, _ = gateway_with(97, queues=1, broker=broker, session_lease_s=1000)
    border = gateway.broker.border()
    for number in range(97, 100):
        gateway.produce("plant", b"%d" % number, mqtt_topic="plant/0", qos=1)
    client = gateway.connect("s", level=5)
    gateway.broker.refuses[Pull] = Busy("later")
    client.subscribe("plant/#", properties=asking("last=5"))
    gateway.broker.lose_before(border)
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert numbers(client) == [97, 98, 99]


def test_a_replay_holds_no_more_than_its_share_in_memory() -> None:
    gateway, _ = gateway_with(200, queues=1, in_flight_max=2)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("beginning"))
    pulls = [one for one in gateway.broker.made(Pull) if one.queue == "plant:0"]
    assert len(pulls) == 2
    assert pulls[0].bytes_max <= replay.BYTES
    assert len(gateway.downstream.replays) == 1
    client.cut()
    assert len(gateway.downstream.replays) == 0


@pytest.mark.mqtt("3.9.3-2", "3.9.2-1")
@pytest.mark.parametrize(
    ("filter", "start", "code", "said"),
    [
        ("+/x", "beginning", 0x83, "first level is a name"),
        ("#", "last=1", 0x83, "first level is a name"),
        ("$share/g/plant/#", "beginning", 0x83, "no history"),
        ("plant/#", "tomorrow", 0x83, "penstock-start is"),
        ("plant/#", "last=4097", 0x83, "last is a number from 0 to 4096"),
        ("secret/x", "beginning", 0x87, None),
    ],
)
def test_a_start_that_cannot_be_is_refused_and_told_why(filter: str, start: str, code: int, said: str | None) -> None:
    client = Gateway(OnlyOwnTopics()).connect("c", level=5)
    suback = client.subscribe(filter, properties=asking(start))
    assert suback.reason_codes == (code,)
    assert (said or "") in (suback.properties.reason_string or "")
    assert said is None or suback.properties.reason_string


@pytest.mark.mqtt("4.4.0-1", old=("4.4.0-1",))
@pytest.mark.parametrize("qos", [1, 2])
def test_history_that_was_not_acknowledged_is_sent_again_to_a_session_that_comes_back(qos: int) -> None:
    gateway, publisher = gateway_with(4, queues=2)
    for number in range(4, 9):
        publisher.publish("plant/0", b"%d" % number, 2, packet_id=100 + number)
    lasting = Properties(session_expiry_interval=60)
    client = gateway.connect("s", level=5, clean_start=False, properties=lasting)
    client.subscribe("plant/#", qos=qos, properties=asking("time=1002000"))
    sent = [packet for packet in client.got() if isinstance(packet, Publish)]
    assert [int(packet.payload) for packet in sent] == list(range(2, 9))
    client.send(Puback(sent[0].packet_id), *([Pubrec(sent[-1].packet_id)] if qos == 2 else []))
    client.got()
    for _ in range(2):  # the state survives being saved anew
        client.cut()
        client = gateway.open(5)
        client.send(Connect("s", False, properties=lasting, level=5))
        again = [packet for packet in client.got() if isinstance(packet, Publish)]
        waiting = [packet for packet in (sent[1:-1] if qos == 2 else sent[1:]) if packet.qos]
        assert [(one.payload, one.packet_id, one.dup) for one in again] == [
            (one.payload, one.packet_id, True) for one in waiting
        ]


def test_reading_many_long_histories_leaves_time_for_everybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "WORK_MAX", 60)
    monkeypatch.setattr(replay, "LOOK_COUNT", 4)
    gateway, _ = gateway_with(100, queues=1)
    greedy, modest = gateway.connect("greedy", level=5), gateway.connect("modest", level=5)
    gateway.rounds.begin()
    for client, filters in ((greedy, [f"plant/none/{number}" for number in range(100)]), (modest, ["plant/1"])):
        asked = tuple([Subscription(filter) for filter in filters])
        client.device.receive(encode(Subscribe(1, asked, asking("last=2")), 5))
    read, rounds, got = 0, 0, []
    while len(gateway.downstream.replays):
        gateway.rounds.finish()
        gateway.broker.flush()
        pulls = len([one for one in gateway.broker.made(Pull) if one.queue == "plant:0"])
        assert pulls - read <= 8 * 4, "a round's end has eight turns at most, each with four small requests"
        read, rounds = pulls, rounds + 1
        gateway.rounds.begin()
        got += numbers(modest)
        if len(got) == 2:
            assert read < 250, "the hundred filters of another client do not go first"
            break
    gateway.round()
    assert got == [97, 99]
    assert len(gateway.downstream.replays) == 0


@pytest.mark.parametrize("start", ["beginning", "last=5", "time=1", "named=mine"])
def test_a_topic_of_many_queues_is_looked_at_a_little_at_a_time(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "WORK_MAX", 60)
    gateway, _ = gateway_with(100, queues=50)
    client = gateway.connect("s", level=5)
    gateway.rounds.begin()
    client.device.receive(encode(Subscribe(1, (Subscription("plant/#"),), asking(start)), 5))
    made = len(gateway.broker.requests)
    while len(gateway.downstream.replays):
        gateway.rounds.finish()
        gateway.broker.flush()
        assert len(gateway.broker.requests) - made <= 8 * 5
        made = len(gateway.broker.requests)
        gateway.rounds.begin()
    gateway.round()
    assert numbers(client) == {"last=5": [*range(95, 100)], "named=mine": []}.get(start, [*range(100)])


def test_so_many_replays_run_at_a_time() -> None:
    gateway, _ = gateway_with(5, in_flight_max=1, replays_max=1)
    first, second = gateway.connect("s", level=5), gateway.connect("t", level=5)
    assert first.subscribe("plant/#", properties=asking("beginning")).reason_codes == (2,)
    assert second.subscribe("plant/#", properties=asking("beginning")).reason_codes == (0x97,)
    assert gateway.quotas.refused["replays_max"] == 1


def test_the_last_n_are_those_of_each_broker_that_has_the_topic() -> None:
    """Logs of two brokers have no common order, so N counts at each of them (docs/guide/device.md): none of the
    last N of all is missing."""
    gateway = Gateway()
    first, second = gateway.broker, another(gateway)
    for one in (first, second):
        one.ask(CreateTopic("plant", 1))
    gateway.learn(second)
    publishers = [gateway.connect(name) for name in ("p4", "p0")]  # whose keys choose one broker each
    for number in range(20):
        publishers[number % 4 == 0].publish("plant/1", b"%d" % number, 1, packet_id=number + 1)
    assert [len(first.bodies()), len(second.bodies())] == [15, 5]
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("last=3"))
    got = numbers(client)
    assert [one for one in got if one % 4] == [17, 18, 19]
    assert [one for one in got if not one % 4] == [8, 12, 16]
    assert len(got) == 6


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_comes_while_a_subscribe_waits_for_one_of_two_brokers_comes_behind_the_history_and_once(
    is_refused: bool,
) -> None:
    gateway, _ = gateway_with(2, queues=1)
    first, second = gateway.broker, another(gateway)
    gateway.learn(second)
    second.answers_at_once, second.holds = False, (OpenFilters,)
    client = gateway.connect("s", level=5)
    client.send(Subscribe(1, (Subscription("plant/#", 1),), asking("beginning")))
    stored_at(first, 2)
    gateway.round()
    assert client.got() == []
    if is_refused:
        second.lose_kept_back(Busy("no room for another filter"))
    second.let_go()
    second.release()
    gateway.round()
    assert client.got_one(Suback).reason_codes == (0x97,) if is_refused else numbers(client) == [0, 1, 2]
    assert len(gateway.downstream.replays) == 0


def test_a_history_goes_on_where_the_subscribe_that_was_to_replace_it_is_refused() -> None:
    gateway, _ = gateway_with(4, queues=1, in_flight_max=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("beginning"))
    [first] = [one for one in client.got() if isinstance(one, Publish)]
    gateway.broker.answers_at_once, gateway.broker.holds = False, (OpenFilters,)
    client.send(Subscribe(2, (Subscription("plant/#", 1),), asking("last=1")), Puback(first.packet_id))
    assert client.got() == [], "it may begin again at any moment"
    gateway.broker.lose_kept_back(Busy("no room for another filter"))
    gateway.round()
    came = []
    while sent := [packet for packet in client.got() if isinstance(packet, Publish)]:
        came += [int(packet.payload) for packet in sent]
        client.send(*[Puback(packet.packet_id) for packet in sent])
    assert came == [1, 2, 3]


def test_so_many_replays_run_at_a_time_also_of_one_subscribe() -> None:
    gateway, _ = gateway_with(5, in_flight_max=1, replays_max=2)
    client = gateway.connect("s", level=5)
    filters = [f"plant/{number}" for number in range(5)]
    assert client.subscribe(*filters, properties=asking("beginning")).reason_codes == (2, 2, 0x97, 0x97, 0x97)
    client.send(Unsubscribe(1, tuple(filters)))
    assert len(gateway.downstream.replays) == 0


def test_retained_messages_come_behind_a_history_that_goes_on() -> None:
    gateway, publisher = gateway_with(5, in_flight_max=1)
    publisher.publish("plant/kept", b"9", 1, packet_id=99, retain=True)
    client = gateway.connect("s", level=5)
    client.send(Subscribe(1, (Subscription("plant/#", 1),), asking("beginning")))
    client.send(Subscribe(2, (Subscription("plant/#", 1),)))
    came = []
    while sent := [packet for packet in client.got() if isinstance(packet, Publish)]:
        came += [(int(packet.payload), packet.retain) for packet in sent]
        client.send(*[Puback(packet.packet_id) for packet in sent])
    assert came == [*[(number, False) for number in range(5)], (9, False), (9, True)]


def test_a_history_that_is_cut_off_goes_on_although_retained_messages_were_asked_for_too() -> None:
    gateway, _ = gateway_with(5, in_flight_max=1)
    lasting = Properties(session_expiry_interval=60)
    client = gateway.connect("s", level=5, clean_start=False, properties=lasting)
    client.send(Subscribe(1, (Subscription("plant/#", 1),), asking("beginning")))
    client.send(Subscribe(2, (Subscription("plant/#", 1),)))
    client.cut()
    client = gateway.open(5)
    client.send(Connect("s", False, properties=lasting, level=5))
    came = []
    while sent := [packet for packet in client.got() if isinstance(packet, Publish)]:
        came += [int(packet.payload) for packet in sent]
        client.send(*[Puback(packet.packet_id) for packet in sent])
    assert came == list(range(5))


def test_history_goes_on_up_to_where_a_filter_that_the_broker_has_closed_is_opened_again() -> None:
    gateway, publisher = gateway_with(6, in_flight_max=2)
    gateway.connect("live").subscribe("plant/#")
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("beginning"))
    got = [one for one in client.got() if isinstance(one, Publish)]
    assert [one.payload for one in got] == [b"0", b"1"]
    gateway.broker.lose_filter("plant/#")
    for number in (6, 7):
        publisher.publish("plant/0", b"%d" % number, 1, packet_id=number)
    gateway.broker.release()
    gateway.pass_time(1)
    publisher.publish("plant/1", b"8", 1, packet_id=8)
    seen: list[int] = []
    while got:
        seen += [int(one.payload) for one in got]
        for one in got:
            client.send(Puback(one.packet_id))
        gateway.pass_time(0.5)
        got = [one for one in client.got() if isinstance(one, Publish)]
    assert seen == list(range(9))
    assert not gateway.downstream.replays._interrupted


def test_of_history_that_a_closed_filter_has_interrupted_nothing_is_kept_when_the_subscription_ends() -> None:
    gateway, _ = gateway_with(6, in_flight_max=2)
    gateway.connect("live").subscribe("plant/#")
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("beginning"))
    gateway.broker.refuses[OpenFilters] = Busy("not now")
    gateway.broker.lose_filter("plant/#")
    gateway.broker.release()
    gateway.round()
    assert gateway.downstream.replays._interrupted
    client.send(Unsubscribe(2, ("plant/#",)))
    assert not gateway.downstream.replays._interrupted


def test_history_of_a_topic_with_many_queues_goes_on_where_a_closed_filter_has_interrupted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "QUEUES_KEPT_MAX", 2)
    gateway, _ = gateway_with(6, in_flight_max=6)
    gateway.connect("live").subscribe("plant/#")
    client = gateway.connect("s", level=5, properties=Properties(receive_maximum=2))
    client.subscribe("plant/#", qos=1, properties=asking("beginning"))
    gateway.broker.lose_filter("plant/#")
    gateway.broker.release()
    gateway.pass_time(1)
    seen: list[int] = []
    while got := [one for one in client.got() if isinstance(one, Publish)]:
        seen += [int(one.payload) for one in got]
        client.send(*[Puback(one.packet_id) for one in got])
    assert seen == list(range(6))


@pytest.mark.parametrize("kind", [DescribeTopic, FetchRetained])
def test_an_answer_that_nobody_has_foreseen_ends_one_client(kind: type) -> None:
    gateway, publisher = gateway_with(1)
    publisher.publish("plant/kept", b"9", 1, packet_id=99, retain=True)
    client, other = gateway.connect("s", level=5), gateway.connect("t", level=5)
    gateway.broker.answers[kind] = Done()
    client.send(Subscribe(1, (Subscription("plant/#", 1),), asking(*(["beginning"] if kind is DescribeTopic else []))))
    gateway.broker.answers.clear()
    assert client.is_closed
    assert gateway.downstream.failures == 1
    other.subscribe("plant/#", properties=asking("beginning"))
    assert numbers(other) == [0, 9]
