"""The real clocks."""

from __future__ import annotations

from penstock.clock import RealClock
from penstock.world import real_world


def test_monotonic_time_never_goes_back_and_wall_time_is_of_this_century() -> None:
    clock = real_world().clock
    assert isinstance(clock, RealClock)
    times = [clock.monotonic() for _ in range(100)]
    assert times == sorted(times)
    assert clock.wall_ms() > 1_600_000_000_000


def test_the_steady_clock_goes_on_with_the_monotonic_one_and_the_boot_has_one_name() -> None:
    clock = RealClock()
    first, begins = clock.steady(), clock.monotonic()
    assert clock.steady() - first >= 0
    assert clock.monotonic() - begins <= clock.steady() - first + 1
    assert clock.boot() == RealClock().boot()
