"""Real processes out of luck: three gateways on one port, the broker and the name server are killed and frozen at will
while clients publish, lose their connections, leave them standing and give up on who does not answer.

"Nothing lost" here means: every acknowledged message reaches every client that was subscribed, those with QoS 2 exactly
once and in the order of each publisher, and no session is ever gone. ``make soak`` lets it go on for minutes;
``PENSTOCK_SEED`` and ``PENSTOCK_CHAOS_S`` say which chaos, and for how long.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests import patience
from tests.endtoend.test_sessions import Client, new_world, turn
from tests.simulation.gateways import FILTERS, check_deliveries

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]

CHAOS_S = float(os.environ.get("PENSTOCK_CHAOS_S", "6"))
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
KINDS = ("kill gateway", "kill broker", "kill namesrv", "freeze gateway", "freeze broker", "cut", "take over")
FROZEN_S = (0.3, 1.0, 5.0)
"""Shorter and longer than a gateway's lease on its sessions."""
PATIENCE_S = 3.0
"""A client that waits for an answer, and hears nothing for so long, gives its connection up."""
KILLS_MAX, KILLS_IN_S = 4, 65.0
"""So often each is killed: ``penstock up`` gives up on what has died five times within a minute."""
SAID_PER_S = 100
QUIET_S = 3.0
DEADLINE_S = patience.PATIENCE_S


class Chaos:
    """A system, its clients and what befalls them."""

    def __init__(self, running: Any) -> None:
        self.rng = random.Random(SEED)
        self.running = running
        self.world = new_world()
        self.publishers = [Client(self.world, f"p{number}", {}, 0) for number in range(3)]
        self.world.clients = list(self.publishers)
        for number in range(4):
            filters = {one: self.rng.choice((1, 2)) for one in self.rng.sample(FILTERS, self.rng.choice((1, 2)))}
            self.world.clients.append(Client(self.world, f"s{number}", filters, 0))
        self.faults: Counter[str] = Counter()
        self._frozen: list[tuple[float, int]] = []
        self._kills: defaultdict[str, list[float]] = defaultdict(list)
        self._ghosts: list[Any] = []
        self._heard: dict[str, tuple[object, float]] = {}

    def turn(self) -> None:
        """Everybody has a turn; who has waited in vain for long enough begins anew."""
        turn(self.world.clients, lambda _: (self.running.mqtt_host, self.running.mqtt_port))
        now = time.monotonic()
        for client in self.world.clients:
            has = (client.is_admitted, client.delivered.total(), len(client.acknowledged), len(client.unsubscribed))
            known, since = self._heard.get(client.name, (None, now))
            waits = client.open or client.unsubscribed or not client.is_admitted
            if known != has or not waits:
                self._heard[client.name] = (has, now)
            elif now - since > PATIENCE_S:
                del self._heard[client.name]
                self._leave(client, is_cut=False)

    def strike(self) -> None:
        """Something happens."""
        kind = self.rng.choice(KINDS)
        what, _, whom = kind.partition(" ")
        client = self.rng.choice(self.world.clients)
        if kind in ("cut", "take over"):
            self._leave(client, is_cut=kind == "cut")
        else:
            self._strike(whom, what == "freeze")
        self.faults[kind] += 1

    def _strike(self, whom: str, freezes: bool) -> None:
        now, pids = time.monotonic(), self.running.processes_of(whom)
        kills = self._kills[whom] = [then for then in self._kills[whom] if then > now - KILLS_IN_S]
        if pids and freezes:
            self._frozen.append((now + self.rng.choice(FROZEN_S), self.rng.choice(pids)))
            _send(self._frozen[-1][1], signal.SIGSTOP)
        elif pids and len(kills) < KILLS_MAX:
            kills.append(now)
            _send(self.rng.choice(pids), signal.SIGKILL)

    def thaw(self, until: float) -> None:
        """Those go on whose time has come."""
        for due, pid in self._frozen:
            if due <= until:
                _send(pid, signal.SIGCONT)
        self._frozen = [one for one in self._frozen if one[0] > until]

    def _leave(self, client: Client, *, is_cut: bool) -> None:
        """A client has done with its connection, which may stand for ever without it."""
        if client.line is not None and not is_cut:
            self._ghosts.append(client.line)
        client.lose(tells=is_cut)

    @property
    def is_done(self) -> bool:
        return not any(client.to_publish or client.open for client in self.publishers)

    def close(self) -> None:
        self.thaw(float("inf"))
        for line in [client.line for client in self.world.clients if client.line is not None] + self._ghosts:
            line.close()


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
        os.kill(pid, number)


@pytest.fixture
def chaos(system: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chaos]:
    monkeypatch.setenv("PENSTOCK_GATEWAY_SESSION_LEASE_S", "3")
    monkeypatch.setenv("PENSTOCK_GATEWAY_FILTER_LEASE_S", "6")
    made = Chaos(system("--gateways", "3").start())
    yield made
    made.close()


@pytest.mark.timeout(CHAOS_S + 3 * DEADLINE_S)
@pytest.mark.mqtt("4.1.0-1", "4.4.0-1", "4.3.3-1", old=("4.1.0-1", "4.4.0-1", "4.3.3-1"))
def test_nothing_is_lost_and_nothing_comes_twice_whatever_is_killed_and_frozen(chaos: Chaos) -> None:
    until = time.monotonic() + DEADLINE_S
    while any(client.unsubscribed for client in chaos.world.clients):
        chaos.turn()
        assert time.monotonic() < until, "not everybody could subscribe"
    chaos.world.has_begun = True
    began = strikes = now = time.monotonic()
    while now < began + CHAOS_S:
        for client in chaos.publishers:
            client.to_publish = max(client.to_publish, int((now - began) * SAID_PER_S) - len(client.sent))
        chaos.turn()
        now = time.monotonic()
        chaos.thaw(now)
        if now > strikes:
            strikes = now + chaos.rng.choice((0.2, 0.7, 2.0))
            chaos.strike()
    chaos.thaw(float("inf"))
    until = time.monotonic() + DEADLINE_S
    rest, seen = time.monotonic() + QUIET_S, -1
    while time.monotonic() < rest or not chaos.is_done:
        chaos.turn()
        got = sum([client.delivered.total() for client in chaos.world.clients])
        if got != seen:
            seen, rest = got, time.monotonic() + QUIET_S
        assert time.monotonic() < until, f"it never becomes quiet after {chaos.faults}"
    sent = {payload: message for client in chaos.publishers for payload, message in client.sent.items()}
    assert chaos.faults
    for client in chaos.world.clients:
        assert not client.problems, (client.problems, chaos.faults)
        check_deliveries(client, sent, Counter(sent.keys()))
