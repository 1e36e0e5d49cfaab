"""The gain of each compiled module: processor time per message without it, beside all of them compiled.

``python -m loadtest modules`` compiles a tree for each module that is left out (``build/modules``) and measures the
trees in turns. Servers keep their data in memory where there is a file system for that, at the level ``cache``: disks
differ more from run to run than modules gain. A gain of 5 % says that a message costs 5 % more without the module.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from hatch_build import hot_modules
from loadtest import bench
from loadtest import scenarios as mqtt
from loadtest.cores import Cores, choose
from loadtest.native import bench as native
from loadtest.native import scenarios as programs
from loadtest.servers import ROOT, Missing, PenstockCache, check_compiled

FOLDER: Final = ROOT / "build" / "modules"
MEMORY: Final = Path("/dev/shm")
MQTT_ROWS: Final = ("publish", "connections", "one-to-one", "pairs", "fan-out", "shared")
NATIVE_ROWS: Final = ("send-many", "send", "consume", "select", "retry")
SHOWN: Final = 0.01
"""Smaller gains are not shown: they lie within what two runs of one server differ."""

Figures = dict[str, list[float]]
"""Processor microseconds per message by row, one for each round."""


class PartlyCompiled(PenstockCache):
    """A server from a tree of its own."""

    def __init__(self, folder: Path, cores: Cores, tree: Path) -> None:
        super().__init__(folder, cores)
        self.tree = tree


@dataclass(frozen=True, slots=True)
class Variant:
    """A tree in which some modules are plain. ``name``: a module's path, a folder, or empty where all are compiled."""

    name: str
    without: tuple[str, ...] = ()

    @property
    def tree(self) -> Path:
        return FOLDER / (self.name.removesuffix(".py").replace("/", ".") or "all")


@dataclass(slots=True)
class Gains:
    """What was measured: figures by variant, and why a variant has none."""

    figures: dict[str, Figures] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> list[tuple[str, float]]:
        """The rows in which a module gains, the largest gain first: the median of the rounds' own ratios, less one."""
        own, whole = self.figures.get(name, {}), self.figures[""]
        ratios = {
            row: statistics.median(one / other for one, other in zip(own[row], whole[row], strict=False))
            for row in own
            if row in whole
        }
        return sorted(((row, ratio - 1) for row, ratio in ratios.items()), key=lambda one: -one[1])


def variants(paths: Sequence[str], compiled: Sequence[str], *, together: bool = False) -> list[Variant]:
    """A variant for each path: a module, or a folder with all of its modules; by default each compiled module.
    ``together``: one variant without any of them. Raises ``ValueError``: there is no compiled module of that path."""
    made = [Variant("")]
    for path in paths or compiled:
        within = tuple(one for one in compiled if one == path or one.startswith(f"{path.rstrip('/')}/"))
        if not within:
            raise ValueError(f"{path} is no compiled module and no folder with one")
        made.append(Variant(path, within))
    if together:
        return [made[0], Variant("together", tuple(one for variant in made for one in variant.without))]
    return made


def compile_tree(variant: Variant) -> str:
    """Compiles a variant's tree unless that has been done with these sources and this list; gives the error, if there
    is one."""
    listed = "\n".join(one for one in hot_modules() if one not in variant.without)
    note = variant.tree / "compiled-modules"
    with suppress(Missing, FileNotFoundError):
        check_compiled(variant.tree)
        if note.read_text() == listed:
            return ""
    command = [sys.executable, "hatch_build.py", str(variant.tree), "--without", *variant.without]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not variant.tree.exists():
        return (done.stdout + done.stderr).strip()
    note.write_text(listed)
    return ""


def measure(chosen: Sequence[Variant], rounds: int, seconds: float, tell: Callable[[str], None]) -> Gains:
    """Measures all variants in turns, in every round with servers that start anew."""
    gains = Gains()
    for variant in chosen:
        tell(f"compiling {variant.tree.name}")
        if said := compile_tree(variant):
            gains.failed[variant.name] = said
    able = [variant for variant in chosen if variant.name not in gains.failed]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, ignore_cleanup_errors=True) as name:
        cores = choose(Path(name))
        for number in range(rounds):
            for variant in able if number % 2 == 0 else able[::-1]:
                tell(f"round {number + 1} of {rounds}: {variant.tree.name}")
                server = PartlyCompiled(Path(name) / f"{variant.tree.name}-{number}", cores, variant.tree)
                try:
                    server.start()
                    for row, figure in _run(server, number, seconds).items():
                        gains.figures.setdefault(variant.name, {}).setdefault(row, []).append(figure)
                except RuntimeError as error:
                    gains.failed[variant.name] = str(error)
                finally:
                    server.stop()
    return gains


def _run(server: PartlyCompiled, number: int, seconds: float) -> Mapping[str, float]:
    """All rows once, at one server. Raises ``RuntimeError``: one failed."""
    figures: dict[str, float] = {}
    plan = replace(bench.Plan(), measure_s=seconds)
    for scenario in mqtt.SCENARIOS:
        if scenario.name in MQTT_ROWS:
            seen = bench.run_once(plan, scenario, server, f"r{number}")
            if seen.error:
                raise RuntimeError(f"{scenario.name}: {seen.error}")
            figures[scenario.name] = seen.cpu_us
    for load in programs.SCENARIOS:
        if load.name in NATIVE_ROWS:
            met = native.run_once(replace(native.Plan(), measure_s=seconds), load, server, number)
            if met.error:
                raise RuntimeError(f"{load.name}: {met.error}")
            figures |= {f"{load.name} broker": met.broker_us, f"{load.name} client": met.client_us}
    return figures


def show(console: Console, gains: Gains) -> None:
    """Prints a row for each module, and how much a message costs with all of them."""
    table = Table(title="what a message costs more without it", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("left out", "most in", "by", "and in"):
        table.add_column(title, justify="right" if title == "by" else "left")
    for name in gains.figures:
        rows = [one for one in gains.of(name) if one[1] >= SHOWN]
        if name and rows:
            further = ", ".join(f"{row} {gain:.1%}" for row, gain in rows[1:4])
            table.add_row(name, rows[0][0], f"{rows[0][1]:.1%}", further)
        elif name:
            table.add_row(name, "-", f"< {SHOWN:.0%}", "")
    console.print(table)
    for row, figures in gains.figures.get("", {}).items():
        console.print(f"- {row}: {statistics.median(figures):.2f} us with all modules compiled", soft_wrap=True)
    for name, said in gains.failed.items():
        console.print(f"- {name or 'all'}: {said.splitlines()[-1] if said else 'failed'}", soft_wrap=True)


def run(console: Console, chosen: Sequence[Variant], rounds: int, seconds: float, tell: Callable[[str], None]) -> int:
    """Measures and prints; the status is 1 where a variant could not be measured."""
    gains = measure(chosen, rounds, seconds, tell)
    if "" in gains.figures:
        show(console, gains)
    return 1 if gains.failed else 0
