"""The operating system's clocks: a module of its own because it is compiled, and read several times for a message.

``penstock/world.py`` hands it out; nobody else makes one where a world is at hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

_monotonic: Final[Callable[[], float]] = time.monotonic
_time_ns: Final[Callable[[], int]] = time.time_ns


class Clock(Protocol):
    """Where time comes from."""

    def monotonic(self) -> float:
        """Seconds that never go back; for deadlines, leases and keep-alive."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; for store times that people read. May jump."""
        ...


class RealClock:
    """The operating system's clocks."""

    def monotonic(self) -> float:
        return _monotonic()

    def wall_ms(self) -> int:
        return _time_ns() // 1_000_000
