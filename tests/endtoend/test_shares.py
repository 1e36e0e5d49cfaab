"""Shared subscriptions of unmodified clients at two gateway processes of one broker: kill -9 loses nothing.

"Nothing lost" here means: every payload whose PUBACK its publisher saw is received by some member of the group.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.endtoend.conftest import System
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

WAIT_S = PATIENCE_S
SHARE_LEASE_S = "4"


class Group:
    """What the members of a group have received, in the order in which it came."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []  # member, payload
        self.changed = threading.Condition()

    def add(self, member: str, payload: str) -> None:
        with self.changed:
            self.seen.append((member, payload))
            self.changed.notify_all()

    def payloads(self) -> set[str]:
        return {payload for _, payload in self.seen}

    def of(self, member: str) -> int:
        return sum(who == member for who, _ in self.seen)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, WAIT_S), what


class Member:
    """One paho client that is subscribed to a share."""

    def __init__(self, address: tuple[str, int], name: str, group: Group, share: str, *, receive_max: int = 0) -> None:
        self.name = name
        subscribed = threading.Event()
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            name,
            protocol=paho.MQTTv5 if receive_max else paho.MQTTv311,
            manual_ack=receive_max > 0,  # such a member never acknowledges anything
        )
        self._client.reconnect_delay_set(0.1, 0.5)
        self._client.on_connect = lambda *_: self._client.subscribe(share, qos=1)
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.on_message = lambda _client, _data, message: group.add(name, message.payload.decode())
        options: dict[str, Any] = {}
        if receive_max:
            options["properties"] = Properties(PacketTypes.CONNECT)
            options["properties"].ReceiveMaximum = receive_max
        self._client.connect(*address, **options)
        self._client.loop_start()
        assert subscribed.wait(PATIENCE_S), "no SUBACK"

    def vanish(self) -> None:
        """The connection breaks and nobody comes back."""
        self._client.on_connect = None
        self._client.loop_stop()
        connection = self._client.socket()
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)

    def disconnect(self) -> None:
        self._client.disconnect()

    def stop(self) -> None:
        end(self._client)


