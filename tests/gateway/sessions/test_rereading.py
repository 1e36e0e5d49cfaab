"""Messages are found again by where they were: by log position first, and whatever else cannot be found is not said to
be there."""

from __future__ import annotations

import pytest
from linked_broker import RETAINING, LinkedBroker
from rig import Gateway, HandClock

from gateway.messages.envelope import Arrival
from gateway.sessions.rereading import Rereading
from gateway.sessions.session_state import Sent
from penstock.errors import OffsetOutOfRange, PenstockError, QueueNotFound, Unavailable
from penstock.protocol.requests.filters import FetchRetained
from penstock.protocol.requests.messages import Pull, QueryBounds
from penstock.protocol.requests.request import Request

LIGHT, TOPIC = "~filter:t", "t:0"


def stored(count: int, size: int = 10, gateway: Gateway | None = None) -> Gateway:
    """A gateway whose broker has so many messages, in their topic's queue and in a filter's."""
    gateway = gateway or Gateway()
    client = gateway.connect("s", clean_start=False)
    client.subscribe("t", qos=1)
    client.cut()  # nobody else reads the queue of its filter
    for at in range(count):
        gateway.produce("t", bytes([at]) * size, qos=1)
    gateway.broker.requests.clear()
    return gateway


def retaining() -> Gateway:
    """A gateway at a broker whose log a test can fill."""
    return Gateway(broker=LinkedBroker(HandClock(), **RETAINING))


def sent(broker: LinkedBroker, at: int, *, light: bool = True, **changed: object) -> Sent:
    key = LIGHT if light else TOPIC
    offset = broker.bounds(key).min + at
    place = ("", "") if light else (key, "t")
    position = broker.messages()[at].position
    one = Sent(at + 1, "t", broker.name, offset, place[0], 1, False, (), False, place[1], position)
    return one._replace(**changed)  # type: ignore[arg-type]


class Told:
    """What was found, and what was said at the end."""

    def __init__(self) -> None:
        self.found: dict[int, bytes] = {}
        self.ends: list[PenstockError | None] = []

    def on_found(self, one: Sent, arrival: Arrival) -> None:
        assert not self.ends, "found after the end"
        self.found[one.packet_id] = arrival.payload


def read(gateway: Gateway, *wanted: Sent, sparing: bool = False) -> Told:
    told = Told()
    brokers = {broker.name: broker for broker in gateway.brokers.known}
    gateway.rounds.begin()
    Rereading(brokers, told.on_found, told.ends.append, sparing=sparing).begin(wanted)
    gateway.round()
    return told


def test_nothing_wanted_is_all_read_at_once() -> None:
    told = read(stored(1))
    assert (told.found, told.ends) == ({}, [None])


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_all_that_is_there_is_found_whatever_the_order_it_is_asked_for(light: bool, at_once: bool) -> None:
    gateway = stored(5)
    gateway.broker.answers_at_once = at_once
    told = read(gateway, *[sent(gateway.broker, at, light=light) for at in (3, 0, 4)])
    assert told.found == {4: bytes([3]) * 10, 1: bytes(10), 5: bytes([4]) * 10}
    assert told.ends == [None]
    assert len(gateway.broker.made(Pull)) == 1


def test_sparing_reads_no_more_messages_at_once_than_are_wanted() -> None:
    gateway = stored(30)
    told = read(gateway, *[sent(gateway.broker, at) for at in (0, 1, 20, 29)], sparing=True)
    assert sorted(told.found) == [1, 2, 21, 30]
    assert [(one.offset - gateway.broker.bounds(LIGHT).min, one.count_max) for one in gateway.broker.made(Pull)] == [
        (0, 4),
        (20, 2),
        (29, 1),
    ]


def test_what_one_answer_cannot_hold_is_asked_for_again() -> None:
    gateway = stored(4, size=600_000)
    told = read(gateway, *[sent(gateway.broker, at) for at in range(4)])
    assert {packet_id: payload[0] for packet_id, payload in told.found.items()} == {1: 0, 2: 1, 3: 2, 4: 3}
    assert told.ends == [None]


def test_a_position_counts_and_not_the_offset_where_there_is_one() -> None:
    gateway = stored(4)
    broker = gateway.broker
    moved = sent(broker, 2, offset=broker.bounds(LIGHT).min + 1)
    older = sent(broker, 1, position=-1)
    foreign = sent(broker, 3, position=1)
    told = read(gateway, moved, older, foreign)
    assert told.found == {3: bytes([2]) * 10, 2: bytes([1]) * 10}
    assert told.ends == [None]


def test_what_retention_has_passed_is_not_found_and_the_rest_is() -> None:
    gateway = stored(2, gateway=retaining())
    border = gateway.broker.border()
    for at in (2, 3):
        gateway.produce("t", bytes([at]), qos=1)
    wanted = [sent(gateway.broker, at) for at in range(4)]
    gateway.broker.lose_before(border)
    told = read(gateway, *wanted)
    assert sorted(told.found) == [3, 4]
    assert told.ends == [None]


def test_one_that_retention_has_passed_is_found_while_it_is_the_retained_one_of_its_topic() -> None:
    gateway = retaining()
    client = gateway.connect("s", clean_start=False)
    client.subscribe("t", qos=1)
    for at in range(3):
        client.publish("t", bytes([at]), 1, packet_id=1 + at, retain=True)
    wanted = [sent(gateway.broker, at, light=False) for at in range(3)]
    gateway.broker.lose_before(gateway.broker.border())
    told = read(gateway, *wanted)
    assert told.found == {3: b"\2"}, "the two before it are retained no more"
    assert told.ends == [None]


@pytest.mark.parametrize(
    "refuses",
    [
        {Pull: Unavailable("away")},
        {Pull: OffsetOutOfRange("passed"), QueryBounds: Unavailable("away")},
        {FetchRetained: Unavailable("away")},
    ],
)
def test_a_broker_that_may_answer_later_is_an_error_at_the_end(refuses: dict[type[Request], PenstockError]) -> None:
    gateway = stored(2, gateway=retaining())
    wanted = [sent(gateway.broker, at, light=False) for at in range(2)]
    gateway.broker.lose_before(gateway.broker.border())
    gateway.broker.refuses = refuses
    told = read(gateway, *wanted, sparing=True)
    assert told.found == {}
    [error] = told.ends
    assert isinstance(error, Unavailable)


def test_a_queue_that_is_gone_for_good_is_no_error_and_has_nothing() -> None:
    gateway = stored(2)
    wanted = [sent(gateway.broker, at) for at in range(2)]
    gateway.broker.refuses = {Pull: QueueNotFound(LIGHT)}
    told = read(gateway, *wanted)
    assert (told.found, told.ends) == ({}, [None])
