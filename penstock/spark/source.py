"""``format("penstock")`` for Spark's Python data source API: the batch reader and the stream reader.

They translate between Spark's calls and ``cluster``, ``offsets``, ``planning`` and ``fetch``. Spark asks for offsets
in one long-lived process per query and reads in others, so what reading needs is in the partition and the options; no
connection is ever pickled. Spark writes the end of a batch to its checkpoint before it runs the batch and asks for the
same range again after a crash: a range always gives the same rows, for only committed messages are read.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.cluster import Cluster
from penstock.spark.columns import spark_schema
from penstock.spark.fetch import read_ranges
from penstock.spark.offsets import Extent, Offsets, QueueKey, advance, to_offsets, to_places
from penstock.spark.options import SourceOptions, columns_of, parse
from penstock.spark.planning import Range, Shape, not_beyond, pack, ranges_between
from penstock.telemetry.decode import READING_SCHEMA

PARTITIONS_PER_CORE = 3

if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
    gc.collect()  # Spark collects all garbage after every task: what is loaded by now need not be looked at each time
    gc.freeze()


class PenstockSource(DataSource):  # type: ignore[misc, unused-ignore]
    """The source's front: options in, readers out."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "penstock"

    def schema(self) -> str:
        """The chosen columns of messages, or those of readings."""
        columns = columns_of(self.options)
        return READING_SCHEMA if self.options.get("payload") == "readings" else spark_schema(columns)

    def reader(self, schema: Any) -> BatchReader:
        """Reader of a batch."""
        return BatchReader(parse(self.options, stream=False))

    def streamReader(self, schema: Any) -> StreamReader:
        """Reader of a stream."""
        return StreamReader(parse(self.options, stream=True))


class Partition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The ranges that one Spark task reads."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def _partitions(ranges: Sequence[Range], options: SourceOptions) -> list[InputPartition]:
    most = options.partitions_max or PARTITIONS_PER_CORE * (os.cpu_count() or 1)
    shape = Shape(options.target_rows, options.partitions_min, most)
    return [Partition(part) for part in pack(ranges, shape)]


class BatchReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """Reads what lies between the starting and the ending offsets when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Asks the servers and cuts. Raises ``NoRoute``, ``OffsetOutOfRange``, ``InvalidConfig``, ``Unavailable``."""
        cluster = Cluster(self._options)
        try:
            extents = cluster.extents()
            starts, ends = cluster.starts(extents), cluster.places(self._options.ending, extents)
        finally:
            cluster.close()
        if self._options.ending.by == "time":  # may lie before the start: then there is nothing to read
            ends = {key: max(offset, starts[key]) for key, offset in ends.items()}
        loss = self._options.fail_on_data_loss
        return _partitions(ranges_between(starts, ends, extents, fail_on_data_loss=loss), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a partition."""
        assert isinstance(partition, Partition)
        return read_ranges(partition.ranges, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """Reads on and on, batch by batch.

    A start that depends on the moment (latest, a time) must not be asked for again after a crash, and Spark keeps only
    the *ends* of batches. So the first batch of such a query is empty: its end is the start, and is checkpointed.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._target: dict[QueueKey, Extent] | None = None  # of a run that reads what is there now, and ends
        self._start_unlogged = False
        self._initial: Offsets | None = None
        self._latest: Offsets | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``."""
        rows = self._options.rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """From here on nothing newer is read, and no queue that appears later."""
        self._target = self._extents()

    def initialOffset(self) -> Offsets:
        """Where a fresh query begins; Spark asks twice and gets the same answer."""
        if self._initial is None:
            self._start_unlogged = self._options.starting.of_the_moment
            self._initial = to_offsets(self._asked().starts(self._seen()))
        return self._initial

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """How far the next batch reads."""
        if self._start_unlogged:
            self._start_unlogged = False
            return start
        extents = self._seen()
        begin = not_beyond(to_places(start), extents, fail_on_data_loss=self._options.fail_on_data_loss)
        self._latest = to_offsets(advance(begin, extents))
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_offsets(advance(begin, extents, rows_max))

    def reportLatestOffset(self) -> Offsets | None:
        """The ends that were seen last, for the query's progress."""
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Cuts a batch. After a crash this is the first call, so loss is looked for here. Raises
        ``OffsetOutOfRange``."""
        if self._start_unlogged:
            # Spark repeats the first batch of a run that died, with a start that it asked for anew: it was empty.
            self._start_unlogged = False
            return []
        if start == end:
            return []
        ranges = ranges_between(
            to_places(start), to_places(end), self._extents(), fail_on_data_loss=self._options.fail_on_data_loss
        )
        return _partitions(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a partition."""
        assert isinstance(partition, Partition)
        return read_ranges(partition.ranges, self._options)

    def stop(self) -> None:
        """Closes the connections; Spark does not always call this."""
        if self._cluster is not None:
            self._cluster.close()

    def _asked(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _extents(self) -> dict[QueueKey, Extent]:
        return self._asked().extents(missing_ok=True)

    def _seen(self) -> Mapping[QueueKey, Extent]:
        return self._extents() if self._target is None else self._target
