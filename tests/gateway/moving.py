"""A broker that comes back at another address."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

from linked_broker import LinkedBroker
from rig import Gateway, HandClock

from gateway.settings import GatewaySettings
from penstock.errors import Unavailable
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.request import Request, Result


class Way:
    """The way to one address. Who asks where nobody is waits until that address is given up."""

    def __init__(self, broker: MovingBroker, address: str) -> None:
        self._broker = broker
        self._address = address
        self._open: dict[int, OnResult] = {}
        self._numbers = count()

    def submit(self, request: Request, on_result: OnResult) -> None:
        number = next(self._numbers)
        self._open[number] = on_result
        if self._is_there:
            self._broker.submit(request, partial(self._answered, number))

    @property
    def _is_there(self) -> bool:
        return self._address in (self._broker.address, *GatewaySettings().namesrv)

    def _answered(self, number: int, result: Result) -> None:
        if self._is_there and number in self._open:
            self._open.pop(number)(result)

    def flush(self) -> None:
        self._broker.flush()

    def give_up(self) -> None:
        waiting, self._open = self._open, {}
        for on_result in waiting.values():
            on_result(Unavailable(f"nobody is at {self._address} any more"))


class MovingBroker(LinkedBroker):
    """It answers where its ``address`` says."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self._ways: dict[str, Way] = {}

    def link(self, address: str) -> Link:
        return self._ways.setdefault(address, Way(self, address))

    def give_up(self, address: str) -> None:
        self._ways[address].give_up()


def gateway_at_moving_broker(**settings: Any) -> Gateway:
    return Gateway(broker=MovingBroker(), **settings)


def move(gateway: Gateway, address: str = "broker:2") -> None:
    """The broker is at another address from now on; nobody has been told yet."""
    gateway.broker.address = address


def tell(gateway: Gateway) -> None:
    """The gateway asks the name server again."""
    gateway.rounds.begin()
    gateway.brokers.refresh()
    gateway.round()
