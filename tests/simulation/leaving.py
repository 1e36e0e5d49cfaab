"""Clients that leave filters and shares again, at gateways, links and a broker that die just then.

The world of ``tests/simulation/gateways.py``, whose faults are aimed: soon after a client has said that it leaves, its
connection, its gateway or what stands behind it is lost, before and after each of the saves and closes that follow.
Checked in the end: what a client had been sent when it left, or when it lost a connection, has come to it
(MQTT-3.10.4-3), with QoS 2 once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gateway.mqtt.packets import Publish, Subscribe, Subscription, Unsubscribe
from tests.simulation.gateways import Device, Gateway, World
from tests.simulation.hardships import Hardships

STRIKES = ("cut", "lost", "leave", "gateway", "gateway", "gateway", "link", "kill", "power", "freeze", "freeze")
STEPS = (0, 0, 1, 2, 3, 5, 8, 12)
"""After so many steps somebody is struck: most of what follows a packet has happened by then."""


class Aiming(World):
    """A world whose faults hit whoever was just named."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._target: Device | None = None
        self._strikes_in = 0

    def aim(self, device: Device) -> None:
        """Something is about to happen to a client, perhaps."""
        if self._target is None and self.rng.random() < 0.6:
            self._target, self._strikes_in = device, self.rng.choice(STEPS)

    def step(self, *, faults: bool) -> None:
        super().step(faults=faults)
        device = self._target
        if device is None:
            return
        self._strikes_in -= 1
        if not faults or device.line is None:
            self._target = None
        elif self._strikes_in < 0:
            self._target = None
            self.strike_at(device, device.line.gateway)

    def strike_at(self, device: Device, gateway: Gateway) -> None:
        """A connection or what it hangs on is lost."""
        kind = self.rng.choice(STRIKES)
        self.note(f"strike: {kind} ({device.name}, {gateway.settings.name})")
        if kind == "gateway":
            self.links[gateway].broker.arrives_in_part()
        self.strike(kind, device, gateway)


class Leaver(Device):
    """A client with one filter or share of its own, which it leaves now and then, to come again."""

    world: Leaving

    def __init__(self, world: Leaving, name: str, filter: str, qos: int) -> None:
        super().__init__(world, name, {filter: qos}, 0)
        self.owed: dict[bytes, None] = {}  # what it was sent over connections that were lost before it had read it
        self._is_unsure = False  # it has subscribed and has no answer
        self.exact = Counter[bytes]()  # what it got with QoS 2

    def connect(self, gateway: Gateway) -> None:
        self._note_owed()
        super().connect(gateway)

    def lose(self, *, tells: bool) -> None:
        self._note_owed()
        super().lose(tells=tells)

    def leave(self) -> None:
        self._note_owed()
        super().leave()

    def _note_owed(self) -> None:
        """What it was sent and has not read. Not through a subscription that is not acknowledged: with a gateway that
        dies there never was one."""
        self._is_unsure = self._is_unsure and bool(self.unsubscribed)
        if self.line is not None and not self._is_unsure:
            unread = [one for one in self.line._got if isinstance(one, Publish) and one.qos and not one.retain]
            self.owed.update(dict.fromkeys([one.payload for one in unread if one.payload]))

    @property
    def lacks(self) -> list[bytes]:
        return [payload for payload in self.owed if not self.delivered[payload]]

    def act(self) -> None:
        """Leaves what it has when nothing is owed to it: what a gateway that died had sent with QoS 1 comes again as
        long as it stays."""
        rng = self.world.rng
        is_there = self.is_admitted and self.line is not None and not self.unsubscribed
        if self.world.has_begun and is_there and not self.lacks and rng.random() < 0.3:
            assert self.line is not None
            [(filter, qos)] = self.filters.items()
            packets: list[Any] = [Unsubscribe(self._id(), (filter,))]
            if rng.random() < 0.3:
                packets = [Subscribe(self._id(), (Subscription(filter, 0),))]
            self.unsubscribed = {filter: qos}
            if rng.random() < 0.3:  # it does not wait for the answer
                self._note_owed()
                self._is_unsure = True
                self.asked = {self._id(): filter}
                packets.append(Subscribe(next(iter(self.asked)), (Subscription(filter, qos),)))
            self.world.note(f"{self.name} leaves: {[type(one).__name__ for one in packets]}")
            self.line.send(*packets)
            self.world.aim(self)
        elif rng.random() < 0.4:
            self._note_owed()
            super().act()
            self._is_unsure = bool(self.asked) or self._is_unsure

    def _delivered(self, packet: Publish) -> list[Any]:
        if packet.qos == 2 and packet.packet_id not in self._received and packet.payload and not packet.retain:
            self.exact[packet.payload] += 1
        return super()._delivered(packet)


class Leaving(Aiming):
    """A world whose subscribers leave: each a filter of its own or the share of which it is the only member."""

    quiet_s = 240.0  # they leave to the end

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.leavers = [
            Leaver(self, f"l{number}", filter, self.rng.choice((1, 2)))
            for number, filter in enumerate(("t/#", "+/0", "$share/a/t/#", "$share/b/#"))
        ]
        self.devices = [*[device for device in self.devices if not device.filters], *self.leavers]

    def run(self) -> None:
        """And what dead gateways had of shares is given out again when their time is over."""
        super().run()
        for _ in range(50):
            self.drain()
            self.reconnect()
            self.pass_time(0.5)


class HardLeaving(Leaving, Hardships):
    """The same where the broker has a hard time."""


def check_leaving(world: Leaving) -> None:
    """Raises ``AssertionError`` for the first thing that is not as it must be."""
    stored = Counter(world.stored())
    for leaver in world.leavers:
        assert not leaver.problems, leaver.problems
        assert not leaver.lacks, f"{leaver.name} was sent {leaver.lacks[:3]} and never got it"
        if not next(iter(leaver.filters)).startswith("$"):  # docs/decisions/0017: those may come a second time
            twice = [payload for payload, count in leaver.exact.items() if count > stored[payload]]
            assert not twice, f"{leaver.name} got {twice[:3]} twice"
