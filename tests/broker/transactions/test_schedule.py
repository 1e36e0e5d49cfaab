from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.schedule import CHECK_AFTER_MAX_S, JITTER, Schedule


@given(st.integers(0, 1 << 40), st.integers(0, 40))
def test_the_pause_doubles_up_to_ten_minutes_with_a_jitter_of_a_fifth(id: int, rounds: int) -> None:
    plain = min(6.0 * 2**rounds, CHECK_AFTER_MAX_S)
    assert plain * (1 - JITTER) <= Schedule(6.0).delay_s(id, rounds) <= plain * (1 + JITTER)


def test_halves_are_ready_when_they_are_due_until_they_are_put_off_or_dropped() -> None:
    schedule = Schedule(6.0)
    for id, due_s in [(1, 3.0), (2, 1.0), (3, 2.0)]:
        schedule.put(id, "g", due_s)
    schedule.put(4, "h", 1.0)
    assert schedule.advance(2.0) == [(2, "g"), (4, "h"), (3, "g")]
    assert (schedule.ready("g"), schedule.ready("h"), schedule.ready("i")) == ([2, 3], [4], [])
    assert schedule.overdue(1.0, 9) == [2, 4]
    schedule.put(2, "g", 9.0)
    schedule.drop(4)
    assert (schedule.ready("g"), schedule.ready("h")) == ([3], [])
    assert schedule.advance(9.0) == [(1, "g"), (2, "g")]


@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "advance"]), st.integers(0, 5), st.integers(0, 20))))
def test_it_knows_what_the_model_knows(steps: list[tuple[str, int, int]]) -> None:
    schedule, due, now = Schedule(6.0), dict[int, float](), 0.0
    for what, id, number in steps:
        if what == "put":
            due[id] = now + 1 + number
            schedule.put(id, f"{id % 2}", due[id])
        elif what == "drop":
            due.pop(id, None)
            schedule.drop(id)
        else:
            now += number
            schedule.advance(now)
        for group in "01":
            ready = {id for id, due_s in due.items() if due_s <= now and f"{id % 2}" == group}
            assert set(schedule.ready(group)) == ready
