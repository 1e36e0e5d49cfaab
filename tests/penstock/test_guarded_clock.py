"""Twin of penstock/guarded_clock.py: jumps of the machine's wall clock, both ways, small and large."""

from __future__ import annotations

import logging

import pytest

from penstock.guarded_clock import JUMP_MS, RIGHT_S, STANDS_S, GuardedClock
from tests.penstock.hand_clock import JumpingClock

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
JUMPS = (HOUR_MS, 2 * HOUR_MS, 30 * DAY_MS, JUMP_MS + 100)


def read_for(guarded: GuardedClock, machine: JumpingClock, seconds: float, step_s: float = 0.5) -> None:
    """Time passes, and somebody reads the clock all the while."""
    end = machine.now + seconds
    while machine.now < end:
        machine.now += step_s
        guarded.wall_ms()


def shows(guarded: GuardedClock, wall_ms: int) -> bool:
    """Whether it is that time by the clock, but for a millisecond of rounding."""
    return abs(guarded.wall_ms() - wall_ms) <= 1


@pytest.mark.parametrize("jump_ms", [sign * size for size in JUMPS for sign in (1, -1)])
def test_a_jump_of_seconds_changes_nothing_and_is_told_with_its_end(
    jump_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    read_for(guarded, machine, 60.0)
    machine.set_ms += jump_ms
    for _ in range(30):
        read_for(guarded, machine, 0.1, 0.1)
        assert shows(guarded, machine.right_ms)
    assert guarded.jump_s == pytest.approx(jump_ms / 1000, abs=0.01)
    machine.set_ms -= jump_ms
    read_for(guarded, machine, RIGHT_S - 1)
    assert guarded.jump_s  # it may jump again
    read_for(guarded, machine, 2.0)
    assert (guarded.jump_s, guarded.jumps) == (0.0, 1)
    assert shows(guarded, machine.right_ms)
    assert ["jumped by" in caplog.messages[0], "right again" in caplog.messages[1]] == [True, True]
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("jump_ms", [sign * size for size in JUMPS for sign in (1, -1)])
def test_a_jump_that_stands_is_believed_after_its_time_and_not_before(
    jump_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    read_for(guarded, machine, STANDS_S)
    machine.set_ms += jump_ms
    read_for(guarded, machine, STANDS_S - 1)
    assert shows(guarded, machine.right_ms)
    read_for(guarded, machine, 2.0)
    assert shows(guarded, machine.right_ms + jump_ms)
    assert guarded.jump_s == 0.0
    assert "the time is set by" in caplog.messages[-1]


def test_a_clock_that_goes_on_jumping_is_never_believed_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    for number in range(1000):
        machine.set_ms += (HOUR_MS, -DAY_MS, 10_000)[number % 3]
        read_for(guarded, machine, 2.0)
    assert shows(guarded, machine.right_ms)
    assert len(caplog.messages) == 1


def test_a_jump_must_stand_as_a_whole_once_more_when_the_clock_was_right_in_between() -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    read_for(guarded, machine, STANDS_S)
    for _ in range(3):
        machine.set_ms += HOUR_MS
        read_for(guarded, machine, STANDS_S - 10)
        machine.set_ms -= HOUR_MS
        read_for(guarded, machine, 1.0)
    assert shows(guarded, machine.right_ms)


@pytest.mark.parametrize("step_ms", [JUMP_MS - 1, 1000, 1, -1, -1000, 1 - JUMP_MS])
def test_small_corrections_are_followed_at_once_and_are_no_jump(step_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    machine.set_ms += step_ms
    read_for(guarded, machine, 0.1, 0.1)
    assert shows(guarded, machine.wall_ms())
    assert (guarded.jumps, caplog.messages) == (0, [])


def test_time_never_goes_back_between_jumps() -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    before = 0
    for _ in range(5000):
        machine.now += 0.0237
        shown = guarded.wall_ms()
        assert before <= shown
        before = shown


def test_a_process_that_resumes_believes_the_time_of_the_one_before_and_not_the_wrong_clock() -> None:
    machine = JumpingClock()
    machine.set_ms += 2 * HOUR_MS
    guarded = GuardedClock(machine)
    guarded.resume(machine.right_ms)
    assert shows(guarded, machine.right_ms)
    assert guarded.jump_s == pytest.approx(7200, abs=0.01)
    read_for(guarded, machine, STANDS_S - 1)
    assert shows(guarded, machine.right_ms)
    read_for(guarded, machine, 2.0)
    assert shows(guarded, machine.wall_ms())


def test_a_start_on_a_clock_that_is_ahead_is_mended_as_soon_as_the_clock_is_if_a_witness_is_known() -> None:
    machine = JumpingClock()
    machine.set_ms += 30 * DAY_MS
    guarded = GuardedClock(machine)
    guarded.witness(machine.right_ms - HOUR_MS)  # the log's last time
    guarded.witness(guarded.wall_ms())  # a broker of the same process says what it has from here
    read_for(guarded, machine, 3.0)
    machine.set_ms -= 30 * DAY_MS
    read_for(guarded, machine, 0.5)
    assert shows(guarded, machine.right_ms)
    assert guarded.jump_s == 0.0


def test_a_start_on_a_clock_that_is_behind_the_log_is_mended_as_soon_as_the_clock_is() -> None:
    machine = JumpingClock()
    machine.set_ms -= 20 * 365 * DAY_MS
    guarded = GuardedClock(machine)
    guarded.witness(machine.right_ms - HOUR_MS)
    read_for(guarded, machine, 30.0)
    machine.set_ms += 20 * 365 * DAY_MS
    read_for(guarded, machine, 0.5)
    assert shows(guarded, machine.right_ms)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -30 * DAY_MS])
def test_a_witness_makes_no_jump_of_a_good_clock_likelier(jump_ms: int) -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    guarded.witness(machine.right_ms - HOUR_MS)
    machine.set_ms += jump_ms
    read_for(guarded, machine, 3.0)
    assert shows(guarded, machine.right_ms)


def test_once_the_clock_has_stood_a_witness_says_nothing_more() -> None:
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    guarded.witness(machine.right_ms - 2 * HOUR_MS)
    read_for(guarded, machine, STANDS_S + 1)
    machine.set_ms -= HOUR_MS
    read_for(guarded, machine, 3.0)
    assert shows(guarded, machine.right_ms)


def test_the_log_has_no_line_while_the_clock_is_right(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    machine = JumpingClock()
    guarded = GuardedClock(machine)
    read_for(guarded, machine, 3600.0, 5.0)
    assert caplog.messages == []
