"""The side-by-side benchmark: the same generator against every server, in turns: a busy moment hits all alike.

Per scenario and round each server is run once, in one round forwards, in the next backwards (A B C, C B A, ...): what a
server has written is still on its way to the disk while the next one runs. Numbers are medians over the rounds, ratios
are medians of the rounds' own ratios. A run that lost, doubled or changed a message is shown as failed, never as a
number.

A process is some percent faster or slower than the last one of the same server, from its start to its end. So near a
goal the rounds of one start say little, and all servers can be started several times (``Plan.starts``).

Some scenarios take a server of their own for each run, and one round (``Scenario.is_fresh``, ``is_once``).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from loadtest import servers
from loadtest.cores import Cores, choose
from loadtest.generator import DRAIN_S, SETUP_S, Order, Outcome
from loadtest.goals import Goal
from loadtest.neighbour import sockets_within_limit
from loadtest.scenarios import FILTERS, IDLE, PACED, SCENARIOS, Scenario
from loadtest.servers import COMPILED, Missing, Server
from loadtest.wires import TCP

MARGIN_S: Final = 5.0
FRESH_RUN_S: Final = 400.0
"""A run with ten thousand sessions, a million messages or a hundred thousand filters is given up after this."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it: rounds, seconds, which servers and scenarios by name (empty for all). ``starts``: so often all
    servers are started, each time for so many rounds. ``paced_s``: how long a paced run measures, for its percentiles;
    ``filters_s``: how long each part of one with many filters, so that the broker's checkpoints, which take their time
    every few seconds, are in it as often as they come. ``is_full``: large runs have their full size; ``share``: the
    part of it that is done, for a quick look."""

    starts: int = 1
    rounds: int = 3
    warm_s: float = 0.3
    measure_s: float = 1.0
    paced_s: float = 2.0
    filters_s: float = 8.0
    idle_connections: int = 1000
    is_full: bool = False
    share: float = 1.0
    servers: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()

    def chosen_scenarios(self) -> list[Scenario]:
        return [one for one in SCENARIOS if not self.scenarios or one.name in self.scenarios]

    def share_of(self, scenario: Scenario) -> float:
        """How much of a scenario's sessions, messages and filters there is."""
        return self.share * (1.0 if self.is_full else scenario.small)

    def takes(self, server: str, scenario: Scenario) -> bool:
        """Whether a server takes part in a scenario."""
        return not scenario.servers or server in (self.servers or scenario.servers)


QUICK: Final = Plan(rounds=1, warm_s=0.2, measure_s=0.5, paced_s=1.0, filters_s=0.5, idle_connections=500, share=0.02)


@dataclass(slots=True)
class Measured:
    """All that was measured: outcomes by scenario and server, one per round, and the circumstances.
    ``is_generator_compiled``: whether the load generator was."""

    plan: Plan
    levels: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    outcomes: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)
    cores: Cores = field(default_factory=Cores)
    is_generator_compiled: bool = False
    filesystem: str = ""
    seconds: float = 0.0
    load_before: float = 0.0
    load_after: float = 0.0

    def leave_out(self, reason: str) -> None:
        """Something is not measured; the reason is told once, however often it comes."""
        if reason not in self.missing:
            self.missing.append(reason)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(plan: Plan, tell: Callable[[str], None]) -> Measured:
    """Starts the servers, runs everything in turns, ends the servers."""
    start = time.monotonic()
    measured = Measured(plan, is_generator_compiled=generator_tree() == COMPILED, load_before=os.getloadavg()[0])
    for number in range(plan.starts):
        with _folder() as folder:
            if not number:
                measured.cores, measured.filesystem = choose(folder), _filesystem(folder)
            running: list[Server] = []
            try:
                _start(plan, folder, measured, running, tell)
                _rounds(plan, number, running, measured, tell)
            finally:
                for server in running:
                    server.stop()
    measured.seconds = time.monotonic() - start
    measured.load_after = os.getloadavg()[0]
    return measured


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for servers' data, which goes with them."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _start(plan: Plan, folder: Path, measured: Measured, running: list[Server], tell: Callable[[str], None]) -> None:
    """Starts the servers that scenarios share; those that only have runs of their own are looked at too."""
    chosen = plan.chosen_scenarios()
    for kind in servers.SERVERS:
        if plan.servers and kind.name not in plan.servers:
            continue
        if not any(plan.takes(kind.name, scenario) for scenario in chosen):
            continue
        server = kind(folder, measured.cores)
        tell(f"starting {server.name}")
        try:
            running.append(server)
            server.start()
            measured.levels[server.name] = server.level
        except (Missing, RuntimeError) as error:
            server.stop()
            running.remove(server)
            measured.leave_out(str(error))


