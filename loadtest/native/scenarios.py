"""The loads of the native path, as data, with the goals of issues 41, 42 and 48 beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from loadtest.goals import CACHE, DISK, LOGIN, SAME_OPEN, Goal, bound

SEND: Final = "send"
"""A producer sends for a while: what a message costs."""
CONSUME: Final = "consume"
"""A group consumer reads a stored backlog: what a message costs."""
PIPE: Final = "pipe"
"""A producer and a group consumer, a process each: how much goes through."""
TIMERS: Final = "timers"
"""Delayed messages fire at a steady rate and go to a group consumer: how late they come."""
TIMERS_PER_S: Final = 20_000
TRACED: Final = "traced"
"""A producer sends to a topic that is not traced, to one that is, and to one that is not: what a trace costs."""
TRANSACT: Final = "transact"
"""A producer sends for a while, then the same in transactions."""
POP: Final = "pop"
"""A consumer pops a stored backlog, after another one has read it as a member of a group."""
RETRY: Final = "retry"
"""A handler gives some messages of a stored backlog back, after another one has worked all of it off."""
REBALANCE: Final = "rebalance"
"""Members of a group come and go: how long until all queues are dealt."""
ROCKETMQ: Final = "rocketmq"
FRONTS: Final = ("front", "compiled front")
SYNC_ROCKETMQ: Final = "rocketmq sync"
SYNC_FRONTS: Final = ("front sync", "compiled front sync")
CONSUMED: Final = "consumed_per_s"
"""A figure of rows with RocketMQ's client: messages a second of its push consumer, which reads what was sent."""
PROPERTIES: Final = {"region": "eu-west", "level": "17", "kind": "reading", "temperature": "21.5"}
"""Of the messages of a backlog that is read through a filter."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load.

    Attributes:
        name: for tables and ``--scenarios``.
        title: what it is.
        kind: what is done, one of the above.
        batch: messages per ``send_many``; 1: each by a ``send`` of its own.
        tasks: so many tasks of the producer send at a time, each waits for its receipts.
        queues: of the topic; 0 for the broker's default.
        body_bytes: size of a body.
        messages: of the backlog.
        filter: through which it is read; all of it passes (``PROPERTIES``).
        is_free: servers and clients may use all cores, as RocketMQ is meant to; else each side has one core.
        goals: what the issue asks for. judged: the servers for which it asks.
        servers: those that take part.
    """

    name: str
    title: str
    kind: str = SEND
    batch: int = 128
    tasks: int = 1
    queues: int = 0
    body_bytes: int = 256
    messages: int = 0
    filter: str = ""
    is_free: bool = False
    goals: tuple[Goal, ...] = ()
    judged: tuple[str, ...] = DISK
    servers: tuple[str, ...] = DISK


def _costs(client: tuple[float, float], broker: tuple[float, float]) -> tuple[Goal, ...]:
    """What a message may cost each side, in microseconds: bound and aim."""
    return (
        *bound("client CPU per message", "client_us", *client, "us"),
        *bound("broker CPU per message", "broker_us", *broker, "us"),
    )


def _peer(name: str, title: str, batch: int, tasks: int, aim: float) -> Scenario:
    """A row beside RocketMQ, which acknowledges what is in memory: so does the level ``cache``."""
    return Scenario(
        name,
        title,
        batch=batch,
        tasks=tasks,
        is_free=True,
        goals=(Goal("rate", "rate", 2, aim, reference=ROCKETMQ),),
        judged=CACHE,
        servers=(*CACHE, "compiled", ROCKETMQ),
    )


def _login(load: Scenario, name: str) -> Scenario:
    """A row with a login and without: users and rules may cost a twentieth of the rate."""
    goal = Goal("rate", "rate", 0.95, reference=SAME_OPEN)
    title = f"with a login and without: {load.title}"
    return replace(load, name=name, title=title, goals=(goal,), judged=LOGIN, servers=(*DISK, *LOGIN))


