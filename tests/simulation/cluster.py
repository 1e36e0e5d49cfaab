"""One name server, one broker that dies and comes back, a producer and consumers, and what must be true in the end.

A seed decides everything: the load, the topics' settings, the faults and their times. What is checked is the total
queue (nothing acknowledged is lost, nothing is made up or changed), the order of each key's first deliveries, that the
log gives the same to whoever reads it again, and that store times are right however the machine's clock jumps.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

import namesrv.server
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock import Consumer, Message, Producer
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import PenstockError, SendManyError
from penstock.protocol.link import Link
from penstock.protocol.message import decode_batch
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.filters import OpenedFilter, OpenedFilters, OpenFilters
from penstock.protocol.requests.messages import Pull, Pulled
from tests.simulation.lives import SECRET, LivingBroker, Moments, on_host
from tests.simulation.running import Simulation

NAMESRV, BROKER, CLIENT, GATEWAY = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"
SERVERS = f"{NAMESRV}:9876"
ADDRESS = f"{BROKER}:10911"
FAULTS = ("kill", "power", "cut")
REST_S = 60.0
"""So long after the last fault everything must have arrived."""
AIMS = ("pwrite", "acknowledged", "opened", "delivered")
JUMPS_MS = (7_200_000, 2_592_000_000, 30_000, 1_500, -1_500, -30_000, -7_200_000, -2_592_000_000)
"""By how much the broker's clock jumps. Those of less than two seconds are corrections, which it follows."""
TOLERANCE_MS = 2_000
FILTERS = ("t/#", "t/+", "+/+", "#")


@dataclass
class Options:
    """What a seed makes of a run; printed when the run fails."""

    messages: int
    producers: int
    keys: int
    queues: int
    members: int
    segment_bytes: int
    chunk_bytes: int
    body_bytes: int
    pause_s: float  # between two batches, at most
    blocking_s: tuple[float, float]  # how long the broker's disk blocks; the quickest is synced by the loop
    faults: list[tuple[float, str, str, float]]  # from when on, what, just after what, how long it lasts

    @classmethod
    def drawn(cls, rng: random.Random, messages: int) -> Options:
        kinds = [kind for kind in FAULTS if rng.random() < 0.7]  # each run has some of the faults only
        times = sorted(rng.uniform(0.5, messages * 0.01) for _ in range(rng.randint(1, 6)))
        return cls(
            messages=messages,
            producers=rng.choice([1, 2, 4]),
            keys=rng.choice([1, 3, 20]),
            queues=rng.choice([1, 2, 5]),
            members=rng.choice([1, 2]),
            segment_bytes=rng.choice([1 << 14, 1 << 15, 1 << 18]),
            chunk_bytes=rng.choice([1 << 11, 1 << 13, 1 << 16]),
            body_bytes=rng.choice([10, 300, 2000]),
            pause_s=rng.choice([0.0, 0.03, 0.15]),
            blocking_s=rng.choice([(0.0, 0.0003), (0.0005, 0.01), (0.01, 0.08)]),
            faults=[(at, rng.choice(kinds), rng.choice(AIMS), rng.uniform(0.05, 4.0)) for at in times] if kinds else [],
        )


@dataclass
class Follower:
    """The reader of a filter. ``before``: what was being sent when it was told that the filter is open."""

    filter: str
    before: frozenset[bytes]
    seen: Counter[bytes] = field(default_factory=Counter)


@dataclass
class History:
    """What everybody saw."""

    attempted: dict[bytes, str] = field(default_factory=dict)  # body -> key, in the order of sending
    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # body -> queue, offset
    failed: set[bytes] = field(default_factory=set)  # the producer was told that it will never be there
    delivered: Counter[bytes] = field(default_factory=Counter)
    first: list[bytes] = field(default_factory=list)  # in the order of first deliveries
    places: dict[tuple[int, int], bytes] = field(default_factory=dict)  # queue, offset -> body
    followers: list[Follower] = field(default_factory=list)
    sent_ms: dict[bytes, int] = field(default_factory=dict)  # when it was sent first, by a right clock
    mistimed: list[str] = field(default_factory=list)  # messages whose store time is not when they were stored
    booted_wrong: bool = False  # the machine started on a wrong clock, which nobody can know


