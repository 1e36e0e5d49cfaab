"""The loads of the benchmark, as data. The same scenario, with the same generator, for every server.

The rows of the table "Speed" of issue 4 have its goals beside them; rows without a goal are there to be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loadtest.goals import BARE, BARE_CACHE, CACHE, DISK, Goal, at_least, at_most, bound

CLOSED: Final = "closed"
"""A publisher stops at its window: how much goes through."""
PACED: Final = "paced"
"""Messages have a time table, whatever the server does: how long they take."""
IDLE: Final = "idle"
"""Connections with one subscription each and nothing else: what they weigh."""
RECONNECT: Final = "reconnect"
"""Durable sessions come back all at once: how long until the last one stands."""
BACKLOG: Final = "backlog"
"""Messages wait for durable sessions without a client: what they weigh."""
FILTERS: Final = "filters"
"""Many filters are open and one of them matches: what a message costs."""
NEIGHBOUR: Final = "neighbour"
"""Thousands come at once and are cut off at once: how long one client beside them waits."""
SHARED: Final = "shared"
"""Members of a shared subscription divide the messages of a publisher: how much goes through."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load.

    Attributes:
        name: for tables and ``--scenarios``.
        title: what it is.
        kind: what is done with it, one of the above.
        publishers: connections that publish with QoS 1, each to a topic of its own.
        subscribers: connections per publisher that subscribe to its topic with QoS 1.
        window: most unacknowledged packets of one publisher.
        lag: a publisher also waits while its slowest subscriber is this many messages behind; 0 without subscribers.
        payload_bytes: size of a payload.
        wire: ``tcp``, ``tls`` or ``ws``.
        per_s: messages a second of all publishers together, where they are paced.
        sessions: durable sessions, or those of a herd. messages: so many wait for them, or are retained. filters: so
            many are open. slow: a herd sends its CONNECTs byte by byte. idle: it sends nothing at all. small: the share
            of these that is done unless everything is asked for.
        goals: what the issue asks for. judged: the servers for which it asks.
        servers: who takes part if nobody is named; empty for all.
    """

    name: str
    title: str
    kind: str = CLOSED
    publishers: int = 1
    subscribers: int = 0
    window: int = 100
    lag: int = 0
    payload_bytes: int = 64
    wire: str = "tcp"
    per_s: int = 0
    sessions: int = 0
    messages: int = 0
    filters: int = 0
    slow: bool = False
    idle: bool = False
    small: float = 1.0
    goals: tuple[Goal, ...] = ()
    judged: tuple[str, ...] = DISK
    servers: tuple[str, ...] = ()

    @property
    def is_fresh(self) -> bool:
        """Whether every run has a server of its own, which nothing else has been done with."""
        return self.kind in (RECONNECT, BACKLOG, FILTERS) or self.messages > 0

    @property
    def floor(self) -> str:
        """The bare server that does as much as the goals ask for."""
        return BARE_CACHE if self.judged == CACHE else BARE

    @property
    def is_once(self) -> bool:
        """Whether one run is enough for all rounds: memory, and runs that repeat what they measure by themselves."""
        return self.kind in (IDLE, RECONNECT, BACKLOG, FILTERS, NEIGHBOUR)


_NEIGHBOUR_GOALS: Final = (
    *bound("longest wait as others come", "coming_ms", 250, 100, "ms"),
    *bound("longest wait as they go", "going_ms", 250, 100, "ms"),
)
"""Of issue 40."""
_STORED: Final = (*DISK, "mosquitto")
_CACHED: Final = (*CACHE, "mosquitto")
_WITH_AMQTT: Final = (*_STORED, "amqtt")
_WITH_BARE: Final = (*_WITH_AMQTT, BARE)

SCENARIOS: Final = (
    Scenario("publish", "publish, 1 connection, window 100", window=100, goals=at_least(3, 5)),
    Scenario(
        "connections",
        "publish, 1,000 connections, 1 in flight each",
        publishers=1000,
        window=1,
        goals=at_least(1, 1.3),
        servers=_WITH_BARE,
    ),
    Scenario(
        "one-to-one",
        "1 publisher to 1 subscriber, window 100",
        subscribers=1,
        window=100,
        lag=1000,
        goals=at_least(5, 8),
        servers=_WITH_BARE,
    ),
    Scenario(
        "pairs",
        "100 pairs, window 10",
        publishers=100,
        subscribers=1,
        window=10,
        lag=20,
        goals=at_least(3, 5),
        servers=_WITH_BARE,
    ),
    Scenario(
        "fan-out",
        "1 publisher to 100 subscribers",
        subscribers=100,
        window=100,
        lag=200,
        goals=at_least(8, 12),
        servers=_WITH_BARE,
    ),
    Scenario(
        "round-trip",
        "publish, 1 connection, 1 in flight",
        window=1,
        goals=(at_most("p50 of PUBACK", "p50_us", 1.3, 1),),
        judged=CACHE,
    ),
    Scenario(
        "paced-acks",
        "publish, 5,000 messages a second over 1,000 connections, paced",
        PACED,
        publishers=1000,
        per_s=5000,
        goals=bound("p99 of PUBACK", "p99_us", 10_000, 2_000, "ms", 1000),
        servers=_STORED,
    ),
    Scenario(
        "paced-one-to-one",
        "1 publisher to 1 subscriber, 5,000 messages a second, paced",
        PACED,
        subscribers=1,
        per_s=5000,
        goals=(at_most("p50 of delivery", "p50_us", 2, 1), at_most("CPU per message", "cpu_us", 2, 1)),
        judged=CACHE,
        servers=(*_CACHED, BARE_CACHE),
    ),
    Scenario(
        "idle",
        "memory per idle connection with one subscription",
        IDLE,
        publishers=1000,
        window=1,
        goals=bound("RSS", "idle_bytes", 4096, 1800, "KiB", 1024),
    ),
    Scenario(
        "backlog",
        "1,000,000 messages waiting for 10,000 durable sessions without a client",
        BACKLOG,
        sessions=10_000,
        messages=1_000_000,
        small=0.3,  # with less, all that grows is what is not sealed yet of the index
        goals=bound("RSS with backlog / without", "with_without", 1.1, 1.0, "x"),
        servers=_STORED,
    ),
    Scenario(
        "reconnect",
        "10,000 durable sessions that come back at once",
        RECONNECT,
        sessions=10_000,
        goals=bound("until all have a CONNACK with session present", "reconnect_s", 10, 3, "s"),
        servers=_STORED,
    ),
    Scenario(
        "neighbour",
        "1 message in flight beside 5,000 clients that come at once, and are cut off at once",
        NEIGHBOUR,
        sessions=5_000,
        goals=_NEIGHBOUR_GOALS,
        servers=_STORED,
    ),
    Scenario(
        "neighbour-slow",
        "1 message in flight beside 2,000 clients that send their CONNECTs byte by byte, and are cut off at once",
        NEIGHBOUR,
        sessions=2_000,
        slow=True,
        goals=_NEIGHBOUR_GOALS,
        servers=_STORED,
    ),
    Scenario(
        "neighbour-idle",
        "a client from elsewhere that connects for each message, beside 10,000 idle sockets of one address",
        NEIGHBOUR,
        sessions=10_000,
        idle=True,
        goals=_NEIGHBOUR_GOALS,
        servers=_STORED,
    ),
    Scenario(
        "neighbour-retained",
        "1 message in flight beside a client that is sent 100,000 retained messages",
        NEIGHBOUR,
        sessions=1,
        messages=100_000,
        goals=_NEIGHBOUR_GOALS,
        servers=_STORED,
    ),
    Scenario(
        "neighbour-filters",
        "1 message in flight beside 100 clients that subscribe to 1,000 filters each, and are cut off at once",
        NEIGHBOUR,
        sessions=100,
        filters=1_000,
        goals=_NEIGHBOUR_GOALS,
        servers=_STORED,
    ),
    Scenario(
        "filters",
        "publish matching one of 100,000 filters, beside one of 10",
        FILTERS,
        subscribers=1,
        lag=1000,
        filters=100_000,
        goals=bound("CPU per message with 100,000 / with 10", "cost_ratio", 1.2, 0, "x"),
        servers=_STORED,
    ),
    Scenario(
        "shared",
        "1 publisher to 4 members of a shared subscription, window 100",
        SHARED,
        subscribers=4,
        lag=1000,
        servers=_STORED,
    ),
    Scenario("tls-publish", "publish over TLS, 1 connection, window 100", wire="tls", servers=_STORED),
    Scenario(
        "tls-one-to-one",
        "1 publisher to 1 subscriber over TLS, window 100",
        subscribers=1,
        lag=1000,
        wire="tls",
        servers=_STORED,
    ),
    Scenario("ws-publish", "publish over WebSocket, 1 connection, window 100", wire="ws", servers=_STORED),
    Scenario(
        "ws-one-to-one",
        "1 publisher to 1 subscriber over WebSocket, window 100",
        subscribers=1,
        lag=1000,
        wire="ws",
        servers=_STORED,
    ),
)
