"""Gateways, one broker and their clients, all of them mortal: what a seed makes of them, and what must be true then.

No event loop: the simulation is one loop that picks what happens next. Gateways are whole ones on lines in memory
(``tests/gateway/rig.py``), the broker is the real service on a simulated disk, and between them are links that delay,
lose their replies and break. Clients keep the protocol's rules and what a client must keep over connections. Checked at
the end: acknowledged messages (none lost, QoS 2 once), their order, sessions, retained messages against the log, and
that nothing was made up.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from rig import Client as Line
from rig import Gateway, HandClock

from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from penstock.errors import Unavailable
from penstock.protocol.link import Link, OnResult
from penstock.protocol.message import decode_batch
from penstock.protocol.requests.filters import FetchRetained
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from tests.broker.broker_rig import Rig, messages
from tests.simulation.disk import SimDisk
from tests.simulation.fences import Fences

NAMESRV: Final = "127.0.0.1:9876"
BROKER: Final = "broker:1"
TOPICS: Final = ("t/0", "t/1", "u/0")
FILTERS: Final = ("t/#", "+/0", "#", "t/1")
STEPS: Final = 700


class BrokerLink:
    """A gateway's link to the broker: requests and replies arrive some time, or the link breaks. Every other one hands
    requests over as they are, as in one process (``penstock/protocol/requests/given.py``)."""

    def __init__(self, world: World, address: str = BROKER) -> None:
        self._world = world
        self.address = address
        self._requests: list[tuple[Request, OnResult]] = []
        self._sent: deque[list[tuple[Request, OnResult]]] = deque()
        self._open: dict[int, OnResult] = {}
        self._replies: deque[tuple[int, Result]] = deque()
        self._number = 0
        self.frozen_until = 0.0
        self.session = world.new_session()
        self._is_near = self.session % 2 == 1

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result = self._world.fences.tap(request, on_result)
        self._requests.append((request if self._is_near else request.for_wire(), on_result))

    def flush(self) -> None:
        if self._requests:
            self._sent.append(self._requests)
            self._requests = []

    @property
    def is_idle(self) -> bool:
        is_frozen = self._world.clock.now_s < self.frozen_until
        return is_frozen or (not self._sent and not self._replies)

    def carry(self) -> bool:
        """The oldest batch arrives at the broker, or replies at the gateway. True if there was anything."""
        rng = self._world.rng
        if not self._world.is_at(self.address):
            self.give_up()
            return True
        if self._sent and (not self._replies or rng.random() < 0.5):
            self._arrive(self._sent.popleft())
            return True
        if not self._replies:
            return False
        for _ in range(rng.randint(1, len(self._replies))):
            number, result = self._replies.popleft()
            on_result = self._open.pop(number, None)
            if on_result is not None:
                on_result(result)
        return True

    def _arrive(self, batch: list[tuple[Request, OnResult]]) -> None:
        for request, on_result in batch:
            self._number += 1
            number = self._number
            self._open[number] = on_result

            def answered(result: Result, number: int = number) -> None:
                if number in self._open:
                    self._replies.append((number, result))

            self._world.rig_at(self.address).dispatch.submit(request, answered, self.session)
        self._world.rig_at(self.address).dispatch.end_batch()

    def arrives_in_part(self) -> None:
        """The gateway dies as it sends its oldest batch."""
        if self._sent and self._world.is_at(self.address):
            batch = self._sent.popleft()
            self._arrive(batch[: self._world.rng.randint(0, len(batch))])

    def breaks(self) -> None:
        """The connection is lost; of what was under way nobody knows what became of it."""
        self._world.rig_at(self.address).dispatch.drop(self.session)
        self.session = self._world.new_session()
        lost = [*self._open.values(), *[on_result for batch in self._sent for _, on_result in batch]]
        self._open.clear()
        self._sent.clear()
        self._replies.clear()
        for on_result in lost:
            error = Unavailable("the connection was lost")
            error.unknown = True
            on_result(error)

    def give_up(self) -> None:
        """Nobody is there any more: nothing that waits was carried out."""
        waiting = [*self._open.values(), *[one for batch in [*self._sent, self._requests] for _, one in batch]]
        self._requests = []
        self._open.clear()
        self._sent.clear()
        self._replies.clear()
        for on_result in waiting:
            on_result(Unavailable(f"nobody is at {self.address}"))


class NameServer:
    """Who has which topic, answered at once."""

    def __init__(self, world: World) -> None:
        self._world = world

    def submit(self, request: Request, on_result: OnResult) -> None:
        assert isinstance(request, QueryRoute)
        on_result(Route(tuple(self._world.routes(request.topic))))

    def flush(self) -> None:
        pass


class Links:
    """What a gateway of the rig takes for its brokers. ``broker``: its link to the address that it heard of last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.names = NameServer(world)
        self.broker = BrokerLink(world, world.address)
        self._brokers = {world.address: self.broker}
        self.clock = world.clock
        self.has_brokers = True

    def new_epoch(self) -> str:
        """A name for an epoch of the gateway."""
        return self._world.new_epoch()

    def link(self, address: str) -> Link:
        if address == NAMESRV:
            return self.names
        if address not in self._brokers:
            self.broker = self._brokers[address] = BrokerLink(self._world, address)
        return self.broker

    def give_up(self, address: str) -> None:
        self._brokers.pop(address).give_up()

    def flush(self) -> None:
        pass