def _rounds(plan: Plan, start: int, running: Sequence[Server], measured: Measured, tell: Callable[[str], None]) -> None:
    """The rounds of one start of the servers."""
    scenarios = sorted(plan.chosen_scenarios(), key=lambda one: (one.is_fresh, one.kind != IDLE))  # memory while fresh
    for number in range(start * plan.rounds, (start + 1) * plan.rounds):
        for scenario in scenarios:
            if scenario.is_once and number:
                continue
            for server in running if number % 2 == 0 else running[::-1]:
                if not plan.takes(server.name, scenario):
                    continue
                tell(f"round {number + 1} of {plan.starts * plan.rounds}: {scenario.title}: {server.name}")
                if scenario.wire != TCP and scenario.wire not in server.ports:
                    measured.leave_out(f"{scenario.title}: {server.name} does not listen for it")
                    continue
                run = _run_fresh if scenario.is_fresh else run_once
                outcomes = measured.outcomes.setdefault(scenario.name, {}).setdefault(server.name, [])
                outcomes.append(run(plan, scenario, server, f"r{number}{scenario.name}"))


def _run_fresh(plan: Plan, scenario: Scenario, like: Server, name: str) -> Outcome:
    """One run with a server that nothing else has been done with."""
    with _folder() as folder:
        server = type(like)(folder, like.cores)
        try:
            server.start()
            return run_once(plan, scenario, server, name)
        except (Missing, RuntimeError) as error:
            return Outcome(error=str(error))
        finally:
            server.stop()


def generator_tree() -> Path:
    """The folder that the load generator is started in: that with compiled modules, if there is one that has its."""
    return COMPILED if any((COMPILED / "loadtest").glob("*.so")) else Server.tree


def run_once(plan: Plan, scenario: Scenario, server: Server, name: str) -> Outcome:
    """One run in a generator process of its own."""
    order = _order(plan, scenario, server, name)
    limit_s = FRESH_RUN_S if scenario.is_fresh else SETUP_S + order.warm_s + order.measure_s + DRAIN_S + MARGIN_S
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "loadtest.run"],
            input=json.dumps(asdict(order)),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            cwd=generator_tree(),
        )
    except subprocess.TimeoutExpired:
        return Outcome(error=f"the run took longer than {limit_s:.0f} s")
    if ended.returncode or not ended.stdout:
        return Outcome(error=f"the generator failed: {ended.stderr.strip().splitlines()[-1:] or '?'}")
    return Outcome(**json.loads(ended.stdout))


def _order(plan: Plan, scenario: Scenario, server: Server, name: str) -> Order:
    share = plan.share_of(scenario)
    return Order(
        host=servers.HOST,
        port=server.port if scenario.wire == TCP else server.ports[scenario.wire],
        server_pid=server.pid,
        run=name,
        publishers=plan.idle_connections if scenario.kind == IDLE else scenario.publishers,
        subscribers=scenario.subscribers,
        window=scenario.window,
        lag=scenario.lag,
        payload_bytes=scenario.payload_bytes,
        warm_s=plan.warm_s,
        measure_s={PACED: plan.paced_s, FILTERS: plan.filters_s}.get(scenario.kind, plan.measure_s),
        core=server.cores.generator,
        kind=scenario.kind,
        wire=scenario.wire,
        per_s=scenario.per_s,
        sessions=_sessions(scenario, share),
        messages=int(scenario.messages * share),
        filters=int(scenario.filters * share),
        slow=scenario.slow,
        idle=scenario.idle,
    )


def _sessions(scenario: Scenario, share: float) -> int:
    count = int(scenario.sessions * share)
    return sockets_within_limit(count) if scenario.idle else count


