"""Positions that the server keeps for a subscription with a name."""

from __future__ import annotations

from typing import Any

import pytest
from own_topics import OnlyOwnTopics
from past import another, asking, gateway_with, numbers, stored_at
from rig import Client, Gateway

from gateway.delivery import named_positions
from gateway.mqtt.packets import Puback, Publish, Pubrec, Subscribe, Subscription, Unsubscribe
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from penstock.errors import Busy, Fenced, Unavailable
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.groups import HoldOffsets
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.topics import DescribeTopic


def take(client: Client, *, answers: bool = True, refuses: bool = False) -> list[int]:
    """What came, acknowledged."""
    packets = [one for one in client.got() if isinstance(one, Publish)]
    for one in packets if answers else ():
        if one.qos:
            kind = Puback if one.qos == 1 else Pubrec
            client.send(kind(one.packet_id, 0x80 if refuses else 0))
    return [int(one.payload) for one in packets]


def kept(gateway: Gateway, name: str = "billing") -> dict[str, int]:
    gateway.pass_time(0.5)
    return gateway.broker.positions(name)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_position_moves_as_the_client_acknowledges_and_the_next_one_begins_there(qos: int, refuses: bool) -> None:
    gateway, publisher = gateway_with(6)
    for number in range(6, 9):
        publisher.publish("plant/0", b"%d" % number, 2, packet_id=100 + number)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=qos, properties=asking("named=billing", "beginning"))
    assert take(client, refuses=refuses) == list(range(9))
    publisher.publish("plant/0", b"9", 2, packet_id=200)
    assert take(client, refuses=refuses) == [9]
    assert sum(kept(gateway).values()) == 10
    client.cut()
    for number in (10, 11):
        publisher.publish("plant/0", b"%d" % number)
    again = gateway.connect("t", level=5)
    again.subscribe("plant/#", qos=qos, properties=asking("named=billing", "beginning"))
    assert take(again) == [10, 11]


def test_what_is_not_acknowledged_stays_before_the_position() -> None:
    gateway, _ = gateway_with(5, queues=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("named=billing", "beginning"))
    packets = [one for one in client.got() if isinstance(one, Publish)]
    assert kept(gateway) == {"plant:0": 0}
    client.send(*[Puback(packets[at].packet_id) for at in (0, 1, 3)])
    assert kept(gateway) == {"plant:0": 2}
    client.send(Puback(packets[2].packet_id))
    assert kept(gateway) == {"plant:0": 4}


def named(gateway: Gateway, *filters: str) -> Client:
    """A durable session that subscribes, if it is new; the last filter has the name."""
    client = gateway.connect("s", level=5, clean_start=False, properties=Properties(session_expiry_interval=1000))
    for one in filters:
        client.subscribe(one, qos=1, properties=asking("named=billing") if one == filters[-1] else NO_PROPERTIES)
    return client


def packet_ids(client: Client) -> list[int]:
    return [one.packet_id for one in client.got() if isinstance(one, Publish)]


@pytest.mark.parametrize("filters", [("plant/#",), ("plant/#", "plant/+")])
@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_sent_again_and_not_acknowledged_stays_before_the_position(
    filters: tuple[str, ...], is_lost: bool
) -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = named(gateway, *filters)
    for number in (0, 1):
        publisher.publish("plant/0", b"%d" % number, 1, packet_id=1)
    assert numbers(client) == [0, 1]
    gateway.pass_time(1)
    if is_lost:
        lost, gateway = gateway, Gateway(beside=gateway, name="other")
        gateway.broker.leave_alone("gw")
        publisher = gateway.connect("p")
        again = named(gateway)
        others_turn(lost)
    else:
        client.cut()
        again = named(gateway)
    publisher.publish("plant/0", b"2", 1, packet_id=1)
    first, second, third = packet_ids(again)
    again.send(Puback(third))
    assert kept(gateway).get("plant:0", 0) == 0
    again.send(Puback(first))
    assert kept(gateway) == {"plant:0": 1}
    again.send(Puback(second))
    assert kept(gateway) == {"plant:0": 3}


