"""Folds: per key, readings in the order of their time change a state, and say what they find.

For what windows cannot say: whether a device was silent for longer than it uses to be, whether a value has just crossed
a limit. A fold is one expression that Java runs over each key's sorted readings of a batch; the state is a column, kept
between batches by ``penstock.telemetry.slots``. That costs no Python per device, as ``transformWithState`` would
(0.7 ms for each in each batch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FOUND: Final = "found"
"""The field of a state that holds what this batch's readings have found; it begins empty with each batch."""


class Fold(NamedTuple):
    """What becomes of one key's readings.

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
    """What a fold makes of a batch.

    Attributes:
        rows: what the two others are made of, to be computed once (``persist``).
        events: what was found.
        state: rows for the next batch.
    """

    rows: DataFrame
    events: DataFrame
    state: DataFrame


def folded(readings: DataFrame, earlier: DataFrame | None, fold: Fold) -> DataFrame:
    """One row per key of the readings and of the earlier states: the key's columns, and ``state`` after all readings.

    Args:
        readings: rows of the source with ``payload=readings``, and the fold's keys; refused payloads are left out.
        earlier: what this function returned for the batch before; none before the first.
        fold: what to do.
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
    """What a batch has found: the key's columns and those of the states' ``FOUND``, one row each."""
    from pyspark.sql import functions as f

    return rows.select(*keys, f.explode(f"state.{FOUND}").alias("one")).select(*keys, "one.*")
