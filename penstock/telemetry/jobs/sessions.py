"""Sessions of activity: from when to when a device sent without a longer pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.telemetry.windows import WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAUSE: Final = "5 minutes"
COLUMNS: Final = ("session_start", "session_end", "device", "seconds", "readings", "metrics")


def sessions(readings: DataFrame, pause: str = PAUSE, watermark: str = WATERMARK) -> DataFrame:
    """One row per session: first and last reading, seconds between them, readings, and how many metrics: ``COLUMNS``.

    A stream gives a session when the watermark has passed its end.

    Args:
        readings: rows of the source with ``payload=readings``.
        pause: a device that is silent for longer than that begins a new session.
        watermark: how late a reading may come and still be counted.
    """
    from pyspark.sql import functions as f

    timed = readings.where("error IS NULL").withWatermark("event_time", watermark)
    rows = timed.groupBy(f.session_window("event_time", pause).alias("session"), "device").agg(
        f.min("event_time").alias("session_start"),
        f.max("event_time").alias("session_end"),
        f.count("value").alias("readings"),
        f.size(f.collect_set("metric")).alias("metrics"),
    )
    seconds = (f.unix_micros("session_end") - f.unix_micros("session_start")) / 1_000_000
    return rows.withColumn("seconds", seconds).select(*COLUMNS)