def test_messages_from_before_a_subscription_and_retained_ones_do_not_count_for_its_name() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = named(gateway, "plant/#")
    publisher.publish("plant/0", b"0", 1, packet_id=1, retain=True)
    assert take(client) == [0]
    client.subscribe("plant/+/#", qos=1)
    publisher.publish("plant/0", b"1", 1, packet_id=1)
    assert numbers(client) == [0, 1]  # 0 as the retained one
    client.subscribe("plant/+", qos=1, properties=asking("named=later"))
    client.cut()
    again = named(gateway)
    publisher.publish("plant/0", b"2", 1, packet_id=1)
    _, first, second = packet_ids(again)
    again.send(Puback(second))
    assert (kept(gateway), kept(gateway, "later")) == ({"plant:0": 1}, {"plant:0": 3})
    again.send(Puback(first))
    assert kept(gateway) == {"plant:0": 3}


def test_of_a_connection_that_ends_before_its_filter_stands_nothing_is_left() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = named(gateway, "plant/#")
    publisher.publish("plant/0", b"0", 1, packet_id=1)
    client.cut()
    gateway.broker.holds = (OpenFilters,)
    named(gateway).cut()
    assert gateway.downstream.positions._of_group == {}


def test_a_name_that_nobody_has_used_begins_now() -> None:
    gateway, publisher = gateway_with(3)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("named=billing"))
    publisher.publish("plant/0", b"3")
    assert take(client) == [3]


@pytest.mark.parametrize("starts", [(), ("last=2",), ("offset=7:0",)])
@pytest.mark.parametrize(("queues", "count"), [(1, 40), (3, 1)])
def test_a_name_that_nobody_has_used_begins_before_what_came_while_its_topic_was_asked_for(
    starts: tuple[str, ...], queues: int, count: int
) -> None:
    gateway, publisher = gateway_with(6, queues=queues)
    gateway.broker.refuses[DescribeTopic] = Unavailable("later")
    client = gateway.connect("s", level=5, properties=Properties(receive_maximum=3))
    client.subscribe("plant/#", qos=1, properties=asking("named=billing", *starts))
    published(publisher, *["plant/0"] * count, first=6)
    gateway.broker.refuses.clear()
    gateway.broker.holds = (Pull,)
    while not gateway.broker.positions("billing"):  # what is live is kept back
        gateway.broker.let_go()
        gateway.broker.holds = (Pull,)
        gateway.pass_time(0.5)
    begins = dict(gateway.broker.positions("billing"))
    expected = 4 if starts == ("last=2",) else 6
    assert sum(begins.values()) == expected, "it begins with the first message that is still to be sent"
    gateway.broker.let_go()
    gateway.round()
    assert take(client, answers=False) == list(range(expected, min(expected + 3, 6 + count)))
    assert kept(gateway) == begins


def test_a_name_that_begins_when_its_session_is_back_begins_before_what_came_meanwhile() -> None:
    gateway, publisher = gateway_with(2, queues=1)
    gateway.broker.refuses[DescribeTopic] = Unavailable("later")
    client = named(gateway, "plant/1")
    client.cut()
    published(publisher, *["plant/1"] * 3, *["plant/0"] * 30, first=2)
    gateway.broker.refuses.clear()
    again = named(gateway)
    assert take(again, answers=False) == [2, 3, 4]
    assert kept(gateway) == {"plant:0": 2}


def test_a_name_begins_where_a_native_consumer_has_committed() -> None:
    gateway, _ = gateway_with(6)
    gateway.broker.commit("billing", {"plant:0": 1, "plant:1": 2})
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("named=billing", "beginning"))
    assert take(client) == [2, 3, 5]


