"""The operating system's clocks: a module of its own because it is compiled, and read several times for a message.

``penstock/world.py`` hands it out; nobody else makes one where a world is at hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

_monotonic: Final[Callable[[], float]] = time.monotonic
_time_ns: Final[Callable[[], int]] = time.time_ns


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Where time comes from. A base class, not a protocol: compiled, it is called in a fraction of the time."""

    def monotonic(self) -> float:
        """Seconds that never go back; for deadlines, leases and keep-alive."""
        raise NotImplementedError

    def wall_ms(self) -> int:
        """Milliseconds since 1970; for store times that people read. May jump."""
        raise NotImplementedError


class RealClock(Clock):
    """The operating system's clocks."""

    def monotonic(self) -> float:
        return _monotonic()

    def wall_ms(self) -> int:
        return _time_ns() // 1_000_000