class PatientLine(Line):
    """A line whose bytes wait as long as the gateway does not read them."""

    _unread = b""

    def send_bytes(self, data: bytes) -> None:
        self._unread += data
        if self.is_read:
            data, self._unread = self._unread, b""
            super().send_bytes(data)

    def got(self) -> list[Any]:
        if self._unread:
            self.send_bytes(b"")
        return super().got()


class Device:
    """A client that keeps the rules over all its connections."""

    def __init__(self, world: World, name: str, filters: dict[str, int], publishes: int) -> None:
        self.world = world
        self.name = name
        self.filters = filters
        self.line: Line | None = None
        self.is_admitted = False
        self.has_session = False
        self.unsubscribed = dict(filters)
        self.asked: dict[int, str] = {}
        self.delivered: Counter[bytes] = Counter()
        self.order: list[tuple[str, int, bytes]] = []
        self._received: set[int] = set()  # QoS 2 ids between PUBLISH and PUBREL
        self.to_publish = publishes
        self.open: dict[int, tuple[Publish, bool]] = {}  # what it sent, and whether a PUBREC came
        self.sent: dict[bytes, Publish] = {}
        self.acknowledged: set[bytes] = set()
        self.problems: list[str] = []
        self._next_id = 1
        self._dead: set[int] = set()

    # ------------------------------------------------------------ its connection

    def connect(self, gateway: Gateway) -> None:
        """Opens a connection; an earlier one it simply forgets, or leaves standing."""
        self.line = self.world.line(gateway, 4, "127.0.0.1")
        self.is_admitted = False
        self.world.note(f"{self.name} connects to {gateway.settings.name}")
        self.line.send(Connect(self.name, clean_start=False, level=4))

    def lose(self, *, tells: bool) -> None:
        """The connection is gone. ``tells``: the gateway hears of it."""
        line, self.line, self.is_admitted = self.line, None, False
        if line is not None and tells and not line.is_closed:
            line.cut()

    def leave(self) -> None:
        line, self.line, self.is_admitted = self.line, None, False
        if line is not None:
            line.send(Disconnect())

    def read(self) -> None:
        """Takes what has come, in its order, and answers all of it."""
        line = self.line
        if line is None:
            return
        answers: list[Any] = []
        for packet in line.got():
            answers += self._take(packet)
        if line.is_closed:
            self.line, self.is_admitted = None, False
        elif answers:
            line.send(*answers)

    def _take(self, packet: Any) -> list[Any]:
        if isinstance(packet, Connack):
            return self._welcomed(packet)
        if isinstance(packet, Publish):
            return self._delivered(packet)
        if isinstance(packet, Pubrel):
            self._received.discard(packet.packet_id)
            return [Pubcomp(packet.packet_id)]
        if isinstance(packet, Puback | Pubcomp):
            message, _ = self.open.pop(packet.packet_id, (None, False))
            if message is not None and message.payload:  # what takes a retained message away has no name
                self.acknowledged.add(message.payload)
                self.world.acknowledged(message.payload)
        elif isinstance(packet, Pubrec):
            if packet.packet_id in self.open:
                self.open[packet.packet_id] = (self.open[packet.packet_id][0], True)
            return [Pubrel(packet.packet_id)]
        elif isinstance(packet, Suback):
            self.unsubscribed.pop(self.asked.pop(packet.packet_id, ""), None)
        return []

    def _welcomed(self, packet: Connack) -> list[Any]:
        if packet.reason_code:
            return []
        self.is_admitted = True
        if self.has_session and not packet.session_present:
            self.problems.append(f"{self.name}: its session is gone")
        if not packet.session_present:
            self._received.clear()
        self.world.is_aimed = not self.has_session and self.world.rng.random() < 0.3
        self.has_session = True
        self.asked.clear()
        again: list[Any] = []
        for packet_id, (message, is_received) in self.open.items():
            if is_received:
                again.append(Pubrel(packet_id))
            else:
                again.append(Publish(message.topic, message.payload, message.qos, message.retain, True, packet_id))
        return again

    def _delivered(self, packet: Publish) -> list[Any]:
        if packet.qos == 2 and packet.packet_id in self._received:
            return [Pubrec(packet.packet_id)]
        if not packet.retain:
            self.delivered[packet.payload] += 1
            if self.delivered[packet.payload] == 1:
                self.order.append((packet.topic, packet.qos, packet.payload))
        if packet.qos == 2:
            self._received.add(packet.packet_id)
            return [Pubrec(packet.packet_id)]
        return [Puback(packet.packet_id)] if packet.qos else []

    # ------------------------------------------------------------ what it does by itself

    def act(self) -> None:
        """Subscribes if it has to, else publishes something."""
        if self.line is None or not self.is_admitted or self.line.is_closed:
            return
        if self.unsubscribed and not self.asked:
            filter, qos = next(iter(self.unsubscribed.items()))
            self.asked = {self._id(): filter}
            self.line.send(Subscribe(next(iter(self.asked)), (Subscription(filter, qos),)))
        elif self.to_publish and self.world.has_begun:
            self._publish(self.line)

    def _publish(self, line: Line) -> None:
        rng = self.world.rng
        batch = []
        for _ in range(min(self.to_publish, rng.randint(1, 4))):
            if len(self.open) >= 10:
                break
            self.to_publish -= 1
            payload = f"{self.name}:{len(self.sent):06d}".encode()
            message = Publish(
                rng.choice(self.world.topics), payload, rng.choice((1, 2)), rng.random() < 0.2, False, self._id()
            )
            self.sent[payload] = message
            self.open[message.packet_id] = (message, False)
            batch.append(message)
        if batch:
            line.send(*batch)

    def _id(self) -> int:
        while self._next_id in self.open or self._next_id in self.asked:
            self._next_id = self._next_id % 20 + 1  # few ids: they are used again soon
        found = self._next_id
        self._next_id = self._next_id % 20 + 1
        return found


