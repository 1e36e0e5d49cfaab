"""Streams are driven as Spark drives them, with a checkpoint and an idempotent sink, through crashes of everything.

What arrived is compared with a model that knows only what was sent: each message that the query is about comes once,
whatever dies between a batch's offsets, its rows and its commit, and whatever changes at the broker meanwhile.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from restarting import RestartingCluster

from penstock import Message
from penstock.blocking import Producer
from penstock.blocking.routes import Routes
from penstock.protocol.requests.topics import ChangeTopic, CreateTopic, PurgeTopic, TopicDetail
from penstock.spark.source import PenstockSource, StreamReader

SEEDS = 20
ROUNDS = 12
CRASHES = ("offsets logged", "partitions planned", "rows read", "sink written")


class Crash(Exception):
    """The driver dies."""


class Sink:
    """Keeps the rows of each batch; what is written again replaces what was there, as sinks by batch id do."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    @property
    def rows(self) -> Counter[int]:
        return Counter(row for rows in self.batches.values() for row in rows)


class Query:
    """What survives a driver: its options, its checkpoint, its sink; and the order in which Spark does things."""

    def __init__(self, options: dict[str, str], rng: Random, between: Callable[[], None]) -> None:
        self._options = options
        self._rng = rng
        self.between = between  # something happens while rows are read
        self.ends: list[dict[str, Any]] = []  # the log of offsets
        self.commits = 0
        self.sink = Sink()
        self.crashes: Counter[str] = Counter()

    def run(self, batches: int, crash_in: float) -> None:
        """A driver's life: up to so many batches, each of which may kill it."""
        reader = PenstockSource(CaseInsensitiveDict(self._options)).streamReader(schema=None)
        assert isinstance(reader, StreamReader)
        crash = self._rng.choice(CRASHES) if self._rng.random() < crash_in else ""
        try:
            for _ in range(batches):
                self._batch(reader, crash)
        except Crash:
            self.crashes[crash] += 1
        finally:
            reader.stop()

    def _batch(self, reader: StreamReader, crash: str) -> None:
        number = self.commits
        start = self.ends[number - 1] if number else reader.initialOffset()
        if not self.ends:
            self.between()  # what comes now is of this query, also if it dies before it knows where it began
        if len(self.ends) == number:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start and number:
                return
            self.ends.append(pickle.loads(pickle.dumps(end)))
            self._die(crash, "offsets logged")
            start = start if number else reader.initialOffset()
        partitions = reader.partitions(start, self.ends[number])
        self._die(crash, "partitions planned")
        rows = [row for partition in partitions for row in self._task(reader, partition)]
        self._die(crash, "rows read")
        self.sink.batches[number] = rows
        self._die(crash, "sink written")
        self.commits += 1

    def _task(self, reader: StreamReader, partition: Any) -> list[int]:
        """A task reads in a process of its own; one that was killed is started again."""
        while True:
            rows: list[int] = []
            is_killed = self._rng.random() < 0.2
            batches = StreamReader(reader._options).read(pickle.loads(pickle.dumps(partition)))
            for batch in batches:
                rows += map(int, batch.column(0).to_pylist())
                if self._rng.random() < 0.1:
                    self.between()
                if is_killed:
                    break
            if not is_killed:
                return rows

    def _die(self, crash: str, now: str) -> None:
        if crash == now:
            raise Crash


class World:
    """The topics of one seed, what was sent to them, and what befalls them."""

    def __init__(self, cluster: RestartingCluster, seed: int, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.prefix = f"s{seed}x"
        self._topics: dict[str, int] = {}
        self.sent: dict[int, tuple[str, str]] = {}  # number -> topic and MQTT name
        self.purged: set[int] = set()
        self.restarts = 0

    def grow(self) -> None:
        """A topic appears, or one gets a queue more."""
        if len(self._topics) < 3 or not self._topics:
            name = f"{self.prefix}{len(self._topics)}"
            self._topics[name] = 1
            self._ask(CreateTopic(name, 1, "cache"))
        else:
            name = self._rng.choice(sorted(self._topics))
            self._topics[name] += 1
            self._ask(ChangeTopic(name, self._topics[name]))

    def send(self) -> None:
        if not self._topics:
            return
        topic, first = self._rng.choice(sorted(self._topics)), len(self.sent)
        numbers = range(first, first + self._rng.randrange(1, 60))
        names = [f"{topic}/d{number % 3}/{'temp' if number % 2 else 'hum'}" for number in numbers]
        with Producer(servers=self._cluster.servers) as producer:
            producer.send_many(
                [
                    Message(topic, b"%d" % number, key=f"k{number % 5}", mqtt_topic=name)
                    for number, name in zip(numbers, names, strict=True)
                ]
            )
        self.sent |= {number: (topic, name) for number, name in zip(numbers, names, strict=True)}

    def purge(self) -> None:
        """Retention takes all of a topic."""
        if self._topics:
            topic = self._rng.choice(sorted(self._topics))
            self._ask(PurgeTopic(topic))
            self.purged |= {number for number, (its, _) in self.sent.items() if its == topic}

    def restart(self) -> None:
        self.restarts += 1
        self._cluster.restart()

    def _ask(self, request: Any) -> None:
        with Routes(self._cluster.servers) as routes:
            (broker,) = routes.holders().brokers
            routes.link(broker.address).ask(request, TopicDetail)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartingCluster]:
    running = RestartingCluster(tmp_path_factory.mktemp("totals") / "a")
    yield running
    running.stop()


def options_of(world: World, cluster: RestartingCluster, seed: int) -> dict[str, str]:
    given = {
        "servers": cluster.servers,
        "columns": "value",
        "maxOffsetsPerTrigger": str(30 + 17 * (seed % 5)),
        "batchRows": "20",
        "minPartitions": str(1 + seed % 3),
        "startingOffsets": "latest" if seed % 4 == 1 else "earliest",
        "fetchOffset.retryIntervalMs": "20",
        "failOnDataLoss": str(seed % 5 != 2).lower(),
        "group": f"g{seed}",
        "subscribePattern": f"{world.prefix}.*",
    }
    return given | ({"mqttFilter": "+/+/temp"} if seed % 3 == 0 else {})


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_message_that_is_asked_for_comes_once_whatever_dies(cluster: RestartingCluster, seed: int) -> None:
    rng = Random(seed)
    world = World(cluster, seed, rng)
    options = options_of(world, cluster, seed)
    is_lossy, is_late = options["failOnDataLoss"] == "false", options["startingOffsets"] == "latest"
    query = Query(options, rng, lambda: world.restart() if rng.random() < 0.2 else world.send())
    if is_late:
        world.grow()
        world.send()
    before = set(world.sent) if is_late else set()
    query.run(1, 0.8)
    for _ in range(ROUNDS):
        happening = rng.choice([world.send] * 6 + [world.grow] * 2 + [world.purge] * is_lossy)
        happening()
        query.run(rng.randrange(1, 4), 0.7)
        if rng.random() < 0.05:
            world.restart()
    query.between = lambda: None
    while query.commits < len(query.ends) or not query.commits or progressed(query):
        query.run(5, 0.0)
    wanted = {number for number, (_, name) in world.sent.items() if "mqttFilter" not in options or "temp" in name}
    rows = query.sink.rows
    assert max(rows.values(), default=1) == 1
    assert set(rows) <= wanted - before
    assert wanted - before - world.purged <= set(rows)
    assert query.crashes


def progressed(query: Query) -> bool:
    """Whether one more run finds something to read."""
    before = query.commits
    query.run(1, 0.0)
    return query.commits > before
