"""Answers to PUBLISHes leave in the order of the PUBLISHes, and packets are in the log in the order in which they
came."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from rig import Client, Gateway
from several import OneBroker, gateway_at

from gateway.mqtt.packets import (
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from gateway.mqtt.packets import Subscription as Asked
from penstock.errors import Busy, InvalidMessage, NoRoute, PenstockError, StorageFull, TopicNotFound, Unavailable
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import QueryRoute
from penstock.protocol.requests.topics import DescribeTopic

KNOWN = ["k0/x", "k1/x", "k2/x", "k0/y"]
NEW = ["n0/x", "n1/x", "n2/x", "n3/x", "n0/y"]
REFUSED = ["$SYS/x", "$SYS/y"]
FAULTS: list[tuple[type[Request], PenstockError]] = [
    (AppendRuns, Unavailable("away")),
    (AppendRuns, Busy("requests are waiting")),
    (AppendRuns, StorageFull("full")),
    (QueryRoute, NoRoute("not yet")),
    (DescribeTopic, Unavailable("away")),
    (DescribeTopic, StorageFull("full")),
    (DescribeTopic, TopicNotFound("none are made")),
]


def said(client: Client) -> list[Packet]:
    """What it was told of its own packets since the last call: no messages."""
    return [one for one in client.got() if not isinstance(one, Publish)]


def ids(packets: list[Packet]) -> list[int]:
    return [one.packet_id for one in packets if isinstance(one, Puback | Pubrec)]


# ---------------------------------------------------------------- any mix


class Sent(NamedTuple):
    """A PUBLISH of the model: where to, and how."""

    name: str
    qos: int
    size: int
    retain: bool


class Sub(NamedTuple):
    """A SUBSCRIBE or UNSUBSCRIBE of the model, of a filter that is used once."""

    ends: bool


SENT = st.builds(
    Sent,
    st.sampled_from(KNOWN * 2 + NEW * 2 + REFUSED),
    st.sampled_from([0, 1, 1, 1, 2, 2]),
    st.sampled_from([4, 4, 4, 300, 20_000]),
    st.sampled_from([False, False, False, True]),
)
STEP = st.one_of(
    st.tuples(st.just("send"), st.lists(SENT | st.builds(Sub, st.booleans()), min_size=1, max_size=8)),
    st.tuples(st.just("send"), st.lists(SENT, min_size=3, max_size=12)),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 2), st.integers(0, 9))),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 2), st.integers(0, 9))),
    st.tuples(st.just("fail"), st.tuples(st.integers(0, 2), st.sampled_from(FAULTS))),
    st.tuples(st.just("refuse"), st.tuples(st.integers(0, 2), st.integers(0, 3))),
    st.tuples(st.just("mend"), st.just(None)),
    st.tuples(st.just("repeat"), st.just(None)),
    st.tuples(st.just("time"), st.just(None)),
)


class Mix:
    """A client that sends any mix at brokers that answer when and how the steps say, and what it must be told."""

    def __init__(self, level: int, brokers: int, at_once: bool) -> None:
        self.gateway, self.brokers = gateway_at(brokers)
        self.client = self.gateway.connect("c", level=level)
        for name in KNOWN:
            self.client.publish(name, b"0")
        self.client.got()
        self.at_once = at_once
        for one in self.brokers:
            one.answers_at_once, one.holds_replies = at_once, not at_once
        self.count = 0  # packets sent
        self.wanted: list[int] = []  # ids of what is to be answered, in order
        self.told: list[int] = []
        self.open: list[int] = []  # QoS 2 exchanges whose message is stored
        self.has_failed = False
        self.subscribed: dict[str, int] = {}  # filter -> number of the packet

    def send(self, packets: list[Sent | Sub]) -> None:
        made: list[Packet] = []
        for one in packets:
            self.count += 1
            if isinstance(one, Sub):
                filter = f"s{self.count}/#"
                self.subscribed[filter] = self.count
                made.append(
                    Unsubscribe(self.count, ("other",)) if one.ends else Subscribe(self.count, (Asked(filter),))
                )
                continue
            payload = b"%d:" % self.count + bytes(one.size)
            made.append(Publish(one.name, payload, one.qos, one.retain, packet_id=self.count if one.qos else 0))
            if one.qos:
                self.wanted.append(self.count)
        if self.client.is_read or not self.wanted:
            self.client.send(*made)
        else:  # what is not read is not carried out: it comes later, if at all
            self.wanted = [
                number
                for number in self.wanted
                if all(number != one.packet_id for one in made if isinstance(one, Publish))
            ]
            for one in made:
                if isinstance(one, Subscribe):
                    del self.subscribed[one.subscriptions[0].filter]
        self.look()

    def repeat(self) -> None:
        if self.open and self.client.is_read:
            self.wanted.append(self.open[0])
            self.client.send(Publish("k0/x", b"again", 2, dup=True, packet_id=self.open[0]))
            self.look()

    def answer(self, which: int, at: int) -> None:
        broker = self.brokers[which % len(self.brokers)]
        if held := broker.held_replies:
            broker.give(at % held)
            self.gateway.round()
        self.look()

    def fail(self, which: int, fault: tuple[type[Request], PenstockError]) -> None:
        self.has_failed = True
        broker = self.brokers[0 if fault[0] is QueryRoute else which % len(self.brokers)]
        broker.refuses[fault[0]] = fault[1]

    def refuse(self, which: int, at: int) -> None:
        self.has_failed = True
        self.brokers[which % len(self.brokers)].refused_records[at] = InvalidMessage("no")

    def mend(self) -> None:
        for one in self.brokers:
            one.refuses.clear()
            one.refused_records.clear()

    def time(self) -> None:
        self.gateway.pass_time(0.5)
        self.look()

    def look(self) -> None:
        """What it was told, in the order of its PUBLISHes."""
        for one in said(self.client):
            if not isinstance(one, Puback | Pubrec):
                continue
            self.told.append(one.packet_id)
            if isinstance(one, Pubrec) and one.reason_code == 0 and one.packet_id not in self.open:
                self.open.append(one.packet_id)
        assert self.told == self.wanted[: len(self.told)]

    def finish(self) -> None:
        """Everything comes in the end; what is stored is in the log in the order in which it was sent."""
        self.mend()
        for one in self.brokers:
            one.holds_replies = False
        self.gateway.round()
        self.gateway.pass_time(5)
        self.look()
        if not self.client.is_closed:
            assert self.told == self.wanted
            assert (self.client.device.unstored, self.client.device.owed, self.client.device.kept) == (0, 0, 0)
            assert self.client.is_read
            assert not self.gateway.upstream._placing._queues
        for broker in self.brokers:
            self.check_log(broker)

    def check_log(self, broker: OneBroker) -> None:
        stored = numbers(broker.bodies())
        if self.client.is_closed:
            return
        assert stored == sorted(stored) or self.has_failed
        with_answer = [one for one in stored if one in self.wanted]
        assert with_answer == sorted(with_answer)
        for filter, before in broker.opened:
            if filter in self.subscribed:
                number = self.subscribed[filter]
                assert set(numbers(before)) == {one for one in stored if one < number}, filter


def numbers(bodies: list[bytes]) -> list[int]:
    """The packets that these were sent with."""
    return [int(body.partition(b":")[0]) for body in bodies if b":" in body]


@pytest.mark.mqtt("4.6.0-2", "4.6.0-3", old=("4.6.0-2", "4.6.0-3"))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(STEP, max_size=20), st.sampled_from([3, 4, 5]), st.integers(1, 3), st.sampled_from([False, False, True])
)
def test_any_mix_of_packets_is_answered_and_stored_in_its_order(
    steps: list[tuple[str, object]], level: int, brokers: int, at_once: bool
) -> None:
    mix = Mix(level, brokers, at_once)
    for name, how in steps:
        if mix.client.is_closed:
            break
        note(f"{name} {how}")
        if name == "send":
            mix.send(how)  # type: ignore[arg-type]
        elif name == "answer":
            mix.answer(*how)  # type: ignore[misc]
        elif name == "fail":
            mix.fail(*how)  # type: ignore[misc]
        elif name == "refuse":
            mix.refuse(*how)  # type: ignore[misc]
        else:
            getattr(mix, name)()
    mix.finish()


# ---------------------------------------------------------------- single cases


def answers(level: int, *packets: Packet) -> list[Packet]:
    """What a client of this version is told that sends these in one piece to a fresh gateway."""
    client = Gateway().connect("c", level=level)
    client.send(*packets)
    return said(client)


def publishes(*names: str, qos: int = 1) -> list[Packet]:
    return [Publish(name, b"x", qos, packet_id=at) for at, name in enumerate(names, 1)]


@pytest.mark.mqtt("4.6.0-2", "4.6.0-3", old=("4.6.0-2", "4.6.0-3"))
@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("names", ["abab", "aabcb", "ab$a", "$ab$"])
def test_new_topics_and_refusals_among_publications_leave_their_answers_in_order(
    names: str, qos: int, level: int
) -> None:
    told = answers(level, *publishes(*[f"{'$SYS' if name == '$' else name}/x" for name in names], qos=qos))
    assert ids(told) == list(range(1, len(names) + 1))
    is_refused = [one.reason_code != 0 for one in told if isinstance(one, Puback | Pubrec)]
    assert is_refused == [name == "$" and level == 5 for name in names]


def two_brokers(level: int = 4, **settings: object) -> tuple[Gateway, Client, str, str, list[OneBroker]]:
    """A gateway at two brokers, a client, and a name whose topic is at each."""
    gateway, brokers = gateway_at(2, **settings)
    client = gateway.connect("c", level=level)
    names = [f"t{at}/x" for at in range(20)]
    for name in names:
        client.publish(name)
    first, second = [next(one for one in names if one in broker.names()) for broker in brokers]
    client.got()
    return gateway, client, first, second, brokers


@pytest.mark.mqtt("4.6.0-3", old=("4.6.0-3",))
@pytest.mark.parametrize("level", [4, 5])
def test_an_exchange_whose_answer_waits_goes_on_when_it_is_given(level: int) -> None:
    gateway, client, first, second, brokers = two_brokers(level)
    brokers[0].holds_replies = True
    client.send(Publish(first, b"1", 1, packet_id=1), Publish(second, b"2", 2, packet_id=2))
    client.send(Pubrel(2))  # too early: its PUBREC has not come
    client.send(Publish(second, b"3", 2, packet_id=3))
    assert client.got() == []
    brokers[0].holds_replies = False
    gateway.round()
    assert client.got() == [Puback(1), Pubrec(2), Pubcomp(2), Pubrec(3)]
    client.send(Publish(second, b"3", 2, dup=True, packet_id=3), Publish(first, b"4", 1, packet_id=4))
    assert client.got() == [Pubrec(3), Puback(4)]
    assert brokers[1].bodies()[-2:] == [b"2", b"3"]


def test_what_a_refusal_says_waits_for_its_turn_and_a_client_that_can_only_be_closed_hears_what_is_before_it() -> None:
    for level in (4, 5):
        gateway, client, first, second, brokers = two_brokers(level)
        brokers[0].holds_replies = True
        brokers[1].refused_records[0] = InvalidMessage("no")
        client.send(Publish(first, b"1", 1, packet_id=1), Publish(second, b"2", 1, packet_id=2))
        assert client.got() == []
        brokers[0].holds_replies = False
        gateway.round()
        assert client.got() == ([Puback(1), Puback(2, 0x83)] if level == 5 else [Puback(1)])
        assert client.is_closed is (level == 4)


def test_answers_that_wait_count_within_the_receive_maximum() -> None:
    _, client, first, second, brokers = two_brokers(5, receive_max=4)
    brokers[0].holds_replies = True
    client.publish(first, b"1", 1, packet_id=1)
    for number in range(2, 5):
        client.publish("$SYS/x" if number == 3 else second, b"x", 1, packet_id=number)
    assert not client.is_closed
    client.publish(second, b"5", 1, packet_id=5)
    assert client.is_closed


def test_a_client_whose_first_message_hangs_has_a_bounded_number_of_answers_waiting() -> None:
    gateway, client, first, second, brokers = two_brokers(4, unstored_bytes_max=20_000)
    brokers[0].holds_replies = True
    client.publish(first, b"1", 1, packet_id=1)
    count = 1
    while client.is_read and count < 1000:
        count += 1
        client.publish(second if count % 2 else "$SYS/x", b"x", 1, packet_id=count)
    assert 10 < count < 100
    assert 20_000 < client.device.owed + client.device.unstored < 25_000
    gateway.pass_time(1)
    assert gateway.services.room.unstored > 20_000, "the gateway sees what it holds"
    brokers[0].holds_replies = False
    gateway.round()
    assert ids(said(client)) == list(range(1, count + 1))
    assert client.is_read
    assert client.device.owed == 0


def test_of_a_client_that_is_gone_no_answers_wait() -> None:
    gateway, client, first, second, brokers = two_brokers()
    brokers[0].holds_replies = True
    client.send(Publish(first, b"1", 1, packet_id=1), Publish(second, b"2", 1, packet_id=2))
    assert client.device._later
    client.cut()
    brokers[0].holds_replies = False
    gateway.round()
    assert client.device._later is None


# ---------------------------------------------------------------- before its SUBSCRIBE


@pytest.mark.mqtt("3.3.1-9", old=("3.3.1-8",))
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_what_a_client_publishes_before_its_subscribe_does_not_reach_it_live(
    is_known: bool, retain: bool, qos: int
) -> None:
    client = Gateway().connect("c")
    if is_known:
        client.publish("new/other")
    client.send(Publish("new/t", b"before", qos, retain, packet_id=7 if qos else 0), Subscribe(1, (Asked("new/#", 0),)))
    got = [(one.payload, one.retain) for one in client.got() if isinstance(one, Publish)]
    assert got == ([(b"before", True)] if retain else [])


def test_a_subscribe_waits_for_what_its_broker_could_not_take_and_what_is_behind_it_waits_too() -> None:
    gateway, client, first, second, brokers = two_brokers()
    brokers[0].refuses[AppendRuns] = Unavailable("away")
    client.send(
        Publish(first, b"1", 1, packet_id=1), Subscribe(2, (Asked("#"),)), Publish(second, b"3", 1, packet_id=3)
    )
    assert client.got() == []
    assert not client.is_read
    assert [one for broker in brokers for one in broker.opened] == []
    brokers[0].refuses.clear()
    gateway.pass_time(1)
    assert client.got() == [Puback(1), Suback(2, (0,)), Puback(3), Publish(second, b"3")]
    assert client.is_read


def test_an_unsubscribe_waits_for_what_came_before_it_and_several_subscribes_do_not_wait_for_each_other() -> None:
    gateway = Gateway()
    client = gateway.connect("c")
    gateway.broker.holds_replies = True
    client.send(Publish("a/x", b"1", 1, packet_id=1), Unsubscribe(2, ("a/x",)))
    assert client.got() == []
    gateway.broker.holds_replies = False
    gateway.round()
    assert client.got() == [Puback(1), Unsuback(2)]
    gateway.broker.holds_replies = True
    before = len(gateway.broker.requests)
    client.send(Subscribe(3, (Asked("b"),)), Subscribe(4, (Asked("c"),)))
    asked = [one.filters for one in gateway.broker.requests[before:] if isinstance(one, OpenFilters)]
    assert [filter for filters in asked for filter in filters] == ["b", "c"]


# ---------------------------------------------------------------- wills


@pytest.mark.parametrize("says_so", [False, True])
def test_a_will_is_in_the_log_behind_what_its_client_has_published_before(says_so: bool) -> None:
    gateway = Gateway()
    other = gateway.connect("other")
    other.publish("known/status", b"warm")
    client = gateway.connect("c", level=5, will=Will("known/status", b"offline", 1))
    gateway.broker.holds_replies = True
    client.send(Publish("new/x", b"1"), Publish("known/status", b"online"))
    if says_so:
        client.send(Disconnect(0x04))
    else:
        client.cut()
    gateway.broker.holds_replies = False
    gateway.round()
    assert gateway.broker.bodies() == [b"warm", b"1", b"online", b"offline"]
