"""Where the parts of a running system can be reached, and the one line that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses ("host:port") of a running system and its data folder. ``listeners``: name and address of each further
    listener of the gateway. ``console``: the URL of the web console; empty: there is none."""

    mqtt: str
    broker: str
    namesrv: str
    http: str
    data: Path
    listeners: Mapping[str, str] = field(default_factory=dict)
    console: str = ""

    def ready_line(self) -> str:
        """The line that `penstock up` prints when all parts accept; scripts and tests parse it."""
        first = f"ready mqtt={self.mqtt} broker={self.broker} namesrv={self.namesrv} http={self.http}"
        further = [f"mqtt-{name}={at}" for name, at in self.listeners.items()]
        console = [f"console={self.console}"] if self.console else []
        return " ".join([first, *further, *console, f"data={self.data}"])

    def ready_json(self) -> str:
        """The same as one JSON object."""
        fields = {"mqtt": self.mqtt, "broker": self.broker, "namesrv": self.namesrv, "http": self.http}
        also = {"listeners": dict(self.listeners), "console": self.console or None, "data": str(self.data)}
        return json.dumps({"ready": True, **fields, **also})
