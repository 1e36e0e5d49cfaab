"""What a person reads of a benchmark: a table per scenario, and the notes without which the numbers mislead."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from loadtest.bench import Measured, Row, rows
from loadtest.scenarios import Scenario

REFERENCES: Final = ("mosquitto", "amqtt", "penstock cache")
BUSY: Final = 0.9
"""From this share of its time on the generator may be what limits a rate."""


def show(measured: Measured, console: Console) -> None:
    """Prints everything."""
    bounded = False
    for scenario in measured.plan.chosen_scenarios():
        made = rows(measured, scenario, REFERENCES)
        if made:
            console.print(_memory_table(scenario, made) if scenario.idle else _table(scenario, made))
            bounded = bounded or any(row.generator_busy >= BUSY for row in made)
    for note in notes(measured, bounded):
        console.print(f"- {note}", soft_wrap=True)


def failures(measured: Measured) -> int:
    """How many runs failed."""
    return sum(bool(run.error) for by in measured.outcomes.values() for runs in by.values() for run in runs)


def notes(measured: Measured, bounded: bool) -> list[str]:
    """What must be known to read the tables."""
    levels = "; ".join(f"{server}: {level}" for server, level in measured.levels.items())
    made = [
        f"What a PUBACK means here: {levels}. Only what is fsynced survives a crash of the machine.",
        f"fdatasync of 4 KiB takes {measured.fdatasync_us:.0f} us on this {measured.filesystem} (median of 50).",
        f"{measured.plan.rounds} round(s) of {measured.plan.measure_s:g} s each, servers in turns; medians.",
        "One generator for all servers, QoS 1, 64-byte payloads, over loopback.",
        "CPU is user and system time of the server's whole process tree, per acknowledged or delivered message.",
        "Every acknowledgement and every delivered byte was compared with what had to come.",
    ]
    if measured.cores < 2:
        made.append("Only one core: server and generator share it, so that all rates are too low.")
    else:
        made.append(f"{measured.cores} cores: servers on one, the generator on another; other work on them disturbs.")
    made.append(f"Load average {measured.load_before:.1f} before, {measured.load_after:.1f} after: 0 and 1 are quiet.")
    if bounded:
        made.append(f"> marks rates at which the generator was busy for {BUSY:.0%} or more: the server may do better.")
    return made + [f"Left out: {reason}." for reason in measured.missing]


def _table(scenario: Scenario, made: list[Row]) -> Table:
    table = Table(title=scenario.title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    table.add_column("server", min_width=15)
    for title in ("msg/s", "p50 us", "p99 us", "CPU us/msg"):
        table.add_column(title, justify="right", min_width=9)
    what = "p50" if scenario.name == "round-trip" else "rate"
    for reference in REFERENCES:
        table.add_column(f"{what} to\n{reference}", justify="right")
    for row in made:
        if row.error:
            table.add_row(row.server, f"[red]failed[/]: {row.error[:100]}")
            continue
        mark = "> " if row.generator_busy >= BUSY else ""
        figures = [f"{mark}{row.rate:,.0f}", f"{row.p50_us:,.0f}", f"{row.p99_us:,.0f}", f"{row.cpu_us:.1f}"]
        table.add_row(row.server, *figures, *_ratios(row))
    return table


def _memory_table(scenario: Scenario, made: list[Row]) -> Table:
    table = Table(title=scenario.title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    table.add_column("server", min_width=15)
    table.add_column("bytes", justify="right", min_width=9)
    for reference in REFERENCES:
        table.add_column(f"to\n{reference}", justify="right")
    for row in made:
        if row.error:
            table.add_row(row.server, f"[red]failed[/]: {row.error[:100]}")
        else:
            table.add_row(row.server, f"{row.idle_bytes:,.0f}", *_ratios(row))
    return table


def _ratios(row: Row) -> list[str]:
    ratios = dict(row.ratios)
    return [f"{ratios[reference]:.2f}x" if reference in ratios else "" for reference in REFERENCES]
