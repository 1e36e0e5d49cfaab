"""Spark's writers of batches and streams: Arrow batches in, messages stored.

Spark runs ``write`` in workers, once for each partition, and again where a task failed, is suspected to be slow, or its
batch is repeated after a crash. Each row has a number that follows from the query, its batch and the partition, so a
broker stores it once. The commit has nothing to do: stored rows are visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import InternalError, InvalidConfig
from penstock.spark.briefly import briefly
from penstock.spark.sink.numbers import Task
from penstock.spark.sink.options import SinkOptions, check_columns
from penstock.spark.sink.sending import write_rows
from penstock.world import new_rng

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class Written(WriterCommitMessage):
    """A task's message to the driver. ``rows``: number of stored rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Writer of a frame. A write without an id gets one of its own, which all its tasks share."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write = options.write_id or f"write-{new_rng().getrandbits(128):032x}"

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stores the rows of a partition. Raises as ``write_rows``."""
        task = Task(self._write, self._options.write_batch, _context().partitionId())
        return Written(write_rows(iterator, self._options, task))


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """Writer of a streaming query's batches; the checkpoint names the query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stores the rows of a partition of a batch. Raises as ``write_rows``."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or batch is None:
            raise InternalError("Spark does not say which query and batch this is")
        return Written(write_rows(iterator, self._options, Task(query, int(batch), context.partitionId())))


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Raises ``InvalidConfig`` unless rows of this schema are messages."""
    check_columns({field.name: field.dataType.simpleString() for field in schema}, options)


def check_mode(overwrite: bool) -> None:
    """Raises ``InvalidConfig`` for a write that would replace a topic's messages."""
    if overwrite:
        raise InvalidConfig("a topic is a log: nothing in it is overwritten", hint='write with mode("append")')


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InternalError("rows are written in Spark's tasks only")
    return context
