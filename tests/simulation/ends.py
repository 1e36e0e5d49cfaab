"""Clients with wills and sessions that expire, at gateways and a broker that die just then.

The world of ``tests/simulation/gateways.py`` with clients that speak MQTT 5. In the end each of them goes for good, in
one way or another, while gateways, links and the broker die. Checked afterwards: a will whose client went without a
word is stored and not too early, that of a client that took its leave is not, and a session is over when its time is,
with all that it held.
"""

from __future__ import annotations

from typing import Any, Final

from broker.sessions.fold import session_of
from gateway.mqtt.packets import Connack, Connect, Disconnect, Will
from gateway.mqtt.properties import Properties
from gateway.mqtt.reason_codes import ReasonCode
from tests.simulation.gateways import Device, Gateway, World, messages

KEPT_S: Final = 10_000
"""An expiry that no run lives to see."""
LONG_S: Final = 400.0
FATES: Final = ("cut", "gateway", "leave", "leave with will", "takeover")


class Mortal(Device):
    """A client with a will, whose session expires."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, {"t/0": 1}, 0)
        self.expiry_s = world.rng.choice((0, 8, 30, KEPT_S))
        self.delay_s = world.rng.choice((0, 4, 15, 60))
        self.connections = 0
        self.fate = ""
        self.gone_at = 0.0
        self.held_by: Gateway | None = None
        self.is_gone = False

    def will_of(self, connection: int) -> bytes:
        return b"will:%s:%d" % (self.name.encode(), connection)

    def connect(self, gateway: Gateway) -> None:
        if self.is_gone:
            return
        self.line = self.world.line(gateway, 5, "127.0.0.1")
        self.is_admitted = False
        self.connections += 1
        will = Will("w/x", self.will_of(self.connections), 1, properties=Properties(will_delay_interval=self.delay_s))
        self.world.note(f"{self.name} connects to {gateway.settings.name}, connection {self.connections}")
        expiry = Properties(session_expiry_interval=self.expiry_s)
        self.line.send(Connect(self.name, clean_start=False, level=5, will=will, properties=expiry))

    def _welcomed(self, packet: Connack) -> list[Any]:
        if packet.reason_code == 0 and not packet.session_present:
            if self.expiry_s < KEPT_S:
                self.has_session = False
            self.unsubscribed = dict(self.filters)
        return super()._welcomed(packet)


class Ends(World):
    """A world whose clients end."""

    quiet_s = 240.0  # there are more clients, of which one acts at a time

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.mortals = [Mortal(self, f"m{number}") for number in range(4)]
        self.devices = [*self.devices, *self.mortals]
        self.is_trouble = False
        self.died: set[Gateway] = set()
        self.doubtful: set[Gateway] = set()  # those whose last words the home may not have heard

    def kill_gateway(self, gateway: Gateway) -> None:
        self.died.add(gateway)
        self.doubtful.add(gateway)
        super().kill_gateway(gateway)

    def stored(self) -> list[bytes]:
        return [body for body in super().stored() if not body.startswith(b"will:")]

    def run(self) -> None:
        super().run()
        self.note("the ends begin")
        rng = self.rng
        self.is_trouble = rng.random() < 0.8
        for mortal in rng.sample(self.mortals, len(self.mortals)):
            self.go(mortal)
            for _ in range(rng.randint(0, 8)):
                self.one_more()
        for _ in range(rng.randint(0, 100)):
            self.one_more()
        self.note("peace")
        for links in self.links.values():
            links.broker.frozen_until = 0.0
        until = self.clock.now_s + LONG_S
        while self.clock.now_s < until:
            self.drain()
            self.pass_time(rng.choice((0.3, 1.0)))
        self.drain()

    def one_more(self) -> None:
        """A step with the faults that hit gateways and the broker."""
        rng = self.rng
        self.step(faults=False)
        if not self.is_trouble or rng.random() > 0.08:
            return
        gateway = rng.choice(self.gateways)
        kind = rng.choice(("gateway", "link", "kill", "power", "freeze", "time", "storm"))
        self.note(f"fault: {kind} ({gateway.settings.name})")
        if kind == "gateway":
            self.kill_gateway(gateway)
        elif kind == "link":
            gateway.rounds.begin()
            self.links[gateway].broker.breaks()
            gateway.round()
        elif kind == "freeze":
            self.doubtful.add(gateway)
            self.freeze(gateway, self.clock.now_s + rng.choice((2.0, 10.0)))
        elif kind == "storm":
            for mortal in self.mortals:
                mortal.connect(gateway)
        elif kind == "time":
            self.doubtful.update(self.gateways)
            self.pass_time(rng.choice((3.0, 7.0)))
        else:
            self.restart_broker(power=kind == "power")

    def go(self, mortal: Mortal) -> None:
        rng = self.rng
        if mortal.line is None or mortal.line.is_closed or not mortal.is_admitted:
            mortal.fate, mortal.is_gone = "unknown", True
            mortal.lose(tells=True)
            return
        mortal.fate = rng.choice(FATES)
        mortal.held_by = mortal.line.gateway
        if mortal.fate == "takeover":
            mortal.lose(tells=False)
            mortal.connect(rng.choice(self.gateways))
            assert mortal.line is not None
            mortal.held_by = mortal.line.gateway
            for _ in range(rng.randint(0, 30)):
                self.one_more()
            if mortal.line is None or not mortal.is_admitted:
                mortal.fate = "unknown"
            mortal.lose(tells=True)
        elif mortal.fate == "cut":
            mortal.lose(tells=True)
        elif mortal.fate == "gateway":
            self.kill_gateway(mortal.line.gateway)
        elif mortal.fate == "leave":
            mortal.leave()
        else:
            mortal.line.send(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
            mortal.lose(tells=True)
        mortal.gone_at = self.clock.now_s
        mortal.is_gone = True
        self.note(f"{mortal.name} goes for good: {mortal.fate}")

    def wills(self) -> dict[bytes, list[float]]:
        """When each was stored, by the broker's clock in simulated seconds."""
        found: dict[bytes, list[float]] = {}
        for message in messages(self.broker):
            if message.body.startswith(b"will:"):
                stored_s = (message.stored_ms - self.broker.clock.set_ms) / 1000 + 1000.0
                found.setdefault(message.body, []).append(stored_s)
        return found


