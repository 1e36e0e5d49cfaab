"""How far a process has come, for its status pages: they open before anything else does.

While it starts or stops it is not ready, and the reason names the present step. Its parts add their own reasons as soon
as they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.service import footprint

STARTING: Final = "starting"
STOPPING: Final = "stopping"

ReadFigures = Callable[[], Mapping[str, float]]
ReadReasons = Callable[[], Sequence[str]]


class Readiness:
    """Readiness of a process, as it knows it itself.

    Attributes:
        doing: the present step, empty while it serves. Any thread may set it.
    """

    def __init__(self) -> None:
        self.doing = STARTING
        self._parts: list[tuple[ReadFigures, ReadReasons]] = []

    def begin(self, doing: str) -> None:
        """Begins a step, which is the reason for not being ready."""
        self.doing = doing

    def add(self, figures: ReadFigures, reasons: ReadReasons) -> None:
        """A part runs: its figures, and its reasons not to send traffic here."""
        self._parts.append((figures, reasons))

    def serves(self) -> None:
        """Marks the process as serving: all parts run."""
        self.doing = ""

    async def figures(self) -> Mapping[str, float]:
        """The figures of the running parts, and of the process."""
        found: dict[str, float] = {}
        for figures, _ in self._parts:
            found |= figures()
        return found | footprint.read()

    async def reasons(self) -> Sequence[str]:
        """The reasons why it is not ready; none if it is."""
        found = [self.doing] if self.doing else []
        for _, reasons in self._parts:
            found += reasons()
        return found
