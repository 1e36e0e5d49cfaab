"""The lag of streams per queue, from Spark's progress reports.

Spark takes no metrics from a Python source, but its reports have the offsets where a batch ended and the ends of the
queues then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.errors import InvalidConfig
from penstock.spark.offsets import QueueLag, lags_of


class QueryLag(NamedTuple):
    """Progress of a running query: after each batch, and while it waits for one.

    Attributes:
        query, name: its id and name.
        batch: the number of the batch.
        rows: rows of the batch, of all its sources.
        rows_per_s: rows that it processes in a second.
        queues: each queue of its Penstock sources.
    """

    query: str
    name: str
    batch: int
    rows: int
    rows_per_s: float
    queues: tuple[QueueLag, ...]

    @property
    def lag(self) -> int:
        """That of all queues."""
        return sum(one.lag for one in self.queues)


def lag_of(progress: Any) -> QueryLag:
    """The lag of a query, from ``query.lastProgress`` or a listener's ``event.progress``.

    Args:
        progress: pyspark's object, or the dictionary of its JSON.

    Raises:
        InvalidConfig: there is no progress yet.
    """
    if progress is None:
        hint = "lastProgress is None until its first batch ends"
        raise InvalidConfig("the query has no progress yet", hint=hint)
    told = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    queues = [lag for source in told.get("sources", ()) for lag in lags_of(source)]
    return QueryLag(
        str(told.get("id", "")),
        str(told.get("name") or ""),
        int(told.get("batchId", -1)),
        int(told.get("numInputRows", 0) or sum(int(one.get("numInputRows", 0)) for one in told.get("sources", ()))),
        float(told.get("processedRowsPerSecond") or 0.0),
        tuple(sorted(queues)),
    )


class LagListener(StreamingQueryListener):
    """Listener that keeps the latest progress of each query of a session:
    ``spark.streams.addListener(LagListener(print))``.

    Args:
        on_lag: called with each progress, in a thread of Spark's; it must not wait.
    """

    def __init__(self, on_lag: Callable[[QueryLag], object] | None = None) -> None:
        super().__init__()
        self._on_lag = on_lag
        self.queries: dict[str, QueryLag] = {}
        """The latest progress of each running query, by its id."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The query has no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        found = lag_of(event.progress)
        self.queries[found.query] = found
        if self._on_lag is not None:
            self._on_lag(found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """The query found nothing to read; its latest progress stays."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query has ended; its progress is dropped."""
        self.queries.pop(str(event.id), None)