def check_ends(world: Ends) -> None:
    """Raises ``AssertionError`` for the first thing that is not as it must be."""
    sent = {payload: message for device in world.devices for payload, message in device.sent.items()}
    stored = set(world.stored())
    wills = world.wills()
    for mortal in world.mortals:
        assert not mortal.problems, mortal.problems
        if mortal.expiry_s == KEPT_S and mortal.fate != "unknown":
            for payload, message in sent.items():
                if message.topic == "t/0" and payload in stored:
                    assert mortal.delivered[payload], f"{mortal.name} never got {payload!r}"
        who = f"{mortal.name}, {mortal.fate} at {mortal.gone_at:.2f}, expiry {mortal.expiry_s}, delay {mortal.delay_s}"
        last = wills.get(mortal.will_of(mortal.connections), [])
        if mortal.fate in ("cut", "gateway", "leave with will", "takeover"):
            assert last, f"the will of {who} was never published"
            if not world.is_trouble:  # else the home may have missed its gateway before
                due = mortal.gone_at + min(mortal.delay_s, mortal.expiry_s)
                assert min(last) >= due - 0.1, f"the will of {who} was published at {min(last):.2f}"
                is_single = len(last) == 1 or mortal.held_by in world.died
                assert is_single, f"the will of {who} was published at {last}"
        elif mortal.fate == "leave" and mortal.held_by not in world.doubtful:
            assert not last, f"the will of {who} was published at {last}"
        entry = world.broker.state.sessions.get(mortal.name)
        if mortal.fate != "unknown":
            if mortal.expiry_s == KEPT_S:
                assert entry is not None, f"the session of {who} is gone"
            else:
                assert entry is None, f"the session of {who} is there"
    state = world.broker.state
    for owner in state.filters.owners:
        session = session_of(owner)
        assert session is None or state.sessions.stands(session[0]), f"{owner} is over and holds filters"
    for client, generation in state.exchanges.sessions():
        assert state.sessions.stands(generation), f"exchanges of {client}, whose session {generation} is over"