class World:
    """All of one run."""

    kind: type[Device] = Device
    line: type[Line] = Line
    moves = False
    """The broker is at another address each time it is started."""
    ordered: tuple[int, ...] = (1, 2)
    """What was sent with one of these QoS comes in its order."""
    quiet_s = 90.0
    """After the last fault everything must be done within this simulated time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log: list[str] = []
        self._sessions = 0
        self.fences = Fences()
        self.clock = HandClock()
        self.address = BROKER
        self._starts = 1
        self._disk = SimDisk()
        self._disk.rng = random.Random(seed + 1)
        self.broker = self.first_broker(seed)
        self._epochs = 0
        self._epoch_names = 0
        self._acknowledged: dict[bytes, int] = {}  # where the log ended when the client heard of it
        self.links: dict[Gateway, Links] = {}
        self.gateways = [self.new_gateway(f"gateway-{number}") for number in range(self.rng.choice((1, 2, 3)))]
        self.topics = TOPICS
        self.has_begun = False
        self.is_aimed = False  # the power goes just after something was promised
        self.faults = Counter[str]()
        publishes = self.rng.choice((5, 20, 40))
        self.devices = [self.kind(self, f"p{number}", {}, publishes) for number in range(3)]
        for number in range(3):
            filters = {one: self.rng.choice((1, 2)) for one in self.rng.sample(FILTERS, self.rng.choice((1, 1, 2)))}
            self.devices.append(self.kind(self, f"s{number}", filters, 3 if self.rng.random() < 0.3 else 0))

    def first_broker(self, seed: int) -> Rig:
        """The broker that the world begins with."""
        return Rig(self._disk, segment_bytes=1 << 16)

    def note(self, what: str) -> None:
        self.log.append(f"{self.clock.now_s:9.2f}  {what}")

    def rigs(self) -> list[Rig]:
        """The brokers there are."""
        return [self.broker]

    def rig_at(self, address: str) -> Rig:
        """The broker at an address."""
        return self.broker

    def is_at(self, address: str) -> bool:
        """Whether a broker listens there."""
        return not self.moves or address == self.address

    def routes(self, topic: str) -> list[BrokerRoute]:
        """What the name server says."""
        has_it = not topic or self.broker.state.topics.get(topic) is not None
        return [BrokerRoute("b", self.address, 4)] if has_it else []

    def new_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def new_epoch(self) -> str:
        self._epoch_names += 1
        return f"epoch-{self._epoch_names}"

    def acknowledged(self, payload: bytes) -> None:
        """A client has heard that its message is stored, and will not send it again."""
        self._acknowledged.setdefault(payload, self.broker.store.written)

    def late(self) -> list[bytes]:
        """What the home has stored once more when its client had no reason to send it any more: out of a gateway that
        stood still. (What goes to another broker may be overtaken by the release of its session, at the home.)"""
        return [body for position, body in placed(self.broker) if position >= self._acknowledged.get(body, 1 << 62)]

    def new_links(self) -> Links:
        return Links(self)

    def new_gateway(self, name: str) -> Gateway:
        links = self.new_links()
        self._epochs += 1
        made = Gateway(broker=links, name=name, session_lease_s=6.0, in_flight_max=6)
        self.links[made] = links
        return made

    # ------------------------------------------------------------ what can happen

    def step(self, *, faults: bool) -> None:
        """One thing happens."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.45:
            self.carry()
        elif chance < 0.55:
            self.sync()
        elif chance < 0.75:
            rng.choice(self.devices).read()
        elif chance < 0.9:
            rng.choice(self.devices).act()
        elif chance < 0.95:
            self.pass_time(rng.choice((0.01, 0.1, 0.6, 1.1)))
        self.reconnect()
        if faults and self.is_aimed:
            self.note("fault: power, just after a first CONNACK")
            self.restart_broker(power=True)
        elif faults and rng.random() < 0.02:
            self.fault()
        self.is_aimed = False

    def carry(self) -> None:
        busy = [gateway for gateway in self.gateways if not self.links[gateway].broker.is_idle]
        if busy:
            gateway = self.rng.choice(busy)
            gateway.rounds.begin()
            self.links[gateway].broker.carry()
            gateway.round()

    def sync(self) -> None:
        self.broker.sync()

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.broker.clock.now = self.clock.now_s - 1000.0
        self.broker.dispatch.tick()
        for gateway in self.gateways:
            gateway.rounds.begin()
            gateway.brokers.refresh()
            gateway.tick(self.clock.now_s)
            gateway.round()

    def reconnect(self) -> None:
        for device in self.devices:
            if device.line is None and (device.filters or self.has_begun) and self.rng.random() < 0.2:
                device.connect(self.rng.choice(self.gateways))

    def fault(self) -> None:
        kind = self.rng.choice(
            ("cut", "lost", "leave", "takeover", "gateway", "link", "kill", "power", "storm", "freeze")
        )
        self.faults[kind] += 1
        device, gateway = self.rng.choice(self.devices), self.rng.choice(self.gateways)
        self.note(f"fault: {kind} ({device.name}, {gateway.settings.name})")
        self.strike(kind, device, gateway)

    def strike(self, kind: str, device: Device, gateway: Gateway) -> None:
        """That happens to them."""
        if kind in ("cut", "lost"):
            device.lose(tells=kind == "cut")
        elif kind == "leave":
            device.leave()
        elif kind == "takeover":
            device.connect(gateway)
        elif kind == "storm":
            for one in self.devices:
                one.connect(gateway)
        elif kind == "gateway":
            self.kill_gateway(gateway)
        elif kind == "freeze":
            self.freeze(gateway, self.clock.now_s + self.rng.choice((0.5, 2.0, 10.0)))
            device.connect(self.rng.choice(self.gateways))
        elif kind == "link":
            gateway.rounds.begin()
            self.links[gateway].broker.breaks()
            gateway.round()
        else:
            self.restart_broker(power=kind == "power")

    def freeze(self, gateway: Gateway, until: float) -> None:
        """What it has sent arrives late, and so do all answers."""
        self.links[gateway].broker.frozen_until = until

    def kill_gateway(self, gateway: Gateway) -> None:
        """Nothing of it is left but what it sent; one of the same name, or of another, begins in its place."""
        self.broker.dispatch.drop(self.links[gateway].broker.session)
        for device in self.devices:
            if device.line is not None and device.line.gateway is gateway:
                device.lose(tells=False)
        name = gateway.settings.name if self.rng.random() < 0.5 else f"gateway-{self._epochs}"
        del self.links[gateway]
        self.gateways[self.gateways.index(gateway)] = self.new_gateway(name)

    def restart_broker(self, *, power: bool) -> None:
        if power:
            self._disk.lose_power()
        settings = {name: getattr(self.broker.settings, name) for name in self.broker.settings.__slots__}
        old = self.broker
        self._disk.kill()
        old.dispatch.close(Unavailable("killed"))
        self.broker = Rig(self._disk, self.clock.now_s - 1000.0, **settings)
        self._starts += 1
        if self.moves:
            self.address = f"broker:{self._starts}"
        for gateway in self.gateways:
            gateway.rounds.begin()
            self.links[gateway].broker.breaks()
            gateway.round()

    # ------------------------------------------------------------ the run

    def run(self) -> None:
        """Subscriptions first, then load with faults, then peace until all is quiet."""
        for _ in range(3000):
            self.step(faults=False)
            if not any(device.unsubscribed for device in self.devices):
                break
        self.note("all are subscribed")
        self.has_begun = True
        for _ in range(STEPS):
            self.step(faults=True)
        self.note("peace")
        for links in self.links.values():
            links.broker.frozen_until = 0.0
        until, rest, got = self.clock.now_s + self.quiet_s, 0, -1
        while rest < 8:
            for _ in range(60):
                self.step(faults=False)
            self.drain()
            is_quiet = all(device.is_admitted and not device.open and not device.to_publish for device in self.devices)
            before, got = got, sum([device.delivered.total() for device in self.devices])
            rest = rest + 1 if is_quiet and got == before else 0
            self.pass_time(0.5)
            assert self.clock.now_s < until, "it never becomes quiet"

    def drain(self) -> None:
        """All that is under way arrives."""
        for gateway in list(self.gateways):
            while not self.links[gateway].broker.is_idle:
                gateway.rounds.begin()
                self.links[gateway].broker.carry()
                gateway.round()
                self.sync()
        for device in self.devices:
            device.read()

    # ------------------------------------------------------------ what must be true

    def stored(self) -> list[bytes]:
        """Bodies of all messages, in the order of the log."""
        return [body for rig in self.rigs() for _, body in placed(rig)]

    def retained(self) -> dict[str, bytes]:
        page = self.broker.ask(FetchRetained("#"))
        return {message.name: message.body for _, message in decode_batch(page.count, page.body)}

    def digest(self) -> str:
        seen = [(device.name, device.order) for device in self.devices]
        return hashlib.sha256(repr((self.log, seen, self.stored())).encode()).hexdigest()


