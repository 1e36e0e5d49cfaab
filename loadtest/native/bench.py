"""The benchmark of the native path: the same client programs against our servers, plain and compiled, and beside
RocketMQ, in turns.

Rows of our own come first, with one core for the server and one for the clients, as in the benchmark of MQTT
(``loadtest/bench.py``). Rows beside RocketMQ have servers of their own, which may use all cores, as their clients may.
Per round and scenario each server is run once, in one round forwards, in the next backwards. Figures are medians over
the rounds, ratios are medians of the rounds' own ratios; a run that lost, doubled or changed a message has no number.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from loadtest.cores import Cores, choose
from loadtest.goals import SAME_OPEN, Goal
from loadtest.native.orders import Order, Outcome
from loadtest.native.rocketmq import CompiledFront, CompiledSyncFront, Front, RocketMQ, SyncFront, SyncRocketMQ
from loadtest.native.scenarios import CONSUME, PIPE, POP, REBALANCE, RETRY, SCENARIOS, TIMERS, Scenario
from loadtest.servers import (
    HOST,
    NAMES,
    Compiled,
    CompiledCache,
    CompiledGuarded,
    Guarded,
    Missing,
    Penstock,
    PenstockCache,
    Server,
)

LIMIT_S: Final = 150.0
"""A run is given up after this."""
CREATE_TRIES: Final = 5
SERVERS: Final[tuple[type[Server], ...]] = (
    Penstock,
    PenstockCache,
    Compiled,
    CompiledCache,
    Guarded,
    CompiledGuarded,
    Front,
    CompiledFront,
    RocketMQ,
    SyncFront,
    CompiledSyncFront,
    SyncRocketMQ,
)
LOOPS: Final = ("asyncio", "trio")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it: rounds, seconds, which servers and scenarios by name (empty for all), on which event loop the
    clients run. ``share``: of the backlogs, for a quick look."""

    rounds: int = 3
    warm_s: float = 0.4
    measure_s: float = 1.0
    share: float = 1.0
    servers: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    loop: str = LOOPS[0]

    def chosen_scenarios(self) -> list[Scenario]:
        return [one for one in SCENARIOS if not self.scenarios or one.name in self.scenarios]

    def takes(self, server: str, scenario: Scenario) -> bool:
        """Whether a server takes part in a scenario."""
        return server in scenario.servers and (not self.servers or server in self.servers)


@dataclass(slots=True)
class Measured:
    """All that was measured: outcomes by scenario and server, one per round, and the circumstances.
    ``missing``: why a server takes no part."""

    plan: Plan
    levels: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)
    cores: Cores = field(default_factory=Cores)
    python: str = platform.python_version()
    seconds: float = 0.0
    load_before: float = 0.0
    load_after: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(plan: Plan, tell: Callable[[str], None]) -> Measured:
    """Starts the servers, runs everything in turns, ends the servers."""
    start = time.monotonic()
    measured = Measured(plan, load_before=os.getloadavg()[0])
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        measured.cores = choose(folder)
        for cores, is_free in ((measured.cores, False), (Cores(), True)):
            scenarios = [one for one in plan.chosen_scenarios() if one.is_free == is_free]
            running: list[Server] = []
            try:
                _start(plan, scenarios, folder / f"free-{is_free}", cores, measured, running, tell)
                _rounds(plan, scenarios, running, measured, tell)
            finally:
                for server in running:
                    server.stop()
    measured.seconds = time.monotonic() - start
    measured.load_after = os.getloadavg()[0]
    return measured


def _start(
    plan: Plan,
    scenarios: Sequence[Scenario],
    folder: Path,
    cores: Cores,
    measured: Measured,
    running: list[Server],
    tell: Callable[[str], None],
) -> None:
    """Starts the servers that take part in some of the scenarios."""
    for kind in SERVERS:
        if not any(plan.takes(kind.name, scenario) for scenario in scenarios):
            continue
        server = kind(folder, cores)
        tell(f"starting {server.name}")
        try:
            running.append(server)
            server.start()
            measured.levels[server.name] = server.level
        except (Missing, RuntimeError) as error:
            server.stop()
            running.remove(server)
            measured.missing[server.name] = str(error)


def _rounds(
    plan: Plan,
    scenarios: Sequence[Scenario],
    running: Sequence[Server],
    measured: Measured,
    tell: Callable[[str], None],
) -> None:
    for number in range(plan.rounds):
        for scenario in scenarios:
            for server in running if number % 2 == 0 else running[::-1]:
                if plan.takes(server.name, scenario):
                    tell(f"round {number + 1} of {plan.rounds}: {scenario.title}: {server.name}")
                    outcomes = measured.outcomes.setdefault(scenario.name, {}).setdefault(server.name, [])
                    outcomes.append(run_once(plan, scenario, server, number))


