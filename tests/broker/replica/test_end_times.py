"""For how long something has been lacking."""

from __future__ import annotations

from broker.replica.end_times import KEPT_MAX, STEP_S, EndTimes


def test_a_node_lacks_something_since_the_first_byte_of_it_was_written() -> None:
    ends = EndTimes()
    for second in range(10):
        ends.note(100 * second, float(second))
    assert ends.behind_s(900, 900, 9.5) == 0.0
    assert ends.behind_s(850, 900, 9.5) == 0.5
    assert ends.behind_s(250, 900, 9.5) == 6.5
    assert ends.behind_s(900, 950, 9.5) == 0.0, "it was written since the last look"


def test_what_is_kept_is_bounded_and_stays_about_right() -> None:
    ends = EndTimes()
    for number in range(10 * KEPT_MAX):
        ends.note(number, number * STEP_S * 1.01)
    now = 10 * KEPT_MAX * STEP_S * 1.01
    assert len(ends._ends) <= KEPT_MAX
    for behind in (2, 100, KEPT_MAX, 5 * KEPT_MAX):
        told = ends.behind_s(10 * KEPT_MAX - behind, 10 * KEPT_MAX, now)
        assert 0.5 * behind <= told / STEP_S <= 1.1 * behind