def test_what_comes_to_queues_where_nothing_was_acknowledged_is_not_passed_over() -> None:
    gateway, publisher = gateway_with(3)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("named=billing"))
    publisher.publish("plant/0", b"3", 1, packet_id=1)
    assert take(client) == [3]
    client.cut()
    for number in range(4, 9):
        publisher.publish("plant/0", b"%d" % number, 1, packet_id=number)
    again = gateway.connect("t", level=5)
    again.subscribe("plant/#", qos=1, properties=asking("named=billing"))
    assert take(again) == list(range(4, 9))


def test_a_queue_of_which_a_position_says_nothing_begins_with_its_oldest_message() -> None:
    gateway, _ = gateway_with(6)
    gateway.broker.commit("billing", {"plant:0": 1})
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("named=billing", "last=1"))
    assert take(client) == [1, 2, 3, 4, 5]


def test_each_of_two_positions_moves_by_the_acknowledgements_of_its_own_copies() -> None:
    gateway, _ = gateway_with(3, queues=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("named=a", "beginning"))
    first = [one for one in client.got() if isinstance(one, Publish)]
    client.subscribe("plant/+", qos=1, properties=asking("named=b", "beginning"))
    assert take(client, answers=False) == [0, 1, 2]
    client.send(*[Puback(one.packet_id) for one in first])
    assert (kept(gateway, "a"), kept(gateway, "b")) == ({"plant:0": 3}, {"plant:0": 0})


def test_a_position_is_kept_by_those_who_may(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, _ = gateway_with(2, authenticator=OnlyOwnTopics())
    client = gateway.connect("s", level=5, clean_start=False, properties=Properties(session_expiry_interval=60))
    suback = client.subscribe("plant/#", qos=1, properties=asking("named=secret"))
    assert suback.reason_codes == (0x87,)
    assert suback.properties.reason_string == "the position secret is not this client's to keep"
    assert client.subscribe("plant/#", qos=1, properties=asking("named=own")).reason_codes == (1,)
    monkeypatch.setattr(OnlyOwnTopics, "may_position", lambda *_: False)
    gateway.rounds.begin()
    gateway.judge_again()
    gateway.round()
    assert client.device.session is not None
    assert client.device.session.subscriptions == {}


def test_a_commit_that_got_lost_is_made_again_and_one_that_is_refused_is_not() -> None:
    gateway, publisher = gateway_with(1, queues=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=0, properties=asking("named=billing", "beginning"))
    assert numbers(client) == [0]
    gateway.broker.refuses[HoldOffsets] = Unavailable("away")
    assert kept(gateway) == {}
    gateway.broker.refuses.clear()
    assert kept(gateway) == {"plant:0": 1}
    gateway.broker.refuses[HoldOffsets] = Fenced("a native consumer holds it")
    publisher.publish("plant/0", b"1")
    assert kept(gateway) == {"plant:0": 1}
    gateway.broker.refuses.clear()
    assert kept(gateway) == {"plant:0": 1}
    assert gateway.downstream.positions.refused == 1


@pytest.mark.parametrize("later", [(), ("named=other",)])
def test_a_subscription_that_gives_its_name_up_holds_the_position_back_no_more(later: tuple[str, ...]) -> None:
    gateway, publisher = gateway_with(0, queues=1)
    publisher.publish("plant/0", b"0", 1, packet_id=1)
    clients = [gateway.connect(name, level=5) for name in ("s", "t")]
    for client in clients:
        client.subscribe("plant/#", qos=1, properties=asking("named=billing"))
    clients[0].subscribe("plant/#", qos=1, properties=asking(*later))
    for number in range(1, 4):
        publisher.publish("plant/0", b"%d" % number, 1, packet_id=number)
    for client in clients:
        assert take(client) == [1, 2, 3]
    assert kept(gateway) == {"plant:0": 4}


def published(publisher: Client, *names: str, first: int = 0) -> None:
    for number, name in enumerate(names, first):
        publisher.gateway.produce(name, b"%d" % number, qos=1)


def subscriber(gateway: Gateway, name: str, *filters: str, start: str = "beginning", room: int = 100) -> Client:
    """A client that subscribes; the last filter has the name."""
    client = gateway.connect(name, level=5, properties=Properties(receive_maximum=room))
    for one in filters:
        client.subscribe(one, qos=1, properties=asking("named=billing", start) if one == filters[-1] else NO_PROPERTIES)
    return client


def others_turn(*gateways: Gateway) -> None:
    for gateway in gateways:
        gateway.rounds.begin()
        gateway.round()


@pytest.mark.parametrize("is_history", [False, True])
def test_a_session_that_was_away_has_a_say_also_in_queues_of_which_it_is_sent_nothing_yet(is_history: bool) -> None:
    gateway, publisher = gateway_with(0, queues=2)
    if is_history:
        published(publisher, "plant/0", "plant/0")
    asked: dict[str, Any] = {
        "clean_start": False,
        "properties": Properties(session_expiry_interval=1000, receive_maximum=1),
    }
    slow = gateway.connect("s", level=5, **asked)
    slow.subscribe("plant/#", qos=1, properties=asking("named=billing", "beginning"))
    if not is_history:
        published(publisher, "plant/0", "plant/0")
    other = subscriber(gateway, "t", "plant/#")
    kept(gateway)
    gateway.connect("s", level=5, **asked)  # takes over, and has room for one
    assert take(other) == [0, 1]
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 0, "plant:1": 0}


