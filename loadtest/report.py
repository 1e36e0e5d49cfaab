"""What a person reads of a benchmark: a table per scenario, one with all goals, and the notes without which the numbers
mislead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from loadtest.bench import Measured, Row, figure_of, rows
from loadtest.goals import Goal
from loadtest.neighbour import sockets_within_limit
from loadtest.scenarios import BACKLOG, CLOSED, FILTERS, IDLE, NEIGHBOUR, PACED, RECONNECT, SHARED, Scenario

REFERENCES: Final = ("mosquitto", "amqtt")
BUSY: Final = 0.9
"""A generator that is busy for this share of its time, with a server that is not, may be what limits a rate."""
LATE_US: Final = 200.0
"""Where a paced generator sent one message in a hundred later than this, latencies are the machine's as well."""
MIB: Final = 1024 * 1024

Column = tuple[str, Callable[[Row], str]]


def _server_busy(row: Row) -> float:
    """The server's share of its core."""
    return row.rate * row.cpu_us / 1e6


def _rate(row: Row) -> str:
    is_bounded = row.generator_busy >= BUSY and _server_busy(row) < BUSY
    return f"{'> ' if is_bounded else ''}{row.rate:,.0f}"


def _figure(name: str, form: str = ",.0f", scale: float = 1.0) -> Callable[[Row], str]:
    return lambda row: format(row.figures[name] / scale, form)


_P50: Final[Column] = ("p50 us", lambda row: f"{row.p50_us:,.0f}")
_P99: Final[Column] = ("p99 us", lambda row: f"{row.p99_us:,.0f}")
_CPU: Final[Column] = ("CPU us/msg", lambda row: f"{row.cpu_us:.1f}")
_BUSY: Final[Column] = ("busy: server,\ngenerator", lambda row: f"{_server_busy(row):.0%}, {row.generator_busy:.0%}")

COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    CLOSED: (("msg/s", _rate), _P50, _P99, _CPU, _BUSY),
    SHARED: (
        ("msg/s", _rate),
        _P50,
        _P99,
        _CPU,
        _BUSY,
        ("least member's\nshare of equal", _figure("least_share", ".2f")),
    ),
    PACED: (
        ("msg/s", lambda row: f"{row.rate:,.0f}"),
        _P50,
        _P99,
        _CPU,
        ("generator\nlate p99 us", _figure("late_p99_us")),
    ),
    IDLE: (("bytes", lambda row: f"{row.idle_bytes:,.0f}"),),
    RECONNECT: (
        ("seconds", _figure("reconnect_s", ".2f")),
        ("sessions/s", lambda row: f"{row.rate:,.0f}"),
        ("CPU s", _figure("server_cpu_s", ".2f")),
        ("CPU us/\nsession", lambda row: f"{row.cpu_us:,.0f}"),
        _BUSY,
    ),
    NEIGHBOUR: (
        ("longest ms,\nalone", _figure("quiet_ms", ".1f")),
        ("longest ms,\nas they come", _figure("coming_ms", ".1f")),
        ("longest ms,\nas they go", _figure("going_ms", ".1f")),
        ("seconds until\nall are in", _figure("coming_s", ".2f")),
    ),
    BACKLOG: (
        ("MiB,\nsessions", _figure("sessions_bytes", ".1f", MIB)),
        ("MiB,\nstored", _figure("without_bytes", ".1f", MIB)),
        ("most, as\nthey come", _figure("most_bytes", ".1f", MIB)),
        ("MiB,\nwaiting", _figure("with_bytes", ".1f", MIB)),
        ("waiting /\nstored", _figure("with_without", ".2f")),
        ("bytes/\nmessage", _figure("bytes_per_message", ",.1f")),
        ("msg/s", lambda row: f"{row.rate:,.0f}"),
    ),
    FILTERS: (
        ("CPU us/msg,\nfew", _figure("few_cpu_us", ".1f")),
        ("CPU us/msg,\nmany", _figure("many_cpu_us", ".1f")),
        ("many /\nfew", _figure("cost_ratio", ".2f")),
        ("msg/s,\nfew", _figure("few_rate")),
        ("msg/s,\nmany", _rate),
        _BUSY,
    ),
}


def show(measured: Measured, console: Console) -> None:
    """Prints everything."""
    shown = [(scenario, rows(measured, scenario, REFERENCES)) for scenario in measured.plan.chosen_scenarios()]
    for scenario, made in shown:
        if made:
            console.print(_table(scenario, made))
    if any(row.judged for _, made in shown for row in made):
        console.print(goals_table([(scenario, made) for scenario, made in shown if made]))
    for note in notes(measured, [row for _, made in shown for row in made]):
        console.print(f"- {note}", soft_wrap=True)


def failures(measured: Measured) -> int:
    """How many runs failed."""
    return sum(bool(run.error) for by in measured.outcomes.values() for runs in by.values() for run in runs)


