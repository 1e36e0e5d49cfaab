"""A broker's description of itself, also while it does not lead its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.kernel.handler import handles
from broker.kernel.outcomes import Now, Outcome
from penstock.protocol.requests.servers import BrokerFigures, Ping, ReadFigures, ServerInfo
from penstock.version import VERSION


class AboutBroker:
    """Requests about a broker itself.

    Args:
        name: the broker's.
        figures: its counters since start, and gauges.
    """

    def __init__(self, name: str, figures: Callable[[], Mapping[str, float]]) -> None:
        self._name = name
        self._figures = figures

    @handles(Ping)
    def ping(self, request: Ping, now: float, now_ms: int) -> Outcome:
        """The identity of this server, and its time."""
        return Now(ServerInfo("broker", self._name, VERSION, now_ms))

    @handles(ReadFigures)
    def read_figures(self, request: ReadFigures, now: float, now_ms: int) -> Outcome:
        """Counters since start, and gauges."""
        figures = self._figures()
        return Now(BrokerFigures(tuple(figures), tuple(figures.values())))
