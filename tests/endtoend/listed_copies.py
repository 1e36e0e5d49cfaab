"""Groups of copies as ``penstock replica list --json`` shows them, for tests that wait for a state."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tests.patience import poll

Row = dict[str, Any]


class ListedCopies(ABC):
    """A group whose nodes a command lists."""

    @abstractmethod
    def listed(self, *words: str) -> str:
        """What ``penstock replica list --json`` prints; ``words``: further options."""

    def rows(self, *words: str) -> list[Row]:
        return [json.loads(line) for line in self.listed(*words).splitlines()]

    def until(self, fact: Callable[[list[Row]], bool]) -> list[Row]:
        """The rows of the group, as soon as something is so."""
        return poll("a state of the group", self.rows, fact)

    def level(self, count: int) -> list[Row]:
        return self.until(lambda rows: len(rows) == count and all(row["level"] for row in rows))

    def leader(self, but: str = "") -> str:
        def leads(row: Row) -> bool:
            return bool(row["role"] == "leader" and row["node"] != but)

        return next(str(row["node"]) for row in self.until(lambda rows: any(map(leads, rows))) if leads(row))
