"""The operating system's clocks: a module of its own because it is compiled, and read several times for a message.

``penstock/world.py`` makes the clock; code that has a world takes it from there. Services read the wall clock through
``guarded_clock.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mypy_extensions import mypyc_attr

_monotonic: Final[Callable[[], float]] = time.monotonic
_time_ns: Final[Callable[[], int]] = time.time_ns
_clock_gettime: Final[Callable[[int], float]] = time.clock_gettime
_STEADY: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux has the first
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """A source of time. A base class, not a protocol: compiled, it is called in a fraction of the time."""

    def monotonic(self) -> float:
        """Seconds that never go back; for deadlines, leases and keep-alive."""
        raise NotImplementedError

    def wall_ms(self) -> int:
        """Milliseconds since 1970; for store times that people read. May jump."""
        raise NotImplementedError

    def steady(self) -> float:
        """Seconds that never go back and go on while the machine is suspended; what the wall clock is compared with."""
        return self.monotonic()

    def boot(self) -> str:
        """The name of the time since which ``steady`` counts: processes with the same name read the same clock. Empty:
        unknown."""
        return ""


class RealClock(Clock):
    """The operating system's clocks."""

    def monotonic(self) -> float:
        return _monotonic()

    def wall_ms(self) -> int:
        return _time_ns() // 1_000_000

    def steady(self) -> float:
        return _clock_gettime(_STEADY)

    def boot(self) -> str:
        try:
            return Path(_BOOT_ID).read_text().strip()
        except OSError:
            return ""
