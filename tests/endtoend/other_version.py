"""Another version of Penstock, to run beside this one: a copy of the tree in which some lines differ.

There is no released version to upgrade from or to. What another one would do that matters to the nodes of its group is
written into the copy: fields that this one does not know, facts that it does not know, another version number. A line
that is not there any more is an error, so the copies go with the code.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
Edit = tuple[str, str, str]
"""A file, a line of it, and what stands there in the other version."""

MESSAGES: Final = "penstock/protocol/requests/replicas.py"
SPEAKS: Final = "SPEAKS: Final = 1"
SPEAKS_FROM: Final = "SPEAKS_FROM: Final = 1"
ENTRIES: Final = '    members: tuple[MembersAt, ...] = ()\n    body: Bytes = b""'
UNKNOWN_FACT: Final = "%sys%moon"

NEXT: Final[Sequence[Edit]] = (
    (MESSAGES, SPEAKS, "SPEAKS: Final = 2"),
    (MESSAGES, "    is_move: bool = False", "    is_move: bool = False\n    moon: int = 1"),
    (MESSAGES, "    sync_s: float = 0.0", "    sync_s: float = 0.0\n    moon: int = 1"),
    (MESSAGES, ENTRIES, f"{ENTRIES}\n    moon: int = 1"),
    (MESSAGES, "    speaks_from: int = 1", "    speaks_from: int = 1\n    moon: int = 1"),
    (
        MESSAGES,
        "    is_pre: bool\n\n\n@value\nclass AskVote",
        "    is_pre: bool\n    moon: int = 1\n\n\n@value\nclass AskVote",
    ),
    (
        "broker/net/office.py",
        "            if not self._state.identity.log_id:",
        f'            store.append([fact_record("{UNKNOWN_FACT}", b"full")], now_ms)\n'
        "            if not self._state.identity.log_id:",
    ),
)
"""The next version: it says more, and its leaders write a fact that this one does not know."""

FAR: Final[Sequence[Edit]] = (
    (MESSAGES, SPEAKS, "SPEAKS: Final = 3"),
    (MESSAGES, SPEAKS_FROM, "SPEAKS_FROM: Final = 2"),
)
"""The one after it, which works with no node of this one any more."""


def other_version(folder: Path, edits: Sequence[Edit]) -> Path:
    """Makes the tree. It goes before this one in ``PYTHONPATH``."""
    for package in ("broker", "penstock"):
        shutil.copytree(ROOT / package, folder / package)
    for name, line, other in edits:
        path = folder / name
        text = path.read_text()
        assert text.count(line) == 1, f"{name}: {line!r} is there {text.count(line)} times"
        path.write_text(text.replace(line, other))
    return folder


def python_path(tree: Path) -> str:
    """The value of ``PYTHONPATH`` with which commands are of the other version."""
    return f"{tree}:{ROOT}"