# ------------------------------------------------------------ what the filter passes over


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_session_that_was_away_is_sent_what_is_behind_the_position_whatever_its_qos(qos: int, is_lost: bool) -> None:
    gateway, publisher = gateway_with(0, queues=2)
    asked: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry_interval=1000)}
    client = gateway.connect("s", level=5, **asked)
    client.subscribe("plant/#", qos=qos, properties=asking("named=billing"))
    published(publisher, "plant/0", "plant/0")
    assert take(client) == [0, 1]
    gateway.pass_time(1)
    if is_lost:
        lost, gateway = gateway, Gateway(beside=gateway, name="other")
        gateway.broker.leave_alone("gw")
        published(gateway.connect("p"), "plant/0", "plant/0", first=2)
    else:
        client.cut()
        published(publisher, "plant/0", "plant/0", first=2)
    again = gateway.connect("s", level=5, **asked)
    if is_lost:
        others_turn(lost)
    assert take(again) == [2, 3]
    published(gateway.connect("p"), "plant/0", "plant/0", first=4)
    assert take(again) == [4, 5]
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 3, "plant:1": 3}


def test_a_name_is_kept_before_the_first_message_of_a_topic_that_was_not_there_when_it_began() -> None:
    gateway, publisher = gateway_with(0, queues=2)
    client = subscriber(gateway, "s", "plant/#", start="last=0", room=1)
    gateway.broker.stall("~filter:plant/#")
    published(publisher, "plant/0", "plant/0")
    gateway.pass_time(6)
    assert packet_ids(client) == []
    assert kept(gateway) == {"plant:0": 0, "plant:1": 0}
    gateway.broker.go_on()
    gateway.round()
    for number in range(2):
        assert kept(gateway) == {"plant:0": number, "plant:1": 0}
        assert take(client) == [number]


# ------------------------------------------------------------ overlapping subscriptions


def test_what_came_through_another_subscription_before_a_named_one_began_stays_after_its_position() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    published(publisher, "plant/0")
    client = gateway.connect("s", level=5)
    client.subscribe("plant/1", qos=1)
    gateway.broker.holds = (HoldOffsets,)
    client.subscribe("plant/#", qos=1, properties=asking("named=billing", "beginning"))
    published(publisher, "plant/1", "plant/0")
    [live] = packet_ids(client)
    gateway.broker.let_go()
    gateway.round()
    assert take(client) == [0, 1]
    assert kept(gateway) == {"plant:0": 1}
    client.send(Puback(live))
    assert kept(gateway) == {"plant:0": 3}


def with_an_older_one_that_stalls(**asked: int) -> tuple[Gateway, Client, Client]:
    """A named subscription to ``plant/#`` of a client that has one to ``plant/1`` already, whose pull is kept back:
    gateway, publisher and client."""
    gateway, publisher = gateway_with(0, queues=1)
    client = subscriber(gateway, "s", "plant/1", "plant/#", start="last=0", **asked)
    gateway.broker.stall("~filter:plant/1")
    return gateway, publisher, client