def _filesystem(folder: Path) -> str:
    """The kind of file system that a folder is in."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    fitting = [(where, kind) for where, kind in mounts if folder.is_relative_to(where)]
    return max(fitting, key=lambda one: len(one[0]), default=("", "?"))[1]


# ---------------------------------------------------------------- figures


MOSQUITTO: Final = "mosquitto"


@dataclass(frozen=True, slots=True)
class Row:
    """One server in one scenario: medians, and ratios to other servers (``figure_of`` says of what). ``cpu_ratio``: of
    its processor time per message to mosquitto's, 0 where there is none. ``by_start``: the ratio to mosquitto in each
    start of the servers, where there were several. ``judged``: each goal that this server is to reach, or that it shows
    to be in reach, with the value that it has reached."""

    server: str
    error: str = ""
    rate: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    cpu_us: float = 0.0
    generator_busy: float = 0.0
    idle_bytes: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    ratios: tuple[tuple[str, float], ...] = ()
    cpu_ratio: float = 0.0
    by_start: tuple[float, ...] = ()
    judged: tuple[tuple[Goal, float], ...] = ()


def rows(measured: Measured, scenario: Scenario, references: Sequence[str]) -> list[Row]:
    """A scenario's rows. A server with any failed run has no numbers."""
    outcomes = measured.outcomes.get(scenario.name, {})
    figure = figure_of(scenario)
    made = []
    for server, runs in outcomes.items():
        failed = next((run.error for run in runs if run.error), "")
        if failed:
            made.append(Row(server, error=failed))
            continue
        mosquitto = outcomes.get(MOSQUITTO, []) if server != MOSQUITTO else []
        is_judged = server in (*scenario.judged, scenario.floor)
        ratios = [(one, _ratio(runs, outcomes.get(one, []), figure)) for one in references if one != server]
        made.append(
            Row(
                server,
                rate=statistics.median(run.rate for run in runs),
                p50_us=statistics.median(run.p50_us for run in runs),
                p99_us=statistics.median(run.p99_us for run in runs),
                cpu_us=statistics.median(run.cpu_us for run in runs),
                generator_busy=statistics.median(run.generator_busy for run in runs),
                idle_bytes=statistics.median(run.idle_bytes for run in runs),
                figures={name: statistics.median(run.figures[name] for run in runs) for name in runs[0].figures},
                ratios=tuple([(one, ratio) for one, ratio in ratios if ratio is not None]),
                cpu_ratio=_ratio(runs, mosquitto, "cpu_us") or 0.0,
                by_start=tuple(_by_start(measured.plan, runs, mosquitto, figure)),
                judged=tuple(_judged(scenario, runs, mosquitto)) if is_judged else (),
            )
        )
    return made


def figure_of(scenario: Scenario) -> str:
    """What the servers are compared by: the figure of the first goal, else the rate."""
    return scenario.goals[0].figure if scenario.goals else "rate"


def _judged(scenario: Scenario, runs: Sequence[Outcome], mosquitto: Sequence[Outcome]) -> Iterator[tuple[Goal, float]]:
    for goal in scenario.goals:
        if not goal.is_ratio:
            yield goal, statistics.median(_figure(run, goal.figure) for run in runs)
        elif (ratio := _ratio(runs, mosquitto, goal.figure)) is not None:
            yield goal, ratio


def _ratio(runs: Sequence[Outcome], others: Sequence[Outcome], figure: str) -> float | None:
    """The median of the rounds' own ratios; ``None`` where there is nothing to compare with."""
    if len(others) != len(runs) or any(other.error for other in others):
        return None
    pairs = [(_figure(run, figure), _figure(other, figure)) for run, other in zip(runs, others, strict=True)]
    return statistics.median(own / other for own, other in pairs) if all(other > 0 for _, other in pairs) else None


def _by_start(plan: Plan, runs: Sequence[Outcome], others: Sequence[Outcome], figure: str) -> Iterator[float]:
    """The ratio in each start of the servers; nothing where they were started once, or one of them did not come up."""
    count = plan.rounds
    for begin in range(0, len(runs), count) if len(runs) == len(others) > count else ():
        ratio = _ratio(runs[begin : begin + count], others[begin : begin + count], figure)
        if ratio is not None:
            yield ratio


def _figure(outcome: Outcome, figure: str) -> float:
    return outcome.figures[figure] if figure in outcome.figures else float(getattr(outcome, figure))
