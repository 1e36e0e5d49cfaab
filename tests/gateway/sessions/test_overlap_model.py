"""Overlapping subscriptions of one durable session beside a model: in whatever order it subscribes and unsubscribes,
falls behind and comes back, a message comes once, none is lost that a subscription was there for all the time, and the
invariants of docs/protocols/overlapping-subscriptions.md hold. The model tries what is short; ``PENSTOCK_SEEDS=500``
runs more of the long random lives with more filters."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from rig import Client, Gateway

from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Subscription, Unsubscribe
from gateway.mqtt.properties import Properties
from gateway.sessions.endings import ENDED_MAX
from gateway.sessions.session import Cursor
from gateway.sessions.subscriptions import REDOS_MAX
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Request
from topicmap.names import matches

NAMES = st.sampled_from(["f/a", "f/b"])
FILTERS = ["f/a", "f/+", "#", "+/a", "f/#", "+/+"]
RELEASE = 3
BACKLOG = 30
TAKEOVERS_MAX = 25  # more in a minute are refused
QOS = st.sampled_from([0, 1, 2, 2])
HELD: list[tuple[type[Request], ...]] = [(OpenFilters,), (Pull,), (OpenFilters, Pull)]


SEEDS = range(int(os.environ["PENSTOCK_SEEDS"])) if "PENSTOCK_SEEDS" in os.environ else (0, 1, 9, 19, 31, 72)
STEPS = 1200


class Chosen:
    """Draws what it was made with."""

    def __init__(self, value: object) -> None:
        self.value = value

    def draw(self, _: object) -> object:
        return self.value


class Sessions(RuleBasedStateMachine):
    """One client with a small window."""

    def __init__(self) -> None:
        super().__init__()
        self.room = 1
        self.takeovers = 0
        self.gateway = Gateway()
        self.publisher = self.gateway.connect("publisher")
        self.sent: list[tuple[str, int]] = []
        self.owed: list[bool] = []  # whether one that stood then, with QoS 1 or 2, has stood since
        self.by: list[set[str]] = []  # filters by which a message is owed
        self.standing: dict[str, int] = {}
        self.came: set[int] = set()  # but what is to come again
        self.ever: dict[int, None] = {}  # in the order in which they came
        self.open: dict[int, tuple[int, int]] = {}  # packet id -> what it waits for, of which message
        self.connect()

    def check(self) -> None:
        """The invariants of docs/protocols/overlapping-subscriptions.md that can be seen of a session."""
        session = self.client.device.session
        if session is None:
            return
        overlap, older = session.overlap, list[Cursor]()
        for cursor in overlap.cursors:
            assert cursor.next < 0 or all([one.start <= cursor.start for one in older if one.next >= 0]), "2: by age"
            assert set(cursor.skipped or ()) <= set(older), "3: messages are left to older ones that stand"
            assert (cursor.back if cursor.redos else -1) <= cursor.seen, "4: it goes over what it has come to"
            assert len(cursor.redos or ()) <= REDOS_MAX, "5: bounded"
            older.append(cursor)
        assert len(overlap.ended) <= ENDED_MAX, "5: bounded"
        assert overlap.ended_until == max([one.seen for one in overlap.ended], default=-1)
        assert all([one.older <= len(older) for one in overlap.ended]), "6: as old as a place among those that stand"

    def connect(self) -> None:
        properties = Properties(receive_maximum=self.room, session_expiry_interval=10_000)
        self.client: Client = self.gateway.connect("s", level=5, clean_start=False, properties=properties)
        self.came -= {number for kind, number in self.open.values() if kind < RELEASE}
        self.open.clear()
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            self.gateway.round()
        for packet in self.client.got():
            if isinstance(packet, Publish):
                number = int(packet.payload)
                assert packet.dup or number not in self.ever, "it came before"
                self.ever[number] = None
                self.came.add(number)
                if packet.qos:
                    self.open[packet.packet_id] = packet.qos, number
            elif isinstance(packet, Pubrel):
                self.open[packet.packet_id] = RELEASE, -1
        self.check()

    @rule(names=st.lists(st.tuples(NAMES, QOS), min_size=1, max_size=6))
    def publish(self, names: list[tuple[str, int]]) -> None:
        for name, qos in names:
            owing = {filter for filter, granted in self.standing.items() if matches(filter, name) and granted and qos}
            self.by.append(owing)
            self.sent.append((name, qos))
            self.publisher.publish(name, b"%d" % (len(self.sent) - 1), qos, packet_id=1)
            if qos == 2:
                self.publisher.send(Pubrel(1))
                self.publisher.got()
        self.settle()

    @rule(filter=st.sampled_from(FILTERS), qos=QOS)
    def subscribe(self, filter: str, qos: int) -> None:
        self.client.send(Subscribe(1, (Subscription(filter, qos),)))
        self.standing[filter] = qos
        if not qos:
            self.give_up(filter)
        self.settle()

    def give_up(self, filter: str) -> None:
        for owing in self.by:
            owing.discard(filter)

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        filter = data.draw(st.sampled_from(sorted(self.standing)))
        self.client.send(Unsubscribe(1, (filter,)))
        del self.standing[filter]
        self.give_up(filter)
        self.settle()

    @precondition(lambda self: self.open)
    @rule(data=st.data(), count=st.integers(1, 4))
    def acknowledge(self, data: st.DataObject, count: int) -> None:
        while self.open and count:
            self.answer(data.draw(st.sampled_from(sorted(self.open))))
            count -= 1

    def answer(self, packet_id: int) -> None:
        kind, _ = self.open.pop(packet_id)
        self.client.send({1: Puback, 2: Pubrec, RELEASE: Pubcomp}[kind](packet_id))
        self.settle()

    @rule(room=st.integers(1, 3), cuts=st.booleans())
    def come_back(self, room: int, cuts: bool) -> None:
        """After its connection has broken, or in place of it."""
        self.let_go()
        self.room = room
        if cuts or self.takeovers == TAKEOVERS_MAX:
            self.client.cut()
            self.gateway.round()
        else:
            self.takeovers += 1
        self.connect()

    @rule(filter=st.sampled_from(FILTERS))
    def stall(self, filter: str) -> None:
        """What comes to one filter comes late."""
        self.gateway.broker.stall(f"~filter:{filter}")

    @precondition(lambda self: self.gateway.broker.stalled)
    @rule(filter=st.sampled_from(FILTERS))
    def close(self, filter: str) -> None:
        """The broker has not heard of the gateway for too long; it may close what is open for it alone."""
        broker = self.gateway.broker
        owners = [owner for owner in broker.state.filters.owners if owner.startswith("gw/")]
        for owner in owners if self.standing.get(filter) == 0 else ():
            broker.ask(CloseFilters(owner, (filter,)))
        self.settle()

    @rule()
    def go_on(self) -> None:
        self.gateway.broker.go_on()
        self.settle()

    @rule(filter=st.sampled_from(FILTERS), name=NAMES, times=st.sampled_from([2, 20, ENDED_MAX + 1]))
    def churn(self, filter: str, name: str, times: int) -> None:
        """A filter comes and goes, again and again."""
        for _ in range(times):
            self.subscribe(filter=filter, qos=1)
            self.publish(names=[(name, 0)])
            self.unsubscribe(data=Chosen(filter))

    @rule(kinds=st.sampled_from(HELD))
    def hold(self, kinds: tuple[type[Request], ...]) -> None:
        """What brokers answer to this comes late, in its order."""
        self.let_go()
        self.gateway.broker.holds = kinds

    @rule()
    def let_go(self) -> None:
        self.gateway.broker.let_go()
        self.settle()

    @rule()
    def wait(self) -> None:
        self.gateway.pass_time(1)
        self.settle()

    def teardown(self) -> None:
        self.let_go()
        self.go_on()
        for _ in range(10 * len(self.sent) + 10):
            if not self.open:
                self.gateway.pass_time(0.5)
                self.settle()
                if not self.open:
                    break
            self.answer(next(iter(self.open)))
        lost = [number for number, owing in enumerate(self.by) if owing and number not in self.came]
        assert not lost, [(number, self.sent[number], self.by[number]) for number in lost]


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=20, stateful_step_count=40)


def scene(*subscriptions: tuple[str, int]) -> Sessions:
    made = Sessions()
    for filter, qos in subscriptions:
        made.subscribe(filter=filter, qos=qos)
    return made


def test_what_went_with_a_higher_qos_through_a_subscription_of_qos_0_is_sent_again() -> None:
    made = scene(("#", 0), ("f/a", 2))
    made.publish(names=[("f/a", 1), ("f/a", 2)])
    assert made.came
    made.come_back(room=2, cuts=True)
    made.teardown()


def test_what_one_that_is_unsubscribed_had_delivered_is_not_sent_again_by_one_that_lags() -> None:
    made = scene(("f/a", 2), ("f/+", 2))
    made.stall(filter="f/+")
    made.publish(names=[("f/a", 2)])
    made.answer(next(iter(made.open)))
    assert made.came == {0}
    made.unsubscribe(data=Chosen("f/a"))
    made.teardown()


def test_nor_is_what_one_of_qos_0_had_delivered_when_the_client_comes_back() -> None:
    made = scene(("#", 0), ("f/+", 2))
    made.stall(filter="f/+")
    made.publish(names=[("f/a", 2)])
    assert made.came == {0}
    made.come_back(room=2, cuts=True)
    made.teardown()


def test_what_two_that_are_unsubscribed_have_left_is_sent_by_the_third() -> None:
    for comes_back in (False, True):
        made = scene(("f/a", 2), ("f/+", 2), ("#", 2))
        made.publish(names=[("f/b", 1), *[("f/a", 1)] * 4])
        made.unsubscribe(data=Chosen("f/a"))
        if comes_back:
            made.come_back(room=1, cuts=True)
        made.unsubscribe(data=Chosen("f/+"))
        made.teardown()


def test_what_one_had_left_to_another_that_ends_with_it_is_not_lost() -> None:
    made = scene(("+/a", 0), ("f/+", 0), ("f/a", 1))
    made.stall(filter="+/a")
    made.stall(filter="f/a")
    made.publish(names=[("f/a", 1)])
    made.come_back(room=1, cuts=True)
    made.teardown()


def test_what_one_of_qos_0_had_delivered_is_known_also_to_one_that_goes_back_for_another_of_them() -> None:
    made = scene(("f/a", 0), ("+/+", 0), ("f/+", 2))
    made.stall(filter="+/+")
    made.publish(names=[("f/b", 1), ("f/a", 1)])
    assert made.came == {1}
    made.come_back(room=1, cuts=True)
    made.teardown()
    assert made.came == {0, 1}


def test_hundreds_that_end_do_not_hide_what_one_had_delivered_from_another_that_is_being_opened() -> None:
    made = scene(("#", 1))
    made.churn(filter="f/a", name="f/a", times=ENDED_MAX)
    made.hold(kinds=(OpenFilters,))
    made.subscribe(filter="f/+", qos=1)
    made.publish(names=[("f/a", 0)])
    made.unsubscribe(data=Chosen("#"))
    made.teardown()


def test_nor_from_one_that_is_told_of_it_late() -> None:
    made = scene(("#", 1), ("f/+", 1))
    made.churn(filter="f/a", name="f/a", times=ENDED_MAX)
    made.stall(filter="f/+")
    made.publish(names=[("f/a", 0)])
    made.unsubscribe(data=Chosen("#"))
    made.teardown()


def test_one_that_begins_anew_does_not_send_again_what_another_has_sent_until_it_was_open() -> None:
    made = scene(("#", 0), ("f/a", 1))
    made.hold(kinds=(OpenFilters,))
    made.close(filter="#")
    made.publish(names=[("f/a", 0), ("f/b", 0)])
    made.teardown()
    assert made.came == {0, 1}


TEN = ["f/+/a", "f/1/+", "f/#", "#", "+/+/a", "+/1/a", "f/1/a", "+/+/+", "f/+/+", "+/1/#"]
NAMES_OF_TEN = ["f/1/a", "f/2/a", "f/1/b", "f/2/b", "g/1/a"]


def step(made: Sessions, chance: random.Random, acknowledges: float) -> None:
    """Something happens."""
    happens = chance.random()
    if happens < 0.35:
        made.publish(
            names=[(chance.choice(NAMES_OF_TEN), chance.choice([0, 1, 2])) for _ in range(chance.randint(1, 4))]
        )
    elif happens < 0.5:
        made.subscribe(filter=chance.choice(TEN), qos=chance.choice([0, 1, 1, 2, 2]))
    elif happens < 0.61 and made.standing:
        made.unsubscribe(data=Chosen(chance.choice(sorted(made.standing))))
    elif happens < 0.61 + acknowledges and made.open:
        made.answer(chance.choice(sorted(made.open)))
    elif happens < 0.9:
        chance.choice([made.stall, made.stall, made.close])(filter=chance.choice(TEN))
    elif happens < 0.95:
        chance.choice([made.go_on, made.wait])()
    elif happens < 0.98:
        chance.choice([lambda: made.hold(kinds=chance.choice(HELD)), made.let_go])()
    else:
        made.come_back(room=1, cuts=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_however_long_ten_filters_come_and_go_a_message_comes_once(seed: int) -> None:
    chance = random.Random(seed)
    made = Sessions()
    acknowledges = chance.choice([0.03, 0.1, 0.25])
    for _ in range(STEPS):
        step(made, chance, acknowledges)
    made.teardown()


def test_what_is_live_does_not_overtake_what_waited_while_the_client_was_away() -> None:
    made = scene(("#", 0), ("f/a", 1))
    made.client.cut()
    made.gateway.round()
    made.publish(names=[("f/a", 1)] * BACKLOG)
    made.room = BACKLOG * 2
    made.gateway.broker.holds = (Pull,)  # what waited is asked for piece by piece
    made.connect()
    made.publish(names=[("f/a", 1)] * 3)
    for _ in range(BACKLOG):
        made.gateway.broker.let_go()
        made.settle()
    made.teardown()
    assert list(made.ever) == list(range(BACKLOG + 3))
