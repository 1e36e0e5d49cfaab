"""A gateway at several brokers of one cluster."""

from __future__ import annotations

from typing import Any

from linked_broker import LinkedBroker
from rig import Gateway, HandClock

from penstock.protocol.link import OnResult
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.request import Request


class OneBroker(LinkedBroker):
    """One of them. ``opened``: what was stored when a filter was opened."""

    def __init__(self, clock: HandClock, name: str) -> None:
        super().__init__(clock, name, f"{name}:1")
        self.opened: list[tuple[str, list[bytes]]] = []

    def submit(self, request: Request, on_result: OnResult) -> None:
        if isinstance(request, OpenFilters) and OpenFilters not in self.refuses:
            self.opened += [(filter, self.bodies()) for filter in request.filters]
        super().submit(request, on_result)

    def names(self) -> list[str]:
        """The MQTT names of what it has stored, in order."""
        return [message.name for message in self.messages()]


def gateway_at(count: int, **settings: Any) -> tuple[Gateway, list[OneBroker]]:
    """A gateway at so many brokers."""
    clock = HandClock()
    brokers = [OneBroker(clock, f"b{at}") for at in range(count)]
    for one in brokers[1:]:
        one.joins(brokers[0])
    return Gateway(broker=brokers[0], **settings), brokers
