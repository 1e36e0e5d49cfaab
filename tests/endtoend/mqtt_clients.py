"""Unmodified MQTT clients for tests, all with the same few commands.

A library runs in a child process of its own (``clients/drive_*``) that takes commands as lines; mosquitto's tools
are processes anyway. What cannot run here is skipped with its reason. Everything ends with ``close``.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from tests.patience import PATIENCE_S

DRIVERS = Path(__file__).parent / "clients"
WAIT_S = PATIENCE_S
SIGNALLED_S = 3
NODE_MODULES = Path(__file__).parents[2] / ".node" / "node_modules"


class Places(NamedTuple):
    """Where a gateway is reached by each transport (``tcp``, ``tls``, ``ws``, ``wss``), and the file of the authority
    that its certificate is from."""

    addresses: dict[str, tuple[str, int]]
    ca: str = ""


class Received(NamedTuple):
    """A message as a subscriber got it."""

    topic: str
    payload: str
    qos: int
    retain: bool


class Will(NamedTuple):
    """What the server is to publish for a client that vanishes."""

    topic: str
    payload: str
    qos: int = 1
    retain: bool = False


class Library(Protocol):
    """One client library at one protocol level; ``name`` stands for one of its connections."""

    label: str

    def connect(
        self, name: str, client_id: str, clean: bool = True, will: Will | None = None, scheme: str = "tcp"
    ) -> bool | None: ...

    def subscribe(self, name: str, topic_filter: str, qos: int) -> int: ...

    def unsubscribe(self, name: str, topic_filter: str) -> None: ...

    def publish(self, name: str, topic: str, payload: str, qos: int = 0, retain: bool = False) -> None: ...

    def disconnect(self, name: str) -> None: ...

    def drop(self, name: str) -> None: ...

    def received(self, name: str, count: int) -> list[Received]: ...

    def shared(self, names: Sequence[str], wanted: Set[str]) -> dict[str, list[Received]]: ...

    def close(self) -> None: ...


class Inbox:
    """Messages by connection, as they come in from another thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: dict[str, list[Received]] = {}

    def add(self, name: str, message: Received) -> None:
        with self._changed:
            self._messages.setdefault(name, []).append(message)
            self._changed.notify_all()

    def take(self, name: str, count: int) -> list[Received]:
        """The first ``count`` messages, taken off; fewer if they do not come in time."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._messages.get(name, ())) >= count, WAIT_S)
            messages = self._messages.setdefault(name, [])
            taken = messages[:count]
            del messages[:count]
            return taken

    def take_shared(self, names: Sequence[str], wanted: Set[str]) -> dict[str, list[Received]]:
        """What these have got, taken off, when all wanted payloads have come to them together; less if those do not
        come in time."""

        def have_come() -> bool:
            return wanted <= {one.payload for name in names for one in self._messages.get(name, ())}

        with self._changed:
            self._changed.wait_for(have_come, WAIT_S)
            return {name: self._messages.pop(name, []) for name in names}


class Driven:
    """A library in a child process."""

    def __init__(self, label: str, places: Places, command: list[str], **environment: str) -> None:
        self.label = label
        self._places = places
        self._inbox = Inbox()
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if "message" in event:
                name, *message = event["message"]
                self._inbox.add(name, Received(*message))
            else:
                self._answers.put(event)
        self._answers.put({"error": f"{self.label} has ended"})

    def _do(self, what: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what} | arguments) + "\n")
        self._process.stdin.flush()
        event = self._answers.get(timeout=WAIT_S)
        assert "error" not in event, f"{self.label} {what}: {event['error']}"
        return event["answer"]

    def connect(
        self, name: str, client_id: str, clean: bool = True, will: Will | None = None, scheme: str = "tcp"
    ) -> bool | None:
        host, port = self._places.addresses[scheme]
        said = {"name": name, "host": host, "port": port, "client_id": client_id, "clean": clean, "will": will}
        ca = self._places.ca if scheme in ("tls", "wss") else ""
        present: bool | None = self._do("connect", **said, scheme=scheme, ca=ca)
        return present

    def subscribe(self, name: str, topic_filter: str, qos: int) -> int:
        return int(self._do("subscribe", name=name, topic_filter=topic_filter, qos=qos))

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        self._do("unsubscribe", name=name, topic_filter=topic_filter)

    def publish(self, name: str, topic: str, payload: str, qos: int = 0, retain: bool = False) -> None:
        self._do("publish", name=name, topic=topic, payload=payload, qos=qos, retain=retain)

    def disconnect(self, name: str) -> None:
        self._do("disconnect", name=name)

    def drop(self, name: str) -> None:
        self._do("drop", name=name)

    def received(self, name: str, count: int) -> list[Received]:
        return self._inbox.take(name, count)

    def shared(self, names: Sequence[str], wanted: Set[str]) -> dict[str, list[Received]]:
        return self._inbox.take_shared(names, wanted)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()
        self._process.stdout.close()


class Mosquitto:
    """mosquitto_pub and mosquitto_sub: a process per subscription and per message."""

    def __init__(self, label: str, places: Places, level: int) -> None:
        self.label = label
        self._places = places
        self._version = "mqttv5" if level == 5 else "mqttv311"
        self._expires = ["-x", "600"] if level == 5 else []
        self._inbox = Inbox()
        self._identities: dict[str, list[str]] = {}
        self._options: dict[str, list[str]] = {}
        self._subscribed: dict[str, tuple[subprocess.Popen[str], threading.Thread]] = {}

    def connect(
        self, name: str, client_id: str, clean: bool = True, will: Will | None = None, scheme: str = "tcp"
    ) -> None:
        host, port = self._places.addresses[scheme]
        place = ["-h", host, "-p", str(port), "-V", self._version]
        self._options[name] = [*place, "--cafile", self._places.ca] if scheme == "tls" else place
        identity = ["-i", client_id, *([] if clean else ["-c", *self._expires])]
        if will:
            identity += ["--will-topic", will.topic, "--will-payload", will.payload, "--will-qos", str(will.qos)]
            identity += ["--will-retain"] if will.retain else []
        self._identities[name] = identity

    def subscribe(self, name: str, topic_filter: str, qos: int) -> int:
        command = ["stdbuf", "-oL", "mosquitto_sub", "-d", *self._options[name], *self._identities[name]]
        command += ["-t", topic_filter, "-q", str(qos), "-F", "message %q %r %t %p"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        granted: queue.Queue[int] = queue.Queue()
        reading = threading.Thread(target=self._read, args=(name, process, granted))
        reading.start()
        self._subscribed[name] = process, reading
        return granted.get(timeout=WAIT_S)

    def _read(self, name: str, process: subprocess.Popen[str], granted: queue.Queue[int]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("message "):
                _, qos, retain, topic, payload = line.rstrip("\n").split(" ", 4)
                self._inbox.add(name, Received(topic, payload, int(qos), retain == "1"))
            elif line.startswith("Subscribed "):
                granted.put(int(line.rpartition(":")[2]))
        process.stdout.close()

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        raise NotImplementedError("mosquitto_sub cannot unsubscribe while it runs")

    def publish(self, name: str, topic: str, payload: str, qos: int = 0, retain: bool = False) -> None:
        command = [
            "mosquitto_pub",
            *self._options[name],
            "-i",
            f"{self._identities[name][1]}-pub",
            "-t",
            topic,
            "-q",
            str(qos),
        ]
        command += ["-m", payload] if payload else ["-n"]
        done = subprocess.run([*command, *(["-r"] if retain else [])], capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stderr

    def disconnect(self, name: str) -> None:
        self._end(name, "terminate")

    def drop(self, name: str) -> None:
        self._end(name, "kill")

    def _end(self, name: str, how: str) -> None:
        if name not in self._subscribed:
            return
        process, reading = self._subscribed.pop(name)
        getattr(process, how)()
        try:
            process.wait(SIGNALLED_S)
        except subprocess.TimeoutExpired:
            process.kill()  # amid a log line it waits for itself: eclipse-mosquitto/mosquitto#3175
            process.wait()
        reading.join()

    def received(self, name: str, count: int) -> list[Received]:
        return self._inbox.take(name, count)

    def shared(self, names: Sequence[str], wanted: Set[str]) -> dict[str, list[Received]]:
        return self._inbox.take_shared(names, wanted)

    def close(self) -> None:
        for name in list(self._subscribed):
            self._end(name, "kill")


# ---------------------------------------------------------------- which there are

LABELS = [
    "paho 3.1",
    "paho 3.1.1",
    "paho 5.0",
    "gmqtt 5.0",
    "amqtt 3.1.1",
    "mosquitto 3.1.1",
    "mosquitto 5.0",
    "MQTT.js 3.1.1",
    "MQTT.js 5.0",
]


# Library -> the transports that it has beside TCP, as it is installed here.
_ALSO = {
    "paho": ("tls", "ws", "wss"),
    "gmqtt": ("tls",),
    "amqtt": ("tls", "ws", "wss"),
    "mosquitto": ("tls",),
    "MQTT.js": ("tls", "ws", "wss"),
}


def labels(scheme: str) -> list[str]:
    """The libraries that speak over a transport."""
    return [label for label in LABELS if scheme == "tcp" or scheme in _ALSO[label.split()[0]]]


def start(label: str, places: Places) -> Library:
    """The library of a label, started; skips the test where it cannot run."""
    library, _, version = label.partition(" ")
    level = {"3.1": "3", "3.1.1": "4", "5.0": "5"}[version]
    if library == "mosquitto":
        if shutil.which("mosquitto_sub") is None or shutil.which("mosquitto_pub") is None:
            pytest.skip("mosquitto_pub and mosquitto_sub are not installed (apt install mosquitto-clients)")
        return Mosquitto(label, places, int(level))
    if library == "MQTT.js":
        return Driven(label, places, ["node", str(DRIVERS / "drive_mqttjs.js"), level], NODE_PATH=_mqttjs())
    return Driven(label, places, [sys.executable, str(DRIVERS / f"drive_{library}.py"), level])


def _mqttjs() -> str:
    """The folder that holds MQTT.js."""
    if shutil.which("node") is None or not (NODE_MODULES / "mqtt" / "package.json").exists():
        pytest.skip("MQTT.js is not installed: it needs node and npm, then run make install-test")
    return str(NODE_MODULES)