class Cluster:
    """The system of one run."""

    def __init__(self, simulation: Simulation, options: Options) -> None:
        self.sim = simulation
        self.options = options
        self.moments = Moments(simulation.rng("aim"))
        self.broker = LivingBroker(simulation, self.settings(), simulation.clock, self.moments, options.blocking_s)
        self.history = History()
        self.nursery: trio.Nursery | None = None

    async def on_host(self, host: str, work: Callable[..., Any], *args: Any) -> Any:
        """Starts work in a task of a host; waits until it reports."""
        assert self.nursery is not None
        return await on_host(self.nursery, host, work, *args)

    def settings(self) -> BrokerSettings:
        return BrokerSettings(
            host=BROKER,
            insecure=True,
            data=Path("simulated"),
            namesrv=(SERVERS,),
            default_queues=self.options.queues,
            segment_bytes=self.options.segment_bytes,
            chunk_bytes=self.options.chunk_bytes,
            reserve_step_bytes=1 << 12,
            ahead_bytes=1 << 13,
            emergency_bytes=0,
            lease_s=10.0,
        )

    async def trouble(self) -> None:
        """The faults of this run, one after the other."""
        for at, kind, aim, lasts_s in self.options.faults:
            await trio.sleep_until(max(at, trio.current_time()))
            if kind == "cut":
                host = self.sim.network.rng.choice([CLIENT, GATEWAY, NAMESRV])
                self.sim.say(f"{host} is cut off for {lasts_s:.2f} s")
                self.sim.network.cut(BROKER, host)
                await trio.sleep(lasts_s)
                self.sim.network.heal(BROKER, host)
                continue
            await self.moments.just_after(aim)
            self.broker.end(kind)
            await trio.sleep(lasts_s)
            await self.on_host(BROKER, self.broker.live)

    async def jumps(self) -> None:
        """The machine's clock jumps for seconds, in half of the runs, whatever else happens."""
        rng, clock = self.sim.rng("jumps"), self.sim.clock
        for _ in range(rng.choice((0, 0, 1, 3))):
            await trio.sleep(rng.uniform(0.1, 2.0))
            clock.ahead_ms = rng.choice(JUMPS_MS)
            self.sim.say(f"the clock jumps by {clock.ahead_ms / 1000:g} s")
            await trio.sleep(rng.uniform(0.05, 6.0))
            clock.ahead_ms = 0
            self.sim.say("the clock is right again")

    # -- clients

    async def produce(self, name: str, messages: int) -> None:
        rng, options, history = self.sim.rng(f"load {name}"), self.options, self.history
        clients: Any = {"clock": self.sim.clock, "rng": self.sim.rng(name)}
        sent = 0
        async with Producer(servers=SERVERS, timeout_s=20.0, **clients) as producer:
            while sent < messages:
                batch = []
                for _ in range(min(rng.randint(1, 8), messages - sent)):
                    key = f"{name}-{rng.randrange(options.keys)}"
                    body = f"{sent:06d} {key} ".encode().ljust(options.body_bytes, b".")
                    history.attempted[body] = key
                    history.sent_ms[body] = self.sim.clock.right_ms()
                    batch.append(Message("t", body, key=key, mqtt_topic=f"t/{key}"))
                    sent += 1
                await self._send(producer, batch)
                await trio.sleep(rng.uniform(0.0, options.pause_s))
        self.sim.say(f"{name} has sent all")

    async def _send(self, producer: Producer, batch: list[Message]) -> None:
        history = self.history
        try:
            receipts: Any = await producer.send_many(batch)
            failures: dict[int, PenstockError] = {}
        except SendManyError as error:
            receipts, failures = error.receipts, error.failures
        for place, message in enumerate(batch):
            if place not in failures:
                history.acknowledged[message.body] = (receipts[place].queue.number, receipts[place].offset)
                self.moments.tell("acknowledged")
            elif not failures[place].unknown:
                history.failed.add(message.body)

    async def consume(self, name: str, done: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        clients: Any = {"clock": self.sim.clock, "rng": self.sim.rng(name)}
        while not done.is_set():
            with contextlib.suppress(PenstockError):
                async with Consumer(
                    "group",
                    "t",
                    servers=SERVERS,
                    start="earliest",
                    session_s=6.0,
                    **clients,
                ) as consumer:
                    async for batch in consumer:
                        for message in batch:
                            self._delivered(message)
                        with contextlib.suppress(PenstockError):
                            await consumer.commit()
            await trio.sleep(0.5)

    def _delivered(self, message: ReceivedMessage) -> None:
        history, body = self.history, message.body
        if not history.delivered[body]:
            history.first.append(body)
        history.delivered[body] += 1
        self.moments.tell("delivered")
        if not history.sent_ms[body] - TOLERANCE_MS <= message.stored_ms <= self.sim.clock.right_ms() + TOLERANCE_MS:
            history.mistimed.append(f"{body[:40]!r} by {message.stored_ms - self.sim.clock.right_ms()} ms")
        before = history.places.setdefault((message.queue.number, message.offset), body)
        assert before == body, f"queue {message.queue} gave two messages for offset {message.offset}"

    async def follow_filter(self, filter: str, done: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        """What a gateway does: opens a filter, and pulls its queue by offset through all of the broker's lives."""
        task_status.started()
        await trio.sleep(self.sim.rng(filter).uniform(0.0, self.options.messages * 0.01))
        async with trio.open_nursery() as wires:
            link = WireLinks(wires, clock=self.sim.clock, rng=self.sim.rng(f"wire {filter}")).link(ADDRESS)
            opened = await self._opened(link, filter)
            self.sim.say(f"{filter} is open from position {opened.position} on")
            follower = Follower(filter, frozenset(self.history.attempted))
            self.history.followers.append(follower)
            self.moments.tell("opened")
            offset = opened.offset
            while not done.is_set():
                try:
                    pulled = await ask(link, Pull(opened.queue, offset, wait_s=2.0), Pulled, 5.0)
                except PenstockError as error:
                    if not error.retryable:
                        raise AssertionError(f"the reader of {filter}: {error!r}") from error
                    await trio.sleep(0.2)
                    continue
                follower.seen.update(message.body for _, message in decode_batch(pulled.count, pulled.body))
                offset = pulled.next
            wires.cancel_scope.cancel()

    async def _opened(self, link: Link, filter: str) -> OpenedFilter:
        while True:
            try:
                return (await ask(link, OpenFilters("gateway", (filter,)), OpenedFilters, 5.0)).opened[0]
            except PenstockError:
                await trio.sleep(0.1)

    # -- the whole

    async def run(self) -> History:
        async with trio.open_nursery() as self.nursery:
            names = partial(namesrv.server.run, secret=SECRET)
            world = self.sim.world("namesrv")
            await self.on_host(NAMESRV, names, NamesrvSettings(host=NAMESRV, port=9876, insecure=True), world)
            await self.on_host(BROKER, self.broker.live)
            done = trio.Event()
            for filter in FILTERS:
                await self.on_host(GATEWAY, self.follow_filter, filter, done)
            for number in range(self.options.members):
                await self.on_host(CLIENT, self.consume, f"consumer {number}", done)
            await self.on_host(CLIENT, self._load_and_trouble, done)
        return self.history

    async def _load_and_trouble(self, done: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        assert self.nursery is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.trouble)
            nursery.start_soon(self.jumps)
            for number in range(self.options.producers):
                nursery.start_soon(self.produce, f"producer{number}", self.options.messages // self.options.producers)
        deadline = trio.current_time() + REST_S
        while missing(self.history) and trio.current_time() < deadline:  # noqa: ASYNC110 (nothing sets an event)
            await trio.sleep(0.5)
        self.history.booted_wrong = self.broker.booted_wrong
        self.sim.say("at rest")
        done.set()
        self.nursery.cancel_scope.cancel()


def missing(history: History) -> list[str]:
    """Which promises of delivery are still open, in words."""
    acknowledged = history.acknowledged.keys()
    lost = {"the group": acknowledged - history.delivered.keys()}
    for one in history.followers:
        lost[f"the reader of {one.filter}"] = acknowledged - one.before - one.seen.keys()
    open_ = [
        f"{who} misses {len(bodies)} messages, first {min(bodies)[:40]!r}" for who, bodies in lost.items() if bodies
    ]
    # what was sent again, since its fate was unknown, may stand in the log twice: its receipt tells the later place
    unread = [f"nobody has read {place}" for place in history.acknowledged.values() if place not in history.places]
    return open_ + unread + ["a filter was never opened"] * (len(history.followers) < len(FILTERS))


def check(history: History) -> None:
    """Raises ``AssertionError`` where a promise was broken."""
    assert not (lost := missing(history)), "; ".join(lost)
    delivered = set(history.delivered).union(*(one.seen for one in history.followers))
    if not history.booted_wrong:
        assert not history.mistimed, f"store times are wrong: {history.mistimed[:3]}"
    made_up = delivered - history.attempted.keys()
    assert not made_up, f"messages that nobody sent: {sorted(made_up)[:3]}"
    aborted = delivered & history.failed
    assert not aborted, f"messages that were told to have failed: {sorted(aborted)[:3]}"
    for body, place in history.acknowledged.items():
        assert history.places.get(place) == body, f"{body[:40]!r} is not where its receipt says, {place}"
    for key in sorted(set(history.attempted.values())):
        order = [body for body in history.first if history.attempted[body] == key]
        assert order == sorted(order), f"messages of {key} were delivered out of order"


def digest(history: History) -> str:
    """What was delivered, in order, as one number."""
    seen = [body for one in history.followers for body in (one.filter.encode(), *one.seen)]
    return hashlib.sha256(b"\0".join([*history.first, *seen])).hexdigest()


async def scenario(simulation: Simulation, messages: int = 200) -> History:
    """The run of a seed."""
    logging.disable(logging.CRITICAL)  # the broker tells of every fault; the simulation's log has them
    try:
        options = Options.drawn(simulation.rng("options"), messages)
        simulation.say(f"seed {simulation.seed}: {options}")
        return await Cluster(simulation, options).run()
    finally:
        logging.disable(logging.NOTSET)
