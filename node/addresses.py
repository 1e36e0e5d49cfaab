"""Where the parts of a running system can be reached, and the one line that says so."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses ("host:port") of a running system and its data folder. ``listeners``: name and address of each further
    listener of the gateway. ``console``: the URL of the web console; empty: there is none. ``rocketmq``,
    ``rocketmq_namesrv``: where RocketMQ's clients come; empty for nowhere. ``events``: the event
    bridge's; empty: there is none. ``figures``: reads what the page ``/metrics`` shows, which may ask others for a
    login."""

    mqtt: str
    broker: str
    namesrv: str
    http: str
    data: Path
    figures: Callable[[], Awaitable[Mapping[str, float]]]
    listeners: Mapping[str, str] = field(default_factory=dict)
    console: str = ""
    rocketmq: str = ""
    rocketmq_namesrv: str = ""
    events: str = ""

    def ready_line(self) -> str:
        """The line that `penstock up` prints when all parts accept; scripts and tests parse it."""
        first = f"ready mqtt={self.mqtt} broker={self.broker} namesrv={self.namesrv} http={self.http}"
        further = [f"mqtt-{name}={at}" for name, at in self.listeners.items()]
        console = {"console": self.console} if self.console else {}
        further += [f"{name}={at}" for name, at in (self._fronts | console).items()]
        return " ".join([first, *further, f"data={self.data}"])

    @property
    def _fronts(self) -> dict[str, str]:
        """The services that run only where they are asked for."""
        named = {"rocketmq": self.rocketmq, "rocketmq_namesrv": self.rocketmq_namesrv, "events": self.events}
        return {name: at for name, at in named.items() if at}

    def ready_json(self) -> str:
        """The same as one JSON object."""
        fields = {"mqtt": self.mqtt, "broker": self.broker, "namesrv": self.namesrv, "http": self.http}
        fields |= self._fronts
        also = {"listeners": dict(self.listeners), "console": self.console or None, "data": str(self.data)}
        return json.dumps({"ready": True, **fields, **also})
