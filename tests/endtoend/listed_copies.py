"""Groups of copies as ``penstock replica list --json`` shows them, for tests that wait for a state."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from tests.patience import PATIENCE_S

Row = dict[str, Any]
T = TypeVar("T")


def until(ask: Callable[[], T], fact: Callable[[T], bool]) -> T:
    """Asks again and again, each time a process of its own, until something is so."""
    clock = time.monotonic
    end = clock() + PATIENCE_S
    while not fact(told := ask()):
        assert clock() < end, f"it does not come to that: {told}"
    return told


class ListedCopies(ABC):
    """A group whose nodes a command lists."""

    @abstractmethod
    def listed(self, *words: str) -> str:
        """What ``penstock replica list --json`` prints; ``words``: further options."""

    def rows(self, *words: str) -> list[Row]:
        return [json.loads(line) for line in self.listed(*words).splitlines()]

    def until(self, fact: Callable[[list[Row]], bool]) -> list[Row]:
        """The rows of the group, as soon as something is so."""
        return until(self.rows, fact)

    def level(self, count: int) -> list[Row]:
        return self.until(lambda rows: len(rows) == count and all(row["level"] for row in rows))

    def leader(self, but: str = "") -> str:
        def leads(row: Row) -> bool:
            return bool(row["role"] == "leader" and row["node"] != but)

        return next(str(row["node"]) for row in self.until(lambda rows: any(map(leads, rows))) if leads(row))
