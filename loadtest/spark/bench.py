"""The benchmark of the Spark source: our broker and Kafka's with the same messages, the same two cores, one session.

Servers and Spark share all cores, as on one machine: the broker's and Spark's processor time are measured apart. Per
round and scenario each source is read once, forwards in one round and backwards in the next, after a round that warms
up. Figures are medians over the rounds, ratios medians of the rounds' own ratios.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from loadtest import proc
from loadtest.cores import Cores
from loadtest.goals import Goal
from loadtest.servers import HOST, NAMES, Compiled, Missing, Penstock, Server
from loadtest.spark.job import COUNT, LIVE, SOAK, WINDOWS, WRITE, Order, Run
from loadtest.spark.kafka import Kafka
from loadtest.spark.messages import store, write_parquet

FIRST: Final = "first-row"
SCENARIOS: Final = (COUNT, WINDOWS, WRITE, LIVE, FIRST)
"""Scenarios that run by default; ``soak`` takes longer."""
TOPIC: Final = "readings"
STARTS: Final = 4
"""Number of starts of the job of ``first-row``; the first one warms up."""
LIMIT_S: Final = 1200.0
OURS: Final[tuple[type[Server], ...]] = (Compiled, Penstock)
"""Our servers in order of preference: the first that is available is measured."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a measurement."""

    count: int = 2_000_000
    rounds: int = 3
    scenarios: tuple[str, ...] = SCENARIOS
    live_messages: int = 60
    soak_batches: int = 600


@dataclass(slots=True)
class Measured:
    """All runs, and the circumstances. ``missing``: why a source takes no part."""

    plan: Plan
    server: str = ""
    kafka: str = ""
    missing: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    seconds: float = 0.0
    load_before: float = 0.0
    load_after: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def of(self, scenario: str, source: str) -> list[Run]:
        """The runs of one source in a scenario."""
        return [run for run in self.runs if (run.scenario, run.source) == (scenario, source)]

    def sources(self, scenario: str) -> list[str]:
        """Sources in a scenario, in the order of their first runs."""
        return list(dict.fromkeys(run.source for run in self.runs if run.scenario == scenario))


def measure(plan: Plan, tell: Callable[[str], None]) -> Measured:
    """Starts the servers, stores the messages, runs everything, ends the servers."""
    begin = time.monotonic()
    measured = Measured(plan, load_before=os.getloadavg()[0])
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as name:
        running: list[Server] = []
        try:
            ours = _first(OURS, Path(name), running, measured, tell)
            if ours is None:
                raise RuntimeError("no broker of ours starts: " + "; ".join(measured.missing.values()))
            is_beside = set(plan.scenarios) - {FIRST, SOAK}  # those two have no row of Kafka's
            kafka = _first((Kafka,), Path(name), running, measured, tell) if is_beside else None
            _run_all(plan, Path(name), ours, kafka, measured, tell)
        finally:
            for server in running:
                server.stop()
    measured.seconds, measured.load_after = time.monotonic() - begin, os.getloadavg()[0]
    return measured


def _first(
    kinds: Sequence[type[Server]], folder: Path, running: list[Server], measured: Measured, tell: Callable[[str], None]
) -> Server | None:
    """The first server of these that is there, started."""
    for kind in kinds:
        server = kind(folder, Cores())
        tell(f"starting {server.name}")
        try:
            running.append(server)
            server.start()
            return server
        except (Missing, RuntimeError) as error:
            server.stop()
            running.remove(server)
            measured.missing[server.name] = str(error)
    return None


def _run_all(
    plan: Plan, folder: Path, ours: Server, kafka: Server | None, measured: Measured, tell: Callable[[str], None]
) -> None:
    servers = f"{HOST}:{ours.ports[NAMES]}"
    tell(f"storing {plan.count:,} messages")
    store(servers, TOPIC, plan.count)
    write_parquet(folder / "parquet", plan.count)
    order = Order(
        servers,
        TOPIC,
        plan.count,
        str(folder / "parquet"),
        rounds=plan.rounds,
        scenarios=tuple(one for one in plan.scenarios if one != FIRST),
        live_messages=plan.live_messages,
        soak_batches=plan.soak_batches,
        broker_pids={"penstock": ours.pid},
    )
    measured.server = ours.name
    given = asdict(order)
    if isinstance(kafka, Kafka):
        given |= {"kafka": f"{HOST}:{kafka.port}", "jars": kafka.jars.for_spark()}
        given["broker_pids"] |= {"kafka": kafka.pid}
        measured.kafka = kafka.level
    if order.scenarios:
        for run in _job(given, ours, folder / "job.stderr", tell):
            measured.runs.append(run)
    if FIRST in plan.scenarios:
        measured.runs += first_rows(servers, ours, tell)


