"""The program that is measured: one Spark session on two cores, which reads from each source in turn.

It takes an order as JSON on its standard input and prints a line of JSON for each run. It compares all counts with the
stored messages: a run that lost, doubled or changed a message has an error instead of figures.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from loadtest import proc
from loadtest.spark.messages import BODY_BYTES, QUEUES, groups

COUNT: Final = "count"
"""Counts messages and adds up their lengths."""
WINDOWS: Final = "windows"
"""Parses JSON and makes windows of ten seconds for each device."""
WRITE: Final = "write"
"""Writes the messages of the Parquet files to a topic."""
LIVE: Final = "live"
"""Publishes one message after the other and waits for each as a row of a stream."""
SOAK: Final = "soak"
"""Runs many small batches of a stream."""
SCHEMA: Final = "device STRING, time LONG, value DOUBLE"
LIVE_WARM: Final = 10
SOAK_WARM: Final = 5
"""Percentage of the batches before memory is first measured."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order to run scenarios. ``kafka``, ``jars``: empty where Kafka is missing. ``broker_pids``: by source."""

    servers: str
    topic: str
    count: int
    parquet: str
    kafka: str = ""
    jars: str = ""
    rounds: int = 3
    scenarios: tuple[str, ...] = (COUNT, WINDOWS, WRITE, LIVE)
    live_messages: int = 60
    soak_batches: int = 600
    master: str = "local[2]"
    broker_pids: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """One run of a scenario with a source, and its cost. ``figures``: the scenario's own figures."""

    scenario: str
    source: str
    round: int = 0
    seconds: float = 0.0
    rows: int = 0
    spark_s: float = 0.0
    broker_s: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""


class Job:
    """The measured program: its session and its sources."""

    def __init__(self, order: Order, spark: Any) -> None:
        self.order = order
        self.spark = spark

    def sources(self, scenario: str) -> dict[str, Callable[[], Any]]:
        """The sources of a scenario: a frame of each."""
        chosen: dict[str, Callable[[], Any]] = {"penstock": self.penstock, "penstock value": self.penstock_value}
        if scenario == WINDOWS:
            chosen = {"penstock": self.penstock_value, "penstock readings": self.readings, "parquet": self.parquet}
        if self.order.kafka:
            chosen["kafka"] = self.kafka
        return chosen

    def penstock(self, **options: str) -> Any:
        given = {"servers": self.order.servers, "subscribe": self.order.topic} | options
        return self.spark.read.format("penstock").options(**given).load()

    def penstock_value(self) -> Any:
        return self.penstock(columns="value")

    def readings(self) -> Any:
        return self.penstock(payload="readings")

    def kafka(self) -> Any:
        given = {"kafka.bootstrap.servers": self.order.kafka, "subscribe": self.order.topic}
        return self.spark.read.format("kafka").options(**given, startingOffsets="earliest").load()

    def parquet(self) -> Any:
        return self.spark.read.parquet(self.order.parquet)

    # ---------------------------------------------------------------- scenarios

    def count(self, frame: Any) -> None:
        from pyspark.sql import functions as F

        row = frame.agg(F.count("*"), F.sum(F.length("value"))).first()
        expect(tuple(row), (self.order.count, self.order.count * BODY_BYTES))

    def windows(self, frame: Any) -> None:
        from pyspark.sql import functions as F

        if "value" in frame.columns and "device" not in frame.columns:
            parsed = frame.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("it")).select("it.*")
            frame = parsed.withColumn("event_time", F.timestamp_millis("time"))
        by = frame.groupBy(F.window("event_time", "10 seconds"), "device")
        made = by.agg(F.count("*").alias("n"), F.avg("value"), F.min("value"), F.max("value").alias("top"))
        row = made.agg(F.sum("n"), F.count("*"), F.max("top")).first()
        expect(tuple(row)[:2], (self.order.count, groups(self.order.count)))

    def write(self, source: str, number: int) -> None:
        topic = f"written-{number}-{os.getpid()}"
        rows = self.parquet()
        if source == "kafka":
            writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.order.kafka)
        else:
            writer = rows.drop("partition").write.format("penstock").option("servers", self.order.servers)
        writer.mode("append").option("topic", topic).save()

    # ---------------------------------------------------------------- measuring

    def runs(self) -> Iterator[Run]:
        """Each scenario once to warm up, then in rounds, each source in turn."""
        for scenario in self.order.scenarios:
            if scenario in (LIVE, SOAK):
                from loadtest.spark import live

                yield from live.runs(self, scenario)
                continue
            for number in range(self.order.rounds + 1):
                for run in self.round(scenario, number):
                    if number:
                        yield run

    def round(self, scenario: str, number: int) -> Iterator[Run]:
        if scenario == WRITE:
            sources = ["penstock", *(["kafka"] if self.order.kafka else [])]
            works = {source: lambda source=source: self.write(source, number) for source in sources}
        else:
            do = self.count if scenario == COUNT else self.windows
            works = {source: lambda frame=frame: do(frame()) for source, frame in self.sources(scenario).items()}
        names = list(works) if number % 2 else list(works)[::-1]
        for source in names:
            yield self.timed(Run(scenario, source, number, rows=self.order.count), works[source])

    def timed(self, run: Run, work: Callable[[], None]) -> Run:
        broker = proc.tree(self.order.broker_pids.get(run.source.split()[0], 0)) if self.order.broker_pids else []
        spark, broker_before = proc.family_cpu_s(proc.tree(os.getpid())), proc.cpu_s(broker)
        begin = time.monotonic()
        try:
            work()
        except Exception as error:  # whatever ends a run is its result
            run.error = str(error).strip().splitlines()[0][:300]
        run.seconds = time.monotonic() - begin
        run.spark_s = proc.family_cpu_s(proc.tree(os.getpid())) - spark
        run.broker_s = proc.cpu_s(broker) - broker_before
        return run


def expect(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    """Raises ``ValueError`` if a run's result differs from the stored messages."""
    if found != wanted:
        raise ValueError(f"found {found}, stored {wanted}")


def fill_kafka(job: Job) -> None:
    """Writes the Parquet files to Kafka, a queue of ours to a partition."""
    rows = job.parquet().select("value", "partition").write.format("kafka")
    rows.option("kafka.bootstrap.servers", job.order.kafka).option("topic", job.order.topic).save()


def main() -> None:
    """Runs an order."""
    given = json.loads(sys.stdin.read())
    order = Order(**given | {"scenarios": tuple(given["scenarios"])})
    from penstock.spark import session

    conf = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": str(QUEUES)}
    if order.jars:
        conf["spark.jars"] = order.jars
    with tempfile.TemporaryDirectory() as scratch:
        spark = session("bench", master=order.master, conf=conf | {"spark.local.dir": scratch})
        job = Job(order, spark)
        if order.kafka:
            fill_kafka(job)
        for run in job.runs():
            print(json.dumps(asdict(run)), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
