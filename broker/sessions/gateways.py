"""The gateways that have sessions at home here, and the times of their last requests: for figures and ``penstock
status``.
"""

from __future__ import annotations

from typing import Final

from broker.sessions.fold import Sessions
from penstock.service.metrics import with_label

SHOWN_S: Final = 300.0
"""Seconds that a silent gateway is still shown."""
GATEWAYS_MAX: Final = 1_000
"""Of more only those that were heard last are known."""


class Gateways:
    """The gateways of one broker."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._heard: dict[str, float] = {}
        self._now = 0.0

    def heard(self, gateway: str, now: float) -> None:
        """A gateway has renewed its lease."""
        self._heard.pop(gateway, None)
        self._heard[gateway] = now
        if len(self._heard) > GATEWAYS_MAX:
            del self._heard[next(iter(self._heard))]

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Forgets gateways that have been silent for long."""
        self._now = now
        while self._heard and now - next(iter(self._heard.values())) > SHOWN_S:
            del self._heard[next(iter(self._heard))]

    def figures(self) -> dict[str, float]:
        """The time for which each has been silent, and its number of sessions."""
        found: dict[str, float] = {}
        for gateway, at in self._heard.items():
            found[with_label("penstock_gateway_silent_s", "gateway", gateway)] = round(max(0.0, self._now - at), 1)
            found[with_label("penstock_gateway_sessions", "gateway", gateway)] = self._sessions.count_of(gateway)
        return found
