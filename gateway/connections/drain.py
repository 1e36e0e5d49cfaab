"""Draining of a gateway by an operator: sends its clients to another server, at a bounded rate, and admits no new ones.

MQTT 5 clients get 0x9C and the Server Reference (MQTT 5, 4.11), older ones are closed. Their wills are published
after their delay, as for any connection that the server closes; their sessions are where they always are, so that the
next gateway has them. The log has a line when it begins and one when the last client has gone. Time comes with
``tick``.
"""

from __future__ import annotations

import logging
from typing import Final

from gateway.connections.connections import Connections
from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.net.rounds import Rounds
from gateway.settings import GatewaySettings

ELSEWHERE: Final = Told(ReasonCode.USE_ANOTHER_SERVER, "this gateway is being drained")

_log = logging.getLogger(__name__)


class Drain:
    """Drain of a gateway, and how far it has come."""

    def __init__(self, settings: GatewaySettings, connections: Connections, rounds: Rounds, per_s: int) -> None:
        self._settings = settings
        self._connections = connections
        self._rounds = rounds
        self._per_s = per_s
        self._began_at = 0.0
        self._passed = 0
        self._has_ended = False
        self.is_on = False
        self.sent_away = 0
        if self.has_moved and not settings.redirect_to:
            _log.warning(
                "has_moved is set, but redirect_to is empty: every client is refused and learns no other server"
            )

    @property
    def has_moved(self) -> bool:
        """Whether its clients are refused for good."""
        return self._settings.has_moved

    def begin(self) -> None:
        """Begins to refuse new clients and to send the connected ones away."""
        if not self.is_on:
            self.is_on = True
            self._began_at = self._rounds.now
            self._connections.turn_away(ELSEWHERE)
            _log.warning(
                "draining begins: new clients are refused, %d clients are sent away, %d a second",
                len(self._connections.admitted(len(self._connections))),
                self._per_s,
            )

    def tick(self, now: float) -> None:
        """Sends away as many as the time since the last call allows; to be called about twice a second."""
        if not self.is_on:
            return
        count = int((now - self._began_at) * self._per_s) - self._passed
        if count:
            self._passed += count
            for device in self._connections.admitted(count):
                self.sent_away += 1
                device.fail(ELSEWHERE)
        if not self._has_ended and not self._connections.admitted(1):
            self._has_ended = True
            _log.warning("draining has ended: %d clients were sent away, none is left", self.sent_away)
