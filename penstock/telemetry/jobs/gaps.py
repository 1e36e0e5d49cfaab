"""Gaps: when a device was, or is, silent for several times its usual interval.

The usual interval of a device's metric is a running mean of its intervals, slow to change and hardly moved by a gap: a
longer interval counts as the longest that is no gap. The clock is the latest event time of all devices, so the same
messages give the same gaps whenever they are read. A reading that comes late, out of order, makes no interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.telemetry.jobs.folds import FOUND, Fold, FoldBatch, findings, folded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIMES: Final = 5.0
LEARNED_FROM: Final = 4
"""Number of intervals before one can be a gap."""
MEMORY: Final = 32
"""From this many intervals on, a new one changes the mean by this part of its difference."""

COLUMNS: Final = ("device", "metric", "gap_start", "gap_end", "silent_s", "usual_s")
_GAP: Final = "struct<gap_start: timestamp, gap_end: timestamp, silent_s: double, usual_s: double>"
_STATE: Final = f"struct<last: timestamp, intervals: bigint, usual_s: double, told: boolean, {FOUND}: array<{_GAP}>>"
_ZERO: Final = f"named_struct('last', null, 'intervals', 0L, 'usual_s', 0D, 'told', false, '{FOUND}', array())"


STATE_SCHEMA: Final = f"device string, metric string, state {_STATE}"


def gaps(readings: DataFrame, times: float = TIMES) -> DataFrame:
    """All gaps of the readings of a batch: ``COLUMNS``. One that is not over has no ``gap_end``.

    Args:
        readings: rows of the source with ``payload=readings``.
        times: how many usual intervals of silence make a gap.
    """
    return next_gaps(readings, None, times).events


def next_gaps(readings: DataFrame, earlier: DataFrame | None, times: float = TIMES) -> FoldBatch:
    """Gaps that a batch of a stream begins or ends: a row for each beginning, and another with the end.

    Args:
        readings: the batch.
        earlier: ``state`` of the batch before; none for the first.
        times: how many usual intervals of silence make a gap.
    """
    from pyspark.sql import functions as f

    states = folded(readings, earlier, Fold(_STATE, _ZERO, _step(times)))
    rows = states.crossJoin(states.agg(f.max("state.last").alias("now")))
    silent_s = _seconds(f.col("now"), f.col("state.last"))
    is_silent = (f.col("state.intervals") >= LEARNED_FROM) & (silent_s > times * f.col("state.usual_s"))
    rows = rows.withColumn("silent_s", silent_s).withColumn("is_silent", is_silent)
    begun = rows.where("is_silent AND NOT state.told").select(
        "device",
        "metric",
        f.col("state.last").alias("gap_start"),
        f.lit(None).cast("timestamp").alias("gap_end"),
        "silent_s",
        "state.usual_s",
    )
    told = f.col("state").withField("told", f.col("state.told") | f.col("is_silent"))
    events = findings(states, ("device", "metric")).union(begun)
    return FoldBatch(states, events, rows.select("device", "metric", told.alias("state")))


def _seconds(later: Column, earlier: Column) -> Column:
    from pyspark.sql import functions as f

    return (f.unix_micros(later) - f.unix_micros(earlier)) / 1_000_000.0


def _step(times: float) -> Callable[[Column, Column], Column]:
    """The state after a reading."""
    from pyspark.sql import functions as f

    def step(had: Column, one: Column) -> Column:
        at, usual = one["event_time"], had["usual_s"]
        since = _seconds(at, had["last"])
        is_known = had["intervals"] >= LEARNED_FROM
        is_gap = is_known & (since > times * usual)
        counted = f.when(is_gap, times * usual).otherwise(since)
        weight = f.least(had["intervals"] + 1, f.lit(MEMORY))
        gap = f.struct(
            had["last"].alias("gap_start"), at.alias("gap_end"), since.alias("silent_s"), usual.alias("usual_s")
        )
        with_gap = f.when(is_gap, f.concat(had[FOUND], f.array(gap.cast(_GAP)))).otherwise(had[FOUND])
        first = f.struct(
            at.alias("last"), had["intervals"], usual.alias("usual_s"), f.lit(False).alias("told"), had[FOUND]
        )
        later = f.struct(
            at.alias("last"),
            (had["intervals"] + 1).alias("intervals"),
            (usual + (counted - usual) / weight).alias("usual_s"),
            f.lit(False).alias("told"),
            with_gap.alias(FOUND),
        )
        return f.when(had["last"].isNull(), first.cast(_STATE)).when(since > 0, later.cast(_STATE)).otherwise(had)

    return step