class Moving(World):
    """A world in which the broker never comes back where it was."""

    line = PatientLine
    moves = True


def placed(rig: Rig) -> list[tuple[int, bytes]]:
    """Log positions and bodies of all messages of a broker."""
    return [(message.position, message.body) for message in messages(rig)]


def check(world: World) -> None:
    """Raises ``AssertionError`` for the first thing that is not as it must be."""
    world.fences.check()
    sent = {payload: message for device in world.devices for payload, message in device.sent.items()}
    acknowledged = {payload for device in world.devices for payload in device.acknowledged}
    stored = Counter(world.stored())
    for device in world.devices:
        assert not device.problems, device.problems
    assert acknowledged == set(sent), "in the end everything was acknowledged"
    assert stored.keys() <= sent.keys(), "made up"
    assert not world.late(), f"stored late: {world.late()}"
    for payload, message in sent.items():
        assert stored[payload] >= 1, f"{payload!r} was acknowledged and is not in the log"
        assert message.qos == 1 or stored[payload] == 1, f"{payload!r} with QoS 2 is stored {stored[payload]} times"
    for device in world.devices:
        check_deliveries(device, sent, stored, world.ordered)
    _check_retained(world)


def check_deliveries(
    device: Device, sent: dict[bytes, Publish], stored: Counter[bytes], ordered: tuple[int, ...] = (1, 2)
) -> None:
    """What one client got of all that was sent: nothing lost, QoS 2 once, each publisher's order kept of what it sent
    with one of the QoS ``ordered``."""
    for payload, message in sent.items():
        granted = [qos for filter, qos in device.filters.items() if matches_any(filter, message.topic)]
        count = device.delivered[payload]
        if not granted:
            assert not count, f"{device.name} got {payload!r} without a subscription"
            continue
        assert count >= 1, f"{device.name} never got {payload!r} ({message.topic}, QoS {message.qos})"
        if min(max(granted), message.qos) == 2:
            assert count == 1, f"{device.name} got {payload!r} with QoS 2 {count} times"
    for key in {(topic, qos, payload.partition(b":")[0]) for topic, qos, payload in device.order}:
        once = [
            payload
            for topic, qos, payload in device.order
            if (topic, qos, payload.partition(b":")[0]) == key and stored[payload] == 1 and sent[payload].qos in ordered
        ]
        assert once == sorted(once), f"{device.name}: {key} out of order"


def _check_retained(world: World) -> None:
    last: dict[str, bytes] = {}
    for message in [message for rig in world.rigs() for message in messages(rig) if message.retain]:
        last[message.name] = message.body
    assert world.retained() == {name: body for name, body in last.items() if body}


def matches_any(filter: str, name: str) -> bool:
    """An independent little matcher for the names and filters of this simulation."""
    parts, levels = filter.split("/"), name.split("/")
    if parts[-1] == "#":
        parts, levels = parts[:-1], levels[: len(parts) - 1]
    return len(parts) == len(levels) and all(part in ("+", level) for part, level in zip(parts, levels, strict=True))
