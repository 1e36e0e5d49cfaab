"""The table of ready-made jobs: what each reads, computes, shows, and which options it takes.

A new job is a module in ``penstock/telemetry/jobs`` and an entry here; the command, its help and the runner follow.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from penstock.errors import InvalidConfig
from penstock.telemetry import windows
from penstock.telemetry.jobs import (
    aggregates,
    alerts,
    devices,
    downsampling,
    gaps,
    last_values,
    sessions,
    talkers,
)
from penstock.telemetry.jobs.folds import FoldBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Given = Mapping[str, Any]
"""Values of a job's options, by name."""


class Option(NamedTuple):
    """An option of a job. ``kind``: a length of time, a number, one text, or several texts."""

    name: str
    default: Any
    about: str
    kind: Literal["length", "count", "number", "text", "texts"] = "length"


@dataclass(frozen=True, slots=True)
class Job:
    """An entry.

    Attributes:
        name, about: its name, and a description in one line.
        columns: columns that a terminal shows.
        keys: columns that tell its rows apart: a database has one row for each.
        make: rows of the source to rows of the result; none for a fold.
        fold, state: for a fold: a batch and the state before it to events and state; the state's schema.
        reads: columns of messages that it takes; readings if empty.
        mode: Spark's output mode on a terminal. Elsewhere rows come when they are final, where the job can say so.
        is_final: whether rows can become final (by the watermark).
        partition: column by which Parquet folders are cut.
        options: its options.
    """

    name: str
    about: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    make: Callable[[DataFrame, Given], DataFrame] | None = None
    fold: Callable[[DataFrame, DataFrame | None, Given], FoldBatch] | None = None
    state: str = ""
    reads: tuple[str, ...] = ()
    mode: str = "append"
    is_final: bool = True
    partition: str = ""
    options: tuple[Option, ...] = ()


WINDOWS: Final = "windows"
"""The job that ``penstock telemetry run`` without a name runs; ``penstock.telemetry.job`` has it."""
WATERMARK: Final = Option("watermark", windows.WATERMARK, "How late a reading may come.")
REGISTRY: Final = "registry"


def _percentiles(given: Given) -> tuple[int, ...]:
    try:
        found = tuple(int(one) for one in str(given["percentiles"]).split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= one <= 100 for one in found):
        told = f"{given['percentiles']!r} is no list of percentiles"
        raise InvalidConfig(told, hint="write whole numbers from 0 to 100: 50,95,99")
    return found


def _rules(given: Given) -> list[alerts.Rule]:
    rules = [alerts.rule_of(one) for one in given["rule"]]
    if not rules:
        raise InvalidConfig("no rule is given", hint="add --rule 'temperature > 80', or --rule '* zscore 4'")
    return rules


def check(given: Given) -> None:
    """Raises ``InvalidConfig`` for values that a job would refuse only when Spark runs."""
    if "percentiles" in given:
        _percentiles(given)
    if "rule" in given:
        _rules(given)
    if REGISTRY in given and not given[REGISTRY]:
        raise InvalidConfig("no registry of devices is given", hint="add --registry devices.csv, or topic:NAME")


JOBS: Final = (
    Job(
        "aggregates",
        "windows with count, mean, min, max, standard deviation and percentiles",
        aggregates.columns(),
        ("window_start", "device", "metric"),
        make=lambda rows, given: aggregates.aggregates(rows, given["window"], given["watermark"], _percentiles(given)),
        mode="update",
        options=(
            Option("window", windows.WINDOW, "Length of a window."),
            WATERMARK,
            Option("percentiles", "50,95,99", "Which ones.", "text"),
        ),
    ),
    Job(
        "last",
        "the last value of each device's metrics",
        last_values.COLUMNS,
        ("device", "metric"),
        make=lambda rows, given: last_values.last_values(rows),
        mode="update",
        is_final=False,
    ),
    Job(
        "gaps",
        "devices that are silent for several times their usual interval",
        gaps.COLUMNS,
        ("device", "metric", "gap_start"),
        fold=lambda rows, earlier, given: gaps.next_gaps(rows, earlier, given["times"]),
        state=gaps.STATE_SCHEMA,
        options=(Option("times", gaps.TIMES, "How many usual intervals of silence make a gap.", "number"),),
    ),
    Job(
        "alerts",
        "values that cross a limit or leave their device's usual range, back to the device",
        alerts.COLUMNS,
        ("id",),
        fold=lambda rows, earlier, given: alerts.next_alerts(rows, earlier, _rules(given)),
        state=alerts.STATE_SCHEMA,
        options=(
            Option("rule", (), "'METRIC > LIMIT', 'METRIC < LIMIT' or 'METRIC zscore N'; may be repeated.", "texts"),
        ),
    ),
    Job(
        "downsample",
        "one row per device, metric and minute, in folders by day",
        (*windows.WINDOW_COLUMNS, "day"),
        ("window_start", "device", "metric"),
        make=lambda rows, given: downsampling.downsampled(rows, given["length"], given["watermark"]),
        partition="day",
        options=(Option("length", downsampling.EVERY, "The time that one row covers."), WATERMARK),
    ),
    Job(
        "sessions",
        "from when to when devices were active",
        sessions.COLUMNS,
        ("session_start", "device"),
        make=lambda rows, given: sessions.sessions(rows, given["pause"], given["watermark"]),
        options=(Option("pause", sessions.PAUSE, "A longer silence ends a session."), WATERMARK),
    ),
    Job(
        "talkers",
        "the devices that send most in each window",
        talkers.COLUMNS,
        ("window_start", "rank"),
        make=lambda rows, given: talkers.talkers(rows, given["window"], given["top"], given["watermark"]),
        reads=talkers.COLUMNS_NEEDED,
        options=(
            Option("window", talkers.WINDOW, "Length of a window."),
            Option("top", talkers.TOP, "Most rows of a window.", "count"),
            WATERMARK,
        ),
    ),
    Job(
        "devices",
        "readings with the columns of a registry of devices",
        ("event_time", "device", "metric", "value", "known"),
        ("topic", "queue", "offset", "metric"),
        make=lambda rows, given: devices.with_devices(rows, given[REGISTRY]),
        options=(Option(REGISTRY, "", "CSV or Parquet file, jdbc: address (with #table) or topic:NAME.", "text"),),
    ),
)
BY_NAME: Final = {job.name: job for job in JOBS}


def job_of(name: str) -> Job:
    """The job of that name. Raises ``InvalidConfig``."""
    if name not in BY_NAME:
        near = difflib.get_close_matches(name, [*BY_NAME, WINDOWS], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`penstock telemetry list` shows all"
        raise InvalidConfig(f"there is no job {name!r}", hint=hint)
    return BY_NAME[name]
