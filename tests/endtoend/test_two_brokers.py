"""Two broker processes, gateways that are killed, and clients that are away: nothing missed, nothing left open.

"Nothing lost" here means: every message acknowledged at the second broker, from its first one on, reaches the durable
subscriber that was away while that broker joined, and every one acknowledged around a move of both brokers reaches
whom it is for, with QoS 2 once. "Nothing left open" means: once a session is over, however it ended,
no broker has a filter of it. Programs too: a broker and a name server are killed under their load.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connack, Connect, Packet, Puback, Publish, Will
from gateway.mqtt.reader import PacketReader
from penstock import Consumer, Message, Producer
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import Fenced
from penstock.protocol.requests.servers import BrokerFigures, ReadFigures
from penstock.protocol.requests.topics import CreateTopic, TopicDetail
from tests.endtoend.conftest import Service
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S, poll

pytestmark = pytest.mark.endtoend

WAIT_S = PATIENCE_S


class Cluster:
    """A name server, brokers and gateways; whatever was started ends with it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._services: list[Service] = []
        self._clients: list[paho.Client] = []
        self._plain: list[Plain] = []
        self.names = self._start("namesrv", port="0")
        self.other_names: list[Service] = []

    def name_server(self) -> None:
        """One more name server, for the services that start later."""
        self.other_names.append(self._start("namesrv", port="0"))

    def _start(self, module: str, **settings: str) -> Service:
        self._services.append(service := Service(module, **settings))
        return service

    def broker(self, name: str, **settings: str) -> Service:
        own = {"port": "0", "name": name, "data": str(self._data / name)} | self._common()
        return self._start("broker", **(own | settings))

    def gateway(self) -> Service:
        own = {"anonymous": "everyone", "session_lease_s": "3", "filter_lease_s": "6"}
        return self._start("gateway", port="0", **own, namesrv=self.names.address)

    def _common(self) -> dict[str, str]:
        return {"namesrv": self.servers, "owner_lease_s": "6"}

    @property
    def servers(self) -> str:
        """Addresses of the name servers."""
        return ",".join([self.names.address, *(one.address for one in self.other_names)])

    def kill(self, service: Service) -> None:
        self._services.remove(service)
        service.kill()

    def client(self, name: str, gateway: Service, expiry_s: int = 600) -> Client:
        made = Client(name, gateway, expiry_s)
        self._clients.append(made.paho)
        return made

    def plain(self, name: str, gateway: Service) -> Plain:
        self._plain.append(made := Plain(name, gateway))
        return made

    def figures(self, broker: Service) -> dict[str, float]:
        reply = anyio.run(self._ask, broker, ReadFigures(), BrokerFigures)
        return dict(zip(reply.names, reply.values, strict=True))

    def create(self, broker: Service, topic: str) -> None:
        anyio.run(self._ask, broker, CreateTopic(topic, 1), TopicDetail)

    @staticmethod
    async def _ask(broker: Service, request: Any, reply: Any) -> Any:
        async with anyio.create_task_group() as tasks:
            answer = await ask(WireLinks(tasks).link(broker.address), request, reply)
            tasks.cancel_scope.cancel()
        return answer

    def end(self) -> None:
        for client in self._clients:  # first all are told, so that none waits long for the end of its own thread
            client.disconnect()
        for client in self._clients:
            end(client)
        for one in self._plain:
            one.close()
        for service in self._services:
            with contextlib.suppress(ProcessLookupError):
                service.kill()


class Client:
    """A paho client with a durable session, and what it has received."""

    def __init__(self, name: str, gateway: Service, expiry_s: int) -> None:
        self.got: list[bytes] = []
        self.present: list[bool] = []
        self.subscribed: list[int] = []
        self.acknowledged: list[int] = []
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = expiry_s
        self.paho.on_message = lambda _client, _data, message: self.got.append(message.payload)
        self.paho.on_connect = lambda _c, _d, flags, *_: self.present.append(flags.session_present)
        self.paho.on_publish = lambda _c, _d, mid, *_: self.acknowledged.append(mid)
        self.paho.on_subscribe = lambda _c, _d, mid, *_: self.subscribed.append(mid)
        self.paho.connect(*gateway.place, clean_start=False, properties=properties)
        self.paho.loop_start()
        poll("a CONNACK", lambda: bool(self.present))

    def subscribe(self, *filters: str, qos: int = 1) -> None:
        for one in filters:
            before = len(self.subscribed)
            self.paho.subscribe(one, qos)
            poll("a SUBACK", lambda before=before: len(self.subscribed) > before)  # type: ignore[misc]

    def leave(self) -> None:
        end(self.paho)


class Plain:
    """A client that does nothing by itself."""

    def __init__(self, name: str, gateway: Service) -> None:
        self.name = name
        self.got: list[Packet] = []
        self._reader = PacketReader(1 << 20)
        self._reader.level = 4
        self._socket = socket.create_connection(gateway.place, timeout=WAIT_S)
        self.send(Connect(name, True, level=4, will=Will("far/will", name.encode(), 1)))

    def send(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join([encode(packet, 4) for packet in packets]))

    def wait_for(self, *packets: Packet) -> None:
        """Waits until it has got just these, beside what it got before."""
        while len(self.got) < len(packets) and self._receive():
            pass
        assert tuple(self.got) == packets
        self.got.clear()

    def wait_for_the_end(self) -> None:
        while self._receive():
            pass

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bool:
        data = self._socket.recv(65_536)
        self.got += self._reader.receive(data)
        return bool(data)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
