"""The figures of one day of telemetry: rates, devices, values, gaps, alerts, each small enough to be shown.

A day is one of event time, in UTC. It is read by store time: from messages stored on the day, and for some time after
it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidConfig
from penstock.telemetry.caching import cached
from penstock.telemetry.jobs.alerts import Rule, alerts
from penstock.telemetry.jobs.gaps import TIMES, gaps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STEP_MINUTES: Final = 10
DEVICES_MAX: Final = 20
METRICS_MAX: Final = 12
GAPS_MAX: Final = 50
ALERTS_MAX: Final = 100
RULES: Final = (Rule("*", "zscore", 4.0),)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Day:
    """The figures of a report.

    Attributes:
        day, topic: the day and the topic of the readings.
        readings, refused, devices, metrics: numbers of them.
        rates: per ``STEP_MINUTES``: ``at``, ``readings``, ``refused``.
        busiest: devices with most readings: ``device``, ``readings``, ``metrics``, ``first``, ``last``.
        values: per metric with most readings and step: ``metric``, ``at``, ``mean``, ``min``, ``max``.
        gaps, gaps_all: the longest gaps, and how many there were.
        alerts, alerts_all: the first alerts, and how many there were.
        rules: the rules of the alerts.
    """

    day: date
    topic: str
    readings: int = 0
    refused: int = 0
    devices: int = 0
    metrics: int = 0
    rates: Sequence[Row] = ()
    busiest: Sequence[Row] = ()
    values: Sequence[Row] = ()
    gaps: Sequence[Row] = ()
    gaps_all: int = 0
    alerts: Sequence[Row] = ()
    alerts_all: int = 0
    rules: Sequence[str] = field(default=())


def day_of(text: str, now_ms: int) -> date:
    """``2026-12-01``, ``today`` or ``yesterday`` (UTC). Raises ``InvalidConfig`` for other text, and for a day
    ahead."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    named = {"today": today, "yesterday": today - timedelta(days=1)}.get(text)
    try:
        found = named or (date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None)
    except ValueError:
        found = None
    if found is None:
        raise InvalidConfig(f"{text!r} is no day", hint="write 2026-12-01, today or yesterday")
    if found > today:
        raise InvalidConfig(f"{text} lies ahead; today is {today} (UTC)")
    return found


def source_options(day: date, late: timedelta) -> dict[str, str]:
    """The source's options that read messages stored on a day, and until ``late`` after its end."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    end_ms = min(int((start + timedelta(days=1)).timestamp() * 1000) + int(late.total_seconds() * 1000), 2**53)
    return {
        "payload": "readings",
        "startingTimestamp": str(int(start.timestamp() * 1000)),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": str(end_ms),
    }


def figures(readings: DataFrame, day: date, topic: str, *, rules: Sequence[Rule] = RULES, times: float = TIMES) -> Day:
    """The figures of a day.

    Args:
        readings: rows of the source with ``payload=readings``; those of other days are left out.
        day, topic: the day and the topic of the readings.
        rules: the rules of the alerts.
        times: how many usual intervals of silence make a gap.
    """
    from pyspark.sql import functions as f

    with cached(readings.where(f.to_date("event_time") == f.lit(day))) as rows:
        good = rows.where("error IS NULL")
        step = f.window("event_time", f"{STEP_MINUTES} minutes")["start"].alias("at")
        counts = rows.agg(
            f.count("value").alias("readings"),
            f.count("error").alias("refused"),
            f.count_distinct(f.when(f.col("error").isNull(), f.col("device"))).alias("devices"),
            f.count_distinct(f.when(f.col("error").isNull(), f.col("metric"))).alias("metrics"),
        )
        by_step = rows.groupBy(step).agg(f.count("value").alias("readings"), f.count("error").alias("refused"))
        busiest = good.groupBy("device").agg(
            f.count("value").alias("readings"),
            f.size(f.collect_set("metric")).alias("metrics"),
            f.min("event_time").alias("first"),
            f.max("event_time").alias("last"),
        )
        with cached(gaps(rows, times)) as silent, cached(alerts(rows, rules)) as told:
            return Day(
                day,
                topic,
                **_rows(counts)[0],
                rates=_rows(by_step.orderBy("at")),
                busiest=_rows(busiest.orderBy(f.desc("readings"), "device").limit(DEVICES_MAX)),
                values=_rows(_values(good, step)),
                gaps=_rows(silent.orderBy(f.desc("silent_s"), "device", "metric", "gap_start").limit(GAPS_MAX)),
                gaps_all=silent.count(),
                alerts=_rows(told.orderBy("event_time", "device", "metric", "rule").limit(ALERTS_MAX)),
                alerts_all=told.count(),
                rules=[rule.text for rule in rules],
            )


def _values(good: DataFrame, step: Any) -> DataFrame:
    from pyspark.sql import functions as f

    most = good.groupBy("metric").count().orderBy(f.desc("count"), "metric").limit(METRICS_MAX).select("metric")
    grouped = good.join(f.broadcast(most), "metric").groupBy("metric", step)
    rows = grouped.agg(f.avg("value").alias("mean"), f.min("value").alias("min"), f.max("value").alias("max"))
    return rows.orderBy("metric", "at")


def _rows(frame: DataFrame) -> list[Row]:
    found: list[Row] = frame.toArrow().to_pylist()
    return found
