"""What a person sees of the demo: one screen, drawn from plain figures. Decides only how things look; never waits.

``DemoFigures`` is filled by ``node/demo.py``; ``screen`` draws it for a terminal, ``line`` says the same in one line
for a pipe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.display import shown

_BARS = "▁▂▃▄▅▆▇█"
HISTORY_LENGTH = 30
LINE_TICKS = 5
"""Ticks from one line to the next."""
AGGREGATE_ROWS_MAX = 12
HEIGHT = 24
_LINES_BESIDE_ROWS = 20
"""What the view has beside the rows of Spark's table: head 5, stages 6, frame and titles of the table 4, hints 3, and
the line at which the cursor stands."""


@dataclass(slots=True)
class Stage:
    """One stage that messages pass: a counter and the rates of the last seconds. ``word``: its effect on them."""

    label: str
    word: str
    total: int = 0
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    _at_last_tick: int = 0

    def tick(self, elapsed_s: float) -> None:
        """Takes the rate since the last tick; ``elapsed_s`` is how long that was."""
        self.rates.append((self.total - self._at_last_tick) / elapsed_s if elapsed_s > 0 else 0.0)
        self._at_last_tick = self.total

    @property
    def rate(self) -> float:
        """Messages per second at the last tick."""
        return self.rates[-1] if self.rates else 0.0

    @property
    def line_rate(self) -> float:
        """Messages per second since the last line."""
        latest = list(self.rates)[-LINE_TICKS:]
        return sum(latest) / len(latest) if latest else 0.0


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row of the telemetry job: a device's metric in one window."""

    window: str
    device: str
    metric: str
    count: int
    mean: float
    low: float
    high: float


@dataclass(slots=True)
class DemoFigures:
    """Figures that the screen shows. ``found``: messages that an earlier start has left in the data folder, None
    while that is not known. ``command``: how this ``penstock`` is called."""

    mqtt: str
    broker: str
    namesrv: str
    http: str
    data: str
    command: str = "penstock"
    found: int | None = None
    published: Stage = field(default_factory=lambda: Stage("devices publish, QoS 1", "published"))
    stored: Stage = field(default_factory=lambda: Stage("broker stores, fsynced", "stored"))
    delivered: Stage = field(default_factory=lambda: Stage("a device receives", "received"))
    consumed: Stage = field(default_factory=lambda: Stage("demo-service consumes", "consumed"))
    lag: int = 0
    devices: int = 0
    spark: str = "Spark starts behind this view; its first table follows in under a minute"
    aggregates: Sequence[Aggregate] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages in the order in which a message passes them."""
        return (self.published, self.stored, self.delivered, self.consumed)


def sparkline(rates: Sequence[float]) -> str:
    """The rates as a row of bars, scaled to the highest of them."""
    top = max(rates, default=0.0)
    if top <= 0:
        return _BARS[0] * len(rates)
    return "".join(_BARS[min(int(rate / top * (len(_BARS) - 1) + 0.5), len(_BARS) - 1)] for rate in rates)


def screen(figures: DemoFigures, height: int = HEIGHT) -> RenderableType:
    """The whole view for a terminal with a number of lines; Spark's table gets as many rows as fit."""
    rows = min(AGGREGATE_ROWS_MAX, max(1, height - _LINES_BESIDE_ROWS))
    return Group(_head(figures), _stages(figures), _aggregates(figures, rows), _hints(figures))


def line(figures: DemoFigures) -> str:
    """The view in one line, for output that is no terminal."""
    rates = "  ".join(f"{stage.word} {_shown_rate(stage.line_rate)}/s" for stage in figures.stages)
    return f"{rates}  lag {figures.lag}  spark: {figures.spark}"


def _shown_rate(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def _head(figures: DemoFigures) -> RenderableType:
    text = Text.assemble(
        ("Penstock demo", "bold"),
        f"  {figures.devices} devices · Ctrl-C stops, the next start finds the data again\n",
        ("data ", "dim"),
        f"{_found(figures)} in {figures.data}\n",
        ("mqtt ", "dim"),
        (figures.mqtt, "cyan"),
        ("   broker ", "dim"),
        (figures.broker, "cyan"),
        ("   name server ", "dim"),
        (figures.namesrv, "cyan"),
        ("   status ", "dim"),
        (f"http://{figures.http}", "cyan"),
        no_wrap=True,
        overflow="ellipsis",
    )
    return Panel(text, border_style="dim")


def _found(figures: DemoFigures) -> str:
    if figures.found is None:
        return "looking"
    return f"{figures.found:,} messages of earlier starts found" if figures.found else "a new folder,"


def _stages(figures: DemoFigures) -> RenderableType:
    table = Table(box=None, pad_edge=True, expand=False)
    table.add_column("stage")
    table.add_column("messages", justify="right")
    table.add_column("per second", justify="right")
    table.add_column("last half minute", no_wrap=True)
    for stage in figures.stages:
        table.add_row(stage.label, f"{stage.total:,}", f"{stage.rate:,.0f}", Text(sparkline(stage.rates), "green"))
    table.add_row("lag of demo-service", f"{figures.lag:,}", "", "")
    return table


def _aggregates(figures: DemoFigures, rows: int) -> RenderableType:
    if not figures.aggregates:
        return Panel(Text(figures.spark, "yellow"), title="Spark", border_style="dim")
    table = Table(box=None, pad_edge=True)
    for title in ("device", "metric"):
        table.add_column(title)
    for title in ("count", "mean", "min", "max"):
        table.add_column(title, justify="right")
    for row in figures.aggregates[:rows]:
        values = (f"{row.count:,}", f"{row.mean:.2f}", f"{row.low:.2f}", f"{row.high:.2f}")
        # anybody may publish there
        table.add_row(Text(shown(row.device)), Text(shown(row.metric)), *values)
    return Panel(table, title=f"Spark: window from {figures.aggregates[0].window}, {figures.spark}", border_style="dim")


def _hints(figures: DemoFigures) -> RenderableType:
    gateway = "" if figures.mqtt == "127.0.0.1:1883" else f" --gateway {figures.mqtt}"
    server = "" if figures.namesrv == "127.0.0.1:9876" else f" --server {figures.namesrv}"
    return Text.assemble(
        ("try  ", "dim"),
        f"{figures.command} mqtt sub{gateway} -v 'telemetry/#'\n",
        ("     ", "dim"),
        f"{figures.command}{server} consume telemetry --group me\n",
        ("     ", "dim"),
        f"{figures.command}{server} group show demo-service",
        no_wrap=True,
        overflow="ellipsis",
    )
