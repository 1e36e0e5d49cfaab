"""Where the parts of a running system can be reached, and the one line that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses ("host:port") of a running system and its data folder. ``listeners``: name and address of each further
    listener of the gateway."""

    mqtt: str
    broker: str
    namesrv: str
    http: str
    data: Path
    listeners: Mapping[str, str] = field(default_factory=dict)

    def ready_line(self) -> str:
        """The line that `penstock up` prints when all parts accept; scripts and tests parse it."""
        first = f"ready mqtt={self.mqtt} broker={self.broker} namesrv={self.namesrv} http={self.http}"
        return " ".join([first, *(f"mqtt-{name}={at}" for name, at in self.listeners.items()), f"data={self.data}"])

    def ready_json(self) -> str:
        """The same as one JSON object."""
        fields = {"mqtt": self.mqtt, "broker": self.broker, "namesrv": self.namesrv, "http": self.http}
        return json.dumps({"ready": True, **fields, "listeners": dict(self.listeners), "data": str(self.data)})
