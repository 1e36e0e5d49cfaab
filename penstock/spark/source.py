"""``format("penstock")`` for Spark's Python data source API: the batch reader and the stream reader.

They translate between Spark's calls and ``cluster``, ``offsets``, ``planning`` and ``fetch``. Spark asks for offsets
in one long-lived process per query and reads in others, so what reading needs is in the partition and the options; no
connection is ever pickled. Spark writes the end of a batch to its checkpoint before it runs the batch and asks for the
same range again after a crash: a range always gives the same rows, for only committed messages are read.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidConfig, PenstockError
from penstock.spark.briefly import briefly, hide_traceback
from penstock.spark.cluster import Cluster
from penstock.spark.fetch import read_ranges
from penstock.spark.group import GroupPosition
from penstock.spark.offsets import (
    Extent,
    Extents,
    Offsets,
    Places,
    QueueKey,
    advance,
    logs_in,
    logs_of,
    seen_before,
    to_offsets,
    to_places,
)
from penstock.spark.options import SourceOptions, check, columns_of, parse, payload_of
from penstock.spark.planning import (
    Range,
    Shape,
    in_these_logs,
    not_beyond,
    of_subscription,
    pack,
    ranges_between,
    spread,
)
from penstock.spark.sink.options import parse as sink_options
from penstock.spark.sink.writers import BatchWriter, StreamWriter, check_mode, check_schema
from penstock.spark.tables import asked, chosen, is_creating, keep, kept, spark_types
from penstock.spark.values import Bound
from penstock.spark.where import END
from penstock.world import Clock, RealClock

PARTITIONS_PER_CORE = 3

if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
    gc.collect()  # Spark collects all garbage after every task: what is loaded by now need not be looked at each time
    gc.freeze()


class PenstockSource(DataSource):  # type: ignore[misc, unused-ignore]
    """The source's front: options in, readers out.

    Attributes:
        cores: of the cluster that it is shipped to; 0: as many as the machine has that plans a query.
    """

    cores = 0

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "penstock"

    @briefly
    def schema(self) -> StructType:
        """The chosen columns of messages, or those of readings."""
        options = asked(self.options)
        check(options)
        types = spark_types(columns_of(options), *payload_of(options))
        return keep(types, options) if is_creating(self.options) else types

    @briefly
    def reader(self, schema: StructType | None) -> BatchReader:
        """Reader of a batch."""
        return BatchReader(self._parsed(schema, stream=False))

    def streamReader(self, schema: StructType | None) -> StreamReader | RefusedStream:
        """Reader of a stream; one that raises later if the options are wrong, for here pyspark loses errors."""
        try:
            return StreamReader(self._parsed(schema, stream=True))
        except InvalidConfig as error:
            return RefusedStream(error)

    @briefly
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Writer of a frame. Raises ``InvalidConfig`` before anything is written."""
        check_mode(overwrite)
        options = sink_options(self.options, stream=False)
        check_schema(schema, options)
        return BatchWriter(options)

    @briefly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Writer of a stream; in mode ``complete`` (``overwrite``) each batch sends all rows, as Kafka's sink does."""
        options = sink_options(self.options, stream=True)
        check_schema(schema, options)
        return StreamWriter(options)

    def _parsed(self, schema: StructType | None, *, stream: bool) -> SourceOptions:
        options = parse(kept(schema) | dict(asked(self.options)), stream=stream)
        said = (options.payload, options.payload_schema, options.payload_message)
        columns = chosen(schema, options.columns, *said)
        most = options.partitions_max or PARTITIONS_PER_CORE * (self.cores or os.cpu_count() or 1)
        return replace(options, partitions_max=most, columns=columns)


class Partition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The ranges that one Spark task reads."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def _partitions(ranges: Sequence[Range], options: SourceOptions) -> list[InputPartition]:
    shape = Shape(options.target_rows, options.partitions_min, options.partitions_max)
    return [Partition(part) for part in spread(pack(ranges, shape))]


def _rows(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Partition)
    try:
        yield from read_ranges(partition.ranges, options)
    except PenstockError:
        hide_traceback(os.environ)
        raise


class BatchReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """Reads what lies between the starting and the ending offsets when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @briefly
    def partitions(self) -> list[InputPartition]:
        """Asks the servers and cuts. Raises ``NoRoute``, ``BrokerAway``, ``OffsetOutOfRange``, ``LogReplaced``,
        ``InvalidConfig``, ``Unavailable``."""
        cluster = Cluster(self._options)
        try:
            extents = cluster.extents()
            starts, ends = cluster.starts(extents), cluster.places(self._options.ending, extents)
            if self._options.ending.by == "time":  # may lie before the start: then there is nothing to read
                ends = {key: max(offset, starts[key]) for key, offset in ends.items()}
            starts, ends = self._narrowed(cluster, starts, ends, extents)
        finally:
            cluster.close()
        loss = self._options.fail_on_data_loss
        ranges = ranges_between(starts, ends, extents, fail_on_data_loss=loss)
        return _partitions(ranges, self._options) or [Partition(())]  # Spark reads one even where there is none

    def _narrowed(self, cluster: Cluster, starts: Places, ends: Places, extents: Extents) -> tuple[Places, Places]:
        """The part of each queue that the option ``where`` selects."""
        where = self._options.where
        first, last = where.times
        earliest = cluster.places(Bound("time", first), extents) if first else {}
        latest = cluster.places(Bound("time", last), extents) if last < END else {}
        begin: Places = {}
        until: Places = {}
        for key in extents:
            start, end = where.between(starts[key], ends[key])
            begin[key] = max(start, earliest.get(key, 0))
            until[key] = max(begin[key], min(end, latest.get(key, end)))
        return begin, until

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a partition."""
        return _rows(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """Reads on and on, batch by batch.

    A start that depends on the moment (latest, a time) must not be asked for again after a crash, and Spark keeps only
    the *ends* of batches. So the first batch of such a query is empty: its end is the start, and is checkpointed.
    """

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or RealClock()
        self._cluster: Cluster | None = None
        self._position: GroupPosition | None = None
        self._batch_due = 0.0  # from when on a batch need not have the rows that it awaits
        self._target: dict[QueueKey, Extent] | None = None  # of a run that reads what is there now, and ends
        self._start_unlogged = False
        self._initial: Offsets | None = None
        self._latest: Offsets | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``."""
        rows = self._options.rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:
        """From here on nothing newer is read, and no queue that appears later."""
        self._target = self._extents()

    @briefly
    def initialOffset(self) -> Offsets:
        """Where a fresh query begins; Spark asks twice and gets the same answer."""
        if self._initial is None:
            self._start_unlogged = self._options.starting.of_the_moment
            extents = self._seen()
            self._initial = to_offsets(self._asked().starts(extents), logs_of(extents))
        return self._initial

    @briefly
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """How far the next batch reads. Raises ``BrokerAway`` and ``Unavailable`` where patience is over,
        ``OffsetOutOfRange`` and ``LogReplaced`` for what is lost."""
        if self._start_unlogged:
            self._start_unlogged = False
            return start
        loss, logs = self._options.fail_on_data_loss, logs_in(start)
        places = of_subscription(to_places(start), self._asked().reads, fail_on_data_loss=loss)
        extents = seen_before(self._seen(() if self._options.allow_incomplete else places), places, logs)
        begin = in_these_logs(places, logs, extents, fail_on_data_loss=loss)
        begin = not_beyond(begin, extents, fail_on_data_loss=loss)
        if self._options.group:
            self._told().reached(begin, extents)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        logs, ends = {**logs, **logs_of(extents)}, advance(begin, extents)
        self._latest = to_offsets(ends, logs)
        if self._awaits_more(begin, ends):
            return start
        return to_offsets(advance(begin, extents, rows_max), logs)

    def reportLatestOffset(self) -> Offsets | None:
        """The ends that were seen last, for the query's progress."""
        return self._latest

    @briefly
    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Cuts a batch. After a crash this is the first call, so loss is looked for here. Raises as
        ``latestOffset``."""
        if self._start_unlogged:
            # Spark repeats the first batch of a run that died, with a start that it asked for anew: it was empty.
            self._start_unlogged = False
            return []
        if start == end:
            return []
        loss, first, last = self._options.fail_on_data_loss, to_places(start), to_places(end)
        cluster = self._asked()
        of_subscription(first, cluster.reads, fail_on_data_loss=loss)
        last = of_subscription(last, cluster.reads, fail_on_data_loss=loss)
        extents = self._extents([key for key in last if first.get(key, 0) != last[key]])
        extents = seen_before(extents, last, logs_in(end))
        logs = {"start_logs": logs_in(start), "end_logs": logs_in(end)}
        return _partitions(ranges_between(first, last, extents, fail_on_data_loss=loss, **logs), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a partition."""
        return _rows(partition, self._options)

    def stop(self) -> None:
        """Closes the connections; Spark does not always call this."""
        if self._cluster is not None:
            self._cluster.close()

    def _awaits_more(self, begin: Places, ends: Places) -> bool:
        """Whether a batch waits for more rows; a run that ends does not."""
        waiting = sum(end - begin.get(key, end) for key, end in ends.items())
        now = self._clock.monotonic()
        if not self._options.rows_awaited or self._target is not None:
            return False
        if waiting < self._options.rows_awaited and now < self._batch_due:
            return True
        self._batch_due = now + self._options.delay_s if waiting else self._batch_due
        return False

    def _told(self) -> GroupPosition:
        if self._position is None:
            self._position = GroupPosition(self._options.group, self._asked().tell, self._clock)
        return self._position

    def _asked(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _extents(self, needed: Iterable[QueueKey] = ()) -> dict[QueueKey, Extent]:
        return self._asked().extents(missing_ok=True, needed=needed)

    def _seen(self, needed: Iterable[QueueKey] = ()) -> Mapping[QueueKey, Extent]:
        """The queues as they are now, or were when a run began that reads what was there then."""
        if self._target is None:
            return self._extents(needed)
        missing = [key for key in needed if key not in self._target]
        if missing:  # of a broker that has come since, else it is gone
            now = self._extents(missing)
            self._target |= {key: now[key] for key in missing if key in now}
        return self._target


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc, unused-ignore]
    """A stream that cannot begin, for its options are wrong: it says why when Spark asks for offsets."""

    def __init__(self, error: InvalidConfig) -> None:
        self._error = error

    @briefly
    def initialOffset(self) -> NoReturn:
        """Raises ``InvalidConfig``."""
        raise self._error

    @briefly
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> NoReturn:
        """Raises ``InvalidConfig``."""
        raise self._error

    @briefly
    def partitions(self, start: Offsets, end: Offsets) -> NoReturn:
        """Raises ``InvalidConfig``."""
        raise self._error

    @briefly
    def read(self, partition: InputPartition) -> NoReturn:
        """Raises ``InvalidConfig``."""
        raise self._error
