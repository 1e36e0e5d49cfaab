"""The loads of the benchmark, as data. The same scenario, with the same generator, for every server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scenario:
    """One closed-loop load.

    Attributes:
        name: for tables and ``--scenarios``.
        title: what it is.
        publishers: connections that publish with QoS 1, each to a topic of its own.
        subscribers: connections per publisher that subscribe to its topic with QoS 1.
        window: most unacknowledged packets of one publisher.
        lag: a publisher also waits while its slowest subscriber is this many messages behind; 0 without subscribers.
        payload_bytes: size of a payload.
        idle: nothing is published: connections with one subscription each, to see what they weigh.
    """

    name: str
    title: str
    publishers: int = 1
    subscribers: int = 0
    window: int = 100
    lag: int = 0
    payload_bytes: int = 64
    idle: bool = False


SCENARIOS: Final = (
    Scenario("publish", "publish, 1 connection, window 100", window=100),
    Scenario("one-to-one", "1 publisher to 1 subscriber, window 100", subscribers=1, window=100, lag=1000),
    Scenario("fan-out", "1 publisher to 100 subscribers", subscribers=100, window=100, lag=200),
    Scenario("connections", "publish, 1,000 connections, 1 in flight each", publishers=1000, window=1),
    Scenario("pairs", "100 pairs, window 10", publishers=100, subscribers=1, window=10, lag=20),
    Scenario("round-trip", "publish, 1 connection, 1 in flight", window=1),
    Scenario("idle", "memory per idle connection with one subscription", publishers=1000, window=1, idle=True),
)
