"""The last value of each device's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("device", "metric", "event_time", "value", "readings")


def last_values(readings: DataFrame) -> DataFrame:
    """The latest reading of each device and metric, and how many there were: ``COLUMNS``.

    The latest event time wins; among equal ones the place in the log decides, so that the answer is always the same.
    A stream keeps one row per device and metric as its state, for ever.
    """
    from pyspark.sql import functions as f

    latest = f.max(f.struct("event_time", "topic", "queue", "offset", "value"))
    grouped = readings.where("error IS NULL").groupBy("device", "metric")
    rows = grouped.agg(latest.alias("last"), f.count("value").alias("readings"))
    return rows.select("device", "metric", "last.event_time", "last.value", "readings")
