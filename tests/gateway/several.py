"""Several brokers in memory, one name server before them, and a gateway at all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from memory_broker import MemoryBroker
from rig import Gateway, HandClock

from penstock.protocol.link import Link
from penstock.protocol.message import mqtt_name, record_properties, record_topic
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route


class OneBroker(MemoryBroker):
    """One of them. ``opened``: what was stored when a filter was opened."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.address = f"{name}:1"
        self.opened: list[tuple[str, list[bytes]]] = []

    def _OpenFilters(self, request: OpenFilters) -> Result:
        self.opened += [(filter, self.bodies()) for filter in request.filters]
        return super()._OpenFilters(request)

    def names(self) -> list[str]:
        """The MQTT names of what it has stored, in order."""
        return [mqtt_name(record_topic(record), record_properties(record)) for record in self.log]

    def answer(self, at: int) -> None:
        """Gives one of the replies that are held back."""
        on_result, result = self._held.pop(at)
        on_result(result)

    @property
    def unanswered(self) -> int:
        """How many replies are held back."""
        return len(self._held)


class SeveralBrokers(OneBroker):
    """The first of them, and the name server; ``brokers`` are all."""

    def __init__(self, count: int) -> None:
        super().__init__("b0")
        self.brokers: list[OneBroker] = [self, *[OneBroker(f"b{at}") for at in range(1, count)]]

    def link(self, address: str) -> Link:
        return next((one for one in self.brokers if one.address == address), self)

    def _QueryRoute(self, request: QueryRoute) -> Route:
        there = [one for one in self.brokers if not request.topic or request.topic in one.topics]
        return Route(tuple([BrokerRoute(one.name, one.address, 4) for one in there]))

    def flush(self) -> None:
        for one in self.brokers:
            if not one.holds_replies:
                one.release()

    def pass_time(self) -> None:
        super().pass_time()
        for one in self.brokers[1:]:
            one.now_ms = self.now_ms
            one.pass_time()


def gateway_at(count: int, **settings: Any) -> tuple[Gateway, list[OneBroker]]:
    """A gateway at so many brokers."""
    cluster, clock = SeveralBrokers(count), HandClock()
    for one in cluster.brokers:
        one.clock, one.now_ms = clock, clock.wall_ms()
    beside = SimpleNamespace(clock=clock, broker=cluster)
    return Gateway(beside=beside, **settings), cluster.brokers  # type: ignore[arg-type]
