"""Folds: each reading of a key, in the order of event times, changes a state and may give an event.

They answer questions that windows cannot: whether a device is silent for longer than usual, whether a value has just
crossed a limit. A fold is one expression that Java runs over each key's sorted readings of a batch; the state is a
column, kept between batches by ``penstock.telemetry.slots``. No Python runs per device, as it would in
``transformWithState`` (docs/decisions/0067).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FOUND: Final = "found"
"""The field of a state with the events of this batch's readings; it is empty as each batch begins."""


class Fold(NamedTuple):
    """A fold of one key's readings.

    Attributes:
        state: type of the state, a struct in Spark's DDL with an array ``FOUND``.
        zero: the state before the first reading, in SQL.
        step: the state after a reading; takes the state, the reading (``event_time``, ``value``), and the columns
            ``given``.
        keys: columns that make a key.
        given: those of the keys that ``step`` takes.
    """

    state: str
    zero: str
    step: Callable[..., Column]
    keys: tuple[str, ...] = ("device", "metric")
    given: tuple[str, ...] = ()


class FoldBatch(NamedTuple):
    """The result of a fold for a batch.

    Attributes:
        rows: the rows from which the two others come, to be computed once (``persist``).
        events: the events of the batch.
        state: rows for the next batch.
    """

    rows: DataFrame
    events: DataFrame
    state: DataFrame


def folded(readings: DataFrame, earlier: DataFrame | None, fold: Fold) -> DataFrame:
    """One row per key of the readings and of the earlier states: the key's columns, and ``state`` after all readings.

    Args:
        readings: rows of the source with ``payload=readings``, and the fold's keys; refused payloads are left out.
        earlier: the result for the batch before; none before the first.
        fold: the fold.
    """
    from pyspark.sql import functions as f

    place = f.struct("event_time", "topic", "queue", "offset", "value")
    good = readings.where("error IS NULL").groupBy(*fold.keys)
    rows = good.agg(f.array_sort(f.collect_list(place)).alias("readings"))
    state = f.expr(fold.zero).cast(fold.state)
    if earlier is not None:
        rows = earlier.join(rows, list(fold.keys), "full_outer")
        state = f.coalesce(_afresh(f.col("state"), fold), state)
    given = [f.col(name) for name in fold.given]

    def step(had: Column, one: Column) -> Column:
        return fold.step(had, one, *given).cast(fold.state)

    after = f.coalesce(f.aggregate("readings", state, step), state)  # a key without readings keeps its state
    return rows.select(*fold.keys, after.alias("state"))


def _afresh(state: Column, fold: Fold) -> Column:
    from pyspark.sql import functions as f

    nothing = f.expr(fold.zero).cast(fold.state).getField(FOUND)
    return f.when(state.isNotNull(), state.withField(FOUND, nothing))


def findings(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The events of a batch, one row each: the key's columns and those of the states' ``FOUND``."""
    from pyspark.sql import functions as f

    return rows.select(*keys, f.explode(f"state.{FOUND}").alias("one")).select(*keys, "one.*")