def run_once(plan: Plan, scenario: Scenario, server: Server, number: int) -> Outcome:
    """One run in a client process of its own, from the tree that the server is started in."""
    order = _order(plan, scenario, server, number)
    if isinstance(server, RocketMQ):
        return server.perform(order)
    try:
        if scenario.kind in (CONSUME, PIPE, TIMERS, POP, RETRY, REBALANCE):
            create_topic(server, order.topic, scenario.queues)
        ended = subprocess.run(
            [sys.executable, "-m", "loadtest.native.worker"],
            input=json.dumps(asdict(order)),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=server.tree,
            env=server.environment(),
        )
    except subprocess.TimeoutExpired:
        return Outcome(error=f"the run took longer than {LIMIT_S:.0f} s")
    except subprocess.CalledProcessError as error:
        return Outcome(error=f"the topic was not created: {error.stderr.strip()}")
    if ended.returncode or not ended.stdout:
        return Outcome(error=f"the client failed: {ended.stderr.strip().splitlines()[-1:] or '?'}")
    return Outcome(**json.loads(ended.stdout))


def _order(plan: Plan, scenario: Scenario, server: Server, number: int) -> Order:
    has_backlog = scenario.kind in (CONSUME, POP, RETRY)
    return Order(
        servers=f"{HOST}:{server.ports[NAMES]}",
        server_pid=server.pid,
        kind=scenario.kind,
        topic=f"{scenario.name}-backlog" if has_backlog else f"{scenario.name}-{number}",
        group=f"{scenario.name}-{number}",
        batch=scenario.batch,
        tasks=scenario.tasks,
        body_bytes=scenario.body_bytes,
        messages=scenario.queues if scenario.kind == REBALANCE else int(scenario.messages * plan.share),
        warm_s=plan.warm_s,
        measure_s=plan.measure_s,
        core=server.cores.generator,
        loop=plan.loop,
        filter=scenario.filter,
    )


def create_topic(server: Server, topic: str, queues: int) -> None:
    """Makes a topic, or sees that it is there, as a person does. Raises ``CalledProcessError``."""
    command = [sys.executable, "-m", "node", "--server", f"{HOST}:{server.ports[NAMES]}", "topic", "create", topic]
    command += ["--queues", str(queues)] if queues else []
    environment = server.environment()
    for _ in range(CREATE_TRIES):  # one may end by its own deadline where the machine has much to do
        done = subprocess.run(command, capture_output=True, text=True, cwd=server.tree, timeout=60, env=environment)
        if done.returncode == 0:
            return
    raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)


# ---------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Row:
    """One server in one scenario: medians over the rounds. ``lowest`` and ``highest``: of its rates. ``judged``: each
    goal that this server is to reach, with the value that it has reached. ``is_missing``: it takes no part, ``error``
    says why."""

    server: str
    error: str = ""
    is_missing: bool = False
    rate: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0
    client_us: float = 0.0
    broker_us: float = 0.0
    client_busy: float = 0.0
    broker_busy: float = 0.0
    late_s: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    ratio: float = 0.0
    judged: tuple[tuple[Goal, float], ...] = ()

    @property
    def client_share(self) -> float:
        """The part of all processor time that the clients took."""
        return self.client_us / (self.client_us + self.broker_us)


def rows(measured: Measured, scenario: Scenario) -> list[Row]:
    """A scenario's rows. A server with any failed run has no numbers, nor has one that is missing."""
    outcomes = measured.outcomes.get(scenario.name, {})
    made = []
    for server, runs in outcomes.items():
        failed = next((run.error for run in runs if run.error), "")
        if failed:
            made.append(Row(server, error=failed))
            continue
        rates = [run.rate for run in runs]
        judged = list(_judged(scenario, server, outcomes))
        made.append(
            Row(
                server,
                rate=statistics.median(rates),
                lowest=min(rates),
                highest=max(rates),
                client_us=statistics.median(run.client_us for run in runs),
                broker_us=statistics.median(run.broker_us for run in runs),
                client_busy=statistics.median(run.client_busy for run in runs),
                broker_busy=statistics.median(run.broker_busy for run in runs),
                late_s=statistics.median(run.late_s for run in runs),
                figures={name: statistics.median(run.figures[name] for run in runs) for name in runs[0].figures},
                ratio=next((value for goal, value in judged if goal.is_ratio), 0.0),
                judged=tuple(judged) if server in scenario.judged else (),
            )
        )
    chosen = [server for server in measured.missing if measured.plan.takes(server, scenario)]
    return made + [Row(server, error=measured.missing[server], is_missing=True) for server in chosen]


def _judged(scenario: Scenario, server: str, outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[tuple[Goal, float]]:
    """The goals of a scenario with what a server has reached; ratios where there is another server to compare with."""
    runs = outcomes[server]
    for goal in scenario.goals:
        own = [_figure(run, goal.figure) for run in runs]
        if not goal.is_ratio:
            yield goal, statistics.median(own)
            continue
        reference = server.removesuffix(" login") if goal.reference == SAME_OPEN else goal.reference
        others = outcomes.get(reference, [])
        if server != reference and len(others) == len(runs) and not any(other.error for other in others):
            pairs = zip(own, others, strict=True)
            yield goal, statistics.median(one / _figure(other, goal.figure) for one, other in pairs)


def _figure(run: Outcome, name: str) -> float:
    return run.figures[name] if name in run.figures else float(getattr(run, name))