def test_what_another_subscription_has_left_to_a_named_one_counts_when_that_has_sent_it() -> None:
    gateway, publisher, client = with_an_older_one_that_stalls()
    published(publisher, "plant/0", "plant/1", "plant/0")
    assert take(client) == [0, 2]
    client.send(Unsubscribe(1, ("plant/1",)))
    [late] = packet_ids(client)
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 1}
    client.send(Puback(late))
    assert kept(gateway) == {"plant:0": 3}


def test_what_was_left_to_another_subscription_whose_filter_the_broker_has_closed_stays_after_the_position() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = gateway.connect("s", level=5, properties=Properties(receive_maximum=1))
    client.subscribe("tank/#", qos=1)
    client.subscribe("plant/+", qos=0)
    client.subscribe("plant/1/#", qos=1, properties=asking("named=billing", "last=0"))
    gateway.broker.stall("~filter:plant/+")
    published(publisher, "tank/0", "plant/1")
    [fills_its_room] = packet_ids(client)
    gateway.broker.lose_filter("plant/+")
    gateway.broker.go_on()
    gateway.round()
    published(publisher, "plant/0", first=2)
    assert take(client) == [2], "the older one is past it by now"
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 0}
    client.send(Puback(fills_its_room))
    assert take(client) == [1]
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 2}


# ------------------------------------------------------------ after UNSUBSCRIBE


def test_what_was_sent_before_unsubscribe_counts_when_it_is_acknowledged_after_it() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    published(publisher, "plant/0", "plant/0")
    first, second = packet_ids(client)
    client.send(Unsubscribe(1, ("plant/#",)))
    client.got()
    assert kept(gateway) == {"plant:0": 0}
    client.send(Puback(first))
    assert kept(gateway) == {"plant:0": 1}
    published(publisher, "plant/0")
    client.send(Puback(second))
    assert kept(gateway) == {"plant:0": 2}
    assert gateway.downstream.positions._of_group == {}


def test_what_was_left_to_another_subscription_stays_after_the_position_after_unsubscribe() -> None:
    gateway, publisher, client = with_an_older_one_that_stalls()
    published(publisher, "plant/0", "plant/1", "plant/0")
    first, second = packet_ids(client)
    client.send(Unsubscribe(1, ("plant/#",)))
    client.send(Puback(first), Puback(second))
    assert kept(gateway) == {"plant:0": 1}


# ------------------------------------------------------------ several who hold a name


def test_of_two_gateways_with_one_name_the_one_that_has_come_least_far_counts() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    other = Gateway(beside=gateway, name="other")
    client, far = subscriber(gateway, "s", "plant/#"), subscriber(other, "t", "plant/#")
    published(publisher, "plant/0", "plant/0", "plant/0")
    others_turn(other)
    first, second, _ = packet_ids(client)
    kept(gateway)
    assert take(far) == [0, 1, 2]
    assert kept(other) == {"plant:0": 0}
    client.send(Puback(first))
    assert kept(gateway) == {"plant:0": 1}
    client.send(Puback(second))
    client.cut()
    gateway.round()
    other.pass_time(6)
    assert kept(other) == {"plant:0": 3}


def test_a_gateway_that_is_lost_holds_a_position_back_for_a_lease() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    lost = Gateway(beside=gateway, name="lost")
    client = subscriber(gateway, "s", "plant/#")
    subscriber(lost, "t", "plant/#")
    published(publisher, "plant/0")
    kept(lost)
    take(client)
    gateway.pass_time(12)
    assert kept(gateway) == {"plant:0": 0}
    gateway.pass_time(10)
    assert kept(gateway) == {"plant:0": 1}


