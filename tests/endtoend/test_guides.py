"""The tasks of the guides for operators (operator.md), to the console and to deployment, typed as printed at one
running system. ``NOT_TYPED`` of tests/guide_blocks.py names the blocks that are not typed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import pytest
import trustme
import yaml

from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from node import settings
from penstock.access.acl import parse_acl
from penstock.blocking import Consumer, Producer, find
from penstock.service import config
from remoting.settings import RemotingSettings
from tests.endtoend.conftest import System
from tests.guide_blocks import Terminal, typed, up_options
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

PAGES: Final = ("operator", "console", "deploy", "rocketmq")
ALONE: Final = {"# names": NamesrvSettings, "# broker": BrokerSettings, "# remoting": RemotingSettings}
"""Settings of a service that runs alone, by what its file begins with."""
STOPPED: Final = "penstock store repair-index"
"""What the block begins with that takes a stopped broker."""


class Place:
    """One running system with a little in it: a device d7, the topics orders and plant, two groups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, etc = folder / "data", folder / "etc"
        etc.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(etc / "devices.pem"))
        served = authority.issue_cert("127.0.0.1")
        served.private_key_and_cert_chain_pem.write_to_path(str(etc / "server.pem"))
        served.private_key_pem.write_to_path(str(etc / "server.key"))
        (etc / "tokens.pem").write_bytes(served.private_key_pem.bytes())
        (folder / "penstock.toml").write_text("")
        self.words = {
            "/var/lib/penstock": str(self.data),
            "/etc/penstock.toml": str(folder / "penstock.toml"),
            "/etc/penstock": str(etc),
            "/backup/penstock": str(folder / "backup"),
        }
        start = Terminal(folder, {}, self.words, self.stir).own(typed("docs/guide/operator.md")[0].text)
        self.system = System(self.data, *up_options(start)[2:])
        self.device = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="d7", clean_session=False)
        self.device.on_connect = lambda client, *_: client.subscribe("sensors/d7/#", qos=1)

    def start(self) -> None:
        """Starts all of it."""
        servers = self.system.start().namesrv
        self.device.connect("127.0.0.1", self.system.mqtt_port)
        self.device.loop_start()
        with Producer(servers=servers, timeout_s=PATIENCE_S) as producer:
            for topic in ("orders", "plant", "sensors"):
                producer.send(topic, b"one", key="customer-7")
        for group, topic in (("billing", "orders"), ("my-service", "sensors")):
            with Consumer(group, [topic], start="earliest", servers=servers) as consumer:
                next(iter(consumer))
                consumer.commit()
        at = next(find("orders", "customer-7", servers=servers))
        words = self.words | {
            "127.0.0.1:8080": self.system.http,
            "127.0.0.1:1883": f"127.0.0.1:{self.system.mqtt_port}",
            "broker-a:40213": f"broker-a:{at.position}",
            "5fd4cf0f28a9b1c3-00000000002a": at.id,
        }
        environ = {"PENSTOCK_SERVER": servers, "PENSTOCK_MQTT": f"127.0.0.1:{self.system.mqtt_port}"}
        self.terminal = Terminal(self.folder, environ, words, self.stir)

    def stir(self) -> None:
        """The device publishes."""
        self.device.publish("sensors/d7/temperature", "21.5", qos=1)
        self.device.publish("orders/d7", "two", qos=1)

    def end(self) -> None:
        self.device.loop_stop()
        self.system.end()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("guides"))
    try:
        made.start()
        yield made
    finally:
        made.end()


def take_settings(text: str, place: Place) -> None:
    """A service would start with a file of these settings."""
    file = place.folder / "shown.toml"
    file.write_text(place.terminal.own(text))
    service: type[Any] | None = ALONE.get(text.partition(".toml")[0])
    if service is not None:
        config.load(service, file, {}, "")
        return
    loaded = settings.load(file, {}, {})
    for name in settings.SERVICES:
        settings.service_settings(loaded, name, {})


@pytest.mark.parametrize("page", PAGES)
def test_every_task_of_the_page_runs_as_printed(page: str, place: Place) -> None:
    for task, language, text in typed(f"docs/guide/{page}.md"):
        if language == "toml":
            take_settings(text, place)
        elif language == "yaml":
            assert yaml.safe_load(text)
        elif language == "rules":
            assert parse_acl(text).rules
        elif not text.startswith(STOPPED):
            assert language == "sh", f"a block of {language} under {task!r} is not run"
            place.terminal.type(text)


def test_a_stopped_brokers_index_is_made_again(place: Place) -> None:
    """After all others: the broker has to be down."""
    place.device.loop_stop()
    assert place.system.stop() == 0
    blocks = [text for _, _, text in typed("docs/guide/operator.md")]
    place.terminal.type(next(text for text in blocks if text.startswith(STOPPED)))
    assert "sound" in place.terminal.type(next(text for text in blocks if text.startswith("penstock store verify")))
