"""An event bridge in a real system, and a caller of its HTTP face."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S

BATCH = "application/cloudevents-batch+json"
_numbers = itertools.count(1)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    value: Any


class Bridge:
    """Name server, broker, gateway and event bridge on free ports."""

    def __init__(self, system: RunningSystem) -> None:
        self._system = system
        self.addresses = system.addresses
        self.address = self.addresses.events

    @classmethod
    def at(cls, data: Path, file: Path) -> Bridge:
        """A system with this data folder and configuration."""
        return cls(RunningSystem(data, file, events_port=0, console_port=-1))

    @classmethod
    def new(cls, folder: Path) -> Bridge:
        """A system with secrets, whose targets may be on this machine."""
        (folder / "secrets").mkdir(parents=True)
        (folder / "secrets" / "token").write_text("Bearer s3cret\n")
        (folder / "secrets" / "key").write_text("signing")
        file = folder / "penstock.toml"
        file.write_text(f"[events]\nprivate_targets = ['127.0.0.1/32']\nsecrets = '{folder}/secrets'\n")
        return cls.at(folder / "data", file)

    def call(self, method: str, path: str, value: Any = None, body: bytes | None = None, **headers: str) -> Answer:
        """One request; ``value`` goes as JSON."""
        connection = HTTPConnection(self.address, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        if value is not None:
            body = json.dumps(value).encode()
            named.setdefault("content-type", "application/json")
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        told = {name.lower(): text for name, text in answer.getheaders()}
        return Answer(answer.status, told, json.loads(raw) if raw else None)

    def done(self, method: str, path: str, value: Any = None, **headers: str) -> Any:
        """A request that must succeed."""
        answer = self.call(method, path, value, **headers)
        assert answer.status < 300, answer
        return answer.value

    def bus(self, **spec: Any) -> str:
        """A new bus."""
        name = f"bus-{next(_numbers)}"
        self.done("PUT", f"/v1/buses/{name}", spec)
        return name

    def rule(self, bus: str, url: str, *, target: dict[str, Any] | None = None, **rule: Any) -> str:
        """A rule of the name ``r`` that sends to a URL; where it is."""
        self.done("PUT", f"/v1/buses/{bus}/targets/t", {"kind": "http", "url": url} | (target or {}))
        self.done("PUT", f"/v1/buses/{bus}/rules/r", {"target": "t"} | rule)
        return f"/v1/buses/{bus}/rules/r"

    def send(self, bus: str, *data: Any, **attributes: str) -> list[Any]:
        """Sends an event for each data."""
        events = [
            {"specversion": "1.0", "id": f"e{next(_numbers)}", "source": "/s", "type": "t", "data": one} | attributes
            for one in data
        ]
        return list(self.done("POST", f"/v1/buses/{bus}/events", events, content_type=BATCH)["events"])

    def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """What a path says as soon as it says what is wanted."""
        ends = time.monotonic() + PATIENCE_S
        while True:
            value = self.done("GET", path)
            if wanted(value):
                return value
            assert time.monotonic() < ends, value
            time.sleep(0.02)

    def stop(self) -> None:
        self._system.stop()
