"""What the guide for devices (docs/guide/device.md) promises beyond plain MQTT, with clients that others wrote, and its
blocks as printed; all at one running system."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.publish import multiple

from penstock.access.acl import parse_acl
from tests.endtoend.conftest import System
from tests.guide_blocks import Terminal, typed
from tests.patience import PATIENCE_S

PAGE = "docs/guide/device.md"
GUIDE = (Path(__file__).parents[2] / PAGE).read_text()
READER = Path(__file__).parent / "clients" / "gmqtt_reader.py"
POSITION = "Keep a position on the server"
"""The task whose second block is what its first one prints."""

pytestmark = pytest.mark.endtoend


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    system = System(tmp_path_factory.mktemp("device_guide"))
    try:
        yield system.start()
    finally:
        system.end()


def named(topic: str) -> list[str]:
    """Twelve long names in a topic."""
    return [f"{topic}/hall-{number % 3}/machine/temperature" for number in range(12)]


def expected(names: list[str]) -> list[str]:
    return [f"{name} {number}" for number, name in enumerate(names)]


def publish(port: int, topics: list[str]) -> None:
    """Publishes a number under each topic with QoS 1; all of them are stored when it returns."""
    messages = [{"topic": topic, "payload": str(number), "qos": 1} for number, topic in enumerate(topics)]
    multiple(messages, "127.0.0.1", port)  # type: ignore[arg-type]


def reader(port: int, count: int, filter: str, aliases: int, *asks: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(READER), str(port), str(count), filter, str(aliases), *asks]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.mqtt("3.1.2-26", "3.3.2-11")
def test_an_independent_client_understands_our_aliases(running: System) -> None:
    port, names = running.mqtt_port, named("aliased")
    with reader(port, 12, "aliased/#", 2) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "subscribed\n"
        publish(port, names)
        assert client.stdout.read().splitlines() == expected(names)


def test_an_independent_client_reads_history(running: System) -> None:
    port, names = running.mqtt_port, named("past")
    publish(port, names)
    for start, shown in (("beginning", expected(names)), ("last=3", expected(names)[-3:])):
        with reader(port, len(shown), "past/#", 0, "penstock-start", start) as client:
            assert client.stdout is not None
            assert client.stdout.read().splitlines() == ["subscribed", *shown]


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto's clients")
def test_the_example_of_a_named_position_prints_what_the_guide_shows(running: System) -> None:
    found = re.search(r"```sh\n(mosquitto_sub [^`]*)```\n\n```\n(.*?)\n```", GUIDE, re.DOTALL)
    assert found
    shown = re.sub(r"[\d.]+", "N", found[2])
    port = running.mqtt_port
    publish(port, ["plant/7/temperature"] * 2)
    command = shlex.split(found[1].replace("\\\n", " "))

    def seen(count: int) -> list[str]:
        limits = ["-p", str(port), "-C", str(count), "-W", "20"]
        said = subprocess.run([*command, *limits], capture_output=True, text=True, timeout=PATIENCE_S)
        assert said.returncode == 0, said.stderr
        return said.stdout.splitlines()

    first = seen(2)
    assert [re.sub(r"[\d.]+", "N", line) for line in first] == [shown] * 2
    publish(port, ["plant/7/temperature"])
    again = seen(1)
    assert len(again) == 1
    assert again[0] not in first  # the position had passed those


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto's clients")
def test_every_other_block_runs_as_printed(running: System, tmp_path: Path) -> None:
    port = str(running.mqtt_port)

    def stir() -> None:
        publish(running.mqtt_port, ["sensors/d7/temperature", *[f"jobs/{number}" for number in range(4)]])

    words = {"mosquitto_sub ": f"mosquitto_sub -p {port} "}
    terminal = Terminal(tmp_path, {"PENSTOCK_MQTT": f"127.0.0.1:{port}"}, words, stir)
    for task, language, text in typed(PAGE):
        if language == "python":
            command = [sys.executable, "-c", text.replace("1883", port)]
            said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
            assert said.stdout == text.rpartition("# ")[2], said.stderr
        elif language == "sh" and task != POSITION:
            terminal.type(text)
        elif language == "rules":
            assert len(parse_acl(text).rules) == 2
        else:
            assert task == POSITION, f"a block of {language} under {task!r} is not run"
