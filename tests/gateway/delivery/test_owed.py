"""Retained messages and history that a session has not been sent when its connection ends come with the next one.

"Nothing lost" here means: in the end the client has every retained value, and every message of the history, that its
subscription asked for; with QoS 2 each once, however often connections broke and gateways died, and all of it before
anything live.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from rig import Client, Gateway

from gateway.delivery import replay
from gateway.mqtt.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Subscription
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from gateway.sessions.session_state import Owed, decode_flow
from penstock.protocol.requests.topics import CreateTopic

LASTING = Properties(session_expiry_interval=600)
SEEDS = range(int(os.environ.get("PENSTOCK_SEEDS", "5")))


class Reader:
    """A client with a durable session that takes some of what comes and is then cut off."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.got: Counter[bytes] = Counter()
        self.order: list[bytes] = []
        self._exchanges: set[int] = set()
        self._come: list[Packet] = []

    def connect(self, gateway: Gateway) -> Client:
        client = gateway.open(5)
        client.send(Connect("reader", False, properties=LASTING, level=5))
        self._come = []
        return client

    def take(self, client: Client, count: int) -> int:
        """Takes so many packets and answers them; what else has come goes with the connection. How many there were."""
        self._come += client.got()
        packets, self._come = self._come[:count], self._come[count:]
        for packet in packets:
            if isinstance(packet, Pubrel):
                self._exchanges.discard(packet.packet_id)
                client.send(Pubcomp(packet.packet_id))
            elif isinstance(packet, Publish):
                if packet.qos < 2 or packet.packet_id not in self._exchanges:
                    self.got[packet.payload] += 1
                    self.order.append(packet.payload)
                if packet.qos == 2:
                    self._exchanges.add(packet.packet_id)
                if packet.qos:
                    client.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
        return len(packets)

    def drain(self, client: Client) -> None:
        while self.take(client, 1 << 30):
            pass


def another(gateway: Gateway, number: int) -> Gateway:
    """The gateway has died without a word; another one stands in for it."""
    gateway.broker.leave_alone(gateway.settings.name)
    return Gateway(beside=gateway, name=f"gw{number}", in_flight_max=4)


def read_all(gateway: Gateway, reader: Reader, properties: Properties, filter: str, qos: int) -> None:
    """Subscribes and reads with many interruptions, and lets a live message come after the first of them."""
    client = reader.connect(gateway)
    client.send(Subscribe(1, (Subscription(filter, qos),), properties))
    for number in range(12):
        reader.take(client, reader.rng.randrange(6))
        if number == 1:
            gateway.connect("p").publish("n/live", b"live", qos, packet_id=1)
        kind = reader.rng.choice(("cut", "dies", "stays"))
        if kind == "cut":
            client.cut()
            client = reader.connect(gateway)
        elif kind == "dies":
            gateway = another(gateway, number)
            client = reader.connect(gateway)
        gateway.pass_time(reader.rng.choice((0, 1)))
    reader.drain(client)
    gateway.pass_time(1)
    reader.drain(client)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_retained_values_come_however_often_the_connection_breaks(seed: int, qos: int) -> None:
    reader = Reader(random.Random(seed))
    gateway = Gateway(in_flight_max=4)
    publisher = gateway.connect("publisher")
    names = [f"n/{at:02}".encode() for at in range(30)]
    for at, name in enumerate(names):
        publisher.publish(name.decode(), name, qos, retain=True, packet_id=at + 1)
    read_all(gateway, reader, NO_PROPERTIES, "n/#", qos)
    assert reader.got.keys() == {*names, b"live"}
    assert qos == 1 or set(reader.got.values()) == {1}
    assert list(dict.fromkeys(reader.order)) == [*names, b"live"]


@pytest.mark.parametrize("start", ["beginning", "last=20", "time=1000000", "offset=0", "named=job"])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_of_a_history_comes_however_often_the_connection_breaks(
    seed: int, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "PAGE_COUNT", 3)
    reader = Reader(random.Random(seed))
    gateway = Gateway(in_flight_max=4)
    gateway.broker.ask(CreateTopic("n", 3))
    publisher = gateway.connect("publisher")
    told = [b"%02d" % number for number in range(20)]
    for number, body in enumerate(told):
        publisher.publish(f"n/{number % 2}", body, 2, packet_id=number + 1)
    starts = (("penstock-start", start), *((("penstock-start", "beginning"),) if "named" in start else ()))
    read_all(gateway, reader, Properties(user_properties=starts), "n/#", 2)
    assert reader.order == [*told, b"live"]


def saved(gateway: Gateway) -> dict[tuple[str, str], Owed]:
    entry = gateway.broker.state.sessions.get("reader")
    assert entry is not None
    return decode_flow(entry.flow).owed


def test_what_is_owed_goes_with_its_subscription_and_when_it_is_sent() -> None:
    reader = Reader(random.Random(1))
    gateway = Gateway(in_flight_max=4)
    publisher = gateway.connect("publisher")
    for at in range(10):
        publisher.publish(f"n/{at}", b"x", 1, retain=True, packet_id=at + 1)
    client = reader.connect(gateway)
    client.send(Subscribe(1, (Subscription("n/#", 1), Subscription("n/+", 1))))
    client.cut()
    assert {filter: owed.after for (filter, _), owed in saved(gateway).items()} == {"n/#": "n/3", "n/+": ""}
    client = reader.connect(gateway)
    gateway.rounds.begin()
    assert client.device.session is not None
    gateway.downstream.unsubscribe(client.device.session, "n/+")
    gateway.round()
    client.cut()
    assert {filter for filter, _ in saved(gateway)} == {"n/#"}
    reader.drain(reader.connect(gateway))
    gateway.pass_time(1)
    assert saved(gateway) == {}
    assert sum(reader.got.values()) == 10


def test_how_far_a_history_of_very_many_queues_has_come_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "QUEUES_KEPT_MAX", 2)
    reader = Reader(random.Random(1))
    gateway = Gateway(in_flight_max=4)
    gateway.broker.ask(CreateTopic("n", 3))
    for number in range(10):
        gateway.produce("n", b"%d" % number, mqtt_topic="n/x", qos=1)
    client = reader.connect(gateway)
    beginning = Properties(user_properties=(("penstock-start", "beginning"),))
    client.send(Subscribe(1, (Subscription("n/#", 1),), beginning))
    client.cut()
    assert saved(gateway) == {}
    reader.drain(reader.connect(gateway))
    assert sum(reader.got.values()) == 4, "what was on its way, as always"
