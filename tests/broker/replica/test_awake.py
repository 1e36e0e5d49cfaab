"""What a node sleeps, or waits for its turn, hardly counts as time."""

from __future__ import annotations

from broker.replica.awake import AwakeClock


def test_time_passes_as_on_the_clock_while_ticks_come() -> None:
    clock = AwakeClock(100.0, gap_s=0.2)
    assert [round(clock.tick(100 + number / 10), 3) for number in range(5)] == [100.0, 100.1, 100.2, 100.3, 100.4]
    assert round(clock.at(100.45), 3) == 100.45


def test_a_gap_counts_little_and_time_never_goes_back() -> None:
    clock = AwakeClock(0.0, gap_s=0.2)
    assert clock.at(30.0) == 0.2
    assert clock.tick(30.0) == 0.2
    assert clock.at(30.0) == 0.2
    assert round(clock.at(30.1), 3) == 0.3
    assert round(clock.tick(60.0), 3) == 0.4
