"""Readings to windows: per device and metric count, mean, least and greatest value, and how many payloads were refused.

Functions from DataFrame to DataFrame: the same for a stream and for a batch, and for both the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW: Final = "10 seconds"
WATERMARK: Final = "30 seconds"

WINDOW_COLUMNS: Final = ("window_start", "window_end", "device", "metric", "count", "mean", "min", "max", "refused")


def windows(readings: DataFrame, window: str = WINDOW, watermark: str = WATERMARK) -> DataFrame:
    """Tumbling windows over event time, ``WINDOW_COLUMNS``.

    Args:
        readings: rows of the source with ``payload=readings``.
        window: length of a window, in Spark's words ("10 seconds").
        watermark: how late a reading may come and still be counted, behind the latest event time seen.
    """
    rows = windowed(readings, window, watermark)
    return rows.select("window.start", "window.end", *WINDOW_COLUMNS[2:]).toDF(*WINDOW_COLUMNS)


def windowed(readings: DataFrame, window: str, watermark: str, more: Sequence[Column] = ()) -> DataFrame:
    """One row per ``window`` (a struct), device and metric, with the figures of ``windows`` and ``more`` aggregates."""
    from pyspark.sql import functions as f

    grouped = readings.withWatermark("event_time", watermark).groupBy(
        f.window("event_time", window).alias("window"), "device", "metric"
    )
    return grouped.agg(
        f.count("value").alias("count"),
        f.avg("value").alias("mean"),
        f.min("value").alias("min"),
        f.max("value").alias("max"),
        *more,
        f.count("error").alias("refused"),
    )


def refused(readings: DataFrame) -> DataFrame:
    """The payloads that are no readings: where they are, who sent them, what is wrong, and their first 64 KiB."""
    return readings.where("error IS NOT NULL").select(
        "event_time", "device", "metric", "error", "topic", "queue", "offset", "payload"
    )