def test_a_gateway_says_its_last_word_when_the_last_subscription_of_a_name_is_over() -> None:
    gateway, _ = gateway_with(1, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    take(client)
    client.cut()
    gateway.round()
    assert gateway.broker.positions("billing") == {"plant:0": 1}
    assert gateway.broker.state.offsets.holders("billing") == ()


def test_a_position_that_somebody_sets_back_is_moved_by_later_subscriptions_only() -> None:
    gateway, publisher = gateway_with(5, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    take(client)
    assert kept(gateway) == {"plant:0": 5}
    gateway.broker.commit("billing", {"plant:0": 2})
    published(publisher, "plant/0")
    take(client)
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 2}
    again = subscriber(gateway, "t", "plant/#")
    assert take(again) == [2, 3, 4, 0]
    assert kept(gateway) == {"plant:0": 6}
    assert client.subscribe("plant/#", qos=1, properties=asking("named=billing")).reason_codes == (1,)
    published(publisher, "plant/0")
    [last] = packet_ids(client)
    assert take(again) == [0]
    assert kept(gateway) == {"plant:0": 6}
    client.send(Puback(last))
    assert kept(gateway) == {"plant:0": 7}


def test_what_is_owed_after_a_position_was_set_back_stays_behind_it_when_the_session_is_resumed() -> None:
    gateway, _ = gateway_with(3, queues=1)
    gateway.broker.commit("billing", {"plant:0": 1})
    properties = Properties(receive_maximum=1, session_expiry_interval=1000)

    def connect() -> Client:
        return gateway.connect("s", level=5, clean_start=False, properties=properties)

    client = connect()
    client.subscribe("plant/#", qos=1, properties=asking("named=billing"))
    assert take(client, answers=False) == [1]
    gateway.broker.commit("billing", {"plant:0": 0})
    client.subscribe("plant/#", qos=1, properties=asking("named=billing"))
    gateway.round()
    client.cut()
    again = connect()
    gateway.pass_time(10)
    assert kept(gateway) == {"plant:0": 0}
    came: list[int] = []
    while (more := take(again)) or not came:
        came += more
        gateway.round()
    assert came == [1, 0, 1, 2]
    assert kept(gateway) == {"plant:0": 3}


def test_a_subscription_that_is_about_to_begin_is_not_overtaken() -> None:
    gateway, _ = gateway_with(2, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    gateway.pass_time(1)
    gateway.broker.holds = (HoldOffsets,)
    begins = subscriber(gateway, "t", "plant/#")
    take(client)
    gateway.pass_time(10)
    gateway.broker.let_go()
    gateway.round()
    assert take(begins, answers=False) == [0, 1]
    assert kept(gateway) == {"plant:0": 0}


def test_a_name_over_two_topics_is_kept_in_one_while_it_is_about_to_begin_in_the_other() -> None:
    gateway, publisher = gateway_with(2, queues=1)
    published(publisher, "tank/0")
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("named=billing"))
    gateway.broker.holds = (Pull,)  # where the last few begin is looked for, for as long as that takes
    client.subscribe("tank/#", qos=1, properties=asking("named=billing", "last=1"))
    assert kept(gateway) == {"plant:0": 2}
    gateway.pass_time(6)
    assert kept(gateway) == {"plant:0": 2}
    gateway.broker.let_go()
    gateway.round()
    assert kept(gateway) == {"plant:0": 2, "tank:0": 0}


def test_a_subscription_that_never_begins_holds_nobody_back() -> None:
    gateway, _ = gateway_with(2, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    gateway.pass_time(1)
    gateway.broker.holds = (HoldOffsets,)
    begins = subscriber(gateway, "t", "plant/#")
    take(client)
    begins.cut()
    gateway.broker.let_go()
    gateway.round()
    assert kept(gateway) == {"plant:0": 2}


def test_a_subscription_whose_filter_is_opened_anew_before_it_has_begun_begins_then_and_holds_nobody_back() -> None:
    gateway, publisher = gateway_with(2, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    take(client)
    gateway.connect("reads along").subscribe("plant/0")
    gateway.broker.holds = (HoldOffsets,)
    other = subscriber(gateway, "t", "plant/0")
    gateway.broker.lose_filter("plant/0")
    gateway.broker.release()
    gateway.round()
    gateway.broker.let_go()
    gateway.round()
    published(publisher, "plant/1")
    take(client)
    take(other)
    for _ in range(20):
        gateway.pass_time(0.5)
    assert kept(gateway) == {"plant:0": 3}


# ------------------------------------------------------------ subscriptions that do not stand yet


def test_what_comes_before_a_subscription_with_a_name_stands_does_not_move_the_position() -> None:
    gateway, publisher = gateway_with(3, queues=1)
    gateway.broker.commit("billing", {"plant:0": 1})
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1)
    gateway.broker.holds = (OpenFilters,)
    client.send(Subscribe(1, (Subscription("plant/#", 1),), asking("named=billing")))
    publisher.publish("plant/0", b"3", 1, packet_id=9)
    assert take(client) == [3]
    assert kept(gateway) == {"plant:0": 1}
    gateway.broker.let_go()
    gateway.round()
    assert take(client)[:2] == [1, 2]


@pytest.mark.parametrize("later", [(), ("named=other",)])
def test_what_comes_before_a_subscription_has_another_name_counts_for_the_one_that_it_has(
    later: tuple[str, ...],
) -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    published(publisher, "plant/0")
    gateway.broker.holds = (OpenFilters,)
    client.send(Subscribe(1, (Subscription("plant/#", 1, retain_handling=2),), asking(*later)))
    published(publisher, "plant/0", "plant/0")
    first, second, third = packet_ids(client)
    client.send(Puback(first), Puback(second))
    assert (kept(gateway), kept(gateway, "other")) == ({"plant:0": 2}, {})
    gateway.broker.lose_kept_back(Busy("no room for another filter"))
    gateway.round()
    published(publisher, "plant/0")
    fourth = packet_ids(client)[-1]
    client.send(Puback(fourth))
    gateway.pass_time(20)
    assert (kept(gateway), kept(gateway, "other")) == ({"plant:0": 2}, {})
    client.send(Puback(third))
    assert (kept(gateway), kept(gateway, "other")) == ({"plant:0": 4}, {})


def test_the_last_one_that_stands_of_several_subscribes_counts_and_no_name_before_it() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    published(publisher, "plant/0")
    kept(gateway)
    gateway.broker.holds = (OpenFilters,)
    client.send(Subscribe(1, (Subscription("plant/#", 1, retain_handling=2),)))
    gateway.broker.let_first_go()
    client.send(Subscribe(2, (Subscription("plant/#", 1),), asking("named=other")))
    gateway.broker.lose_kept_back(Busy("no room for another filter"))
    gateway.round()
    [first] = packet_ids(client)
    published(publisher, "plant/0")
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 0}
    client.send(Puback(first))
    take(client)
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 1}, "it was given up"


