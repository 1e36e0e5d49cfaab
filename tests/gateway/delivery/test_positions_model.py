"""Named positions beside a model: two gateways and one name, in any order of what clients, gateways and native
consumers do. ``gateway/delivery/named_positions.py`` says what must hold."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from past import asking
from rig import Client, Gateway

from gateway.mqtt.packets import Puback, Publish, Subscribe, Subscription, Unsubscribe
from gateway.mqtt.properties import Properties
from penstock.protocol.requests.topics import CreateTopic
from topicmap.names import matches

NAME = "billing"
QUEUES = ("plant:0", "plant:1")
NAMES = st.sampled_from(["plant/0", "plant/1", "plant/2"])
FILTERS = st.sampled_from(["plant/#", "plant/1", "plant/2"])
NOWHERE = 1 << 60
Place = tuple[str, int]


class Subscriber:
    """A client with one named subscription, and what it knows of it. ``expiry_s``: of its session."""

    def __init__(self, gateway: Gateway, number: int, older: str, filter: str, expiry_s: int) -> None:
        self.filter = filter
        self.name = f"s{number}"
        self.expiry_s = expiry_s
        self.connect(gateway)
        if older and older != filter:
            self.client.subscribe(older, qos=1)
        self.in_flight: dict[int, Place | None] = {}  # None: not of the named subscription
        self.old: set[int] = set()  # those that hold the position no more
        self.acknowledged: set[Place] = set()
        self.begin: dict[str, int] = {}
        self.void: set[str] = set()
        self.is_over = False

    def connect(self, gateway: Gateway) -> None:
        self.gateway = gateway
        properties = Properties(receive_maximum=2, session_expiry_interval=self.expiry_s)
        self.client: Client = gateway.connect(self.name, level=5, clean_start=False, properties=properties)

    def come_back(self, gateway: Gateway) -> None:
        self.in_flight.clear()
        self.old.clear()
        self.begin = dict.fromkeys(QUEUES, NOWHERE)
        self.connect(gateway)

    def has_its_say(self) -> None:
        """Others may have moved the position while it was away; from now on they may not, if it is subscribed."""
        if not self.is_over:
            self.begin = {queue: self.gateway.broker.positions(NAME).get(queue, 0) for queue in QUEUES}

    def subscribe(self) -> None:
        self.take()
        properties = asking(f"named={NAME}", "beginning", place="true")
        self.client.send(Subscribe(1, (Subscription(self.filter, 1),), properties))
        self.begin = {queue: self.gateway.broker.positions(NAME).get(queue, 0) for queue in QUEUES}
        self.void.clear()
        self.is_over = False

    def set_back(self, queue: str) -> None:
        """The position is no longer its own there, nor does what it was sent hold it."""
        self.void.add(queue)
        self.old |= {
            packet_id for packet_id, place in self.in_flight.items() if place is not None and place[0] == queue
        }

    def take(self) -> None:
        for packet in self.client.got():
            if isinstance(packet, Publish) and packet.qos:
                said = dict(packet.properties.user_properties)
                place = (said["penstock-queue"], int(said["penstock-offset"])) if said else None
                self.in_flight[packet.packet_id] = place

    def acknowledge(self, packet_id: int) -> None:
        place = self.in_flight.pop(packet_id)
        self.old.discard(packet_id)
        if place is not None:
            self.acknowledged.add(place)
        self.client.send(Puback(packet_id))


class Positions(RuleBasedStateMachine):
    """A position never passes what is not acknowledged and moves back for nobody but who means it."""

    def __init__(self) -> None:
        super().__init__()
        self.gateways = [Gateway(name="gw")]
        self.broker = self.gateways[0].broker
        self.broker.ask(CreateTopic("plant", len(QUEUES)))
        self.gateways.append(Gateway(beside=self.gateways[0], name="other"))
        self.stored: dict[str, list[str]] = {queue: [] for queue in QUEUES}
        self.subscribers: list[Subscriber] = []
        self.away: list[Subscriber] = []
        self.number = 0
        self.before: dict[str, int] = {}
        self.taken: set[str] = set()  # set back, and nobody has subscribed since
        self.publish([("plant/0", 0), ("plant/1", 1)])

    def settle(self) -> None:
        for _ in range(2):
            for gateway in self.gateways:
                gateway.rounds.begin()
                gateway.round()
        for one in self.subscribers:
            one.take()

    def tick(self) -> None:
        clock = self.gateways[0].clock
        clock.now_s += 0.5
        self.broker.pass_time()
        for gateway in self.gateways:
            gateway.rounds.begin()
            gateway.downstream.tick(clock.now_s)
            gateway.tick(clock.now_s)
            gateway.round()
        self.settle()

    @property
    def position(self) -> dict[str, int]:
        return dict(self.broker.positions(NAME))

    @rule(messages=st.lists(st.tuples(NAMES, st.integers(0, 1)), min_size=1, max_size=4))
    def publish(self, messages: list[tuple[str, int]]) -> None:
        for name, queue in messages:
            self.stored[QUEUES[queue]].append(name)
            self.gateways[0].produce(name, b"x", queue, qos=1)
        self.settle()

    @rule(number=st.integers(0, 2))
    def stall(self, number: int) -> None:
        """What comes to one filter comes late."""
        self.broker.stall(f"~filter:plant/{'12+'[number]}")

    @precondition(lambda self: self.broker.stalled)
    @rule()
    def go_on(self) -> None:
        self.broker.go_on()
        self.settle()

    @rule(filter=st.sampled_from(["plant/#", "plant/2"]))
    def close(self, filter: str) -> None:
        """The broker closes a filter: its gateway was away for too long, and no session has it open."""
        if any(one.filter == filter and one.expiry_s for one in self.subscribers + self.away):
            return
        self.broker.lose_filter(filter)
        self.settle()

    @precondition(lambda self: len(self.subscribers) < 4)
    @rule(
        at=st.integers(0, 1),
        older=st.sampled_from(["", "plant/1", "plant/+"]),
        filter=FILTERS,
        expiry_s=st.sampled_from([0, 10_000]),
    )
    def subscribe(self, at: int, older: str, filter: str, expiry_s: int) -> None:
        self.number += 1
        one = Subscriber(self.gateways[at], self.number, older, filter, expiry_s)
        self.subscribers.append(one)
        self.settle()
        one.subscribe()
        self.taken.clear()
        self.settle()

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def subscribe_again(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.subscribers))
        one.subscribe()
        self.taken.clear()
        self.settle()

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.subscribers))
        one.client.send(Unsubscribe(1, (one.filter,)))
        one.is_over = True
        self.settle()

    @precondition(lambda self: any(one.in_flight for one in self.subscribers))
    @rule(data=st.data(), count=st.integers(1, 4))
    def acknowledge(self, data: st.DataObject, count: int) -> None:
        one = data.draw(st.sampled_from([one for one in self.subscribers if one.in_flight]))
        while one.in_flight and count:
            one.acknowledge(data.draw(st.sampled_from(list(one.in_flight))))
            self.settle()
            count -= 1

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data(), with_its_gateway=st.booleans())
    def cut(self, data: st.DataObject, with_its_gateway: bool) -> None:
        one = data.draw(st.sampled_from(self.subscribers))
        if with_its_gateway and one.gateway is self.gateways[1]:
            self.lose_a_gateway()
        else:
            one.client.cut()
            self.lose(one)
        self.settle()

    def lose(self, one: Subscriber) -> None:
        self.subscribers.remove(one)
        if one.expiry_s:
            self.away.append(one)

    @precondition(lambda self: self.away or any(one.expiry_s for one in self.subscribers))
    @rule(at=st.integers(0, 1), data=st.data(), ticks=st.sampled_from([0, 12]))
    def come_back(self, at: int, data: st.DataObject, ticks: int) -> None:
        """Also one whose connection has broken just now."""
        one = data.draw(st.sampled_from([one for one in self.subscribers + self.away if one.expiry_s]))
        if one in self.subscribers:
            one.client.cut()
            self.lose(one)
        self.away.remove(one)
        one.come_back(self.gateways[at])
        self.subscribers.append(one)
        self.taken.clear()  # it takes the position with it
        self.settle()
        if one.is_over:  # what it is sent again is of no subscription
            one.old |= one.in_flight.keys()
        self.tick()
        one.has_its_say()
        self.wait(ticks)

    def lose_a_gateway(self) -> None:
        self.number += 1
        for one in [one for one in self.subscribers if one.gateway is self.gateways[1]]:
            self.lose(one)
        self.broker.leave_alone(self.gateways[1].settings.name)
        self.gateways[1] = Gateway(beside=self.gateways[0], name=f"other-{self.number}")

    @rule(ticks=st.sampled_from([1, 1, 2, 12]))
    def wait(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()
            self.it_never_moves_back()

    @precondition(lambda self: self.position)
    @rule(queue=st.sampled_from(QUEUES), data=st.data())
    def set_back(self, queue: str, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, self.position.get(queue, 0)))
        if to < self.position.get(queue, 0):
            self.broker.commit(NAME, {queue: to})
            self.before[queue] = to
            self.taken.add(queue)
            for one in self.subscribers + self.away:
                one.set_back(queue)

    @invariant()
    def it_never_moves_back(self) -> None:
        position = self.position
        for queue, offset in self.before.items():
            assert position[queue] >= offset, "moved back by itself"
            if queue in self.taken:
                assert position[queue] == offset, "moved by those from whom it was taken"
        self.before = position

    @invariant()
    def it_passes_nothing_that_is_not_acknowledged(self) -> None:
        for one in self.subscribers:
            for queue, offset in self.position.items():
                if queue in one.void:
                    continue
                waiting = [
                    place[1]
                    for packet_id, place in one.in_flight.items()
                    if place is not None and place[0] == queue and packet_id not in one.old
                ]
                waiting = [at for at in waiting if at >= one.begin[queue] and (queue, at) not in one.acknowledged]
                assert not waiting or min(waiting) >= offset, "after a message on its way"
                for at in range(one.begin[queue], offset if not one.is_over else 0):
                    is_wanted = matches(one.filter, self.stored[queue][at])
                    assert not is_wanted or (queue, at) in one.acknowledged, "after a message that is still to come"

    def teardown(self) -> None:
        """Who acknowledges all comes to the end of all, also of what its filter passes over."""
        self.broker.go_on()
        self.settle()
        for one in self.subscribers:
            while one.in_flight:
                one.acknowledge(next(iter(one.in_flight)))
                self.settle()
        for _ in range(60):
            self.tick()
        for queue, names in self.stored.items():
            if any(not one.is_over for one in self.subscribers) and not any(
                queue in one.void for one in self.subscribers
            ):
                assert self.position[queue] == len(names)


TestPositions = Positions.TestCase
TestPositions.settings = settings(max_examples=30, stateful_step_count=50)
