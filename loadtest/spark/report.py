"""Report of the Spark benchmark for people: a table of all sources, one of the goals, and notes."""

from __future__ import annotations

import statistics

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.spark.bench import DEMANDS, Measured, reached
from loadtest.spark.job import LIVE, SOAK, Run


def show(measured: Measured, console: Console) -> None:
    """Prints everything."""
    console.print(_table(measured))
    console.print(_goals(measured))
    for note in _notes(measured):
        console.print(f"- {note}", soft_wrap=True)


def failures(measured: Measured) -> int:
    """How many runs failed."""
    return sum(bool(run.error) for run in measured.runs)


def _table(measured: Measured) -> Table:
    table = Table(title="Spark on two cores", title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for title in ("scenario", "source"):
        table.add_column(title)
    for title in ("seconds", "lowest-\nhighest", "rows/s", "Spark\nus/row", "broker\nus/row", "besides"):
        table.add_column(title, justify="right")
    for scenario in dict.fromkeys(run.scenario for run in measured.runs):
        for source in measured.sources(scenario):
            table.add_row(scenario, source, *_cells(measured.of(scenario, source)))
    return table


def _cells(runs: list[Run]) -> list[str]:
    failed = next((run.error for run in runs if run.error), "")
    if failed:
        return ["[red]failed[/]", "", "", "", "", escape(failed[:60])]
    seconds = [run.seconds for run in runs]
    first = runs[0]
    middle = {name: statistics.median(run.figures[name] for run in runs) for name in first.figures}
    besides = ", ".join(f"{name} {value:,.2f}" for name, value in middle.items())
    cells = [f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f}-{max(seconds):.2f}"]
    if first.scenario in (LIVE, SOAK) or first.rows <= 1:
        return [*cells, "", "", "", besides]
    spark, broker = ([getattr(run, name) / run.rows * 1e6 for run in runs] for name in ("spark_s", "broker_s"))
    rate = statistics.median(run.rows / run.seconds for run in runs)
    return [*cells, f"{rate:,.0f}", f"{statistics.median(spark):.2f}", f"{statistics.median(broker):.2f}", besides]


def _goals(measured: Measured) -> Table:
    table = Table(title="goals of issue 43", title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for title in ("scenario", "source", "figure", "goal", "aim", "measured", "reached"):
        table.add_column(title, justify="right" if title in ("aim", "measured") else "left")
    for demand in DEMANDS:
        if demand.scenario not in measured.plan.scenarios:
            continue
        value = reached(measured, demand)
        goal = demand.goal
        cells = ["-", "-"] if value is None else [goal.told(value), goal.verdict(value)]
        table.add_row(demand.scenario, demand.source, goal.what, goal.demand, goal.hope, *cells)
    return table


def _notes(measured: Measured) -> list[str]:
    notes = [
        f"{measured.plan.count:,} messages of 200 bytes; the broker is {measured.server}; {measured.seconds:.0f} s",
        f"load average {measured.load_before:.1f} before and {measured.load_after:.1f} after",
    ]
    if measured.kafka:
        notes.append(f"kafka is {measured.kafka}")
    return notes + [f"{name} takes no part: {why}" for name, why in measured.missing.items()]
