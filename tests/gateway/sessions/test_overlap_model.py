"""Overlapping subscriptions of one durable session beside a model: in whatever order it subscribes and unsubscribes, falls
behind and comes back, a message comes once, and one that a subscription was there for all the time is not lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from rig import Client, Gateway

from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import Properties
from penstock.link import OnResult
from penstock.requests.messages import Pull
from topicmap.names import matches

NAMES = st.sampled_from(["f/a", "f/b", "g/a"])
FILTERS = ["f/#", "f/+", "+/a", "#"]
QOS = st.integers(0, 2)


class Sessions(RuleBasedStateMachine):
    """One client with a small window."""

    def __init__(self) -> None:
        super().__init__()
        self.gateway = Gateway()
        self.publisher = self.gateway.connect("publisher")
        self.sent: list[tuple[str, int]] = []
        self.owed: list[bool] = []  # whether one that stood then, with QoS 1 or 2, has stood since
        self.by: list[set[str]] = []  # filters by which a message is owed
        self.standing: dict[str, int] = {}
        self.came: list[int] = []  # as new
        self.open: dict[int, int] = {}  # packet id -> what it waits for
        self.stalled: list[tuple[Pull, OnResult]] = []
        self.connect()

    def connect(self) -> None:
        properties = Properties(receive_maximum=2, session_expiry_interval=10_000)
        self.client: Client = self.gateway.connect("s", level=5, clean_start=False, properties=properties)
        self.open.clear()
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            self.gateway.round()
        for packet in self.client.got():
            if isinstance(packet, Publish):
                number = int(packet.payload)
                if not packet.dup:
                    assert number not in self.came, "it came before"
                    self.came.append(number)
                elif number not in self.came:
                    self.came.append(number)
                if packet.qos:
                    self.open[packet.packet_id] = packet.qos
            elif isinstance(packet, Pubrel):
                self.open[packet.packet_id] = 3

    @rule(names=st.lists(st.tuples(NAMES, QOS), min_size=1, max_size=4))
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
        self.client.subscribe(filter, qos=qos)
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
        self.client.unsubscribe(filter)
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
        kind = self.open.pop(packet_id)
        self.client.send({1: Puback, 2: Pubrec, 3: Pubcomp}[kind](packet_id))
        self.settle()

    @rule()
    def come_back(self) -> None:
        self.client.cut()
        self.gateway.round()
        self.connect()

    @rule(filter=st.sampled_from(FILTERS))
    def stall(self, filter: str) -> None:
        """What comes to one filter comes late."""
        for one in [one for one in self.gateway.broker.parked if one[0].queue == f"~filter:{filter}"]:
            self.gateway.broker.parked.remove(one)
            self.stalled.append(one)

    @precondition(lambda self: self.stalled)
    @rule()
    def go_on(self) -> None:
        self.gateway.broker.parked += self.stalled
        self.stalled = []
        self.settle()

    @rule()
    def wait(self) -> None:
        self.gateway.pass_time(1)
        self.settle()

    def teardown(self) -> None:
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
TestSessions.settings = settings(max_examples=300, stateful_step_count=40)