@pytest.mark.parametrize("later", [(), ("named=other", "beginning")])
def test_history_goes_on_where_its_subscription_gives_up_a_name_whose_position_is_still_asked_for(
    later: tuple[str, ...],
) -> None:
    gateway, publisher = gateway_with(3, queues=1)
    gateway.broker.commit("billing", {"plant:0": 1})
    client = gateway.connect("s", level=5)
    gateway.broker.holds = (HoldOffsets,)
    client.subscribe("plant/#", qos=1, properties=asking("named=billing", "beginning"))
    client.subscribe("plant/#", qos=1, properties=asking(*later), retain_handling=2)
    gateway.broker.let_go()
    gateway.round()
    assert take(client) == ([0, 1, 2] if later else [1, 2])
    publisher.publish("plant/0", b"3", 1, packet_id=9)
    assert take(client) == [3]
    gateway.pass_time(2)
    assert {one.group for one in gateway.broker.made(HoldOffsets)} <= {"billing", "other"}


# ------------------------------------------------------------ brokers and filters that come later


def test_at_a_broker_that_joins_later_a_subscription_begins_at_its_position_there() -> None:
    gateway, _ = gateway_with(1, queues=1)
    second = another(gateway)
    client = subscriber(gateway, "s", "plant/#")
    assert take(client) == [0]
    stored_at(second, 1, 2, 3)
    second.commit("billing", {"plant:0": 1})
    gateway.learn(second)
    assert take(client) == [2, 3]
    stored_at(second, 4)
    gateway.round()
    assert take(client) == [4]
    gateway.pass_time(1)
    assert second.positions("billing") == {"plant:0": 4}