def notes(measured: Measured, made: Sequence[Row]) -> list[str]:
    """What must be known to read the tables."""
    levels = "; ".join(f"{server}: {level}" for server, level in measured.levels.items())
    plan = measured.plan
    told = [
        f"What a PUBACK means here: {levels}. Only what is fsynced survives a crash of the machine.",
        _disk(measured),
        f"{plan.starts} start(s) of the servers with {plan.rounds} round(s) of {plan.measure_s:g} s each"
        f" ({plan.paced_s:g} s where paced, {plan.filters_s:g} s with many filters), servers in turns;"
        " medians of the rounds, ratios within a round. Sessions, backlog, filters: one run with a server of its own.",
        f"One generator for all servers, {'compiled' if measured.is_generator_compiled else 'in plain Python'}, QoS 1,"
        " 64-byte payloads, over loopback.",
        "CPU is user and system time of the server's whole process tree, per acknowledged or delivered message: on a"
        " busy machine it says more than the clock.",
        "Every acknowledgement and every delivered byte was compared with what had to come.",
        "Whether the generator was the bottleneck: beside each rate is how busy the server's core was and how busy the"
        f" generator's. > marks rates at which the generator was busy for {BUSY:.0%} or more and the server was not: it"
        " may do better. Where messages are paced the generator is busy on purpose and says how late it sent them,"
        " which is part of the latency.",
        "bare: no server, only what one must do: it writes what comes, syncs where the goal says so, acknowledges and"
        " passes on. What it does not reach, a server in Python hardly reaches on this machine.",
    ]
    for scenario in plan.chosen_scenarios():
        share = plan.share_of(scenario)
        if share != 1 and scenario.is_fresh:
            hint = "" if plan.is_full else "; --full does all of it"
            told.append(f"{scenario.name}: {share:.0%} of the size that title and goal name{hint}.")
        sockets = sockets_within_limit(scenario.sessions)
        if scenario.idle and sockets < scenario.sessions:
            told.append(
                f"{scenario.name}: {sockets:,} sockets, not {scenario.sessions:,}: a process may not open more files"
                " here (`ulimit -Hn`)."
            )
    if measured.cores.server == measured.cores.generator:
        told.append("Only one core: server and generator share it, so that all rates are too low.")
    else:
        told.append(
            f"All servers had core {measured.cores.server}, where a sync takes least, the generator core"
            f" {measured.cores.generator}; other work on them disturbs."
        )
    told.append(f"Load average {measured.load_before:.1f} before, {measured.load_after:.1f} after: 0 and 1 are quiet.")
    late = sorted({row.server for row in made if row.figures.get("late_p99_us", 0) > LATE_US})
    if late:
        told.append(f"The paced generator was late by over {LATE_US:.0f} us for {', '.join(late)}: a busy machine.")
    return told + [f"Left out: {reason}." for reason in measured.missing]


def _disk(measured: Measured) -> str:
    """What a sync takes, core by core."""
    times = ", ".join(f"{time_us:.0f} us on core {core}" for core, time_us in measured.cores.sync_us.items())
    return f"fdatasync of 4 KiB on this {measured.filesystem}, medians: {times}."


def goals_table(shown: Sequence[tuple[Scenario, Sequence[Row]]]) -> Table:
    """Every goal of issue 4 that was measured: what it asks for, what was reached, plain and compiled, and what a loop
    that is no server reaches here."""
    table = Table(title="goals of issue 4", title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for title in ("scenario", "figure", "goal", "aim", "plain", "reached", "compiled", "reached", "bare"):
        table.add_column(title, justify="right" if title in ("aim", "plain", "compiled", "bare") else "left")
    for scenario, made in shown:
        for goal in scenario.goals:
            cells = [cell for server in scenario.judged for cell in _cells(goal, server, made)]
            bare, _ = _cells(goal, scenario.floor, made)
            table.add_row(scenario.name, goal.what, goal.demand, goal.hope, *cells, bare)
    return table


def _cells(goal: Goal, server: str, made: Sequence[Row]) -> tuple[str, str]:
    for row in made:
        for judged, value in row.judged if row.server == server else ():
            if judged == goal:
                verdict = goal.verdict(value)
                return goal.told(value), f"[{'red' if verdict == 'no' else 'green'}]{verdict}[/]"
    return "-", "-"


def _table(scenario: Scenario, made: Sequence[Row]) -> Table:
    table = Table(title=_title(scenario), title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    table.add_column("server", min_width=15)
    columns = COLUMNS[scenario.kind]
    for title, _ in columns:
        table.add_column(title, justify="right")
    references = [one for one in REFERENCES if any(one == reference for row in made for reference, _ in row.ratios)]
    for reference in references:
        table.add_column(f"{_short(scenario)} to\n{reference}", justify="right")
    has_cpu = scenario.kind in (CLOSED, PACED, SHARED) and any(row.cpu_ratio for row in made)
    if has_cpu:
        table.add_column("CPU to\nmosquitto", justify="right")
    has_starts = any(row.by_start for row in made)
    if has_starts:
        table.add_column("ratio\nby start", justify="right")
    if scenario.goals:
        table.add_column("goal reached", min_width=12)
    for row in made:
        if row.error:
            table.add_row(row.server, f"[red]failed[/]: {row.error[:100]}")
            continue
        ratios = dict(row.ratios)
        cells = [cell(row) for _, cell in columns]
        cells += [f"{ratios[one]:.2f}x" if one in ratios else "" for one in references]
        if has_cpu:
            cells.append(f"{row.cpu_ratio:.2f}x" if row.cpu_ratio else "")
        if has_starts:
            cells.append(f"{min(row.by_start):.2f}-{max(row.by_start):.2f}x" if row.by_start else "")
        verdicts = [f"{goal.told(value)}: {goal.verdict(value)}" for goal, value in row.judged]
        table.add_row(row.server, *cells, "\n".join(verdicts))
    return table


def _title(scenario: Scenario) -> str:
    if not scenario.goals:
        return f"{scenario.title}\nno goal in the issue"
    goals = "; ".join(f"{goal.what} {goal.demand}, aim {goal.hope}" for goal in scenario.goals)
    return f"{scenario.title}\ngoal: {goals}"


def _short(scenario: Scenario) -> str:
    figure = figure_of(scenario)
    return {"p50_us": "p50", "p99_us": "p99", "idle_bytes": "bytes"}.get(figure, figure.partition("_")[0])
