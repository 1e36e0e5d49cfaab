"""Lines of a log whose number others decide, each kind at a rate of its own.

A flood of one kind neither fills the disk nor hides the others; a line says how many were left out before it. Pure but
for the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.errors import InvalidConfig
from penstock.service.buckets import Bucket
from penstock.service.process_log import FIELDS

LOG_RATES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"off": (0.0, 0.0), "sampled": (1.0, 10.0), "on": (50.0, 1000.0)}
)
"""Value of ``connection_log`` -> lines of each kind in a second, and at once after a silence."""


def check_detail(connection_log: str) -> None:
    """Raises ``InvalidConfig`` for a value of ``connection_log`` that is none."""
    if connection_log not in LOG_RATES:
        raise InvalidConfig(f"connection_log is {connection_log!r}", hint=f"it is one of {', '.join(LOG_RATES)}")


class Kind:
    """The lines of one kind. ``untold``: how many were left out since the last line."""

    __slots__ = ("_bucket", "_level", "_log", "name", "untold")

    def __init__(self, log: logging.Logger, name: str, level: int, rate: tuple[float, float]) -> None:
        self.name = name
        self._log = log
        self._level = level
        self.untold = 0
        self._bucket: Bucket | None = None
        self.change(rate)

    def change(self, rate: tuple[float, float]) -> None:
        """Lines have another rate from now on, a value of ``LOG_RATES``."""
        per_s, at_once = rate
        self._bucket = Bucket(per_s, 0.0, at_once) if per_s else None

    @property
    def is_on(self) -> bool:
        """Whether the log shows lines of this level."""
        return self._bucket is not None and self._log.isEnabledFor(self._level)

    def may_say(self, now: float) -> bool:
        """Whether there is room for a line now; if not, one more is left out."""
        if not self.is_on:
            return False
        if self._bucket is not None and self._bucket.take(now):
            return True
        self.untold += 1
        return False

    def say(self, text: str, **fields: object) -> None:
        """Writes a line that may be said. ``fields``: of a line in JSON."""
        untold, self.untold = self.untold, 0
        text = f"{text}; {untold} more were left out before" if untold else text
        self._log.log(self._level, "%s %s", self.name, text, extra={FIELDS: {"event": self.name, **fields}})

    def tick(self, now: float) -> None:
        """Logs the number of lines that were left out, when the flood is over."""
        if self.untold and self._bucket is not None and self._bucket.is_full(now):
            self._bucket.take(now)
            untold, self.untold = self.untold, 0
            self._log.log(self._level, "%s: %d more were left out", self.name, untold)
