"""Deadlines: beside a model under random changes, and what they cost in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kernel.deadlines import NEVER, SPARE, Deadline, DeadlineHeap, Deadlines

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "cancel", "advance", "fail", "look"]), st.integers(0, 6), st.integers(0, 9)
    )
)


class Rounds:
    """A toy theme: who says nothing for ten seconds is gone."""

    def __init__(self) -> None:
        self._silent = Deadlines[str]()
        self.gone: list[str] = []

    def heard(self, name: str, now: float) -> None:
        self._silent.set(name, now + 10.0)

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        self.gone += self._silent.due(now)


def test_a_theme_asks_at_each_tick_for_what_is_due() -> None:
    rounds = Rounds()
    rounds.heard("a", 0.0)
    rounds.heard("b", 1.0)
    rounds.heard("a", 5.0)
    rounds.tick(14.0, 0, 0)
    assert rounds.gone == ["b"]
    rounds.tick(15.0, 0, 0)
    assert rounds.gone == ["b", "a"]


@given(STEPS)
def test_keys_are_due_as_in_a_model(steps: list[tuple[str, int, int]]) -> None:
    deadlines, model, now = Deadlines[int](), dict[int, float](), 0.0
    for what, key, number in steps:
        passed = sorted(key for key, due in model.items() if due <= now)
        if what == "set":
            model[key] = now + number
            deadlines.set(key, now + number)
        elif what == "cancel":
            model.pop(key, None)
            deadlines.cancel(key)
        elif what == "look":
            assert sorted(deadlines.passed(now)) == passed
        elif what == "fail":
            for one in deadlines.due(now):
                assert model[one] == min(model.values())
                break
        else:
            now += number
            told = []
            for one in deadlines.due(now):
                told.append(model[one])
                if one == key:
                    model[one] = now + 1 + number
                    deadlines.set(one, model[one])
                else:
                    del model[one]
            assert told == sorted(told)
            assert min(model.values(), default=NEVER) > now
        assert deadlines.next_due == min(model.values(), default=NEVER)
        assert len(deadlines) == len(model)
        for one in range(7):
            assert deadlines.get(one) == model.get(one, NEVER)
            assert (one in deadlines) == (one in model)


def test_what_is_set_again_and_again_takes_no_more_memory() -> None:
    deadlines = Deadlines[int]()
    for number in range(10 * SPARE):
        deadlines.set(number % 3, float(10 * SPARE - number % 7))
    assert len(deadlines._heap._heap) <= 2 * 3 + SPARE + 1
    assert sorted(deadlines.due(1e9)) == [0, 1, 2]
    assert len(deadlines) == 0


def test_objects_have_their_deadlines_themselves() -> None:
    heap = DeadlineHeap[Deadline]()
    first, second, never = Deadline(1.0), Deadline(2.0), Deadline(NEVER)
    for one in (second, first, never):
        heap.arm(one)
    assert (len(heap), heap.next_due) == (2, 1.0)
    heap.put_off(first, 3.0)
    assert heap.next_due == 2.0
    with pytest.raises(ValueError, match="not put off"):
        heap.put_off(first, 2.0)
    assert list(heap.due(2.5)) == [second]
    with pytest.raises(ValueError, match="not put off"):
        heap.put_off(second, 9.0)
    heap.cancel(second)
    heap.cancel(first)
    assert (len(heap), heap.next_due, list(heap.due(9.0))) == (0, NEVER, [])
