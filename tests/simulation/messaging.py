"""Two brokers and two name servers under faults, with messages that do not go straight to a queue.

A seed decides the load, the faults and their times: brokers are killed or lose power, hosts are cut off from each
other, name servers go, machines' clocks jump, and retention takes what is older than a minute. Plain, delayed and
transactional messages and refused ones are sent meanwhile (``delays.py``, ``halves.py``, ``retries.py``); a consumer
group reads all topics. Each workload knows what it was promised, and checks it when all is quiet.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

import broker.net.server
import namesrv.server
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock import Consumer
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import PenstockError, QueueNotFound
from penstock.protocol.message import decode_batch
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.requests.topics import CreateTopic, TopicDetail
from tests.simulation.lives import SECRET, LivingBroker, Moments, on_host
from tests.simulation.running import SimClock, Simulation

NAMES: Final = ("10.0.0.1", "10.0.0.2")
BROKERS: Final = ("10.0.0.3", "10.0.0.4")
CLIENTS: Final = ("10.0.0.5", "10.0.0.6")
SERVERS: Final = ",".join(f"{host}:9876" for host in NAMES)
ADDRESSES: Final = tuple(f"{host}:10911" for host in BROKERS)
TOPICS: Final = ("plain", "late", "sold", "work")
FAULTS: Final = ("kill", "power", "power", "both", "full", "cut", "names", "jump")
AIMS: Final = ("pwrite", "stored", "settled", "delivered", "woken")
JUMPS_MS: Final = (7_200_000, 2_592_000_000, 30_000, 1_500, -1_500, -30_000, -7_200_000, -2_592_000_000)
RETRY_DELAYS_S: Final = (1.0, 3.0, 10.0)
RETENTION_S: Final = 60.0
REST_S: Final = 400.0
"""So long after the last fault every promise must have been kept."""
FROZEN_MS: Final = 10_000
"""For so long after a jump of the clock a broker waits before it fires again (``penstock/guarded_clock.py``)."""
LATE_MS: Final = 1_000
"""A message that slept is stored so long after it was due, at most, if its broker is there."""
ASK_S: Final = 4.0

R = TypeVar("R", bound=Reply)


@dataclass(slots=True)
class Seen:
    """A delivery. ``at_ms``: when, by the right time. ``place``: broker, topic, queue, offset."""

    place: tuple[str, str, int, int]
    at_ms: int
    message: ReceivedMessage


def place_of(message: ReceivedMessage) -> tuple[str, str, int, int]:
    """Broker, topic, queue and offset of a message."""
    queue = message.queue
    return queue.broker, queue.topic, queue.number, message.offset


@dataclass
class Options:
    """What a seed makes of a run; printed when the run fails."""

    load_s: float
    members: int
    queues: int
    segment_bytes: int
    body_bytes: int
    tick_s: float  # how often a broker looks at the time; less often costs less
    blocking_s: tuple[float, float]
    faults: list[tuple[float, str, str, float]] = field(
        default_factory=list
    )  # when, what, just after what, for how long

    @classmethod
    def drawn(cls, rng: random.Random, kinds: Sequence[str] = ()) -> Options:
        """``kinds``: of faults, on slow disks, and power goes just after something was promised; else any."""
        is_chosen, aims = bool(kinds), ("stored", "settled", "settled") if "power" in kinds else AIMS
        load_s = rng.choice([20.0, 30.0] if is_chosen else [20.0, 60.0, 120.0])
        count = 8 if is_chosen else rng.randint(1, 10)
        times = sorted(rng.uniform(0.5, load_s) for _ in range(count))
        kinds = kinds or [kind for kind in FAULTS if rng.random() < 0.7]  # each run has some of the faults only
        return cls(
            load_s=load_s,
            members=rng.choice([1, 2]),
            queues=rng.choice([1, 3]),
            segment_bytes=rng.choice([1 << 14, 1 << 16]),
            body_bytes=rng.choice([30, 400, 1500]),
            tick_s=rng.choice([0.05, 0.2, 0.5, 0.5]),
            blocking_s=rng.choice([(0.0, 0.0003), (0.0005, 0.01), (0.01, 0.08)][2 * is_chosen :]),
            faults=[(at, rng.choice(kinds), rng.choice(aims), rng.choice((0.1, 1.0, 6.0))) for at in times if kinds],
        )


class Workload:
    """What one kind of message is promised, and those who send and settle it."""

    def __init__(self, world: Messaging) -> None:
        self.world = world
        self.rng = world.sim.rng(type(self).__name__)

    def tasks(self) -> Sequence[Callable[[], Any]]:
        """What runs while there is load."""
        return ()

    def lasting(self) -> Sequence[Callable[[], Any]]:
        """What runs until all is quiet."""
        return ()

    def missing(self) -> list[str]:
        """Which promises are still open, in words."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises ``AssertionError`` where a promise was broken."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Asks the brokers, once all is quiet, what is left."""

    def body(self, *words: object) -> bytes:
        """A body of its own for each message."""
        return " ".join(map(str, words)).encode().ljust(self.world.options.body_bytes, b".")


class Messaging:
    """The system of one run.

    Attributes:
        seen: deliveries by body, in their order.
        places: what stands where.
        committed: the offset of each queue that the group was told is stored.
        events: how often what a run is to show has happened.
        is_loaded: there is load, and maybe trouble.
    """

    def __init__(
        self, simulation: Simulation, options: Options, workloads: Sequence[Callable[[Messaging], Workload]]
    ) -> None:
        self.sim = simulation
        self.options = options
        self.moments = Moments(simulation.rng("aim"))
        self.clocks = (SimClock(), SimClock())
        self.brokers = [self._broker(number) for number in range(2)]
        self.seen: dict[bytes, list[Seen]] = {}
        self.places: dict[tuple[str, str, int, int], bytes] = {}
        self.committed: dict[MessageQueue, int] = {}
        self.events: Counter[str] = Counter()
        self._woken: dict[tuple[int, int, bytes], tuple[str, str, int, int]] = {}
        self.is_loaded = True
        self.nursery: trio.Nursery | None = None
        self._names: list[trio.CancelScope] = []
        self._links: WireLinks | None = None
        self.workloads = [make(self) for make in workloads]

    def _broker(self, number: int) -> LivingBroker:
        options = self.options
        settings = BrokerSettings(
            name=f"broker-{number}",
            host=BROKERS[number],
            insecure=True,
            data=Path("simulated"),
            namesrv=tuple(SERVERS.split(",")),
            auto_create_topics=False,
            segment_bytes=options.segment_bytes,
            chunk_bytes=1 << 13,
            reserve_step_bytes=1 << 12,
            ahead_bytes=1 << 13,
            emergency_bytes=0,
            lease_s=32.0,
            retention_s=RETENTION_S,
            half_check_after_s=2.0,
            half_checks_max=4,
            retry_delays_s=RETRY_DELAYS_S,
        )
        return LivingBroker(self.sim, settings, self.clocks[number], self.moments, options.blocking_s, number)

    # -- what workloads use

    def right_ms(self) -> int:
        """The right time."""
        return self.sim.clock.right_ms()

    @property
    def tolerance_ms(self) -> int:
        """How wrong a broker's clock may be: it follows jumps of up to two seconds."""
        jumped = any(kind == "jump" for _, kind, _, _ in self.options.faults)
        return 2_100 if jumped else 1

    @property
    def booted_wrong(self) -> bool:
        """Whether a machine started on a wrong clock, which nobody can know."""
        return any(one.booted_wrong for one in self.brokers)

    async def ask(self, broker: int, request: Request, kind: type[R], timeout_s: float | None = ASK_S) -> R:
        """Asks a broker. Raises ``PenstockError``."""
        assert self._links is not None
        return await ask(self._links.link(ADDRESSES[broker]), request, kind, timeout_s)

    async def read_letters(self, broker: int, group: str, take: Callable[[ReceivedMessage], None]) -> None:
        """Hands over each dead letter of a group at a broker as it comes, without an end."""
        queue, offset = MessageQueue(f"broker-{broker}", f"%DLQ%{group}", 0), 0
        while True:
            try:
                pulled = await self.ask(broker, Pull(queue.name, offset, wait_s=20.0), Pulled, None)
            except QueueNotFound:
                await trio.sleep(5.0)
                continue
            except PenstockError as error:
                if not error.retryable:
                    raise AssertionError(f"dead letters of {queue}: {error!r}") from error
                await trio.sleep(1.0)
                continue
            assert pulled.min <= offset or not offset, f"dead letters {offset} to {pulled.min} of {queue} are gone"
            for _, message in decode_batch(pulled.count, pulled.body, queue):
                take(message)
            offset = pulled.next

    def latest_ms(self, broker: int, due_ms: int, stored_ms: int) -> int:
        """When what was due must have been stored, if it was stored at that time: its broker may have been away, or
        have had no room, or have waited for its clock to be right."""
        back_ms = max((one for one in self.brokers[broker].back_ms if one <= stored_ms + self.tolerance_ms), default=0)
        return max(due_ms, back_ms) + LATE_MS + 2 * self.tolerance_ms

    # -- trouble

    async def _trouble(self) -> None:
        for at, kind, aim, lasts_s in self.options.faults:
            await trio.sleep_until(max(at, trio.current_time()))
            self.events[kind] += 1
            await self._fault(kind, aim, lasts_s)

    async def _fault(self, kind: str, aim: str, lasts_s: float) -> None:
        rng, network = self.sim.network.rng, self.sim.network
        number = rng.randrange(2)
        if kind == "cut":
            one, other = rng.choice(BROKERS), rng.choice([*NAMES, *CLIENTS])
            self.sim.say(f"{one} and {other} are cut off for {lasts_s:.2f} s")
            network.cut(one, other)
            await trio.sleep(lasts_s)
            network.heal(one, other)
        elif kind == "jump":
            clock = self.clocks[number]
            clock.ahead_ms = rng.choice(JUMPS_MS)
            self.sim.say(f"the clock of broker-{number} jumps by {clock.ahead_ms / 1000:g} s")
            await trio.sleep(lasts_s)
            clock.ahead_ms = 0
            self.brokers[number].back_ms.append(self.right_ms() + FROZEN_MS)
        elif kind == "full":
            self.sim.say(f"the disk of broker-{number} is full for {lasts_s:.2f} s")
            self.brokers[number].fill(rng.choice((0, 100, 3_000)))
            await trio.sleep(lasts_s)
            self.brokers[number].empty()
        elif kind == "names":
            self.sim.say(f"name server {number} is gone for {lasts_s:.2f} s")
            network.kill(NAMES[number])
            self._names[number].cancel()
            await trio.sleep(lasts_s)
            await self._on_host(NAMES[number], self._name_server, number)
        else:
            where = await self.moments.just_after(aim)
            ended = [0, 1] if kind == "both" else [number if where is None else where]
            for one in ended:
                self.brokers[one].end("power" if kind == "both" else kind)
            await trio.sleep(lasts_s)
            for one in ended:
                await self._on_host(BROKERS[one], self.brokers[one].live)

    async def _on_host(self, host: str, work: Callable[..., Any], *args: Any) -> Any:
        assert self.nursery is not None
        return await on_host(self.nursery, host, work, *args)

    async def _name_server(self, number: int, *, task_status: trio.TaskStatus[None]) -> None:
        settings = NamesrvSettings(host=NAMES[number], insecure=True)
        with trio.CancelScope() as scope:
            self._names[number : number + 1] = [scope]
            run = partial(namesrv.server.run, settings, self.sim.world(f"names {number}"), secret=SECRET)
            async with trio.open_nursery() as nursery:
                await nursery.start(run)
                task_status.started()

    # -- the group that reads everything

    async def _consume(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        rng = self.sim.rng(f"{name} comes and goes")
        while True:
            with contextlib.suppress(PenstockError), trio.move_on_after(rng.uniform(5.0, 90.0)):
                async with Consumer(
                    "all",
                    [topic for topic in TOPICS if topic != "work"],
                    servers=SERVERS,
                    start="earliest",
                    session_s=12.0,
                    clock=self.sim.clock,
                    rng=self.sim.rng(name),
                ) as consumer:
                    async for batch in consumer:
                        for message in batch:
                            self._delivered(message)
                        queue, end = batch[-1].queue, batch[-1].offset + 1
                        with contextlib.suppress(PenstockError):
                            await consumer.commit()
                            self.committed[queue] = max(end, self.committed.get(queue, 0))
            await trio.sleep(0.5)

    def _delivered(self, message: ReceivedMessage) -> None:
        queue, offset = message.queue, message.offset
        if self.options.members == 1:
            assert offset >= self.committed.get(queue, 0), f"{queue} goes back behind what was committed: {offset}"
        self.note(message)

    def note(self, message: ReceivedMessage) -> None:
        """A message was delivered to somebody."""
        queue, place = message.queue, place_of(message)
        before = self.places.setdefault(place, message.body)
        assert before == message.body, f"{queue} gave two messages for offset {message.offset}"
        self.seen.setdefault(message.body, []).append(Seen(place, self.right_ms(), message))
        number = int(queue.broker[-1])
        self.moments.tell("delivered", number)
        self._slept(message, place, number)

    def _slept(self, message: ReceivedMessage, place: tuple[str, str, int, int], number: int) -> None:
        """What is to be seen of a message that slept: it has woken once."""
        due_ms, _, id = message.properties.get("TIMER", "").rpartition(":")
        slept_at = int(id or message.properties.get("HALF", "0"))
        if not slept_at:
            return
        before = self._woken.setdefault((number, slept_at, message.body), place)
        assert before == place, f"what slept at {slept_at} of broker-{number} woke twice, at {before} and {place}"
        self.moments.tell("woken", number)
        self.events["committed" if not due_ms else "woken"] += 1
        self.events["carried"] += slept_at < self.brokers[number].start
        self.events["woken over a restart"] += slept_at < self.brokers[number].began_at[-1]

    def stored(self, body: bytes) -> list[Seen]:
        """Where a body stands, each place once."""
        return list({one.place: one for one in reversed(self.seen.get(body, []))}.values())

    # -- the whole

    async def run(self) -> None:
        """Raises ``AssertionError`` where a promise was broken."""
        async with trio.open_nursery() as self.nursery:
            for number in range(2):
                self._names.append(trio.CancelScope())
                await self._on_host(NAMES[number], self._name_server, number)
            for number in range(2):
                await self._on_host(BROKERS[number], self.brokers[number].live)
            await self._on_host(CLIENTS[0], self._prepare)
            for number in range(self.options.members):
                await self._on_host(CLIENTS[number], self._consume, f"consumer {number}")
            await self._on_host(CLIENTS[0], self._load)
        self._check_times()
        for one in self.workloads:
            one.check()

    def _check_times(self) -> None:
        """What slept is stored when it is due by its broker's own clock."""
        for seen in [seen for some in self.seen.values() for seen in some]:
            due_ms = int(seen.message.properties.get("TIMER", "0").partition(":")[0])
            if due_ms and not self.booted_wrong:
                stored_ms, broker = seen.message.stored_ms, int(seen.place[0][-1])
                assert stored_ms >= due_ms, f"{seen} is early"
                latest_ms = self.latest_ms(broker, due_ms, stored_ms)
                assert stored_ms <= latest_ms, f"{seen} is {stored_ms - latest_ms} ms too late"

    async def _prepare(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as wires:
            self._links = WireLinks(wires, clock=self.sim.clock, rng=self.sim.rng("wires"))
            for topic in TOPICS:
                for number in range(2):
                    await self.ask(number, CreateTopic(topic, self.options.queues, "disk"), TopicDetail)
            task_status.started()
            await trio.sleep_forever()

    async def _load(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        assert self.nursery is not None
        async with trio.open_nursery() as lasting:
            for workload in self.workloads:
                for task in workload.lasting():
                    lasting.start_soon(task)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._trouble)
                for workload in self.workloads:
                    for task in workload.tasks():
                        nursery.start_soon(task)
            self.is_loaded = False
            self.sim.say("the trouble is over")
            deadline = trio.current_time() + REST_S
            while (lost := self.missing()) and trio.current_time() < deadline:  # noqa: ASYNC110 (nothing sets an event)
                await trio.sleep(1.0)
            self.sim.say(f"at rest: {lost or 'all is there'}")
            for workload in self.workloads:
                await workload.settle()
            lasting.cancel_scope.cancel()
        self.nursery.cancel_scope.cancel()

    def missing(self) -> list[str]:
        """Which promises are still open, in words."""
        return [one for workload in self.workloads for one in workload.missing()]


async def scenario(
    simulation: Simulation, workloads: Sequence[Callable[[Messaging], Workload]], kinds: Sequence[str] = ()
) -> Messaging:
    """The run of a seed. ``kinds``: of its faults, if they are chosen."""
    logging.disable(logging.CRITICAL)  # brokers tell of every fault; the simulation's log has them
    usual_s = broker.net.running.TICK_S
    try:
        options = Options.drawn(simulation.rng("options"), kinds)
        simulation.say(f"seed {simulation.seed}: {options}")
        broker.net.running.TICK_S = options.tick_s  # type: ignore[misc]
        world = Messaging(simulation, options, workloads)
        await world.run()
        return world
    finally:
        logging.disable(logging.NOTSET)
        broker.net.running.TICK_S = usual_s  # type: ignore[misc]
