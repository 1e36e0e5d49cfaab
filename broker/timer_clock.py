"""The time by which delayed messages fire, made of the guarded wall clock and of the ages. Pure.

It runs by the steady clock and follows what is believed, and what ages go by, up in steps of at most ``JUMP_MS``. Where
the machine's clock stands further ahead, nothing fires until it is back or an operator confirms that it is right: a
message that fires early cannot be taken back (decision 51). A new process goes on where the last one of the same boot
was. After another boot it is unknown how much time has passed; then the ages decide how long to wait.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.store_clock import StoreClock, Times
from penstock.guarded_clock import RIGHT_S, GuardedClock

JUMP_MS: Final = 60_000
"""A clock that is further ahead freezes the firing."""

_log = logging.getLogger(__name__)


class TimerClock:
    """The clock of a broker's delayed messages.

    Attributes:
        frozen_s: how far the machine's clock is ahead, while nothing fires for that; 0 when it has been right for
            ``RIGHT_S``.
    """

    def __init__(self, guard: GuardedClock, store: StoreClock, times: Times | None = None) -> None:
        """``times``: of the life before."""
        self._guard = guard
        self._store = store
        now = guard.steady()
        elapsed_ms = times.elapsed_ms(guard.boot(), now) if times is not None and times.timer_ms else None
        self._goes_by_ages = elapsed_ms is None
        self._ms = times.timer_ms + elapsed_ms if times is not None and elapsed_ms is not None else 0.0
        self._read_s = self._right_s = now
        self.frozen_s = 0.0
        self._read()

    def fires_until_ms(self) -> int | None:
        """Messages that are due by then fire; ``None``: none at all."""
        self._read()
        return None if self.frozen_s else int(self._ms)

    def confirm(self) -> float:
        """An operator says that the machine's clock is right. Returns how far it was ahead, 0 where nothing was frozen:
        then nothing changes."""
        self._read()
        ahead_s, now = self.frozen_s, self._guard.steady()
        if ahead_s:
            self._guard.confirm()
            self._store.confirm()
            self._ms = float(self._guard.wall_ms())
            self._goes_by_ages = False
            self._right_s = now
            self._read()
        return ahead_s

    def times(self) -> Times:
        """The times for the next process."""
        self._read()
        return self._store.times()._replace(timer_ms=self._ms)

    def _read(self) -> None:
        now, believed_ms, age_ms = self._guard.steady(), float(self._guard.wall_ms()), float(self._store.age_ms())
        ms = age_ms if self._goes_by_ages else self._ms + (now - self._read_s) * 1000.0
        ahead_ms = self._guard.reading_ms() - ms
        follows_ms = min(believed_ms, age_ms)
        if ahead_ms > JUMP_MS:
            self._right_s = now + RIGHT_S
            self._freeze(ahead_ms / 1000.0)
        else:
            self._goes_by_ages = False
            if follows_ms - ms <= JUMP_MS:  # else a jump was believed that is undone now
                ms = follows_ms
            if now >= self._right_s:
                self._thaw()
        self._ms, self._read_s = ms, now

    def _freeze(self, ahead_s: float) -> None:
        if not self.frozen_s:
            _log.warning(
                "the machine's clock has jumped %.0f s ahead: no delayed message fires until it is back, or"
                " `penstock timer confirm-clock` says that it is right",
                ahead_s,
            )
        self.frozen_s = ahead_s

    def _thaw(self) -> None:
        if self.frozen_s:
            _log.warning("the machine's clock is right: delayed messages fire again")
        self.frozen_s = 0.0
