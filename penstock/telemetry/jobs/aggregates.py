"""Windows with their spread: count, mean, least, greatest, standard deviation and percentiles per device and metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.telemetry.windows import WATERMARK, WINDOW, windowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERCENTILES: Final = (50, 95, 99)
ACCURACY: Final = 10_000
"""A percentile's rank is wrong by at most the window's count divided by this: exact below 10,000 readings."""


def columns(percentiles: tuple[int, ...] = PERCENTILES) -> tuple[str, ...]:
    """The columns of ``aggregates``, in order."""
    names = ("window_start", "window_end", "device", "metric", "count", "mean", "min", "max", "stddev")
    return (*names, *[f"p{one}" for one in percentiles], "refused")


def aggregates(
    readings: DataFrame,
    window: str = WINDOW,
    watermark: str = WATERMARK,
    percentiles: tuple[int, ...] = PERCENTILES,
) -> DataFrame:
    """Tumbling windows over event time with the columns ``columns(percentiles)``.

    Args:
        readings: rows of the source with ``payload=readings``.
        window: length of a window, in Spark's words ("10 seconds").
        watermark: how late a reading may come and still be counted, behind the latest event time seen.
        percentiles: which ones, from 0 to 100. A percentile is a value that occurred.
    """
    from pyspark.sql import functions as f

    ranks = f.array(*[f.lit(one / 100) for one in percentiles])
    spread = f.stddev_samp("value").alias("stddev"), f.percentile_approx("value", ranks, ACCURACY).alias("ranks")
    rows = windowed(readings, window, watermark, spread)
    found = [f.col("ranks")[at].alias(f"p{one}") for at, one in enumerate(percentiles)]
    figures = ("device", "metric", "count", "mean", "min", "max", "stddev")
    chosen = rows.select("window.start", "window.end", *figures, *found, "refused")
    return chosen.toDF(*columns(percentiles))
