"""The side-by-side benchmark: the same generator against every server, in turns: a busy moment hits all alike.

Per scenario and round each server is run once (A B C A B C ...). Numbers are medians over the rounds, ratios are
medians of the rounds' own ratios. A run that lost, doubled or changed a message is shown as failed, never as a number.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from loadtest import servers
from loadtest.generator import DRAIN_S, SETUP_S, Order, Outcome
from loadtest.scenarios import SCENARIOS, Scenario
from loadtest.servers import Missing, Server

MARGIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it: rounds, seconds, which servers and scenarios by name (empty for all)."""

    rounds: int = 3
    warm_s: float = 0.3
    measure_s: float = 1.0
    idle_connections: int = 1000
    servers: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()

    def chosen_scenarios(self) -> list[Scenario]:
        return [one for one in SCENARIOS if not self.scenarios or one.name in self.scenarios]


QUICK: Final = Plan(rounds=1, warm_s=0.2, measure_s=0.5, idle_connections=500)


@dataclass(slots=True)
class Measured:
    """All that was measured: outcomes by scenario and server, one per round, and the circumstances."""

    plan: Plan
    levels: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    outcomes: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)
    cores: int = 1
    fdatasync_us: float = 0.0
    filesystem: str = ""
    seconds: float = 0.0
    load_before: float = 0.0
    load_after: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(plan: Plan, tell: Callable[[str], None]) -> Measured:
    """Starts the servers, runs everything in turns, ends the servers."""
    start = time.monotonic()
    measured = Measured(plan, cores=len(os.sched_getaffinity(0)), load_before=os.getloadavg()[0])
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        measured.fdatasync_us, measured.filesystem = _disk(Path(folder))
        running: list[Server] = []
        try:
            _start(plan, Path(folder), measured, running, tell)
            _rounds(plan, running, measured, tell)
        finally:
            for server in running:
                server.stop()
    measured.seconds = time.monotonic() - start
    measured.load_after = os.getloadavg()[0]
    return measured


def _start(plan: Plan, folder: Path, measured: Measured, running: list[Server], tell: Callable[[str], None]) -> None:
    for kind in servers.SERVERS:
        if plan.servers and kind.name not in plan.servers:
            continue
        server = kind(folder)
        tell(f"starting {server.name}")
        try:
            running.append(server)
            server.start()
            measured.levels[server.name] = server.level
        except (Missing, RuntimeError) as error:
            server.stop()
            running.remove(server)
            measured.missing.append(str(error))


def _rounds(plan: Plan, running: Sequence[Server], measured: Measured, tell: Callable[[str], None]) -> None:
    scenarios = sorted(plan.chosen_scenarios(), key=lambda one: not one.idle)  # memory first, while servers are fresh
    for number in range(plan.rounds):
        for scenario in scenarios:
            if scenario.idle and number:
                continue
            for server in running:
                tell(f"round {number + 1} of {plan.rounds}: {scenario.title}: {server.name}")
                outcomes = measured.outcomes.setdefault(scenario.name, {}).setdefault(server.name, [])
                outcomes.append(_run(plan, scenario, server, f"r{number}{scenario.name}"))


def _run(plan: Plan, scenario: Scenario, server: Server, name: str) -> Outcome:
    """One run in a generator process of its own."""
    if scenario.idle:
        scenario = replace(scenario, publishers=plan.idle_connections)
    order = Order(
        host=servers.HOST,
        port=server.port,
        server_pid=server.pid,
        run=name,
        publishers=scenario.publishers,
        subscribers=scenario.subscribers,
        window=scenario.window,
        lag=scenario.lag,
        payload_bytes=scenario.payload_bytes,
        idle=scenario.idle,
        warm_s=plan.warm_s,
        measure_s=plan.measure_s,
        core=servers.GENERATOR_CORE,
    )
    limit_s = SETUP_S + plan.warm_s + plan.measure_s + DRAIN_S + MARGIN_S
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "loadtest.generator"],
            input=json.dumps(asdict(order)),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(error=f"the run took longer than {limit_s:.0f} s")
    if ended.returncode or not ended.stdout:
        return Outcome(error=f"the generator failed: {ended.stderr.strip().splitlines()[-1:] or '?'}")
    return Outcome(**json.loads(ended.stdout))


def _disk(folder: Path) -> tuple[float, str]:
    """Median of fdatasync after a 4 KiB write, in microseconds, and the kind of file system."""
    times = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(4096))
            before = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - before)
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    fitting = [(where, kind) for where, kind in mounts if folder.is_relative_to(where)]
    return statistics.median(times) * 1e6, max(fitting, key=lambda one: len(one[0]), default=("", "?"))[1]


# ---------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Row:
    """One server in one scenario: medians, and ratios to other servers (of rates; of bytes for memory)."""

    server: str
    error: str = ""
    rate: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    cpu_us: float = 0.0
    generator_busy: float = 0.0
    idle_bytes: float = 0.0
    ratios: tuple[tuple[str, float], ...] = ()


def rows(measured: Measured, scenario: Scenario, references: Sequence[str]) -> list[Row]:
    """A scenario's rows. A server with any failed run has no numbers."""
    outcomes = measured.outcomes.get(scenario.name, {})
    made = []
    for server, runs in outcomes.items():
        failed = next((run.error for run in runs if run.error), "")
        if failed:
            made.append(Row(server, error=failed))
            continue
        made.append(
            Row(
                server,
                rate=statistics.median(run.rate for run in runs),
                p50_us=statistics.median(run.p50_us for run in runs),
                p99_us=statistics.median(run.p99_us for run in runs),
                cpu_us=statistics.median(run.cpu_us for run in runs),
                generator_busy=statistics.median(run.generator_busy for run in runs),
                idle_bytes=statistics.median(run.idle_bytes for run in runs),
                ratios=_ratios(runs, outcomes, server, references, scenario),
            )
        )
    return made


def _ratios(
    runs: Sequence[Outcome],
    outcomes: dict[str, list[Outcome]],
    server: str,
    references: Sequence[str],
    scenario: Scenario,
) -> tuple[tuple[str, float], ...]:
    made = []
    for reference in references:
        others = outcomes.get(reference, [])
        if reference == server or len(others) != len(runs) or any(other.error for other in others):
            continue
        pairs = [(_figure(run, scenario), _figure(other, scenario)) for run, other in zip(runs, others, strict=True)]
        if all(other > 0 for _, other in pairs):
            made.append((reference, statistics.median(own / other for own, other in pairs)))
    return tuple(made)


def _figure(outcome: Outcome, scenario: Scenario) -> float:
    if scenario.idle:
        return outcome.idle_bytes
    return outcome.p50_us if scenario.name == "round-trip" else outcome.rate
