"""Sessions of real clients at real processes: two gateways on one port and a broker, each killed again and again.

"Nothing lost" here means: every acknowledged message reaches every client that was subscribed,
those with QoS 2 exactly once, and no session is ever gone.
"""

from __future__ import annotations

import random
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connect, Packet
from gateway.mqtt.reader import PacketReader
from tests.endtoend.lines import line
from tests.patience import PATIENCE_S
from tests.simulation.gateways import TOPICS, Device, check_deliveries

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.long]

MESSAGES = 150
KILLS = ("gateway", "broker", "gateway", "gateway", "broker", "gateway")
DEADLINE_S = PATIENCE_S
TURN_S = 0.01


class SocketLine:
    """A connection as the model of a client uses one: packets out, packets in, and whether it is over."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = line(address)
        self._socket.settimeout(0.002)  # who stands still holds nobody up
        self._reader = PacketReader(1 << 20)
        self._reader.level = 4
        self.is_closed = False

    def send(self, *packets: Packet) -> None:
        try:
            self._socket.sendall(b"".join([encode(packet, 4) for packet in packets]))
        except OSError:
            self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def got(self) -> list[Packet]:
        if not self.is_closed and not select.select([self._socket], [], [], 0)[0]:
            return []
        try:
            data = self._socket.recv(65_536)
        except OSError:
            data = b""
        if not data:
            self.close()
        return self._reader.receive(data)

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()

    def cut(self) -> None:
        self.close()


class Client(Device):
    """The model over sockets."""

    def connect(self, gateway: Any) -> None:
        try:
            self.line = SocketLine(gateway)  # type: ignore[assignment]
        except OSError:
            return
        self.is_admitted = False
        self.line.send(Connect(self.name, clean_start=False, level=4))  # type: ignore[union-attr]

    def turn(self, address: tuple[str, int]) -> None:
        """Connects if it has to, reads what came and does what it wants to."""
        if self.line is None:
            self.connect(address)
        self.read()
        self.act()


def new_world() -> Any:
    """What the model knows besides its clients."""
    return SimpleNamespace(
        rng=random.Random(7), topics=TOPICS, has_begun=False, is_aimed=False, note=_ignore, acknowledged=_ignore
    )


def _ignore(what: object) -> None:
    """Only the simulation wants to know."""


def clients_of(world: Any) -> list[Client]:
    publishers = [Client(world, f"p{number}", {}, MESSAGES) for number in range(2)]
    filters = ({"t/#": 2}, {"+/0": 1, "#": 2}, {"t/1": 1})
    return publishers + [Client(world, f"s{number}", one, 0) for number, one in enumerate(filters)]


@pytest.fixture
def world() -> Iterator[Any]:
    made = new_world()
    made.clients = clients_of(made)
    yield made
    for client in made.clients:
        if client.line is not None:
            client.line.close()


def turn(clients: Sequence[Client], address_of: Callable[[Client], tuple[str, int]]) -> None:
    """Every client has its turn, as soon as something has come for one of them, and sometimes before."""
    open_ = [client.line for client in clients if client.line is not None and not client.line.is_closed]
    select.select(open_, [], [], TURN_S)
    for client in clients:
        client.turn(address_of(client))


@pytest.mark.mqtt("4.1.0-1", "4.4.0-1", "4.3.3-1", old=("4.1.0-1", "4.4.0-1", "4.3.3-1"))
def test_sessions_survive_kill_9_of_gateways_and_broker(system: Any, world: Any) -> None:
    running = system("--gateways", "2").start()
    address = (running.mqtt_host, running.mqtt_port)
    until = time.monotonic() + DEADLINE_S
    while any(client.unsubscribed for client in world.clients):
        turn(world.clients, lambda _: address)
        assert time.monotonic() < until, "not everybody could subscribe"
    world.has_begun = True
    kills, sent_before = list(KILLS), 0
    publishers, sent = world.clients[:2], {}
    while any(client.to_publish or client.open for client in publishers) or kills:
        turn(world.clients, lambda _: address)
        sent = {payload: message for client in publishers for payload, message in client.sent.items()}
        if kills and len(sent) - sent_before > MESSAGES // 4:
            running.kill(kills.pop(0))
            sent_before = len(sent)
        elif kills and not any(client.to_publish for client in publishers):
            kills.clear()
        assert time.monotonic() < until, [(client.name, client.to_publish, client.open) for client in publishers]
    rest = time.monotonic() + 3.0
    seen = -1
    while time.monotonic() < rest:
        turn(world.clients, lambda _: address)
        now = sum([client.delivered.total() for client in world.clients])
        if now != seen:
            seen, rest = now, time.monotonic() + 3.0
        assert time.monotonic() < until, "it never becomes quiet"
    for client in world.clients:
        assert not client.problems, client.problems
        check_deliveries(client, sent, Counter(sent.keys()))
    assert running.stop() == 0
