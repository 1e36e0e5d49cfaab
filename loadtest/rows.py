"""Measured values beside their goals, as a table."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """``goal``: what the project's issue asks for, empty for nothing; ``is_reached`` says whether ``value`` is that."""

    name: str
    value: float
    unit: str
    goal: str
    is_reached: bool


def show(console: Console, title: str, rows: list[Row]) -> None:
    """Prints the rows as a table."""
    table = Table(title, "value", "unit", "goal", "")
    for row in rows:
        value = f"{row.value:,.0f}" if row.value >= 100 else f"{row.value:.2f}"
        table.add_row(row.name, value, row.unit, row.goal, row.goal and ("reached" if row.is_reached else "missed"))
    console.print(table)
