"""Runs a job of the catalog as one query: reads, computes, writes each batch to its outputs or hands its rows over.

The query's progress and a fold's state are in the checkpoint. An output is written within the batch; a batch that Spark
repeats after a crash is written again (``outputs`` says which outputs recognise it).
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidConfig
from penstock.telemetry.caching import cached
from penstock.telemetry.catalog import REGISTRY, Job
from penstock.telemetry.job import Batch, OnBatch, QueryOptions, stop_queries, stop_signals, wait_for
from penstock.telemetry.jobs.messages import check_places
from penstock.telemetry.outputs import Messages, Output, ParquetFolder, kind_of, output_of
from penstock.telemetry.progress import Progress
from penstock.telemetry.slots import StateSlots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OnProgress = Callable[[Progress], None]
_OF_OPTIONS: Final = {REGISTRY, "percentiles"}
"""Options that give a job further columns."""


@dataclass(frozen=True, slots=True)
class RunOptions(QueryOptions):
    """Options of a job of the catalog.

    Attributes:
        out: outputs (``outputs.KINDS``); without one the rows are handed over.
        checkpoint: folder of the job's progress; by default within the first output that is a folder.
        packages, conf: Maven packages (``group:name:version``) and settings (``name=value``) of the session to start.
        given: the job's own options.
    """

    out: tuple[str, ...] = ()
    checkpoint: str = ""
    packages: tuple[str, ...] = ()
    conf: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)


def outputs_of(job: Job, options: RunOptions) -> list[Output]:
    """The outputs of a run. Raises ``InvalidConfig`` for an illegal one, and for a topic that the job reads."""
    found = [output_of(one, job.name, job.keys, options.servers, job.partition) for one in options.out]
    read = {one.strip() for one in options.topic.split(",")}
    for text, one in zip(options.out, found, strict=True):
        if getattr(one, "topic", None) in read:
            raise InvalidConfig(f"{text}: the job reads this topic, and would read what it writes")
        if isinstance(one, Messages) and not _OF_OPTIONS.intersection(own.name for own in job.options):
            check_places(text, job.columns)
    if any(not isinstance(one, ParquetFolder) for one in found) and not checkpoint_of(job, options):
        told = "--checkpoint FOLDER is needed: without it, each start would read and write all again"
        raise InvalidConfig(told)
    return found


def checkpoint_of(job: Job, options: RunOptions) -> str:
    """The folder of a run's progress; empty for a temporary one."""
    if options.checkpoint:
        return options.checkpoint
    folders = [one for one in options.out if not kind_of(one)]
    return f"{folders[0].rstrip('/')}/checkpoint/{job.name}" if folders else ""


def run(
    job: Job,
    options: RunOptions,
    spark: SparkSession,
    on_batch: OnBatch,
    on_progress: OnProgress = lambda progress: None,
) -> Progress:
    """Runs a job until it is done, or until SIGINT or SIGTERM; returns its progress.

    Args:
        job: an entry of the catalog.
        options: the options of the run.
        spark: a session that knows the source.
        on_batch: takes each batch that has rows: ``{"batch": 3, "rows": [...], "count": 7}``; ``rows`` is empty where
            they go to outputs.
        on_progress: called once a second.

    Raises:
        PenstockError: the cause, if the job failed.
    """
    outputs = outputs_of(job, options)
    for one in outputs:
        one.check(spark)
    progress = Progress()
    with contextlib.ExitStack() as stack:
        checkpoint = checkpoint_of(job, options) or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="penstock-telemetry-", ignore_cleanup_errors=True)
        )
        stopped = stack.enter_context(stop_signals())
        query = start(job, options, spark, _Sink(outputs, on_batch), checkpoint)

        def look() -> bool:
            progress.add(_reports(query))
            on_progress(progress)
            return stopped()

        try:
            wait_for([query], look)
            progress.add(_reports(query))
        finally:
            stop_queries([query])
    return progress


def _reports(query: StreamingQuery) -> Sequence[Mapping[str, Any]]:
    return [json.loads(one.json) for one in query.recentProgress]


def start(job: Job, options: RunOptions, spark: SparkSession, sink: _Sink, checkpoint: str) -> StreamingQuery:
    """Starts the job's query."""
    rows = source(job, spark.readStream, options.of_source())
    mode = job.mode if not sink.outputs or not job.is_final else "append"
    if job.fold is None:
        assert job.make is not None
        writer = job.make(rows, filled(job, options, spark)).writeStream.outputMode(mode).foreachBatch(sink.write)
    else:
        slots = StateSlots(spark, f"{checkpoint}/state", job.state)
        writer = rows.writeStream.foreachBatch(_folder(job, filled(job, options, spark), slots, sink))
    writer = writer.queryName(f"penstock-{job.name}").option("checkpointLocation", f"{checkpoint}/query")
    return writer.trigger(**options.trigger()).start()


def source(job: Job, reader: Any, given: Mapping[str, str]) -> DataFrame:
    """The rows that a job reads; ``reader`` is a session's ``read`` or ``readStream``, ``given`` the source's options
    but for those of columns."""
    chosen = {"columns": ",".join(job.reads)} if job.reads else {"payload": "readings"}
    rows: DataFrame = reader.format("penstock").options(**given, **chosen).load()
    return rows


def filled(job: Job, options: RunOptions, spark: SparkSession) -> Mapping[str, Any]:
    """The job's own options with their defaults; the registry as a table."""
    given = {one.name: one.default for one in job.options} | dict(options.given)
    if REGISTRY in given:
        from penstock.telemetry.registries import registry

        given[REGISTRY] = registry(given[REGISTRY], spark, options.servers)
    return given


class _Sink:
    """Where a query's batches go."""

    def __init__(self, outputs: Sequence[Output], on_batch: OnBatch) -> None:
        self.outputs = outputs
        self._on_batch = on_batch

    def write(self, rows: DataFrame, number: int) -> None:
        """Takes a batch."""
        if not self.outputs:
            shown = [told(row) for row in rows.toArrow().to_pylist()]
            if shown:
                self._on_batch(batch_of(shown, number))
            return
        with cached(rows) as kept:
            count = kept.count()
            for one in self.outputs:
                if count:
                    one.write(kept, number)
            if count:
                self._on_batch({"batch": number, "rows": [], "count": count})


def batch_of(rows: list[dict[str, Any]], number: int) -> Batch:
    """A batch as it is handed over: its rows in order."""
    ordered = sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row.values()])
    return {"batch": number, "rows": ordered, "count": len(rows)}


def told(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON can have it: times and bytes as text."""
    return {name: _told(value) for name, value in row.items()}


def _told(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _folder(job: Job, given: Mapping[str, Any], slots: StateSlots, sink: _Sink) -> Callable[[DataFrame, int], None]:
    assert job.fold is not None
    fold = job.fold

    def write(batch: DataFrame, number: int) -> None:
        with cached(batch) as rows:
            found = fold(rows, slots.before(number), given)
            with cached(found.rows):
                sink.write(found.events, number)
                slots.write(found.state, number)

    return write
