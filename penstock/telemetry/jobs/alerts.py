"""Alerts: a metric crosses a limit, or leaves its device's usual range.

An alert is one row when a rule begins to hold, not one for each reading while it holds. ``zscore`` compares a reading
with the mean and standard deviation of all earlier ones of the same device and metric. All of this survives restarts. A
repeated alert has the same ``id``, so that a receiver can drop it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import InvalidConfig
from penstock.telemetry.jobs.folds import FOUND, Fold, FoldBatch, findings, folded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEARNED_FROM: Final = 20
"""Number of readings before one can be unusual."""
COLUMNS: Final = ("device", "metric", "rule", "event_time", "value", "score", "id")

_KEYS: Final = ("device", "metric", "rule", "sign", "bound")
_ALERT: Final = "struct<event_time: timestamp, value: double, score: double>"
_STATE: Final = f"struct<readings: bigint, mean: double, squares: double, holds: boolean, {FOUND}: array<{_ALERT}>>"
_ZERO: Final = f"named_struct('readings', 0L, 'mean', 0D, 'squares', 0D, 'holds', false, '{FOUND}', array())"
STATE_SCHEMA: Final = f"device string, metric string, rule string, sign string, bound double, state {_STATE}"
_RULE: Final = re.compile(r"(\S+)\s*(>|<|zscore)\s*(\S+)")


class Rule(NamedTuple):
    """A condition on the readings of one metric, or of all (``*``).

    Attributes:
        metric: the metric's name, or ``*``.
        sign: ``>``, ``<`` or ``zscore``.
        bound: the limit; for ``zscore`` in standard deviations, to either side.
    """

    metric: str
    sign: str
    bound: float

    @property
    def text(self) -> str:
        """The rule as it was written."""
        return f"{self.metric} {self.sign} {self.bound:g}"


def rule_of(text: str) -> Rule:
    """``temperature > 80``, ``battery < 3.1`` or ``* zscore 4`` as a rule. Raises ``InvalidConfig``."""
    parts = _RULE.fullmatch(text.strip())
    try:
        bound = float(parts[3]) if parts else math.nan
    except ValueError:
        bound = math.nan
    if parts is None or not math.isfinite(bound):
        raise InvalidConfig(f"{text!r} is no rule", hint="write 'temperature > 80', 'battery < 3.1' or '* zscore 4'")
    return Rule(parts[1], parts[2], bound)


def alerts(readings: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """All alerts of the readings of a batch: ``COLUMNS``. ``score`` is the z-score where the rule asks for one.

    Args:
        readings: rows of the source with ``payload=readings``.
        rules: conditions of the alerts.
    """
    return next_alerts(readings, None, rules).events


def next_alerts(readings: DataFrame, earlier: DataFrame | None, rules: Sequence[Rule]) -> FoldBatch:
    """Alerts of a batch of a stream.

    Args:
        readings: the batch.
        earlier: ``state`` of the batch before; none for the first.
        rules: conditions of the alerts; always the same in one stream.
    """
    from pyspark.sql import functions as f

    rows = [f.struct(*[f.lit(part).alias(name) for name, part in _row(rule).items()]) for rule in rules]
    judged = readings.withColumn("_rule", f.explode(f.array(*rows)))
    judged = judged.where("_rule.wanted IN ('*', metric)").select("*", "_rule.rule", "_rule.sign", "_rule.bound")
    states = folded(judged, earlier, Fold(_STATE, _ZERO, _step, _KEYS, ("sign", "bound")))
    found = findings(states, ("device", "metric", "rule"))
    name = f.concat_ws("|", "device", "metric", "rule", f.unix_micros("event_time").cast("string"))
    events = found.withColumn("id", f.substring(f.sha2(name, 256), 1, 16)).select(*COLUMNS)
    return FoldBatch(states, events, states)


def _row(rule: Rule) -> dict[str, str | float]:
    return {"wanted": rule.metric, "rule": rule.text, "sign": rule.sign, "bound": float(rule.bound)}


def _step(had: Column, one: Column, sign: Column, bound: Column) -> Column:
    """The state after a reading."""
    from pyspark.sql import functions as f

    value, readings = one["value"], had["readings"]
    deviation = f.sqrt(had["squares"] / readings)
    is_known = (readings >= LEARNED_FROM) & (deviation > 0)
    score = f.when((sign == "zscore") & is_known, (value - had["mean"]) / deviation)
    holds = (
        f.when(sign == ">", value > bound)
        .when(sign == "<", value < bound)
        .otherwise(f.coalesce(f.abs(score) > bound, f.lit(False)))
    )
    alert = f.struct(one["event_time"].alias("event_time"), value.alias("value"), score.alias("score")).cast(_ALERT)
    off = value - had["mean"]
    mean = had["mean"] + off / (readings + 1)
    return f.struct(
        (readings + 1).alias("readings"),
        mean.alias("mean"),
        (had["squares"] + off * (value - mean)).alias("squares"),
        holds.alias("holds"),
        f.when(holds & ~had["holds"], f.concat(had[FOUND], f.array(alert))).otherwise(had[FOUND]).alias(FOUND),
    )