class Publisher:
    """A client that publishes with QoS 1 and knows what was acknowledged."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.changed = threading.Condition()
        self._sent: dict[int, str] = {}
        self._answered: set[int] = set()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, clean_session=False)
        self._client.max_inflight_messages_set(50)
        self._client.reconnect_delay_set(0.1, 0.5)
        self._client.on_publish = self._on_publish
        self._client.connect(*address)
        self._client.loop_start()

    def _on_publish(self, _client: object, _data: object, mid: int, *_: object) -> None:
        with self.changed:
            self._answered.add(mid)
            self.changed.notify_all()

    @property
    def acknowledged(self) -> set[str]:
        """Payloads whose PUBACK came."""
        with self.changed:
            return {self._sent[mid] for mid in self._answered if mid in self._sent}

    def publish(self, topic: str, payload: str) -> None:
        mid = self._client.publish(topic, payload, qos=1).mid  # never under our lock: paho calls back under its own
        with self.changed:
            self._sent[mid] = payload

    def wait(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self._answered) == len(self._sent), WAIT_S), "PUBACKs miss"

    def disconnect(self) -> None:
        self._client.disconnect()

    def stop(self) -> None:
        end(self._client)


class OtherGateway:
    """A second gateway process beside a running system."""

    def __init__(self, system: Any) -> None:
        own = {"PORT": "0", "NAMESRV": system.namesrv, "NAME": "other", "ANONYMOUS": "everyone"}
        environment = os.environ | {f"PENSTOCK_GATEWAY_{name}": value for name, value in own.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway"], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ready = re.match(r"ready gateway=(\S+):(\d+)", line)
        assert ready, f"no ready line but {line!r}"
        self.address = (ready[1], int(ready[2]))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Cluster:
    """A broker with two gateways, for all tests; the clients of each end with it, and a gateway that it has killed is
    replaced for the next."""

    def __init__(self, data: Path) -> None:
        self.system = System(data, "--processes").start()
        self.here = (self.system.mqtt_host, self.system.mqtt_port)
        self.other = OtherGateway(self.system)
        self.made: list[Member | Publisher] = []

    def begin(self) -> None:
        if not self.other.is_alive:
            self.other.end()
            self.other = OtherGateway(self.system)

    def member(self, address: tuple[str, int], name: str, group: Group, share: str, **options: int) -> Member:
        self.made.append(member := Member(address, name, group, share, **options))
        return member

    def publisher(self, address: tuple[str, int], name: str) -> Publisher:
        self.made.append(publisher := Publisher(address, name))
        return publisher

    def end(self) -> None:
        for one in self.made:  # first all are told, so that none waits long for the end of its own thread
            one.disconnect()
        for one in self.made:
            one.stop()
        self.made.clear()

    def close(self) -> None:
        self.other.end()
        self.system.end()


@pytest.fixture(scope="module")
def both_gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_BROKER_SHARE_LEASE_S", SHARE_LEASE_S)
        made = Cluster(tmp_path_factory.mktemp("shares") / "data")
    yield made
    made.close()


@pytest.fixture
def cluster(both_gateways: Cluster) -> Iterator[Cluster]:
    both_gateways.begin()
    yield both_gateways
    both_gateways.end()


def test_kill_9_of_a_gateway_with_messages_on_their_way_loses_none(cluster: Cluster) -> None:
    share, group = "$share/workers/leased/#", Group()
    for at in range(2):
        cluster.member(cluster.here, f"here{at}", group, share)
        cluster.member(cluster.other.address, f"there{at}", group, share)
    cluster.member(cluster.other.address, "silent-there", group, share, receive_max=3)
    cluster.member(cluster.here, "silent-here", group, share, receive_max=2)
    publisher = cluster.publisher(cluster.here, "p")
    for number in range(500):
        publisher.publish(f"leased/{number % 7}", f"{number}")
    publisher.wait()
    group.wait_until(lambda: len(group.payloads()) == 500, "a message is missing")
    assert group.of("silent-here") == 2
    assert group.of("silent-there") == 3
    assert all(group.of(f"{where}{at}") > 0 for where in ("here", "there") for at in range(2))
    unacknowledged = {payload for member, payload in group.seen if member == "silent-there"}
    before = len(group.seen)
    cluster.other.kill()
    for number in range(500, 800):
        publisher.publish(f"leased/{number % 7}", f"{number}")
    publisher.wait()
    group.wait_until(lambda: len(group.payloads()) == 800, "a message is missing after the kill")
    late = group.seen
    group.wait_until(lambda: unacknowledged <= {payload for _, payload in late[before:]}, "what was held is missing")
    assert group.of("silent-here") == 2


def test_kill_9_of_the_broker_loses_none_and_members_go_on(cluster: Cluster) -> None:
    share, group = "$share/workers/jobs/#", Group()
    for at in range(2):
        cluster.member(cluster.here, f"here{at}", group, share)
        cluster.member(cluster.other.address, f"there{at}", group, share)
    publisher = cluster.publisher(cluster.here, "p")
    for number in range(400):
        publisher.publish("jobs/x", f"{number}")
    group.wait_until(lambda: len(group.seen) > 100, "nothing comes")
    cluster.system.kill("broker")
    for number in range(400, 600):
        publisher.publish("jobs/x", f"{number}")
    publisher.wait()
    group.wait_until(lambda: publisher.acknowledged <= group.payloads(), "a message is missing")
    assert len(group.seen) < 1200, "far too many came twice"


def test_the_messages_of_a_key_stay_in_order_while_members_come_and_go(cluster: Cluster) -> None:
    share, group = "$oshare/workers/ordered/#", Group()
    members = [cluster.member(cluster.here, f"here{at}", group, share) for at in range(2)]
    members += [cluster.member(cluster.other.address, f"there{at}", group, share) for at in range(2)]
    publishers = [cluster.publisher(cluster.here, f"p{at}") for at in range(5)]
    for number in range(150):
        for at, publisher in enumerate(publishers):
            publisher.publish("ordered/x", f"{at} {number}")
        if number == 50:
            group.wait_until(lambda: len(group.seen) > 50, "nothing comes")
            members[0].vanish()
        if number == 80:
            cluster.member(cluster.other.address, "late", group, share)
        if number == 110:
            members[3].vanish()
    for publisher in publishers:
        publisher.wait()
    group.wait_until(lambda: len(group.payloads()) == 750, "a message is missing")
    for at in range(len(publishers)):
        first = list(dict.fromkeys(payload for _, payload in group.seen if payload.startswith(f"{at} ")))
        assert first == [f"{at} {number}" for number in range(150)]
    assert len({member for member, _ in group.seen}) > 1
