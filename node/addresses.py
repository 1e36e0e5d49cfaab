"""Where the parts of a running system can be reached, and the one line that says so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses ("host:port") of a running system and its data folder."""

    mqtt: str
    broker: str
    namesrv: str
    http: str
    data: Path

    def ready_line(self) -> str:
        """The line that `penstock up` prints when all parts accept; scripts and tests parse it."""
        return f"ready mqtt={self.mqtt} broker={self.broker} namesrv={self.namesrv} http={self.http} data={self.data}"

    def ready_json(self) -> str:
        """The same as one JSON object."""
        fields = {"mqtt": self.mqtt, "broker": self.broker, "namesrv": self.namesrv, "http": self.http}
        return json.dumps({"ready": True, **fields, "data": str(self.data)})
