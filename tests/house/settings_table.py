"""Draws the settings tables of docs/guide/operator.md; ``python tests/house/settings_table.py`` writes them there."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from broker.settings import BrokerSettings  # noqa: E402
from gateway.settings import GatewaySettings  # noqa: E402
from namesrv.settings import NamesrvSettings  # noqa: E402
from node.settings import NodeSettings  # noqa: E402

PAGE = ROOT / "docs" / "guide" / "operator.md"
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
TABLES: list[tuple[str, Any]] = [
    ("Top of the file", NodeSettings),
    ("`[namesrv]`", NamesrvSettings),
    ("`[broker]`", BrokerSettings),
    ("`[gateway]`", GatewaySettings),
]


def written(name: str, value: Any) -> str:
    """A default as one would write it in the file."""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{one}"' for one in value) + "]`"
    if isinstance(value, int) and "bytes" in name.split("_") and value and value % (1 << 10) == 0:
        power = max(one for one in (10, 20, 30) if value % (1 << one) == 0)
        return f'`"{value >> power}{ {10: "KiB", 20: "MiB", 30: "GiB"}[power] }"`'
    if isinstance(value, float):
        return f"`{value:g}`"
    return f'`"{value}"`' if isinstance(value, str | Path) else f"`{value}`"


def tables() -> str:
    """All tables, as they stand in the page."""
    parts = []
    for title, cls in TABLES:
        rows = [f"| `{one.name}` | {written(one.name, one.default)} |" for one in dataclasses.fields(cls)]
        parts.append("\n".join([f"{title}:", "", "| setting | default |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def main() -> None:
    """Writes the tables into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + tables() + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
