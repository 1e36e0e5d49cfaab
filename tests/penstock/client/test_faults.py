"""Which brokers messages without a key go round, and for how long."""

from __future__ import annotations

from penstock.client.faults import AVOID_S, SLOW_AVOID_S_MAX, SLOW_S, Faults, attempt_s


def test_a_broker_that_failed_is_gone_round_for_a_while() -> None:
    faults = Faults()
    assert not faults
    faults.failed("a", 100)
    assert faults
    assert faults.avoided(100 + AVOID_S - 0.1) == {"a"}
    assert faults.avoided(100 + AVOID_S) == frozenset()
    assert not faults


def test_a_slow_broker_is_gone_round_for_ten_times_as_long_and_not_less_than_before() -> None:
    faults = Faults()
    faults.answered("a", SLOW_S, 100)
    assert not faults
    faults.answered("a", 2, 100)
    faults.answered("a", 0.6, 101)
    faults.failed("a", 102)
    faults.answered("b", 1000, 100)
    assert faults.avoided(119.9) == {"a", "b"}
    assert faults.avoided(120) == {"b"}
    assert faults.avoided(100 + SLOW_AVOID_S_MAX) == frozenset()


def test_a_message_that_may_go_elsewhere_waits_for_a_part_of_its_time() -> None:
    assert [attempt_s(limit_s) for limit_s in (0.5, 2, 9, 30)] == [0.5, 1, 3, 10]