def test_who_was_away_when_a_broker_joined_gets_all_from_its_first_message_on(cluster: Cluster) -> None:
    cluster.broker("home")
    gateway = cluster.gateway()
    client = cluster.client("away", gateway)
    client.subscribe("late/#", "other/+")
    client.leave()
    second = cluster.broker("second")
    assert cluster.figures(second)["penstock_open_filters"] == 2, "they are open before it takes anything"
    cluster.create(second, "late")
    names = cluster.names.address

    async def produce() -> None:
        async with Producer(servers=names) as producer:
            for number in range(50):
                await producer.send(Message("late", str(number).encode(), mqtt_topic="late/x"))

    anyio.run(produce)
    cluster.kill(gateway)
    back = cluster.client("away", cluster.gateway())
    poll("what was stored while it was away", lambda: len(back.got) >= 50)
    assert back.present == [True]
    assert back.got == [str(number).encode() for number in range(50)]


@pytest.mark.slow
def test_nothing_is_left_open_of_sessions_that_end_with_nobody_there(cluster: Cluster) -> None:
    """Half of them are ended by a gateway that is killed in the middle of it, the others expire after it."""
    home, second = cluster.broker("home"), cluster.broker("second")
    gateway, other = cluster.gateway(), cluster.gateway()
    for number in range(8):
        cluster.client(f"c{number}", gateway, expiry_s=1).subscribe(f"own/{number}", "all/#")
    keeper = cluster.client("keeper", other)
    keeper.subscribe("all/#", "kept/+")
    assert [cluster.figures(broker)["penstock_open_filters"] for broker in (home, second)] == [10, 10]
    for number in range(4):  # each asks for a new session, and with it for the end of the old one
        asks = socket.create_connection(gateway.place)
        asks.sendall(encode(Connect(f"c{number}", True, level=4), 4))
        asks.close()
    cluster.kill(gateway)

    def is_closed() -> bool:
        return all(cluster.figures(broker)["penstock_open_filters"] == 2 for broker in (home, second))

    poll("the end of the filters of sessions that are over", is_closed)
    keeper.paho.publish("kept/x", b"1", qos=1)
    poll("a message of the session that lives", lambda: keeper.got == [b"1"])


@pytest.mark.slow
def test_devices_go_on_when_their_brokers_are_killed_and_come_back_at_other_addresses(cluster: Cluster) -> None:
    leases = {"lease_s": "2"}
    home, second = cluster.broker("home", **leases), cluster.broker("second", **leases)
    cluster.create(home, "near")
    cluster.create(second, "far")
    gateway = cluster.gateway()
    stays, away, sends = [cluster.client(name, gateway) for name in ("stays", "away", "sends")]
    stays.subscribe("near/#", "far/#", qos=2)
    away.subscribe("near/#", "far/#", qos=2)

    def send(number: int) -> None:
        sends.paho.publish(("near/x", "far/x")[number % 2], str(number).encode(), qos=2)

    for number in range(40):
        send(number)
    poll("all messages before anything has happened", lambda: len(away.got) == len(stays.got) == 40)
    away.leave()
    for number in range(40, 60):
        send(number)
    cluster.kill(home)
    cluster.kill(second)
    for number in range(60, 80):
        send(number)
    again = [cluster.broker(name, **leases).address for name in ("home", "second")]
    assert not set(again) & {home.address, second.address}
    for number in range(80, 100):
        send(number)
    poll("all acknowledgements", lambda: len(sends.acknowledged) == 100)
    poll("all messages for who is there", lambda: len(stays.got) >= 100)
    back = cluster.client("away", gateway)
    poll("what waited", lambda: len(back.got) >= 60)
    assert back.present == [True]
    assert sorted(map(int, stays.got)) == list(range(100)), "QoS 2 is once"
    assert sorted(map(int, away.got + back.got)) == list(range(100))


@pytest.mark.slow
def test_a_gateway_that_stood_still_stores_nothing_of_a_client_that_another_one_has(cluster: Cluster) -> None:
    """What clients had sent there waits in the sockets of a stopped process, which then goes on."""
    cluster.create(cluster.broker("home"), "near")
    frozen, other = cluster.gateway(), cluster.gateway()
    watcher = cluster.client("watcher", other)
    second = cluster.broker("second")
    cluster.create(second, "far")
    watcher.subscribe("near/#", "far/#")
    poll("the filters at the other broker", lambda: cluster.figures(second)["penstock_open_filters"] == 2)
    standing = [Standing(cluster, topic, frozen) for topic in ("near/x", "far/x")]
    for one in standing:
        one.begin()
        frozen.freeze()
        one.moves_to(other)
        frozen.thaw()
        one.goes_on()
    expected = sorted(body for one in standing for body in one.stored)
    poll("all messages", lambda: len(watcher.got) >= len(expected))
    assert sorted(watcher.got) == expected
    late = cluster.client("late", other)
    late.subscribe("near/x", "far/x")
    poll("the retained messages", lambda: len(late.got) >= 2)
    assert sorted(late.got) == [b"new far/x", b"new near/x"]
    for one in standing:
        assert watcher.got.index(one.stored[2]) < watcher.got.index(one.stored[3])


