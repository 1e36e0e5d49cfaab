"""Things that are due at some second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.net.deadlines import Deadlines


def test_an_item_is_due_at_its_second_and_only_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add(5.0, "a")
    assert deadlines.take(4.9) == []
    assert deadlines.take(5.0) == ["a"]
    assert deadlines.take(99.0) == []


def test_what_is_added_too_late_comes_with_the_next_second() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.take(10.5)
    deadlines.add(3.0, "late")
    assert deadlines.take(10.9) == []
    assert deadlines.take(11.0) == ["late"]


def test_items_of_one_second_keep_their_order() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for item in "xyz":
        deadlines.add(2.5, item)
    assert deadlines.take(3) == ["x", "y", "z"]


@given(st.lists(st.floats(0, 1000)), st.lists(st.floats(0, 2000), min_size=1))
def test_nothing_is_early_lost_or_more_than_a_second_late(dues: list[float], ticks: list[float]) -> None:
    deadlines: Deadlines[float] = Deadlines()
    for due in dues:
        deadlines.add(due, due)
    taken: list[float] = []
    for now in sorted(ticks):
        some = deadlines.take(now)
        assert all(due <= now for due in some)
        taken += some
        assert not [due for due in dues if due <= int(now) and due not in taken]
    assert len(taken) + len(deadlines) == len(dues)
