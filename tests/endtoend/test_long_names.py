"""Names of any legal length: stored, delivered live, from history and as retained, read by services and by Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.blocking import Consumer
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

WAIT_S = PATIENCE_S
LEVELS = ("日" * 30, "é" * 43, "x" * 256, "z" * 2000, "y" * 65_533)
NAMES = [f"{level}/b" for level in LEVELS]


class Device:
    """A client that remembers the names of what it got and which of its messages were acknowledged."""

    def __init__(self, system: Any, client_id: str, version: int = paho.MQTTv311) -> None:
        self.names: list[tuple[str, bool]] = []
        self.acknowledged: list[str] = []
        self._subscribed = threading.Event()
        self._changed = threading.Condition()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=version)
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self.client.on_subscribe = self._on_subscribe
        self.client.connect(system.mqtt_host, system.mqtt_port)
        self.client.loop_start()

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        with self._changed:
            self.names.append((message.topic, message.retain))
            self._changed.notify_all()

    def _on_publish(self, _client: object, _data: object, _mid: int, code: object, _properties: object) -> None:
        with self._changed:
            self.acknowledged.append(str(code))
            self._changed.notify_all()

    def _on_subscribe(self, _client: object, _data: object, _mid: int, codes: list[Any], _more: object) -> None:
        self.granted = [code.value for code in codes]
        self._subscribed.set()

    def subscribe(self, *filters: str, properties: Properties | None = None) -> None:
        self._subscribed.clear()
        if properties is None:
            self.client.subscribe([(one, 1) for one in filters])
        else:
            self.client.subscribe([(one, SubscribeOptions(qos=1)) for one in filters], properties=properties)
        assert self._subscribed.wait(WAIT_S), "no SUBACK"
        assert self.granted == [1] * len(filters)

    def publish(self, names: list[str], *, retain: bool = False) -> None:
        for name in names:
            self.client.publish(name, name[:1].encode(), 1, retain)

    def wait(self, count: int, of: Callable[[], list[Any]]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(of()) >= count, WAIT_S), f"{len(of())} of {count}"


@pytest.fixture
def device() -> Iterator[Callable[..., Device]]:
    devices: list[Device] = []

    def make(*about: Any) -> Device:
        devices.append(Device(*about))
        return devices[-1]

    yield make
    for one in devices:
        end(one.client)


def test_names_of_any_length_are_stored_and_found_again_by_everyone(
    system: Callable[..., Any], device: Callable[..., Device]
) -> None:
    started = system().start()
    exact, wildcard, level = device(started, "exact"), device(started, "wildcard"), device(started, "level")
    exact.subscribe(*NAMES)
    wildcard.subscribe("+/b")
    level.subscribe(*[f"{one}/#" for one in LEVELS])
    for version in (paho.MQTTv311, paho.MQTTv5):
        sender = device(started, f"sender-{version}", version)
        sender.publish(NAMES, retain=version == paho.MQTTv5)
        sender.wait(len(NAMES), lambda sender=sender: sender.acknowledged)
        assert sender.acknowledged == ["Success"] * len(NAMES)
    for subscriber in (exact, wildcard, level):
        subscriber.wait(2 * len(NAMES), lambda subscriber=subscriber: subscriber.names)
        assert sorted(subscriber.names) == sorted(2 * [(name, False) for name in NAMES])
    late = device(started, "late")
    late.subscribe("#")
    late.wait(len(NAMES), lambda: late.names)
    assert sorted(late.names) == [(name, True) for name in sorted(NAMES)]
    historian = device(started, "historian", paho.MQTTv5)
    asked = Properties(PacketTypes.SUBSCRIBE)
    asked.UserProperty = [("penstock-start", "beginning")]
    historian.subscribe(*[f"{one}/+" for one in LEVELS], properties=asked)
    historian.wait(2 * len(NAMES), lambda: [name for name, _ in historian.names])
    assert {name for name, _ in historian.names} == set(NAMES)
    _read_by_a_service(started)
    if find_spec("pyspark") and find_spec("pyarrow"):
        _read_by_spark(started)


def _read_by_a_service(system: Any) -> None:
    found: list[str] = []
    with Consumer("g", LEVELS, servers=system.namesrv, start="earliest") as consumer:
        while len(found) < 2 * len(NAMES):
            found += [message.name for message in consumer.poll(WAIT_S)]
    assert sorted(found) == sorted(2 * NAMES)


def _read_by_spark(system: Any) -> None:
    from pyspark.sql.datasource import CaseInsensitiveDict

    from penstock.spark.source import PenstockSource

    topics = ",".join(LEVELS)
    given = {"servers": system.namesrv, "subscribe": topics, "columns": "mqtt_topic"}
    reader = PenstockSource(CaseInsensitiveDict(given)).reader(schema=None)
    rows = [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]
    assert sorted(row["mqtt_topic"] for row in rows) == sorted(2 * NAMES)
