"""A whole gateway without sockets: devices on lines in memory, a broker on a simulated disk, and time that a
test moves.

A ``Client`` is the other end of a line: it speaks through the same codec from the client's side. Nothing waits; a
round is one call.
"""

from __future__ import annotations

import random
from typing import Any, TypeVar

from linked_broker import LinkedBroker

from gateway.build import build
from gateway.connections.device import Device
from gateway.connections.drain import Drain
from gateway.connections.journal import Journal
from gateway.limits.quotas import Quotas
from gateway.login.auth import Anonymous, Authenticator, Peer
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connack, Connect, Packet, Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from gateway.mqtt.reader import PacketReader
from gateway.net.ends import Output
from gateway.publishing.spans import Spans
from gateway.settings import GatewaySettings
from penstock.clock import Clock
from penstock.errors import Unavailable
from penstock.protocol.message import ANY_QUEUE, Message
from penstock.protocol.requests.request import Request
from penstock.service.audit import Audit
from topicmap.queues import topic_named

P = TypeVar("P")


class HandClock(Clock):
    """Time stands still until the test moves it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


class Client(Output):
    """A client on a line in memory, and that line."""

    def __init__(self, gateway: Gateway, level: int, peer: str, listener: str = "tcp") -> None:
        self.gateway = gateway
        self.level = level
        self.is_full = False
        self.unsent = 0
        self.is_read = True
        self.unread = False
        self.is_closed = False
        self.written = 0
        self._reader = PacketReader(1 << 28)
        self._reader.level = level
        self._got: list[Packet] = []
        self.device = Device(self, Peer(peer, None, listener), gateway.services)

    # ------------------------------------------------------------ the line

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "written after the close"
        assert data, "nothing is written"
        self.written += 1
        self._got += self._reader.receive(data)

    def set_reading(self, reads: bool) -> None:
        self.is_read = reads

    def has_unread(self) -> bool:
        return self.unread

    def close(self) -> None:
        self.is_closed = True

    # ------------------------------------------------------------ the client

    def send(self, *packets: Packet) -> None:
        """Sends packets in one piece, and lets a round go by."""
        self.send_bytes(b"".join(encode(packet, self.level) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self.gateway.rounds.begin()
        if not self.is_closed:
            self.device.receive(data)
        self.gateway.round()

    def got(self) -> list[Packet]:
        """What came since the last call."""
        got, self._got = self._got, []
        return got

    def got_one(self, kind: type[P]) -> P:
        [packet] = self.got()
        assert isinstance(packet, kind)
        return packet

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.got() if isinstance(packet, Publish)]

    def subscribe(self, *filters: str, qos: int = 2, properties: Properties = NO_PROPERTIES, **options: Any) -> Suback:
        asked = tuple(Subscription(one, qos, **options) for one in filters)
        self.send(Subscribe(1, asked, properties))
        suback = self._got.pop(0)
        assert isinstance(suback, Suback)
        return suback

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **options: Any) -> None:
        self.send(Publish(topic, payload, qos, **options))

    def cut(self) -> None:
        """The connection breaks."""
        self.is_closed = True
        self.gateway.rounds.begin()
        self.device.broken()
        self.gateway.round()


def draining(gateway: Gateway, per_s: int = 1) -> Drain:
    """A gateway's drain, which has not begun."""
    return Drain(gateway.settings, gateway.connections, gateway.rounds, per_s)


class Gateway:
    """The parts that ``gateway.server.run`` puts together, on a broker without network."""

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        *,
        has_brokers: bool = True,
        beside: Gateway | None = None,
        name: str = "gw",
        spans: Spans | None = None,
        broker: Any = None,
        **settings: Any,
    ) -> None:
        """``beside``: another gateway of the same cluster, at the same broker and by the same clock. ``broker``: that
        of the first gateway, where it is another than usual."""
        broker = broker if beside is None else beside.broker
        self.broker = LinkedBroker(HandClock()) if broker is None else broker
        self.clock: HandClock = self.broker.clock
        self.broker.has_brokers = has_brokers
        self.settings = GatewaySettings(name=name, **settings)
        self.calls = 0
        self.audit = Audit(self.clock.wall_ms, self.clock.monotonic)
        parts = build(
            self.settings,
            self.clock,
            self.broker,
            random.Random(self.broker.new_epoch()),
            authenticator or Anonymous("everyone"),
            self._called,
            (),
            Quotas(),
            Journal(self.settings.connection_log, self.audit),
            spans,
        )
        self.parts = parts
        self.quotas = parts.quotas
        self.rounds = parts.rounds
        self.brokers = parts.brokers
        self.upstream = parts.upstream
        self.downstream = parts.downstream
        self.sessions = parts.sessions
        self.home = parts.home
        self.saver = parts.saver
        self.wills = parts.wills
        self.lease = parts.lease
        self.watch = parts.watch
        self.lease_recovery = parts.lease_recovery
        self.connections = parts.connections
        self.rejudging = parts.rejudging
        self.removals = parts.removals
        self.takeovers = parts.takeovers
        self.services = parts.services
        self.tick = parts.tick
        self.judge_again = parts.judge_again
        self.users_changed = parts.users_changed
        self.brokers.refresh()
        self.round()

    def _called(self) -> None:
        self.calls += 1

    def round(self) -> None:
        """Rounds until nobody calls for another."""
        for _ in range(1000):
            self.calls = 0
            self.rounds.finish()
            self.broker.flush()
            if not self.calls:
                return
            self.rounds.begin()
        raise AssertionError("the rounds never end")

    def pass_time(self, seconds: float) -> None:
        """Half a second at a time, as the ticker does."""
        until = self.clock.now_s + seconds
        while self.clock.now_s < until:
            self.clock.now_s = min(until, self.clock.now_s + 0.5)
            self.broker.pass_time()
            self.rounds.begin()
            self.tick(self.clock.now_s)
            self.round()

    def open(self, level: int = 4, peer: str = "127.0.0.1", listener: str = "tcp") -> Client:
        """A connection without a CONNECT yet."""
        return Client(self, level, peer, listener)

    def connect(self, client_id: str = "c", *, level: int = 4, listener: str = "tcp", **asked: Any) -> Client:
        """An admitted client, its CONNACK read."""
        client = self.open(level, listener=listener)
        client.send(Connect(client_id, level=level, **asked))
        connack = client._got.pop(0)
        assert isinstance(connack, Connack)
        assert connack.reason_code == 0
        return client

    def learn(self, *joined: LinkedBroker) -> None:
        """More brokers join the first, and the gateway hears of them."""
        for one in joined:
            one.joins(self.broker)
        self.brokers.refresh()
        self.round()

    def learn_of_one_away(self) -> None:
        """A broker b2 joins the first and is away; another one listens at its address now."""
        away = LinkedBroker(self.clock, "b2", "broker:2")
        self.learn(away)
        self.broker.cluster.remove(away)
        away.answer(Request, Unavailable("away"))
        self.learn(LinkedBroker(self.clock, "b3", "broker:2"))

    def produce(self, topic: str, body: bytes = b"", queue_id: int = ANY_QUEUE, **fields: Any) -> None:
        """A native producer's message; a name of several levels is in the topic of the first."""
        if "/" in topic:
            fields["mqtt_topic"] = topic
            topic = topic_named(topic.partition("/")[0])
        self.broker.produce(Message(topic=topic, body=body, **fields), queue_id=queue_id)
        self.round()
