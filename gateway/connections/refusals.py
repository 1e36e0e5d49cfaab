"""Checks of a CONNECT before its login: limits on connections and their rates, and features that are not offered.

Nothing here waits.
"""

from __future__ import annotations

from gateway.connections.client_ids import ClientIds
from gateway.connections.connections import Connections
from gateway.connections.guests import Arriving, Guest
from gateway.limits.limits import Limits
from gateway.limits.quotas import Quotas
from gateway.limits.rates import Door
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.net.rounds import Rounds


class Refusals:
    """The checks that a CONNECT must pass before its client is asked who it is."""

    def __init__(
        self,
        connections: Connections,
        door: Door,
        limits: Limits,
        quotas: Quotas,
        client_ids: ClientIds,
        rounds: Rounds,
    ) -> None:
        self._connections = connections
        self._door = door
        self._limits = limits
        self._quotas = quotas
        self._client_ids = client_ids
        self._rounds = rounds

    def of(self, device: Guest, asked: Arriving) -> Reason:
        """The reason code of a refusal before the login, 0 for none; to be called once for a CONNECT."""
        limit = self._door.over(device.peer, self._rounds.now)
        if self._connections.crowd.is_over(device.peer.address):
            limit = "address_connections_max"
        return self._connections.turns_away or (self._quotas.refuse(limit) if limit else self._unfit(asked))

    def _unfit(self, asked: Arriving) -> Reason:
        unsupported = self._limits.unsupported(asked.level, asked.keep_alive_s, asked.will)
        if unsupported:
            return unsupported
        if asked.misuse:
            return Told(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, asked.misuse)
        return self._client_ids.unfit(asked.client_id, takes_id=asked.takes_id)
