"""Time that a test moves."""

from __future__ import annotations

from penstock.clock import Clock


class HandClock(Clock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0
