"""A wall clock that does not follow a jump of the machine's clock at once. Pure.

Time follows the steady clock and small corrections of the wall clock. A reading that is further off is a *jump*: it is
believed once it has stood for ``STANDS_S`` (decision 29). A new process has no earlier reading; ``resume`` and
``witness`` give it the readings of others.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.clock import Clock

JUMP_MS: Final = 2_000
"""A reading that is further off is a jump. A leap second is none."""
STANDS_S: Final = 600.0
"""How long the machine's clock must go on from where it has jumped to until that is believed."""
RIGHT_S: Final = 10.0
"""How long it must be right again until the jump is over, so that the log has two lines at most in that time."""
LOOK_S: Final = 0.05
"""How often the machine's wall clock is checked, as long as the time is asked for."""

_log = logging.getLogger(__name__)


class GuardedClock(Clock):
    """The clock of a service.

    Attributes:
        jumps: number of jumps since the start.
        jump_s: size of the last jump, back if negative, until it is over or believed; 0 otherwise.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.steady()
        # Three wall-clock times at the steady clock's 0: as believed, as read last, and the least that can be.
        self._zero_ms = clock.wall_ms() - now * 1000.0
        self._read_ms = self._zero_ms
        self._least_ms: float | None = None
        self._proves_s = now + STANDS_S  # from then on what is believed has stood
        self._looked_s = now
        self._read_s = now  # since when ``_read_ms`` stands
        self.jumps = 0
        self.jump_s = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def steady(self) -> float:
        return self._clock.steady()

    def boot(self) -> str:
        return self._clock.boot()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as believed. Goes back only where a jump back is believed."""
        now = self._clock.steady()
        if now - self._looked_s >= LOOK_S:
            self._look(now)
        return int(self._zero_ms + now * 1000.0)

    def reading_ms(self) -> float:
        """The same as the machine's wall clock showed it when it was last looked at."""
        return self._read_ms + self._clock.steady() * 1000.0

    def resume(self, wall_ms: float) -> None:
        """Goes on with the time that an earlier process of this boot believed, which has stood already."""
        now = self._clock.steady()
        self._zero_ms = wall_ms - now * 1000.0
        self._proves_s = now
        self._look(now)

    def witness(self, wall_ms: int) -> None:
        """Another clock has shown this time: in the log, or at a broker. Until a reading has stood, the one that is
        nearer to the earliest such time is believed, unless it is before it."""
        now = self._clock.steady()
        least_ms = wall_ms - now * 1000.0
        if self._least_ms is None or least_ms < self._least_ms:
            self._least_ms = least_ms
        self._look(now)

    def confirm(self) -> None:
        """An operator says that the machine's clock is right: it is believed at once."""
        now = self._clock.steady()
        self._look(now)
        if self.jump_s:
            self._believe(self._read_ms, "as an operator has confirmed")
            self._read_s = now

    def figures(self) -> dict[str, float]:
        """The figures of the status pages, by metric name."""
        self._look(self._clock.steady())
        return {"process_clock_jump_s": self.jump_s, "process_clock_jumps_total": self.jumps}

    def _look(self, now: float) -> None:
        """Compares the machine's clocks."""
        self._looked_s = now
        zero_ms = self._clock.wall_ms() - now * 1000.0
        apart_ms = zero_ms - self._zero_ms
        is_jump, was_jump = abs(apart_ms) > JUMP_MS, abs(self._read_ms - self._zero_ms) > JUMP_MS
        if is_jump != was_jump or abs(zero_ms - self._read_ms) > JUMP_MS:
            self._read_s = now
        self._read_ms = zero_ms
        if is_jump:
            self._doubt(now, zero_ms, apart_ms)
            return
        if not -1.0 <= apart_ms <= 0.0:  # a reading is rounded down to a millisecond
            self._zero_ms = zero_ms
        if self.jump_s and now - self._read_s >= RIGHT_S:
            _log.warning("the machine's clock is right again; it had jumped by %+.0f s", self.jump_s)
            self.jump_s = 0.0

    def _doubt(self, now: float, zero_ms: float, apart_ms: float) -> None:
        is_new = not self.jump_s
        self.jump_s = apart_ms / 1000.0
        if now < self._proves_s and self._is_likelier(zero_ms):
            self._believe(zero_ms, "which fits the log or the brokers better")
            return
        if is_new:
            self.jumps += 1
            _log.warning(
                "the machine's clock has jumped by %+.0f s: it is not believed until it has stood for %.0f minutes",
                self.jump_s,
                STANDS_S / 60,
            )
        if now - self._read_s >= STANDS_S:
            self._believe(zero_ms, f"which has stood for {STANDS_S / 60:.0f} minutes")

    def _is_likelier(self, zero_ms: float) -> bool:
        """Whether a reading is nearer to what is known to have passed than what is believed."""
        least_ms = self._least_ms
        if least_ms is None or zero_ms < least_ms - JUMP_MS:
            return False
        return zero_ms < self._zero_ms or self._zero_ms < least_ms - JUMP_MS

    def _believe(self, zero_ms: float, why: str) -> None:
        _log.warning("the time is set by %+.0f s to the machine's clock, %s", self.jump_s, why)
        self._zero_ms = zero_ms
        self.jump_s = 0.0
