"""Downsampling: one row per device, metric and minute (or any length), by day, for an archive that stays small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.telemetry.windows import WATERMARK, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVERY: Final = "1 minute"


def downsampled(readings: DataFrame, every: str = EVERY, watermark: str = WATERMARK) -> DataFrame:
    """The windows of ``windows`` with the day (UTC) that each begins on, as ``day``.

    Args:
        readings: rows of the source with ``payload=readings``.
        every: the length of time that becomes one row.
        watermark: how late a reading may come and still be counted.
    """
    from pyspark.sql import functions as f

    rows = windows(readings, every, watermark)
    return rows.withColumn("day", f.date_format("window_start", "yyyy-MM-dd"))
