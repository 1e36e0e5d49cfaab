"""Draws the settings tables of docs/guide/settings.md; ``python tests/house/settings_table.py`` writes them there.

A setting's default is that of its field, its meaning what the class's docstring says under ``Attributes``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from broker.settings import BrokerSettings  # noqa: E402
from broker.store.settings import StoreSettings  # noqa: E402
from console.settings import ConsoleSettings  # noqa: E402
from events.settings import EventsSettings  # noqa: E402
from gateway.settings import GatewaySettings  # noqa: E402
from namesrv.settings import NamesrvSettings  # noqa: E402
from node.settings import NodeSettings  # noqa: E402
from penstock.service.access_settings import AccessSettings  # noqa: E402
from penstock.service.process_log import LogSettings  # noqa: E402
from remoting.settings import RemotingSettings  # noqa: E402

PAGE = ROOT / "docs" / "guide" / "settings.md"
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
# Title, the class, and others where some of its settings come from.
TABLES: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("Top of the file", NodeSettings, (AccessSettings,)),
    ("`[log]`, also for a service that runs alone", LogSettings, ()),
    ("`[namesrv]`", NamesrvSettings, (AccessSettings,)),
    ("`[broker]`", BrokerSettings, (AccessSettings, StoreSettings)),
    ("`[gateway]`", GatewaySettings, ()),
    ("`[console]`", ConsoleSettings, ()),
    ("`[events]`", EventsSettings, (AccessSettings,)),
    ("`python -m remoting --config FILE`", RemotingSettings, (AccessSettings,)),
]
_ENTRY = re.compile(r"\n {4}(\w+(?:, \w+)*): (.+?)(?=\n {4}\w+(?:, \w+)*: |\n\n|\Z)", re.DOTALL)


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


def meanings(cls: Any) -> dict[str, str]:
    """What the docstring of a class of settings says of each."""
    attributes = inspect.cleandoc(cls.__doc__).partition("Attributes:")[2]
    found = {}
    for names, text in _ENTRY.findall(attributes):
        for name in names.split(", "):
            found[name] = " ".join(text.split()).replace("``", "`").replace("|", "\\|").removesuffix(".")
    return found


def tables() -> str:
    """All tables, as they stand in the page."""
    parts = []
    for title, cls, bases in TABLES:
        means = {name: text for one in (*bases, cls) for name, text in meanings(one).items()}
        rows = [
            f"| `{one.name}` | {written(one.name, one.default)} | {means[one.name]} |"
            for one in dataclasses.fields(cls)
        ]
        parts.append("\n".join([f"{title}:", "", "| setting | default | meaning |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def main() -> None:
    """Writes the tables into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + tables() + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
