"""The times that a broker stores and judges ages by, made of the guarded wall clock. Pure.

Store times never go back: where the log has a later time than the clock, they go on from it at a tenth of the speed
until the clock has caught up. Ages, by which a broker removes what cannot come back (retention, ended sessions, silent
groups), follow a clock that is far ahead of them only when it has stood for ``STANDS_S``, also over a restart
(decision 29). ``Times`` is what one life of a broker leaves to the next for that.
"""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Final, NamedTuple

from broker.store.disk import Disk
from penstock.clock import Clock
from penstock.guarded_clock import GuardedClock

PATH: Final = "clock"
"""The file of ``Times`` in the data folder. It may be lost: then the log's last time counts."""
SPEED: Final = 0.1
"""How fast store times go while they are ahead of the clock."""
FAR_MS: Final = 600_000
"""A clock that is further ahead of the ages is believed when it has stood for ``STANDS_S``."""
STANDS_S: Final = 3600.0
APART_MS: Final = 2_000
"""A difference that is reported."""

_log = logging.getLogger(__name__)


class Times(NamedTuple):
    """A broker's knowledge of the time.

    Attributes:
        boot, steady_s: of the machine's steady clock then.
        wall_ms: the wall clock, as believed.
        age_ms: the time that ages were judged by.
        timer_ms: the time by which delayed messages fired; 0 if that is not known.
    """

    boot: str
    steady_s: float
    wall_ms: float
    age_ms: float
    timer_ms: float = 0.0

    def encode(self) -> bytes:
        """The file's content."""
        return json.dumps(self._asdict()).encode() + b"\n"

    def elapsed_ms(self, boot: str, steady_s: float) -> float | None:
        """Time from then to a moment of the same boot; ``None`` in another boot, where it is unknown."""
        elapsed_ms = (steady_s - self.steady_s) * 1000.0
        return elapsed_ms if boot and boot == self.boot and elapsed_ms >= 0 else None


def decode_times(data: bytes) -> Times | None:
    """The content of the file, ``None`` where it is damaged."""
    try:
        values = json.loads(data)
        boot, numbers = values["boot"], [values[name] for name in ("steady_s", "wall_ms", "age_ms")]
        numbers.append(values.get("timer_ms", 0.0))
    except (ValueError, KeyError, TypeError):
        return None
    good = isinstance(boot, str) and all(isinstance(one, int | float) and 0 <= one < 1 << 53 for one in numbers)
    return Times(boot, *numbers) if good else None


def read_times(disk: Disk) -> Times | None:
    """The times that the last process left, ``None`` if the file is missing or damaged."""
    with contextlib.suppress(OSError):
        return decode_times(disk.read(PATH))
    return None


def write_times(disk: Disk, times: Times) -> None:
    """Leaves it to the next life. A file that cannot be written is none: then the log's last time counts."""
    with contextlib.suppress(OSError):
        for _ in disk.replace(PATH, [times.encode()]):
            pass


class StoreClock(Clock):
    """The clock of a broker; its ``wall_ms`` is the store time."""

    def __init__(self, clock: Clock, last_ms: int, times: Times | None = None) -> None:
        """``last_ms``: store time of the log's last record, 0 if it has none; ``times``: of the life before."""
        self._clock = clock
        now, wall_ms = clock.steady(), clock.wall_ms()
        self._store_ms = float(max(wall_ms, last_ms))
        self._stored_s = now
        elapsed_ms = times.elapsed_ms(clock.boot(), now) if times is not None else None
        known_ms = float(last_ms or wall_ms)
        if times is not None:
            known_ms = times.age_ms + (elapsed_ms or 0.0)
        self._age_ms = known_ms
        self._aged_s = now
        self._ahead_ms = 0.0  # how far the clock is ahead of the ages, if that is too far
        self._ahead_s = now  # since when it is so

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def steady(self) -> float:
        return self._clock.steady()

    def boot(self) -> str:
        return self._clock.boot()

    def wall_ms(self) -> int:
        """The store time of a message that is stored now. Never goes back."""
        now, wall_ms = self._clock.steady(), float(self._clock.wall_ms())
        least_ms = self._store_ms + (now - self._stored_s) * 1000.0 * SPEED
        self._store_ms = wall_ms if wall_ms >= least_ms else least_ms
        self._stored_s = now
        return int(self._store_ms)

    def age_ms(self) -> int:
        """The time to judge by how long ago something was stored, before it is removed for good."""
        now, wall_ms = self._clock.steady(), float(self._clock.wall_ms())
        age_ms = self._age_ms + (now - self._aged_s) * 1000.0
        ahead_ms = wall_ms - age_ms
        if ahead_ms <= FAR_MS:
            age_ms, self._ahead_ms = wall_ms, 0.0
        elif abs(ahead_ms - self._ahead_ms) > APART_MS:
            self._ahead_ms, self._ahead_s = ahead_ms, now
        elif now - self._ahead_s >= STANDS_S:
            age_ms, self._ahead_ms = wall_ms, 0.0
        self._age_ms, self._aged_s = age_ms, now
        return int(age_ms)

    def confirm(self) -> None:
        """An operator says that the machine's clock is right: ages go by it at once."""
        self._age_ms, self._aged_s = float(self._clock.wall_ms()), self._clock.steady()
        self._ahead_ms = 0.0

    def times(self) -> Times:
        """The times for the next process."""
        return Times(self._clock.boot(), self._clock.steady(), self._clock.wall_ms(), self.age_ms())

    def figures(self) -> dict[str, float]:
        """The figures of the status pages, by metric name."""
        ahead_ms = self.wall_ms() - self._clock.wall_ms()
        self.age_ms()
        return {
            "penstock_store_time_ahead_s": ahead_ms / 1000 if ahead_ms > APART_MS else 0.0,
            "penstock_ages_behind_s": self._ahead_ms / 1000,
        }


def compare(guard: GuardedClock, last_ms: int, times: Times | None) -> StoreClock:
    """The clock of a broker that starts: the machine's is compared with the log (``last_ms`` as for ``StoreClock``) and
    with what the life before has left, and what is odd is logged."""
    elapsed_ms = times.elapsed_ms(guard.boot(), guard.steady()) if times is not None else None
    if times is not None and elapsed_ms is not None:
        guard.resume(times.wall_ms + elapsed_ms)
    elif last_ms:
        guard.witness(last_ms)
    clock = StoreClock(guard, last_ms, times)
    figures = clock.figures()
    ahead_s, behind_s = figures["penstock_store_time_ahead_s"], figures["penstock_ages_behind_s"]
    if ahead_s:
        _log.warning(
            "the log's last store time is %.0f s ahead of the clock: store times go slowly until then", ahead_s
        )
    if behind_s:
        _log.warning(
            "the clock is %.0f s ahead of the log: retention by age and ends of sessions and of silent groups wait"
            " until it has stood for %.0f minutes",
            behind_s,
            STANDS_S / 60,
        )
    return clock
