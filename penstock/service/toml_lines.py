"""At which line of a TOML file each key stands, which ``tomllib`` does not tell.

Only keys at the beginning of a line are found, as people write settings; text inside of strings and lists of several
lines is skipped. A key that is not found has no line, and the error then names the file alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

Keys = tuple[str, ...]
"""The tables that a key stands in, outermost first, and the key itself."""

_TABLE: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.\-]+|\"[^\"]+\"|'[^']+')\s*=\s*(.*)$")
_QUOTES: Final = ('"""', "'''")


def key_lines(text: str) -> dict[Keys, int]:
    """Line number, from 1 on, of each table and each key."""
    found: dict[Keys, int] = {}
    table: Keys = ()
    for number, line in _statements(text):
        head = _TABLE.match(line)
        if head:
            table = _parts(head[1])
            found.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key:
            found.setdefault(table + _parts(key[1]), number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The lines at which something begins: not those inside of a value of several lines."""
    quote, depth = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            quote = "" if quote in line else quote
        elif depth > 0:
            depth += line.count("[") - line.count("]")
        else:
            yield number, line
            value = _KEY.match(line)
            if value is None:
                continue
            opened = [one for one in _QUOTES if value[2].count(one) % 2]
            quote = opened[0] if opened else ""
            depth = 0 if quote else value[2].count("[") - value[2].count("]")


def _parts(key: str) -> Keys:
    return tuple([part.strip().strip("\"'") for part in key.split(".")])
