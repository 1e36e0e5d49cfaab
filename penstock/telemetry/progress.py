"""Progress of a running query, from Spark's reports of its batches: rows, lag, late readings.

Pure but for ``show``, which draws one line on a terminal, and nothing into a file or a pipe, and for ``working``, which
also starts and ends Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from penstock.spark.offsets import lags_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Line(Protocol):
    """A line that can be drawn anew (``rich.status.Status``)."""

    def update(self, status: str, /) -> None: ...


class Progress:
    """Sums over the batches of one query.

    Attributes:
        rows: rows that were read.
        lag: messages that were stored and not yet read, when the last batch began.
        late: readings that the watermark left out. Spark counts them per window, device and metric of a batch: several
            late readings of one window in one batch are one.
        batches: number of batches.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.lag = 0
        self.late = 0
        self.batches = 0
        self._last = -1

    def add(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Takes Spark's reports (``query.recentProgress``); those that it has seen do not count again."""
        for report in reports:
            number = int(report["batchId"])
            if number <= self._last:
                continue
            self._last = number
            self.batches += 1
            self.rows += int(report.get("numInputRows") or 0)
            self.late += sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in report.get("stateOperators", ()))
            self.lag = sum(one.lag for source in report.get("sources", ()) for one in lags_of(source))

    @property
    def text(self) -> str:
        """One line for a person."""
        late = f", {self.late:,} late" if self.late else ""
        return f"{self.rows:,} rows read in {self.batches:,} batches, {self.lag:,} to go{late}"


class _Silent:
    def update(self, status: str, /) -> None:
        """Draws nothing."""


@contextmanager
def show(what: str) -> Iterator[Line]:
    """A line on stderr with a spinner while the context lasts, where stderr is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Silent()
        return
    with console.status(what) as status:
        yield status


@contextmanager
def working(
    app: str, conf: Mapping[str, str] | None = None, *, light: bool = False
) -> Iterator[tuple[SparkSession, Line]]:
    """A session of Spark for one command, and the line that shows its progress; both end with the context. Raises as
    ``penstock.spark.session``, whose arguments these are."""
    from penstock.spark import session

    with show("Spark starts") as line:
        spark = session(app=app, conf=conf, light=light)
        try:
            yield spark, line
        finally:
            spark.stop()
