"""A second broker that joins while clients are away, dies and comes back; and sessions that end while gateways die.

The world of ``tests/simulation/gateways.py`` with one more broker on its own disk. Checked at the end, beside what
that world checks: every session that lives has at the other broker exactly what it has at its home, and nothing is
open there for a session that is over.
"""

from __future__ import annotations

import random
from typing import Final

from broker.net.mirror import SessionMirror
from broker.sessions.fold import holder, session_of
from gateway.mqtt.packets import Connect, Disconnect
from penstock.errors import Unavailable
from penstock.protocol.link import Link
from penstock.protocol.message import decode_batch
from penstock.protocol.requests.filters import FetchRetained
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig
from tests.simulation.disk import SimDisk
from tests.simulation.gateways import BROKER, TOPICS, BrokerLink, Device, Gateway, Line, Links, World, check

OTHER: Final = "broker:2"
OTHER_TOPIC: Final = "v/0"
AFTER_S: Final = 200.0
"""After the last fault nothing may be left over when so much time has passed."""


class TwoLinks(Links):
    """A gateway's links to both brokers."""

    def __init__(self, world: TwoBrokers) -> None:
        super().__init__(world)
        self.other = BrokerLink(world, OTHER)

    def link(self, address: str) -> Link:
        return self.other if address == OTHER else super().link(address)


class Other:
    """The second broker: its store, and its mirror of what sessions hold at their home."""

    def __init__(self, world: TwoBrokers, disk: SimDisk) -> None:
        self.rig = Rig(disk, world.clock.now_s - 1000.0, name="c", segment_bytes=1 << 16)
        links = Links(world)
        self.home_link = links.broker
        self.mirror = SessionMirror("c", self.rig.state, [links.names], links, self._carry_out)
        self.serves = False

    def _carry_out(self, request: Request) -> None:
        self.rig.dispatch.submit(request, _ignore, -1)
        self.rig.dispatch.end_batch()


class Guest(Device):
    """A client that may be away for a while, and may end its session for good."""

    is_away = False
    has_ended = False

    def end(self, gateway: Gateway) -> None:
        """Asks for a new session that ends with its connection."""
        self.has_ended = True
        self.line = Line(gateway, 4, "127.0.0.1")
        self.line.send(Connect(self.name, clean_start=True, level=4), Disconnect())
        self.line, self.is_admitted = None, False


