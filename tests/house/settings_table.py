"""Draws the settings tables of docs/guide/settings.md; ``python tests/house/settings_table.py`` writes them there.

A setting is a row as its field declares it (``penstock/service/setting.py``); constants have none.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from broker.settings import BrokerSettings  # noqa: E402
from console.settings import ConsoleSettings  # noqa: E402
from events.settings import EventsSettings  # noqa: E402
from gateway.settings import GatewaySettings  # noqa: E402
from namesrv.settings import NamesrvSettings  # noqa: E402
from node.settings import NodeSettings  # noqa: E402
from penstock.service.process_log import LogSettings  # noqa: E402
from penstock.service.setting import declared  # noqa: E402
from remoting.settings import RemotingSettings  # noqa: E402

PAGE = ROOT / "docs" / "guide" / "settings.md"
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
TABLES: list[tuple[str, Any]] = [
    ("Top of the file", NodeSettings),
    ("`[log]`, also for a service that runs alone", LogSettings),
    ("`[namesrv]`", NamesrvSettings),
    ("`[broker]`", BrokerSettings),
    ("`[gateway]`", GatewaySettings),
    ("`[console]`", ConsoleSettings),
    ("`[events]`", EventsSettings),
    ("`python -m remoting --config FILE`", RemotingSettings),
]


def written(name: str, value: Any) -> str:
    """A default as one would write it in the file."""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f"{one:g}" if isinstance(one, float) else f'"{one}"' for one in value) + "]`"
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
        means = {name: one.meaning.replace("|", "\\|") for name, one in declared(cls).items() if not one.is_constant}
        defaults = {one.name: one.default for one in dataclasses.fields(cls)}
        rows = [f"| `{name}` | {written(name, defaults[name])} | {text} |" for name, text in means.items()]
        parts.append("\n".join([f"{title}:", "", "| setting | default | meaning |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def main() -> None:
    """Writes the tables into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + tables() + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
