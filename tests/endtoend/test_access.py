"""Users and access rules as an operator sets them up (docs/guide/operator.md), with an unmodified client library.

"Nothing gets past" means here: a subscriber who may see everything sees what was allowed, in order, and nothing else.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from click.testing import CliRunner

from node.command import root
from tests.endtoend.conftest import System
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S, poll

pytestmark = pytest.mark.endtoend

WAIT_S = PATIENCE_S
RULES = """\
allow user alice publish devices/%c/#
allow user alice subscribe devices/%c/#
allow user watcher subscribe #
allow all subscribe public/#
"""


class Client:
    """A paho client, and what it was told. Reason codes are those of MQTT 5, or what paho makes of older ones."""

    def __init__(self, system: System, protocol: paho.MQTTProtocolVersion, client_id: str) -> None:
        self._system = system
        self._told: queue.Queue[Any] = queue.Queue()
        self.inbox: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=protocol)
        self.paho.on_connect = lambda client, data, flags, reason, properties: self._told.put(reason)
        self.paho.on_subscribe = lambda client, data, mid, reasons, properties: self._told.put(reasons[0])
        self.paho.on_publish = lambda client, data, mid, reason, properties: self._told.put(reason)
        self.paho.on_message = lambda client, data, message: self.inbox.put((message.topic, message.payload))

    def connect(self, user: str | None = None, password: str | None = None) -> str:
        """The name of the reason."""
        self.paho.username_pw_set(user, password)
        self.paho.connect(self._system.mqtt_host, self._system.mqtt_port)
        self.paho.loop_start()
        return str(self._told.get(timeout=WAIT_S))

    def subscribe(self, topic_filter: str) -> int:
        """The code of the SUBACK."""
        self.paho.subscribe(topic_filter, 1)
        return int(self._told.get(timeout=WAIT_S).value)

    def publish(self, topic: str, payload: str) -> int:
        """The code of the PUBACK; before MQTT 5 there is none but 0."""
        self.paho.publish(topic, payload, 1)
        return int(self._told.get(timeout=WAIT_S).value)

    def close(self) -> None:
        end(self.paho)


Make = Callable[[str], Client]


def penstock(*words: str, said: str = "") -> str:
    done = CliRunner().invoke(root, words, input=said)
    assert done.exit_code == 0, done.output
    return done.stdout


def set_up(folder: Path) -> System:
    """A running system with two users, and rules for them."""
    users, rules = folder / "passwords", folder / "acl"
    for name in ("alice", "watcher"):
        penstock("user", "add", name, "--file", str(users), said=f"{name}'s secret\n")
    rules.write_text(RULES)
    assert "4 rules" in penstock("acl", "check", "--file", str(rules))
    config = folder / "penstock.toml"
    config.write_text(f'[gateway]\nanonymous = "nobody"\npassword_file = "{users}"\nacl_file = "{rules}"\n')
    return System(folder / "data", "--config", str(config))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One for the tests that leave the files as they are."""
    system = set_up(tmp_path_factory.mktemp("access"))
    try:
        yield system.start()
    finally:
        system.end()


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    """The clients of a test, closed after it."""
    made: list[Client] = []
    yield made
    for one in made:
        one.close()


@pytest.fixture(params=[paho.MQTTv311, paho.MQTTv5], ids=["3.1.1", "5.0"])
def make(running: System, request: pytest.FixtureRequest, clients: list[Client]) -> Make:
    """Makes clients of one protocol version."""

    def client(client_id: str) -> Client:
        clients.append(Client(running, request.param, client_id))
        return clients[-1]

    return client


def test_only_who_shows_the_right_password_comes_in(make: Make) -> None:
    refused = ("Bad user name or password", "Not authorized")
    assert make("d1").connect("alice", "watcher's secret") in refused
    assert make("d2").connect("nobody", "alice's secret") in refused
    assert make("d3").connect() in refused
    assert make("d4").connect("alice", "alice's secret") == "Success"


def test_a_client_publishes_and_subscribes_where_the_rules_say_and_nowhere_else(make: Make) -> None:
    device, watcher = make("d1"), make("w")
    is_v5 = device.paho.protocol == paho.MQTTv5
    refused = 0x87 if is_v5 else 0x80
    assert device.connect("alice", "alice's secret") == "Success"
    assert watcher.connect("watcher", "watcher's secret") == "Success"
    assert watcher.subscribe("#") == 1

    filters = ("devices/d1/#", "public/news", "devices/d2/#", "devices/+/state", "#", "$SYS/#")
    assert [device.subscribe(one) for one in filters] == [1, 1, refused, refused, refused, refused]

    names = ("devices/d1/a", "devices/d2/a", "public/news", "$SYS/a", "devices/d1/b")
    codes = [device.publish(name, name) for name in names]
    assert codes == ([0, 0x87, 0x87, 0x87, 0] if is_v5 else [0] * 5)
    allowed = [(name, name.encode()) for name in ("devices/d1/a", "devices/d1/b")]
    assert [watcher.inbox.get(timeout=WAIT_S) for _ in allowed] == allowed
    assert [device.inbox.get(timeout=WAIT_S) for _ in allowed] == allowed
    assert watcher.inbox.empty()
    assert device.inbox.empty()


def test_changed_files_count_for_who_is_connected_and_for_who_comes(tmp_path: Path, clients: list[Client]) -> None:
    system = set_up(tmp_path)
    try:
        change_files(system.start(), tmp_path, clients)
    finally:
        system.end()


def change_files(system: System, folder: Path, clients: list[Client]) -> None:
    device, watcher = (Client(system, paho.MQTTv5, name) for name in ("d1", "w"))
    clients += [device, watcher]
    assert device.connect("alice", "alice's secret") == "Success"
    assert watcher.connect("watcher", "watcher's secret") == "Success"
    assert watcher.subscribe("#") == 1
    assert device.publish("other/1", "too early") == 0x87

    (folder / "acl").write_text(RULES + "allow user alice publish other/#\n")
    os.kill(system.process_of("gateway"), signal.SIGHUP)
    poll("the new rules", lambda: device.publish("other/1", "in time"), (0).__eq__)
    assert watcher.inbox.get(timeout=WAIT_S) == ("other/1", b"in time")

    penstock("user", "remove", "alice", "--file", str(folder / "passwords"))
    os.kill(system.process_of("gateway"), signal.SIGHUP)
    numbers = itertools.count()

    def login() -> str:
        newcomer = Client(system, paho.MQTTv5, f"n{next(numbers)}")
        try:
            return newcomer.connect("alice", "alice's secret")
        finally:
            newcomer.close()

    poll("a refusal", login, lambda told: told in ("Bad user name or password", "Not authorized"))