class Standing:
    """Two clients of a gateway that will stand still: one goes to another gateway then, one stays."""

    def __init__(self, cluster: Cluster, topic: str, gateway: Service) -> None:
        self._cluster, self._topic = cluster, topic
        self._name = f"moves {topic}"
        self.stored = [b"before %s" % topic.encode()] * 2 + [
            b"%s %s" % (one, topic.encode()) for one in (b"new", b"last")
        ]
        self.stored += [self._name.encode(), b"stays %s" % topic.encode()]
        self._gateway = gateway

    def begin(self) -> None:
        topic = self._topic
        self._first, self._stays = [self._cluster.plain(one, self._gateway) for one in (self._name, f"stays {topic}")]
        for client in (self._first, self._stays):
            client.wait_for(Connack(False))
            client.send(Publish(topic, self.stored[0], 1, True, packet_id=1))
            client.wait_for(Puback(1))

    def moves_to(self, other: Service) -> None:
        topic = self._topic
        self._first.send(Publish(topic, b"late", 1, True, packet_id=2), Publish(topic, b"late", 0, True))
        self._stays.send(Publish(topic, self.stored[5], 1, packet_id=2))
        self._again = self._cluster.plain(self._name, other)
        self._again.wait_for(Connack(False))
        self._again.send(Publish(topic, self.stored[2], 1, True, packet_id=1))
        self._again.wait_for(Puback(1))

    def goes_on(self) -> None:
        self._first.wait_for_the_end()
        assert not self._first.got, "nothing is acknowledged that is not stored"
        self._stays.wait_for(Puback(2))
        self._again.send(Publish(self._topic, self.stored[3], 1, packet_id=2))
        self._again.wait_for(Puback(2))


class Programs:
    """A producer and a consumer group, and what they saw."""

    KEYS = 12

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.sent: list[bytes] = []
        self.acknowledged: set[bytes] = set()
        self.got: list[bytes] = []
        self.repeated: list[bytes] = []  # though a commit had covered it
        self.places: set[tuple[Any, int]] = set()
        self.has_begun = anyio.Event()

    async def produce(self, batches: int) -> None:
        async with Producer(servers=self._servers, timeout_s=WAIT_S) as producer:
            for _ in range(batches):
                numbers = range(len(self.sent), len(self.sent) + 10)
                batch = [Message("orders", b"%06d" % one, key=f"k{one % self.KEYS}") for one in numbers]
                self.sent += [message.body for message in batch]
                await producer.send_many(batch)
                self.acknowledged |= {message.body for message in batch}
                if len(self.acknowledged) > 150:
                    self.has_begun.set()

    async def consume(self, count: int) -> None:
        committed: set[tuple[Any, int]] = set()
        async with Consumer("shop", "orders", servers=self._servers, start="earliest", timeout_s=WAIT_S) as consumer:
            while len(set(self.got)) < count:
                batch = await consumer.poll(WAIT_S)
                assert batch, f"{count - len(set(self.got))} messages never came"
                places = {(message.queue, message.offset) for message in batch}
                self.repeated += [message.body for message in batch if (message.queue, message.offset) in committed]
                self.got += [message.body for message in batch]
                self.places |= places
                with contextlib.suppress(Fenced):
                    await consumer.commit()
                    committed |= places


@pytest.mark.slow
def test_programs_go_on_when_a_broker_and_a_name_server_are_killed_and_the_broker_comes_back(cluster: Cluster) -> None:
    cluster.name_server()
    leases = {"lease_s": "2"}
    brokers = [cluster.broker(name, **leases) for name in ("one", "other")]
    for broker in brokers:
        cluster.create(broker, "orders")
    batches = 60

    async def run() -> Programs:
        programs = Programs(cluster.servers)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(programs.produce, batches)
            tasks.start_soon(programs.consume, batches * 10)
            await programs.has_begun.wait()
            cluster.kill(brokers[1])
            cluster.kill(cluster.names)
            at = str(brokers[1].place[1])
            await anyio.to_thread.run_sync(lambda: cluster.broker("other", port=at, **leases))
        return programs

    programs = anyio.run(run)
    assert programs.acknowledged == set(programs.sent) == set(programs.got)
    assert len(programs.places) == len(programs.sent), "a message that was sent again is stored once"
    assert not programs.repeated, "what was committed came again"
    first = list(dict.fromkeys(programs.got))
    for key in range(Programs.KEYS):
        order = [body for body in first if int(body) % Programs.KEYS == key]
        assert order == sorted(order), f"messages of k{key} came out of order"
