"""The time by which delayed messages fire: never ahead of a clock that an operator or time itself has proved."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store_clock import FAR_MS, StoreClock, Times, compare
from broker.store_clock import STANDS_S as AGES_S
from broker.timer_clock import JUMP_MS, TimerClock
from penstock.guarded_clock import RIGHT_S, STANDS_S, GuardedClock
from tests.penstock.hand_clock import JumpingClock

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.sampled_from([1, 15, 700, 8000])),
        st.tuples(st.just("jump"), st.sampled_from([JUMP_MS + 2_000, HOUR_MS, 2 * DAY_MS])),
        st.tuples(st.sampled_from(["back", "restart", "confirm"]), st.just(0)),
    ),
    max_size=12,
)


class Machine:
    """A machine with a broker's clocks, which is read all the while."""

    def __init__(self) -> None:
        self.hand = JumpingClock(boot="a")
        self.begin(None)

    def begin(self, times: Times | None, boot: str = "a") -> None:
        """A broker starts, with the times that the one before it has left."""
        self.hand._boot = boot
        self.guard = GuardedClock(self.hand)
        self.store: StoreClock = compare(self.guard, 0, times)
        self.clock = TimerClock(self.guard, self.store, times)

    def pass_s(self, seconds: float) -> None:
        end = self.hand.now + seconds
        while self.hand.now < end:
            self.hand.now = min(end, self.hand.now + max(0.5, seconds / 300))
            self.clock.fires_until_ms()

    @property
    def frozen(self) -> bool:
        return self.clock.fires_until_ms() is None


@given(STEPS)
def test_whatever_jumps_nothing_fires_early_and_what_is_not_frozen_is_on_time(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    right_ms = machine.hand.set_ms
    for what, size in steps:
        if what == "pass":
            machine.pass_s(size)
        elif what == "jump":
            machine.hand.set_ms += size
        elif what == "back":
            machine.hand.set_ms = right_ms
        elif what == "restart":
            times = machine.clock.times()
            machine.hand.now += 1.0
            machine.begin(times)
        elif machine.clock.confirm():
            right_ms = machine.hand.set_ms
        machine.pass_s(0.5)  # the clock has been looked at
        until_ms = machine.clock.fires_until_ms()
        is_ahead = machine.hand.set_ms > right_ms
        if until_ms is None:
            assert machine.clock.frozen_s > 0
        else:
            assert not is_ahead
            assert until_ms == pytest.approx(right_ms + machine.hand.now * 1000, abs=2)
    machine.hand.set_ms = right_ms
    machine.pass_s(RIGHT_S + 2.0)
    assert not machine.frozen


@pytest.mark.parametrize("jump_ms", [5_000, JUMP_MS - 1_000, -HOUR_MS])
def test_a_small_jump_and_one_back_freeze_nothing(jump_ms: int) -> None:
    machine = Machine()
    machine.hand.set_ms += jump_ms
    machine.pass_s(10.0)
    assert machine.clock.fires_until_ms() == pytest.approx(machine.hand.right_ms, abs=2)
    machine.pass_s(STANDS_S + 1.0)
    assert machine.clock.fires_until_ms() == pytest.approx(machine.hand.wall_ms(), abs=2)


@pytest.mark.parametrize("before_s", [2.0, 2 * STANDS_S])
def test_it_is_told_once_and_again_when_it_is_over(before_s: float, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    with caplog.at_level(logging.WARNING, logger="broker.timer_clock"):
        machine.hand.set_ms += HOUR_MS
        machine.pass_s(before_s)
        assert machine.clock.frozen_s == pytest.approx(3600, abs=1)
        assert machine.clock.confirm() == pytest.approx(3600, abs=1)
        assert machine.clock.confirm() == 0
    told = [one.getMessage() for one in caplog.records if one.name == "broker.timer_clock"]
    assert ["confirm-clock" in one for one in told] == [True, False]
    assert machine.guard.wall_ms() == machine.store.age_ms() == machine.hand.wall_ms()


@pytest.mark.parametrize(("off_ms", "frozen"), [(FAR_MS - 1_000, False), (HOUR_MS, True)])
def test_after_another_boot_the_ages_decide_how_long_to_wait(off_ms: int, frozen: bool) -> None:
    machine = Machine()
    machine.pass_s(10.0)
    times = machine.clock.times()
    machine.hand.set_ms += off_ms
    machine.begin(times, boot="b")
    assert machine.frozen == frozen
    machine.pass_s(AGES_S + 60.0)
    assert machine.clock.fires_until_ms() == pytest.approx(machine.hand.wall_ms(), abs=2)
