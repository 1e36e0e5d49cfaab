from __future__ import annotations

from io import StringIO

from rich.console import Console

from loadtest.spark.bench import Measured, Plan
from loadtest.spark.job import COUNT, LIVE, WINDOWS, Run
from loadtest.spark.report import failures, show


def test_the_tables_have_times_rates_ratios_and_what_failed() -> None:
    runs = [
        Run(COUNT, "penstock", 1, 2.0, 1_000_000, 3.0, 0.5),
        Run(COUNT, "kafka", 1, 4.0, 1_000_000, 3.0, 0.5),
        Run(LIVE, "penstock", 1, 5.0, 60, figures={"p50_s": 0.2, "p95_s": 0.3}),
        Run(WINDOWS, "parquet", 1, error="found [1], stored [2]"),
    ]
    measured = Measured(Plan(), "compiled", "4.1.0", {"x": "why"}, runs)
    console = Console(width=160, file=StringIO())
    show(measured, console)
    assert isinstance(console.file, StringIO)
    said = console.file.getvalue()
    assert "500,000" in next(line for line in said.splitlines() if line.split()[:2] == ["count", "penstock"])
    assert "0.50x" in said
    assert "p50_s 0.20, p95_s 0.30" in said
    assert "found [1], stored [2]" in said
    assert "x takes no part: why" in said
    assert failures(measured) == 1
