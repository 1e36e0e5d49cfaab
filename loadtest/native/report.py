"""What a person reads of the benchmark of the native path: a table per scenario, one with all goals, and notes."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.goals import Goal
from loadtest.native.bench import Measured, Row, rows
from loadtest.native.scenarios import CONSUMED, PIPE, TIMERS, Scenario


def show(measured: Measured, console: Console) -> None:
    """Prints everything."""
    shown = [(scenario, rows(measured, scenario)) for scenario in measured.plan.chosen_scenarios()]
    for scenario, made in shown:
        if made:
            console.print(_table(scenario, made))
    if any(row.judged for _, made in shown for row in made):
        console.print(goals_table([(scenario, made) for scenario, made in shown if made]))
    for note in notes(measured):
        console.print(f"- {note}", soft_wrap=True)


def failures(measured: Measured) -> int:
    """How many runs failed."""
    return sum(bool(run.error) for by in measured.outcomes.values() for runs in by.values() for run in runs)


def _table(scenario: Scenario, made: Sequence[Row]) -> Table:
    table = Table(title=scenario.title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    table.add_column("server", min_width=15)
    titles = ["msg/s", "lowest-\nhighest", "client\nus/msg", "broker\nus/msg", "busy: client,\nbroker"]
    titles.append("clients' share\nof processor")
    has_parts, has_ratio = scenario.kind == PIPE, any(row.ratio for row in made)
    titles += ["producer, consumer\nus/msg"] if has_parts else []
    titles += ["rate, to\nreference"] if has_ratio else []
    titles += ["late, 99 of\n100, s"] if scenario.kind == TIMERS else []
    has_consumed = any(CONSUMED in row.figures for row in made)
    titles += ["consumed\nmsg/s"] if has_consumed else []
    for title in titles:
        table.add_column(title, justify="right")
    for row in made:
        if row.error:
            table.add_row(row.server, "missing" if row.is_missing else "[red]failed[/]")
            continue
        cells = [f"{row.rate:,.0f}", f"{row.lowest:,.0f}-{row.highest:,.0f}"]
        cells += [f"{row.client_us:.2f}", f"{row.broker_us:.2f}", f"{row.client_busy:.0%}, {row.broker_busy:.0%}"]
        cells.append(f"{row.client_share:.0%}")
        if has_parts:
            cells.append(f"{row.figures['producer_us']:.2f}, {row.figures['consumer_us']:.2f}")
        if has_ratio:
            cells.append(f"{row.ratio:.2f}x" if row.ratio else "")
        if scenario.kind == TIMERS:
            cells.append(f"{row.late_s:.2f}")
        if has_consumed:
            cells.append(f"{row.figures[CONSUMED]:,.0f}")
        table.add_row(row.server, *cells)
    table.caption = "\n".join([f"{row.server}: {escape(row.error[:300])}" for row in made if row.error])
    table.caption_justify = "left"
    return table


def goals_table(shown: Sequence[tuple[Scenario, Sequence[Row]]]) -> Table:
    """Every goal that was measured: what it asks for, what was reached, plain and compiled."""
    table = Table(title="goals of issues 41, 42 and 48", title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for title in ("scenario", "figure", "goal", "aim", "plain", "reached", "compiled", "reached"):
        table.add_column(title, justify="right" if title in ("aim", "plain", "compiled") else "left")
    for scenario, made in shown:
        for goal in scenario.goals:
            cells = [cell for server in scenario.judged for cell in _cells(goal, server, made)]
            table.add_row(scenario.name, goal.what, goal.demand, goal.hope, *cells)
    return table


def _cells(goal: Goal, server: str, made: Sequence[Row]) -> tuple[str, str]:
    for row in made:
        for judged, value in row.judged if row.server == server else ():
            if judged == goal:
                verdict = goal.verdict(value)
                return goal.told(value), f"[{'red' if verdict == 'no' else 'green'}]{verdict}[/]"
    return "-", "-"


def notes(measured: Measured) -> list[str]:
    """What must be known to read the tables."""
    plan = measured.plan
    levels = "; ".join(f"{server}: {level}" for server, level in measured.levels.items())
    told = [
        f"What a receipt means here: {levels}. Only what is fsynced survives a crash of the machine.",
        f"{plan.rounds} round(s) of {plan.measure_s:g} s each, servers in turns; medians of the rounds, ratios within"
        " a round. A backlog is read from its beginning to its end.",
        f"Clients are programs on {plan.loop}, Python {measured.python}; beside a compiled server they import the"
        " compiled client. Bodies of 256 bytes, over loopback.",
        "CPU is user and system time per message: of the server's whole process tree, and of the client's process with"
        " all that a program does to make messages and to read their bodies.",
        "Every message was read back and compared with what was sent.",
    ]
    if measured.cores.server == measured.cores.generator:
        told.append("Only one core: servers and clients share it, so that all rates are too low.")
    else:
        told.append(
            f"Rows of our own: servers had core {measured.cores.server}, where a sync takes least, all clients core"
            f" {measured.cores.generator}. Rows beside RocketMQ: everything may use every core."
        )
    told.append(f"Load average {measured.load_before:.1f} before, {measured.load_after:.1f} after: 0 and 1 are quiet.")
    return told + [f"Left out: {server}: {reason}." for server, reason in measured.missing.items()]
