"""The telemetry job: reads queues, makes windows, shows each batch, and keeps them in a folder if one is given.

The same job runs in a terminal, behind the demo and under ``spark-submit``, which then says where it runs. It waits on
Spark; what it computes is in ``decode`` and ``windows``. Bad payloads are counted in the windows' ``refused`` and, with
an output folder, put aside there; they never end the job.
"""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidConfig
from penstock.protocol.addresses import SERVERS
from penstock.spark.causes import plain_errors
from penstock.telemetry.windows import WATERMARK, WINDOW, refused, windows
from penstock.world import pause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Batch = Mapping[str, Any]
OnBatch = Callable[[Batch], None]

_LOOK_EVERY_S: Final = 1
_IDLE_LOOKS: Final = 40
_IDLE_EVERY_S: Final = 0.05
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SHORT: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_LONG: Final = re.compile(r"\d+\s+(millisecond|second|minute|hour|day)s?")


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options that all jobs have: what a query reads, and when.

    Attributes:
        servers: name servers, ``host:port`` with commas between.
        topic: broker topics to read, with commas between.
        every: pause between batches.
        starting_offsets: where a fresh job begins, as the source's option.
        once: read what is there now and end.
        rows_per_batch: most rows of one batch.
        fail_on_data_loss: whether messages that retention removed end the job.
        light: whether Spark starts in the form for a few hundred rows (``penstock.spark.session``).
    """

    servers: str = SERVERS
    topic: str = "telemetry"
    every: str = "1 second"
    starting_offsets: str = "earliest"
    once: bool = False
    rows_per_batch: int = 1_000_000
    fail_on_data_loss: bool = True
    light: bool = False

    def of_source(self) -> dict[str, str]:
        """The source's options."""
        return {
            "servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": self.starting_offsets,
            "maxOffsetsPerTrigger": str(self.rows_per_batch),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }

    def trigger(self) -> dict[str, Any]:
        """The arguments of Spark's ``trigger``. Raises ``InvalidConfig`` for a pause that is no length of time."""
        return {"availableNow": True} if self.once else {"processingTime": spark_interval(self.every)}


@dataclass(frozen=True, slots=True)
class JobOptions(QueryOptions):
    """Options of the windows job.

    Attributes:
        window, watermark: length of a window, and how late a reading may be ("10s" or "10 seconds").
        out: folder for parquet: finished windows in ``windows``, bad payloads in ``refused``; none if empty.
        checkpoint: folder of the job's progress; by default within ``out``, else none is kept.
    """

    window: str = WINDOW
    watermark: str = WATERMARK
    out: Path | None = None
    checkpoint: Path | None = None


def run(options: JobOptions, spark: SparkSession, on_batch: OnBatch) -> None:
    """Runs the job until it is done, or until SIGINT or SIGTERM.

    Args:
        options: what to do.
        spark: a session that knows the source (``penstock.spark.session``).
        on_batch: takes each batch that has rows: ``{"batch": 3, "rows": [...], "refused": 0}``.

    Raises:
        PenstockError: why the job ended, when it ended by itself.
    """
    with contextlib.ExitStack() as stack:
        checkpoint = options.checkpoint or (options.out / "checkpoint" if options.out else None)
        if checkpoint is None:
            scrap = tempfile.TemporaryDirectory(prefix="penstock-telemetry-", ignore_cleanup_errors=True)
            checkpoint = Path(stack.enter_context(scrap))
        stopped = stack.enter_context(stop_signals())
        queries = start(options, spark, on_batch, checkpoint)
        try:
            wait_for(queries, stopped)
        finally:
            stop_queries(queries)


def start(options: JobOptions, spark: SparkSession, on_batch: OnBatch, checkpoint: Path) -> list[StreamingQuery]:
    """Starts the job's queries: one that shows, and two that keep where there is an output folder."""
    found = readings(options, spark)
    made = windows(found, spark_interval(options.window), spark_interval(options.watermark))
    shown = made.writeStream.outputMode("update").foreachBatch(_shower(on_batch))
    plans = [("shown", shown)]
    if options.out is not None:
        for name, frame in (("windows", made), ("refused", refused(found))):
            writer = frame.writeStream.outputMode("append").format("parquet").option("path", str(options.out / name))
            plans.append((name, writer))
    queries: list[StreamingQuery] = []
    for name, plan in plans:
        plan = plan.queryName(f"penstock-{name}").option("checkpointLocation", str(checkpoint / name))
        queries.append(plan.trigger(**options.trigger()).start())
    return queries


def readings(options: JobOptions, spark: SparkSession) -> DataFrame:
    """The readings that the job reads."""
    return spark.readStream.format("penstock").options(**options.of_source(), payload="readings").load()


def spark_interval(text: str) -> str:
    """``10s`` as Spark writes it, ``10 seconds``. Raises ``InvalidConfig``."""
    short = _SHORT.fullmatch(text.strip())
    if short:
        return f"{short[1]} {_UNITS[short[2]]}"
    if not _LONG.fullmatch(text.strip()):
        raise InvalidConfig(f"{text!r} is no length of time", hint="write 500ms, 10s, 5m, 1h or 1d")
    return text.strip()


def batch_of(rows: list[dict[str, Any]], number: int) -> Batch:
    """A batch as it is handed over: its windows in order, times as text, and how many payloads were refused."""
    rows = sorted(rows, key=lambda row: (row["window_start"], row["device"] or "", row["metric"] or ""))
    shown = [
        row | {"window_start": _moment(row["window_start"]), "window_end": _moment(row["window_end"])}
        for row in rows
        if row["count"]
    ]
    return {"batch": number, "rows": shown, "refused": sum(row["refused"] for row in rows)}


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shower(on_batch: OnBatch) -> Callable[[DataFrame, int], None]:
    def show(frame: DataFrame, number: int) -> None:
        batch = batch_of(frame.toArrow().to_pylist(), number)
        if batch["rows"] or batch["refused"]:
            on_batch(batch)

    return show


def wait_for(queries: list[StreamingQuery], stopped: Callable[[], bool]) -> None:
    """Waits until all queries have ended or the stop is asked for. Raises what ended a query."""
    with plain_errors():
        while not stopped() and any(query.isActive for query in queries):
            for query in queries:
                query.awaitTermination(_LOOK_EVERY_S)  # raises what ended it
        for query in queries:
            if not stopped():
                query.awaitTermination(_LOOK_EVERY_S)


def stop_queries(queries: list[StreamingQuery]) -> None:
    """Stops each query between two batches if one ends soon: within a batch Spark would complain of being stopped."""
    for query in queries:
        for _ in range(_IDLE_LOOKS):
            if not query.isActive or not query.status["isTriggerActive"]:
                break
            pause(_IDLE_EVERY_S)
        query.stop()


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Whether a stop was requested. It is a flag because an exception would come in the middle of a call to Java."""
    seen: list[int] = []
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in kept:
        signal.signal(number, lambda came, _frame: seen.append(came))
    try:
        yield lambda: bool(seen)
    finally:
        for number, before in kept.items():
            signal.signal(number, before)
