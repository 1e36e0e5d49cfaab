"""One named position that unmodified clients at two gateway processes and a native consumer share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.blocking import Consumer, bootstrap
from penstock.errors import GroupNotFound
from penstock.protocol.requests.groups import DescribeGroup, GroupDetail
from tests.endtoend.conftest import Service
from tests.endtoend.lines import kept
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S, poll

pytestmark = pytest.mark.endtoend

WAIT_S = PATIENCE_S
Address = tuple[str, int]


class Reader:
    """A client that is subscribed to ``plant/0`` with the name ``audit`` and acknowledges what it is told to."""

    def __init__(self, address: Address, name: str) -> None:
        self._waiting: list[paho.MQTTMessage] = []
        self._changed = threading.Condition()
        subscribed = threading.Event()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5, manual_ack=True)
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.on_message = self._on_message
        self._client.connect(*address)
        self._client.loop_start()
        asked = Properties(PacketTypes.SUBSCRIBE)
        asked.UserProperty = [("penstock-start", "named=audit"), ("penstock-start", "beginning")]
        self._client.subscribe("plant/0", qos=1, properties=asked)
        assert subscribed.wait(WAIT_S), "no SUBACK"

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        with self._changed:
            self._waiting.append(message)
            self._changed.notify_all()

    def take(self, count: int) -> list[str]:
        """The next messages, acknowledged."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._waiting) >= count, WAIT_S), "a message is missing"
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
        for message in taken:
            self._client.ack(message.mid, message.qos)
        return [message.payload.decode() for message in taken]

    def end(self) -> None:
        end(self._client)


@pytest.fixture
def reader() -> Iterator[Callable[[Address, str], Reader]]:
    readers: list[Reader] = []

    def make(address: Address, name: str) -> Reader:
        readers.append(Reader(address, name))
        return readers[-1]

    yield make
    for one in readers:
        one.end()


@pytest.fixture
def cluster(system: Any) -> Iterator[tuple[Any, Service]]:
    started = system("--processes").start()
    other = Service("gateway", port="0", namesrv=started.namesrv, name="other", anonymous="everyone")
    yield started, other
    other.kill()


def publish(address: Address, *names: str) -> None:
    """Numbered messages, stored."""
    client = kept(paho.Client(paho.CallbackAPIVersion.VERSION2, "publisher"))
    client.connect(*address)
    client.loop_start()
    for number, name in enumerate(names):
        client.publish(name, f"{number}", qos=1).wait_for_publish(WAIT_S)
    end(client)


def position(servers: str) -> tuple[int, int]:
    """How many messages the group is past and how many there are, in all queues."""
    with bootstrap(servers) as routes:
        [route] = routes.brokers()
        try:
            lags = routes.link(route.address).ask(DescribeGroup("audit"), GroupDetail).lags
        except GroupNotFound:
            lags = ()
    return sum(one.offset for one in lags), sum(one.end for one in lags)


def wait_for(servers: str, expected: tuple[int, int]) -> None:
    poll(f"position and end {expected}", lambda: position(servers), expected.__eq__)


def test_two_gateways_and_a_native_consumer_share_a_position(
    cluster: tuple[Any, Service], reader: Callable[[Address, str], Reader]
) -> None:
    system, other = cluster
    here, servers = (system.mqtt_host, system.mqtt_port), system.namesrv
    publish(here, *["plant/0"] * 5, *["plant/1"] * 3)
    near, far = reader(here, "near"), reader(other.place, "far")
    assert far.take(2) == ["0", "1"]
    wait_for(servers, (0, 8))
    assert near.take(5) == ["0", "1", "2", "3", "4"]
    wait_for(servers, (2, 8))
    other.kill()  # what it had not acknowledged, the other one has
    wait_for(servers, (8, 8))
    near.end()
    with Consumer("audit", "plant", servers=servers) as consumer:
        publish(here, "plant/1", "plant/0")
        got: list[str] = []
        while len(got) < 2:
            got += [one.body.decode() for one in consumer.poll(WAIT_S)]
        consumer.commit()
    assert got == ["0", "1"]
    later = reader(here, "later")
    publish(here, "plant/1", "plant/0")
    assert later.take(1) == ["1"]
    wait_for(servers, (12, 12))