class TwoBrokers(World):
    """A world in which a second broker joins once everybody is subscribed."""

    kind = Guest
    devices: list[Guest]  # type: ignore[assignment]

    def __init__(self, seed: int) -> None:
        self.other: Other | None = None
        self._is_registered = False
        self._other_disk = SimDisk()
        self._other_disk.rng = random.Random(seed + 2)
        super().__init__(seed)
        for device in self.devices:
            device.to_publish = 0 if device.filters else 50
        self._joins_at = self.rng.randint(1, 200)
        self._steps = 0

    # ------------------------------------------------------------ the other broker

    def rigs(self) -> list[Rig]:
        return [self.broker] if self.other is None else [self.broker, self.other.rig]

    def rig_at(self, address: str) -> Rig:
        if address == BROKER:
            return self.broker
        assert self.other is not None
        return self.other.rig

    def routes(self, topic: str) -> list[BrokerRoute]:
        found = super().routes(topic)
        other = self.other
        if other is not None and self._is_registered and (not topic or other.rig.state.topics.get(topic) is not None):
            found.append(BrokerRoute("c", OTHER, 4))
        return found

    def new_links(self) -> Links:
        return TwoLinks(self)

    def others(self) -> list[BrokerLink]:
        """Links of living gateways to the other broker, and its own to the home."""
        found = [links.other for links in self.links.values() if isinstance(links, TwoLinks)]
        return found if self.other is None else [*found, self.other.home_link]

    def join(self) -> None:
        """The other broker starts; it serves when its mirror has joined."""
        self.note("the other broker starts")
        self.other = Other(self, self._other_disk)
        self.tick_other()

    def tick_other(self) -> None:
        other = self.other
        if other is None:
            return
        other.rig.clock.now = self.clock.now_s - 1000.0
        other.mirror.tick(other.rig.clock.now)
        other.rig.dispatch.tick()
        if other.mirror.has_joined and not other.serves:
            self.note("the other broker serves")
            other.serves = self._is_registered = True  # its lease lasts longer than a restart takes
            if other.rig.state.topics.get("v") is None:
                other.rig.submit(CreateTopic("v", 2))
            self.topics = (*TOPICS, OTHER_TOPIC, OTHER_TOPIC)

    def restart_other(self) -> None:
        assert self.other is not None
        for link in self.others():
            link.breaks()
        self._other_disk.kill()
        self.other.rig.dispatch.close(Unavailable("killed"))
        self.join()

    # ------------------------------------------------------------ what can happen

    def step(self, *, faults: bool) -> None:
        super().step(faults=faults)
        rng = self.rng
        if not self.has_begun:
            return
        self._steps += 1
        if self._steps == self._joins_at:
            for device in self.devices:
                if device.filters and rng.random() < 0.7:
                    device.is_away = True
                    device.lose(tells=rng.random() < 0.5)
            self.join()
        elif self.other is not None and rng.random() < 0.02:
            for device in self.devices:
                device.is_away = device.is_away and rng.random() < 0.8
        if faults and self.other is not None and rng.random() < 0.004:
            self.note("fault: the other broker")
            self.restart_other()

    def carry(self) -> None:
        super().carry()
        if self.other is None:
            return
        if not self.other.home_link.is_idle:
            self.other.home_link.carry()
        busy = [gateway for gateway in self.gateways if not self.links[gateway].other.is_idle]  # type: ignore[attr-defined]
        if busy and self.other.serves:
            gateway = self.rng.choice(busy)
            gateway.rounds.begin()
            self.links[gateway].other.carry()  # type: ignore[attr-defined]
            gateway.round()

    def sync(self) -> None:
        super().sync()
        if self.other is not None:
            self.other.rig.sync()

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        self.tick_other()

    def reconnect(self) -> None:
        for device in self.devices:
            if device.line is None and not device.is_away and not device.has_ended and self.rng.random() < 0.2:
                device.connect(self.rng.choice(self.gateways))

    def freeze(self, gateway: Gateway, until: float) -> None:
        super().freeze(gateway, until)
        self.links[gateway].other.frozen_until = until  # type: ignore[attr-defined]

    def kill_gateway(self, gateway: Gateway) -> None:
        if self.other is not None:
            self.other.rig.dispatch.drop(self.links[gateway].other.session)  # type: ignore[attr-defined]
        super().kill_gateway(gateway)

    def restart_broker(self, *, power: bool) -> None:
        super().restart_broker(power=power)
        if self.other is not None:
            self.other.home_link.breaks()

    def drain(self) -> None:
        for device in self.devices:
            device.is_away = False
        super().drain()
        if self.other is None:
            return
        for gateway in list(self.gateways):
            link = self.links[gateway].other  # type: ignore[attr-defined]
            link.frozen_until = 0.0
            while not link.is_idle and self.other.serves:
                gateway.rounds.begin()
                link.carry()
                gateway.round()
                self.sync()
        while not self.other.home_link.is_idle:
            self.other.home_link.carry()
            self.sync()
        for device in self.devices:
            device.read()

    def end_sessions(self) -> None:
        """Some clients end their sessions while gateways and links die."""
        rng = self.rng
        for device in self.devices:
            if rng.random() < 0.5:
                gateway = rng.choice(self.gateways)
                device.lose(tells=rng.random() < 0.5)
                device.end(gateway)
                for _ in range(rng.randint(0, 12)):
                    self.carry()
                    self.sync()
                if rng.random() < 0.7:
                    self.note(f"fault: {gateway.settings.name} dies as it ends sessions")
                    self.kill_gateway(gateway)
        until = self.clock.now_s + AFTER_S
        while self.clock.now_s < until:
            self.reconnect()
            self.drain()
            self.pass_time(2.0)
        self.drain()

    # ------------------------------------------------------------ what must be true

    def retained(self) -> dict[str, bytes]:
        found = super().retained()
        if self.other is not None:
            page = self.other.rig.ask(FetchRetained("#"))
            found |= {message.name: message.body for _, message in decode_batch(page.count, page.body)}
        return found


def _ignore(result: Result) -> None:
    """The mirror looks again."""


def check_two(world: TwoBrokers) -> None:
    """What the other world checks of messages, then what is open for sessions."""
    check(world)
    world.end_sessions()
    assert world.other is not None
    home, other = world.broker.state, world.other.rig.state
    for owner in [*home.filters.owners, *other.filters.owners]:
        session = session_of(owner)
        assert session is None or home.sessions.stands(session[0]), f"{owner} is over and holds {owner}"
    for client, generation in other.exchanges.sessions():
        assert home.sessions.stands(generation), f"exchanges of {client}, whose session {generation} is over"
    for generation in home.sessions.live_after(0, 1 << 30):
        held = sorted(home.filters.held_by(holder(generation)))
        assert sorted(other.filters.held_by(holder(generation, "b"))) == held, f"session {generation}"