def _front(name: str, title: str, batch: int, tasks: int, least: float, *, is_synced: bool = False) -> Scenario:
    """A row of RocketMQ's own client, at Penstock's front and at RocketMQ's broker. What was sent is consumed, and
    that is judged too where nothing waits for a disk."""
    fronts, peer = (SYNC_FRONTS, SYNC_ROCKETMQ) if is_synced else (FRONTS, ROCKETMQ)
    goals = [Goal("rate", "rate", least, reference=peer)]
    goals += [] if is_synced else [Goal("messages consumed per second", CONSUMED, 1, reference=peer)]
    title = f"RocketMQ's client at the front: {title}"
    return Scenario(
        name,
        title,
        batch=batch,
        tasks=tasks,
        is_free=True,
        goals=tuple(goals),
        judged=fronts,
        servers=(*fronts, peer),
    )


_SEND_MANY: Final = Scenario("send-many", "send_many, batches of 128, one at a time", goals=_costs((3, 1.5), (2, 1)))
_SEND: Final = Scenario("send", "send one by one over 64 tasks", batch=1, tasks=64, goals=_costs((20, 10), (5, 3)))
_CONSUME: Final = Scenario(
    "consume",
    "consume a stored backlog of one queue",
    CONSUME,
    queues=1,
    messages=150_000,
    goals=_costs((2, 1), (0.8, 0.4)),
)
SCENARIOS: Final = (
    _SEND_MANY,
    _SEND,
    _CONSUME,
    Scenario(
        "consume-four",
        "consume a stored backlog of four queues that were filled side by side",
        CONSUME,
        queues=4,
        messages=150_000,
        goals=_costs((2, 1), (0.8, 0.4)),
    ),
    Scenario(
        "select",
        "consume a stored backlog of one queue through a selector of three terms",
        CONSUME,
        queues=1,
        messages=150_000,
        filter="region = 'eu-west' AND level > 5 AND kind <> 'alarm'",
        goals=bound("broker CPU per message", "broker_us", 3, 2, "us"),
    ),
    Scenario(
        "pipe",
        "producer to group consumer, a process each, send_many with four batches on their way",
        PIPE,
        tasks=4,
        goals=(Goal("rate", "rate", 120_000, 250_000, is_ratio=False, unit="/s"),),
    ),
    Scenario(
        "timers",
        f"delayed messages that fire at {TIMERS_PER_S:,}/s, to a group consumer",
        TIMERS,
        batch=200,
        messages=40_000,
        goals=bound("late, 99 of 100", "late_s", 1, 0.5, "s"),
    ),
    Scenario(
        "trace",
        "send_many to a topic of which every message is to be traced, beside one that is not",
        TRACED,
        goals=(Goal("rate of that without a trace", "kept", 0.85, is_ratio=False),),
    ),
    Scenario(
        "transactions",
        "transactions of 128 messages, one at a time, after send_many of as many",
        TRANSACT,
        goals=(Goal("rate, to send_many", "to_plain", 0.4, is_ratio=False),),
    ),
    Scenario(
        "pop",
        "pop a stored backlog of four queues and acknowledge it, beside consuming it",
        POP,
        queues=4,
        messages=150_000,
        goals=(Goal("rate of consuming", "share", 0.5, is_ratio=False),),
    ),
    Scenario(
        "retry",
        "a handler that gives 10 % of a stored backlog back, beside one that does not",
        RETRY,
        queues=4,
        messages=50_000,
        goals=(Goal("rate without", "share", 0.7, is_ratio=False),),
    ),
    Scenario(
        "rebalance",
        "64 queues over 16 members, which come all at once, one goes, one comes: the slowest",
        REBALANCE,
        tasks=16,
        queues=64,
        goals=(
            *bound("seconds, ordinary group", "ordinary_s", 1, 0.3, "s"),
            *bound("seconds, ordered group", "ordered_s", 1, 0.3, "s"),
        ),
    ),
    _peer("peer-batches-32", "beside RocketMQ: batches of 32, one at a time", 32, 1, 4),
    _peer("peer-batches-128", "beside RocketMQ: batches of 128, one at a time", 128, 1, 4),
    _peer("peer-singles", "beside RocketMQ: single sends, 64 in flight", 1, 64, 3),
    _login(_SEND_MANY, "login-many"),
    _login(_SEND, "login-single"),
    _login(_CONSUME, "login-consume"),
    _front("front-singles", "single sends, 64 in flight", 1, 64, 1),
    _front("front-batches-32", "batches of 32, one at a time", 32, 1, 0.7),
    _front("front-sync", "single sends, 64 in flight, each on the disk", 1, 64, 2, is_synced=True),
)
