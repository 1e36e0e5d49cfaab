"""Scenarios of a busy stream: the latency of a published message, and the memory of many batches."""

from __future__ import annotations

import os
import queue
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from loadtest import proc
from loadtest.spark.messages import QUEUES

if TYPE_CHECKING:
    from loadtest.spark.job import Job, Run

Publish = Callable[[Sequence[bytes]], None]
Rows = queue.Queue[tuple[float, bytes]]
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.25
"""Between a row and the next message, a part of it by the message's number: batches are met at all their moments."""
SOAK_ROWS: Final = 50


def runs(job: Job, scenario: str) -> Iterator[Run]:
    """The runs of ``live`` or of ``soak``."""
    from loadtest.spark.job import LIVE, SOAK, Run

    for source in ("penstock", *(["kafka"] if job.order.kafka and scenario == LIVE else [])):
        run, topic = Run(scenario, source, 1), f"{scenario}-{os.getpid()}"
        try:
            with publishing(job, source, topic) as publish, streaming(job, source, topic) as rows:
                (live if scenario != SOAK else soak)(job, run, publish, rows)
        except Exception as error:
            run.error = str(error).strip().splitlines()[0][:300] or type(error).__name__
        yield run


@contextmanager
def publishing(job: Job, source: str, topic: str) -> Iterator[Publish]:
    """``publish(bodies)``, which spreads them over the queues and returns when the server has them."""
    if source == "penstock":
        from penstock import Message
        from penstock.blocking import Producer

        with Producer(servers=job.order.servers) as producer:
            yield lambda bodies: _drop(producer.send_many([Message(topic, body, key=body.decode()) for body in bodies]))
        return
    java = job.spark._jvm
    settings = java.java.util.Properties()
    for name, value in (("bootstrap.servers", job.order.kafka), ("acks", "all"), ("linger.ms", "0")):
        settings.put(name, value)
    coded = java.org.apache.kafka.common.serialization.ByteArraySerializer
    producer = java.org.apache.kafka.clients.producer.KafkaProducer(settings, coded(), coded())
    record = java.org.apache.kafka.clients.producer.ProducerRecord

    def publish(bodies: Sequence[bytes]) -> None:
        for sent in [producer.send(record(topic, zlib.crc32(body) % QUEUES, None, bytearray(body))) for body in bodies]:
            sent.get()

    try:
        yield publish
    finally:
        producer.close()


def _drop(receipts: Any) -> None:
    len(receipts)


@contextmanager
def streaming(job: Job, source: str, topic: str) -> Iterator[Rows]:
    """A stream of the topic with trigger 0: its rows, with the time of each."""
    came: Rows = queue.Queue()

    def take(frame: Any, number: int) -> None:
        values = frame.select("value").toArrow().column(0).to_pylist()
        now = time.monotonic()
        for value in values:
            came.put((now, bytes(value)))

    kind = "kafka" if source == "kafka" else "penstock"
    servers = {"kafka.bootstrap.servers": job.order.kafka} if source == "kafka" else {"servers": job.order.servers}
    reader = job.spark.readStream.format(kind).options(**servers, subscribe=topic, startingOffsets="earliest")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            yield came
        finally:
            while query.isActive and query.status["isTriggerActive"] and query.status["isDataAvailable"]:
                time.sleep(0.01)  # within a batch Spark would complain of being stopped
            query.stop()


def live(job: Job, run: Run, publish: Publish, rows: Rows) -> None:
    """Each message is published when the one before is a row."""
    from loadtest.spark.job import LIVE_WARM

    took: list[float] = []
    for number in range(LIVE_WARM + job.order.live_messages):
        begin = time.monotonic()
        publish([b"%d" % number])
        at, seen = rows.get(timeout=PATIENCE_S)
        _check(seen == b"%d" % number)
        if number >= LIVE_WARM:
            took.append(at - begin)
        time.sleep(PAUSE_S * (number * 7 % 10) / 10)
    took.sort()
    run.rows, run.seconds = len(took), sum(took)
    run.figures = {"p50_s": statistics.median(took), "p95_s": took[len(took) * 95 // 100]}


def soak(job: Job, run: Run, publish: Publish, rows: Rows) -> None:
    """Many batches; memory of Spark's Python workers, and of Java's live objects, after a part of them and at the
    end."""
    from loadtest.spark.job import SOAK_WARM

    begin, looks = time.monotonic(), list[dict[str, float]]()
    for number in range(job.order.soak_batches):
        bodies = [b"%d-%d" % (number, row) for row in range(SOAK_ROWS)]
        publish(bodies)
        _check({rows.get(timeout=PATIENCE_S)[1] for _ in bodies} == set(bodies))
        if number in (job.order.soak_batches * SOAK_WARM // 100, job.order.soak_batches - 1):
            looks.append(_memory(job))
    run.rows, run.seconds = job.order.soak_batches * SOAK_ROWS, time.monotonic() - begin
    first, last = looks
    run.figures = {f"{name}_first": value for name, value in first.items()} | last
    run.figures["python_growth"] = last["python_mib"] / first["python_mib"]
    run.figures["java_growth"] = last["java_mib"] / first["java_mib"]


def _memory(job: Job) -> dict[str, float]:
    java = job.spark._jvm.java.lang
    for _ in range(3):
        java.System.gc()
    runtime = java.Runtime.getRuntime()
    pids = [pid for pid in proc.tree(os.getpid())[1:] if _is_python(pid)]
    live_bytes = runtime.totalMemory() - runtime.freeMemory()
    return {"python_mib": proc.rss_bytes(pids) / 2**20, "java_mib": live_bytes / 2**20, "workers": float(len(pids))}


def _is_python(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().startswith("python")
    except OSError:
        return False


def _check(is_right: bool) -> None:
    if not is_right:
        raise ValueError("another row came than the one that was published")
