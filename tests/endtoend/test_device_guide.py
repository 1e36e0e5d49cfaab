"""What the devices' guide promises beyond plain MQTT, with clients that others wrote."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.publish import multiple

from tests.patience import PATIENCE_S

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "device.md").read_text()
READER = Path(__file__).parent / "clients" / "gmqtt_reader.py"
NAMES = [f"plant/hall-{number % 3}/machine/temperature" for number in range(12)]
EXPECTED = [f"{name} {number}" for number, name in enumerate(NAMES)]

pytestmark = pytest.mark.endtoend


def publish(port: int, topics: list[str]) -> None:
    """Publishes a number under each topic with QoS 1; all of them are stored when it returns."""
    messages = [{"topic": topic, "payload": str(number), "qos": 1} for number, topic in enumerate(topics)]
    multiple(messages, "127.0.0.1", port)  # type: ignore[arg-type]


def reader(port: int, count: int, filter: str, aliases: int, *asks: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(READER), str(port), str(count), filter, str(aliases), *asks]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.mqtt("3.1.2-26", "3.3.2-11")
def test_an_independent_client_understands_our_aliases(system: Any) -> None:
    port = system().start().mqtt_port
    with reader(port, 12, "plant/#", 2) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "subscribed\n"
        publish(port, NAMES)
        assert client.stdout.read().splitlines() == EXPECTED


def test_an_independent_client_reads_history(system: Any) -> None:
    port = system().start().mqtt_port
    publish(port, NAMES)
    for start, expected in (("beginning", EXPECTED), ("last=3", EXPECTED[-3:])):
        with reader(port, len(expected), "plant/#", 0, "penstock-start", start) as client:
            assert client.stdout is not None
            assert client.stdout.read().splitlines() == ["subscribed", *expected]


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto's clients")
def test_the_worked_example_runs_as_it_stands(system: Any) -> None:
    found = re.search(r"```sh\n(mosquitto_sub [^`]*)```\n\n```\n(.*?)\n```", GUIDE, re.DOTALL)
    assert found
    shown = re.sub(r"[\d.]+", "N", found[2])
    port = system().start().mqtt_port
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


PROGRAMS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_every_program_of_the_guide_prints_what_its_last_line_says(system: Any) -> None:
    port = str(system().start().mqtt_port)
    assert len(PROGRAMS) == 2
    for program in PROGRAMS:
        command = [sys.executable, "-c", program.replace("1883", port)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert said.stdout == program.rpartition("# ")[2], said.stderr
