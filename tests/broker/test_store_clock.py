"""Twin of broker/store_clock.py."""

from __future__ import annotations

import pytest

from broker.store_clock import FAR_MS, SPEED, STANDS_S, StoreClock, Times, decode_times
from tests.penstock.hand_clock import JumpingClock

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def passed(machine: JumpingClock, clock: StoreClock, seconds: float) -> None:
    """Time passes, and the broker ticks all the while."""
    end = machine.now + seconds
    while machine.now < end:
        machine.now = min(end, machine.now + 5.0)
        clock.age_ms()


def test_store_time_is_the_clocks_where_the_log_is_behind_it() -> None:
    machine = JumpingClock()
    clock = StoreClock(machine, machine.wall_ms() - DAY_MS)
    assert clock.wall_ms() == machine.wall_ms()
    machine.now += 10.0
    assert clock.wall_ms() == machine.wall_ms()


def test_store_time_never_goes_back_whatever_the_clock_does() -> None:
    machine = JumpingClock()
    clock = StoreClock(machine, 0)
    before = 0
    for number in range(2000):
        machine.now += 0.01
        machine.set_ms += (0, 5, -700, 0, HOUR_MS, -2 * HOUR_MS)[number % 6]
        shown = clock.wall_ms()
        assert before <= shown
        before = shown


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, 30 * DAY_MS])
def test_a_log_that_is_ahead_of_the_clock_is_caught_up_with_in_little_more_than_that_time(ahead_ms: int) -> None:
    machine = JumpingClock()
    clock = StoreClock(machine, machine.wall_ms() + ahead_ms)
    assert clock.figures()["penstock_store_time_ahead_s"] == pytest.approx(ahead_ms / 1000, abs=1)
    machine.now += 100.0
    assert clock.wall_ms() == pytest.approx(machine.wall_ms() + ahead_ms - 100_000 * (1 - SPEED), abs=1)
    machine.now += ahead_ms / 1000 / (1 - SPEED)
    assert clock.wall_ms() == machine.wall_ms()
    assert clock.figures()["penstock_store_time_ahead_s"] == 0


@pytest.mark.parametrize("off_ms", [0, 1000, FAR_MS - 1000])
def test_ages_follow_the_clock_at_once_after_a_short_stop(off_ms: int) -> None:
    machine = JumpingClock()
    clock = StoreClock(machine, machine.wall_ms() - off_ms)
    assert clock.age_ms() == machine.wall_ms()
    assert clock.figures()["penstock_ages_behind_s"] == 0


@pytest.mark.parametrize("off_ms", [2 * HOUR_MS, 30 * DAY_MS])
def test_a_machine_that_was_off_for_long_judges_by_the_clock_when_it_has_stood(off_ms: int) -> None:
    machine = JumpingClock()
    last_ms = machine.wall_ms() - off_ms
    clock = StoreClock(machine, last_ms)
    assert clock.wall_ms() == machine.wall_ms()  # stored times are right at once
    assert clock.age_ms() == last_ms
    assert clock.figures()["penstock_ages_behind_s"] == off_ms / 1000
    passed(machine, clock, STANDS_S - 1)
    assert clock.age_ms() == pytest.approx(last_ms + (STANDS_S - 1) * 1000, abs=10)
    passed(machine, clock, 2.0)
    assert clock.age_ms() == machine.wall_ms()
    assert clock.figures()["penstock_ages_behind_s"] == 0


def test_ages_do_not_follow_a_start_on_a_wrong_clock_nor_the_starts_after_it() -> None:
    machine = JumpingClock()
    last_ms = machine.wall_ms() - 1000
    machine.set_ms += 30 * DAY_MS
    times: Times | None = None
    for _ in range(5):
        clock = StoreClock(machine, last_ms, times)
        passed(machine, clock, 600.0)
        times = decode_times(clock.times().encode())
        last_ms = clock.wall_ms()  # what it has stored
    machine.set_ms -= 30 * DAY_MS
    assert clock.age_ms() == machine.wall_ms()
    assert clock.figures()["penstock_ages_behind_s"] == 0


def test_a_clock_that_goes_on_jumping_forward_is_not_judged_by() -> None:
    machine = JumpingClock()
    clock = StoreClock(machine, machine.wall_ms())
    right = machine.wall_ms()
    for _ in range(100):
        machine.set_ms += DAY_MS
        passed(machine, clock, 600.0)
    assert clock.age_ms() == pytest.approx(right + 100 * 600_000, abs=1000)


def test_a_clock_that_is_behind_makes_nothing_older() -> None:
    machine = JumpingClock()
    clock = StoreClock(machine, machine.wall_ms() + 30 * DAY_MS)
    assert clock.age_ms() == machine.wall_ms()
    machine.set_ms -= DAY_MS
    assert clock.age_ms() == machine.wall_ms()


def test_a_new_log_has_nothing_to_wait_for() -> None:
    machine = JumpingClock()
    clock = StoreClock(machine, 0)
    assert clock.age_ms() == clock.wall_ms() == machine.wall_ms()
    assert set(clock.figures().values()) == {0.0}


def test_the_next_life_of_the_same_boot_knows_how_much_time_has_passed() -> None:
    machine = JumpingClock(boot="a")
    times = StoreClock(machine, 0).times()
    machine.now += 3600.0
    assert times.elapsed_ms("a", machine.steady()) == 3_600_000
    assert times.elapsed_ms("b", machine.steady()) is None
    assert times.elapsed_ms("a", 5.0) is None  # a clock that was restored with its machine
    assert StoreClock(machine, 0, times).age_ms() == machine.wall_ms()
    assert Times("", 1.0, 2.0, 3.0).elapsed_ms("", 5.0) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"1", b"\xff", b'{"boot": "a"}', b'{"boot": 1, "steady_s": 1, "wall_ms": 1, "age_ms": 1}']
    + [b'{"boot": "a", "steady_s": 1, "wall_ms": %s, "age_ms": 1}' % one for one in (b"-1", b"1e300", b'"x"', b"NaN")],
)
def test_a_damaged_file_is_no_file(data: bytes) -> None:
    assert decode_times(data) is None


def test_the_file_gives_back_what_was_written() -> None:
    times = Times("boot", 12.5, 1_700_000_000_000.0, 1_700_000_000_001.0, 1_700_000_000_002.0)
    data = times.encode()
    assert decode_times(data) == times
    older = b'{"boot": "boot", "steady_s": 12.5, "wall_ms": 1700000000000.0, "age_ms": 1700000000001.0}'
    assert data == older[:-1] + b', "timer_ms": 1700000000002.0}\n'
    assert decode_times(older) == times._replace(timer_ms=0.0)
