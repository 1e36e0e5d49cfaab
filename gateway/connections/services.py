"""The objects of a gateway that the packets of a connection use: one record for all connections, made by
``gateway/build.py``.

A plain class, not a tuple, because compiled code reads its attributes in a fraction of the time.
"""

from __future__ import annotations

from gateway.connections.connecting import Connecting
from gateway.connections.connections import Connections
from gateway.connections.disconnecting import Disconnecting
from gateway.connections.turns import Turns
from gateway.delivery.downstream import Downstream
from gateway.limits.creations import Creations
from gateway.limits.limits import Limits
from gateway.limits.memory_budget import MemoryBudget
from gateway.limits.quotas import Quotas
from gateway.limits.rates import Pacing
from gateway.login.auth import Authenticator
from gateway.net.rounds import Rounds
from gateway.publishing.judging import Judge
from gateway.publishing.upstream import Upstream
from gateway.sessions.exchange_ids import ExchangeIds
from gateway.sessions.saver import SessionSaver
from gateway.settings import GatewaySettings


class Services:
    """The parts of one gateway that its connections use."""

    __slots__ = (
        "authenticator",
        "connecting",
        "connections",
        "creations",
        "disconnecting",
        "downstream",
        "exchanges",
        "judge",
        "limits",
        "pacing",
        "quotas",
        "room",
        "rounds",
        "saver",
        "settings",
        "turns",
        "upstream",
    )

    def __init__(
        self,
        settings: GatewaySettings,
        rounds: Rounds,
        authenticator: Authenticator,
        judge: Judge,
        limits: Limits,
        quotas: Quotas,
        pacing: Pacing,
        room: MemoryBudget,
        creations: Creations,
        upstream: Upstream,
        downstream: Downstream,
        saver: SessionSaver,
        exchanges: ExchangeIds,
        connections: Connections,
        connecting: Connecting,
        disconnecting: Disconnecting,
        turns: Turns,
    ) -> None:
        self.settings = settings
        self.rounds = rounds
        self.authenticator = authenticator
        self.judge = judge
        self.limits = limits
        self.quotas = quotas
        self.pacing = pacing
        self.room = room
        self.creations = creations
        self.upstream = upstream
        self.downstream = downstream
        self.saver = saver
        self.exchanges = exchanges
        self.connections = connections
        self.connecting = connecting
        self.disconnecting = disconnecting
        self.turns = turns
