"""Members of an ordered group that are killed, cut off and slow, at a broker that dies: no two holders work at once.

The cluster of ``tests/simulation/cluster.py`` without filters. When a member begins a piece of work, no other one may
hold that queue with its session running, and none may be at work there but one that was cut off, or lost its broker,
while it was. The messages of a queue are begun in their order, over all members; in the end all are done.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import trio

import namesrv.server
from namesrv.settings import NamesrvSettings
from penstock import Consumer, ReceivedMessage, Retry
from penstock.errors import PenstockError
from tests.simulation.cluster import BROKER, CLIENT, NAMESRV, REST_S, SERVERS, Cluster, Options
from tests.simulation.lives import SECRET, LivingBroker
from tests.simulation.running import Simulation

MEMBERS: Final = tuple([f"10.0.1.{number}" for number in range(3)])
SESSION_S: Final = 3.0


@dataclass(eq=False)
class Piece:
    """A message that a member has in hand."""

    member: str
    host: str
    queue: int
    offset: int
    began: float


@dataclass
class Worked:
    """What all members did."""

    open: dict[int, list[Piece]] = field(default_factory=lambda: defaultdict(list))  # by queue
    begun: dict[int, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    done: set[bytes] = field(default_factory=set)
    raised: dict[bytes, list[str]] = field(default_factory=lambda: defaultdict(list))  # by whom, each time
    handed_over: int = 0
    counted_on: int = 0
    problems: list[str] = field(default_factory=list)


class NotedBroker(LivingBroker):
    """A broker of which it is known when it last came or went."""

    changed_at = -1.0

    async def live(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.changed_at = trio.current_time()
        await super().live(task_status=task_status)

    def end(self, kind: str) -> None:
        super().end(kind)
        self.changed_at = trio.current_time()


class OrderlyCluster(Cluster):
    """The system of one run."""

    def __init__(self, simulation: Simulation, options: Options) -> None:
        super().__init__(simulation, options)
        self.broker: NotedBroker = NotedBroker(
            simulation, self.settings(), simulation.clock, self.moments, options.blocking_s
        )
        self.worked = Worked()
        self._alive: dict[str, Consumer] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._cut_at: dict[str, float] = {}  # host -> when something last kept it from the broker
        self._chance = simulation.rng("work")

    # -- members

    async def member(self, host: str, done: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        """One life after the other."""
        task_status.started()
        lives, rng = 0, self.sim.rng(f"member {host}")
        while not done.is_set():
            lives += 1
            name = f"{host} life {lives}"
            clients: Any = {"clock": self.sim.clock, "rng": self.sim.rng(name)}
            with trio.CancelScope() as self._scopes[host], contextlib.suppress(PenstockError):
                async with Consumer(
                    "group",
                    "t",
                    servers=SERVERS,
                    start="earliest",
                    session_s=SESSION_S,
                    ordered=True,
                    retry_delays_s=[0.05],
                    **clients,
                ) as consumer:
                    self._alive[name] = consumer
                    try:
                        await consumer.handle(partial(self._work, name, host), concurrency=rng.choice((1, 3)))
                    finally:
                        del self._alive[name]
                        for pieces in self.worked.open.values():
                            pieces[:] = [piece for piece in pieces if piece.member != name]
            for other in (BROKER, NAMESRV):
                self.sim.network.heal(host, other)
            await trio.sleep(rng.uniform(0.0, 2.0))

    async def _work(self, name: str, host: str, message: ReceivedMessage) -> None:
        number, worked = message.queue.number, self.worked
        self._look(name, message)
        failed = worked.raised[message.body]
        if message.attempts > len(failed):
            worked.problems.append(
                f"{name} has attempt {message.attempts} of {message.offset}, it failed {len(failed)}"
            )
        worked.counted_on += message.attempts > failed.count(name)  # others' failures count too
        piece = Piece(name, host, number, message.offset, trio.current_time())
        worked.open[number].append(piece)
        worked.handed_over += bool(worked.begun[number]) and worked.begun[number][-1][0] != name
        worked.begun[number].append((name, message.offset))
        try:
            await trio.sleep(self._chance.choice((0.0, 0.0, 0.001, 0.05, 0.3, 0.3 * SESSION_S, 2 * SESSION_S)) / 4)
            if len(worked.raised[message.body]) < 3 and self._chance.random() < 0.2:
                worked.raised[message.body].append(name)
                raise Retry(self._chance.choice((None, 0.5)))
        finally:
            if piece in worked.open[number]:
                worked.open[number].remove(piece)
        worked.done.add(message.body)

    def _look(self, name: str, message: ReceivedMessage) -> None:
        """Notes where somebody else holds the queue that a member begins in, or works there without an excuse."""
        queue, told = message.queue, self.worked.problems
        at = f"{trio.current_time():.4f} {name} begins {queue.number}-{message.offset}"
        for other, consumer in self._alive.items():
            for held in consumer._held() if other != name else ():
                if held.queue == queue and not held.leaving and not held.waits:
                    told.append(f"{at}, which {other} holds")
        for piece in self.worked.open[queue.number]:
            cut_at = max(self._cut_at.get(piece.host, -1.0), self.broker.changed_at)
            if piece.member == name:
                told.append(f"{at} with {piece.offset} in hand")
            elif cut_at < piece.began - SESSION_S:
                told.append(f"{at}, where {piece.member} works since {piece.began:.4f}")
        last = max([offset for _, offset in self.worked.begun[queue.number]], default=-1)
        if message.offset > last + 1:
            told.append(f"{at}, and {last + 1} was never begun")

    async def hardships(self, done: trio.Event) -> None:
        """Members are killed, cut off and asked to end, one at a time."""
        rng = self.sim.rng("hardships")
        while not done.is_set():
            await trio.sleep(rng.uniform(0.2, 1.5))
            host, kind = rng.choice(MEMBERS), rng.choice(("kill", "cut", "cut", "end", "nothing"))
            if kind == "nothing" or host not in self._scopes:
                continue
            self.sim.say(f"{host}: {kind}")
            if kind == "end":
                for name, consumer in self._alive.items():
                    if name.startswith(host):
                        consumer.stop()
                continue
            self._cut_at[host] = trio.current_time()
            for other in (BROKER, NAMESRV):
                self.sim.network.cut(host, other)
            if kind == "kill":
                self._scopes[host].cancel()
                continue
            await trio.sleep(rng.choice((0.3, 1.0, SESSION_S, 2 * SESSION_S)))
            self._cut_at[host] = trio.current_time()
            for other in (BROKER, NAMESRV):
                self.sim.network.heal(host, other)

    # -- the whole

    async def run_orderly(self) -> Worked:
        async with trio.open_nursery() as self.nursery:
            names = partial(namesrv.server.run, secret=SECRET)
            settings = NamesrvSettings(host=NAMESRV, port=9876, insecure=True)
            await self.on_host(NAMESRV, names, settings, self.sim.world("namesrv"))
            await self.on_host(BROKER, self.broker.live)
            done = trio.Event()
            for host in MEMBERS:
                await self.on_host(host, self.member, host, done)
            await self.on_host(CLIENT, self._load, done)
        return self.worked

    async def _load(self, done: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        assert self.nursery is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.hardships, done)
            async with trio.open_nursery() as load:
                load.start_soon(self.trouble)
                for number in range(self.options.producers):
                    count = self.options.messages // self.options.producers
                    load.start_soon(self.produce, f"producer{number}", count)
            nursery.cancel_scope.cancel()
        for host in MEMBERS:
            for other in (BROKER, NAMESRV):
                self.sim.network.heal(host, other)
        deadline = trio.current_time() + REST_S + self.options.messages * SESSION_S / 2
        while self.history.acknowledged.keys() - self.worked.done and trio.current_time() < deadline:  # noqa: ASYNC110
            await trio.sleep(0.5)
        self.sim.say("at rest")
        done.set()
        self.nursery.cancel_scope.cancel()


def check(cluster: OrderlyCluster) -> None:
    """Raises ``AssertionError`` where something was not done in the end."""
    problems = cluster.worked.problems
    assert not problems, f"{len(problems)} times, first: {problems[0]}"
    undone = cluster.history.acknowledged.keys() - cluster.worked.done
    assert not undone, f"{len(undone)} messages are not done, first {min(undone)[:40]!r}"


def drawn(rng: random.Random, messages: int) -> Options:
    """Few queues with much in them, and faults all along."""
    options = Options.drawn(rng, messages)
    options.queues, options.producers, options.pause_s = rng.choice((1, 3, 4)), 1, rng.choice((0.5, 1.5))
    options.body_bytes, options.keys = 40, 20
    options.faults = [(at * 4, kind, aim, lasts_s) for at, kind, aim, lasts_s in options.faults if kind != "cut"]
    return options


async def scenario(simulation: Simulation, messages: int = 100) -> OrderlyCluster:
    """The run of a seed."""
    logging.disable(logging.CRITICAL)
    try:
        options = drawn(simulation.rng("options"), messages)
        simulation.say(f"seed {simulation.seed}: {options}")
        cluster = OrderlyCluster(simulation, options)
        await cluster.run_orderly()
        return cluster
    finally:
        logging.disable(logging.NOTSET)
