"""Time that a test moves."""

from __future__ import annotations

import trio

from penstock.clock import Clock, RealClock


class HandClock(Clock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class JumpingClock(Clock):
    """A machine's clocks, of which a test moves the steady one and sets the wall clock.

    Attributes:
        set_ms: what the wall clock shows at 0 s.
    """

    def __init__(self, set_ms: int = 1_700_000_000_000, boot: str = "") -> None:
        self.now = 1000.0
        self.set_ms = self._right_ms = set_ms
        self._boot = boot

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return self.set_ms + int(self.now * 1000)

    @property
    def right_ms(self) -> int:
        """What the wall clock would show if nobody had set it."""
        return self._right_ms + int(self.now * 1000)

    def boot(self) -> str:
        return self._boot


class SetClock(Clock):
    """The machine's clocks, of which a test sets the wall clock.

    Attributes:
        ahead_ms: how far it is ahead.
    """

    def __init__(self) -> None:
        self._clock = RealClock()
        self.ahead_ms = 0

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.ahead_ms

    def boot(self) -> str:
        return "one"


class AheadClock(Clock):
    """The machine's clocks, of which a test moves the steady one on.

    Attributes:
        ahead_s: how far it is ahead.
    """

    def __init__(self) -> None:
        self._clock = RealClock()
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.ahead_s

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


class TrioClock(Clock):
    """The time of trio's clock, which jumps."""

    def monotonic(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return RealClock().wall_ms()