@pytest.mark.parametrize("starts", [("beginning",), ("named=billing",), ("named=billing", "beginning")])
@pytest.mark.parametrize("is_late", [False, True])
def test_history_comes_from_a_broker_that_joins_while_a_subscribe_waits_for_another_one(
    starts: tuple[str, ...], is_late: bool
) -> None:
    gateway, _ = gateway_with(1, queues=1)
    first, second = gateway.broker, another(gateway)
    stored_at(second, 1, 2)
    first.commit("billing", {"plant:0": 0})
    second.commit("billing", {"plant:0": 0})
    first.holds = (OpenFilters,)
    client = gateway.connect("s", level=5)
    client.send(Subscribe(1, (Subscription("plant/#", 1),), asking(*starts)))
    second.holds = (OpenFilters,) if is_late else ()
    gateway.learn(second)
    for broker in (first, second):
        broker.let_go()
        gateway.round()
    got = take(client)
    gateway.pass_time(1)
    assert sorted(got + take(client)) == [0, 1, 2]
    stored_at(second, 3)
    gateway.round()
    assert take(client) == [3]
    gateway.pass_time(1)
    assert second.positions("billing") == {"plant:0": 3 if "named=billing" in starts else 0}


@pytest.mark.parametrize("answers", [False, True])
def test_a_filter_that_the_broker_opens_anew_goes_on_with_what_was_stored_while_it_was_closed(answers: bool) -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = subscriber(gateway, "s", "plant/#")
    published(publisher, "plant/0")
    sent = packet_ids(client)
    if answers:
        client.send(Puback(*sent))
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    gateway.broker.lose_filter("plant/#")
    published(publisher, "plant/0", "plant/0", first=1)
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    published(publisher, "plant/0", first=3)
    assert take(client) == [1, 2, 3]
    assert kept(gateway) == {"plant:0": 4 if answers else 0}


def test_a_filter_that_the_broker_opens_anew_goes_on_with_the_first_message_of_a_topic_that_was_not_there_before() -> (
    None
):
    gateway, publisher = gateway_with(0, queues=2)
    client = subscriber(gateway, "s", "plant/#", start="last=0")
    gateway.broker.refuses[OpenFilters] = Unavailable("away")
    gateway.broker.lose_filter("plant/#")
    published(publisher, "plant/0", "plant/0", "plant/0")
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert take(client) == [0, 1, 2]
    assert kept(gateway) == {"plant:0": 2, "plant:1": 1}


@pytest.mark.interpreted
@pytest.mark.parametrize("older_ends", [False, True])
def test_of_many_messages_that_are_left_to_another_subscription_few_are_known_one_by_one(
    older_ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_positions, "LEFT_MAX", 2)
    gateway, publisher, client = with_an_older_one_that_stalls(room=4)
    published(publisher, *["plant/1"] * 7)
    positions = gateway.downstream.positions
    [track] = [track for course in positions._courses.values() for track in course.tracks.values()]
    assert len(track.left) == 2
    gateway.pass_time(20)
    assert kept(gateway) == {"plant:0": 0}
    if older_ends:
        client.send(Unsubscribe(1, ("plant/1",)))
    else:
        gateway.broker.go_on()
        gateway.round()
    sent: list[int] = []
    for acknowledged in range(1, 8):
        sent += packet_ids(client)
        client.send(Puback(sent.pop(0)))
        gateway.pass_time(6)
        assert kept(gateway)["plant:0"] <= acknowledged, "what is not acknowledged stays after it"
    assert kept(gateway) == {"plant:0": 7}