def _job(order: dict[str, Any], ours: Server, errors: Path, tell: Callable[[str], None]) -> Iterator[Run]:
    """The runs of the measured program, as they end. Its stderr goes to ``errors``."""
    command = [sys.executable, "-m", "loadtest.spark.job"]
    pipe, environ = subprocess.PIPE, ours.environment()
    with (
        errors.open("w") as said,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=said, text=True, cwd=ours.tree, env=environ
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin:
            process.stdin.write(json.dumps(order))
        for line in process.stdout:
            if line.startswith("{"):
                run = Run(**json.loads(line))
                tell(f"{run.scenario}: {run.source}: {run.seconds:.1f} s {run.error}")
                yield run
    if process.returncode:
        last = (errors.read_text().strip().splitlines() or ["it said nothing"])[-1]
        yield Run("job", "spark", error=f"the program ended with status {process.returncode}: {last[:300]}")


def first_rows(servers: str, ours: Server, tell: Callable[[str], None]) -> list[Run]:
    """Starts a job again and again until its first row."""
    made: list[Run] = []
    for number in range(STARTS):
        tell(f"{FIRST}: start {number} of {STARTS - 1}")
        run, begin = Run(FIRST, "penstock", number, rows=1), time.monotonic()
        command = [sys.executable, "-m", "loadtest.spark.first_row", servers, TOPIC]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ours.tree, env=ours.environment(), start_new_session=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        run.seconds = time.monotonic() - begin
        run.figures = {"cpu_s": proc.family_cpu_s(proc.tree(process.pid))}
        run.error = "" if line.strip() == "row" else f"the job printed {line!r}"
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
        if number:
            made.append(run)
    return made


# ---------------------------------------------------------------- goals


@dataclass(frozen=True, slots=True)
class Demand:
    """A goal of a source in a scenario. ``beside``: the source whose time is the measure of it; none for a figure."""

    scenario: str
    source: str
    goal: Goal
    beside: str = ""


def _ratio(scenario: str, source: str, beside: str, least: float, aim: float) -> Demand:
    goal = Goal(f"time of {beside}", "seconds", least, aim, is_upper=True, reference=beside)
    return Demand(scenario, source, goal, beside)


def _seconds(what: str, figure: str, least: float, aim: float) -> Goal:
    return Goal(what, figure, least, aim, is_ratio=False, is_upper=True, unit="s")


DEMANDS: Final = (
    _ratio(COUNT, "penstock", "kafka", 1.0, 0.6),
    _ratio(COUNT, "penstock value", "kafka", 1.0, 0.6),
    _ratio(WINDOWS, "penstock", "kafka", 0.8, 0.5),
    _ratio(WINDOWS, "penstock readings", "kafka", 0.8, 0.5),
    _ratio(WINDOWS, "penstock", "parquet", 0.9, 0.6),
    _ratio(WINDOWS, "penstock readings", "parquet", 0.9, 0.6),
    Demand(WRITE, "penstock", Goal("rows/s", "rate", 100_000, 250_000, is_ratio=False, unit="/s")),
    Demand(LIVE, "penstock", _seconds("publish to row, p50", "p50_s", 0.25, 0.15)),
    Demand(FIRST, "penstock", _seconds("first row from the start", "seconds", 15, 8)),
    Demand(
        SOAK,
        "penstock",
        Goal("memory of Python workers at the end", "python_growth", 1.1, is_ratio=False, is_upper=True),
    ),
    Demand(
        SOAK, "penstock", Goal("live objects of Java at the end", "java_growth", 1.1, is_ratio=False, is_upper=True)
    ),
)


def figure(run: Run, name: str) -> float:
    """A figure of a run by its name."""
    if name == "rate":
        return run.rows / run.seconds
    return run.figures[name] if name in run.figures else float(getattr(run, name))


def reached(measured: Measured, demand: Demand) -> float | None:
    """The figure of a source that a demand judges; ``None`` if it or its reference was not measured."""
    runs = measured.of(demand.scenario, demand.source)
    if not runs or any(run.error for run in runs):
        return None
    own = [figure(run, demand.goal.figure) for run in runs]
    if not demand.beside:
        return statistics.median(own)
    others = measured.of(demand.scenario, demand.beside)
    if len(others) != len(own) or any(run.error for run in others):
        return None
    pairs = zip(own, others, strict=True)
    return statistics.median(one / figure(other, demand.goal.figure) for one, other in pairs)
