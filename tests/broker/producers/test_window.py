from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.producers.window import WINDOW, Window, window_before, window_of

COUNTS = [1, 1, 2, 7, 500, WINDOW, WINDOW + 3]
RUNS = st.lists(st.tuples(st.integers(1, 2 * WINDOW), st.sampled_from(COUNTS)), min_size=1, max_size=8)


def noted(runs: list[tuple[int, int]]) -> Window:
    made = window_before(runs[0][0])
    for first, count in runs:
        made.note(first, count)
    return made


class Plain:
    """The same, told by a set: numbers leave the window one by one."""

    def __init__(self, first: int) -> None:
        self.there: set[int] = set()
        self.highest, self.since = first - 1, first - WINDOW

    def note(self, number: int) -> None:
        while self.highest < number:
            leaving = self.highest + 1 - WINDOW
            if leaving not in self.there:
                self.since = max(self.since, leaving + 1)
            self.highest += 1
        self.there.add(number)

    def holds(self, number: int) -> bool | None:
        if number > self.highest - WINDOW:
            return number in self.there
        return True if number >= self.since else None


@settings(max_examples=40)
@given(RUNS, st.randoms(use_true_random=False))
def test_a_window_knows_what_a_set_of_all_numbers_does(runs: list[tuple[int, int]], rng: random.Random) -> None:
    whole, plain = noted(runs), Plain(runs[0][0])
    single = window_before(runs[0][0])
    for first, count in runs:
        for number in range(first, first + count):
            plain.note(number)
            single.note(number, 1)
    edges = {first + more + count * end for first, count in runs for more in (-1, 0, 1) for end in (0, 1)}
    edges |= {plain.highest - WINDOW + more for more in (-1, 0, 1, 2)} | {
        rng.randint(0, plain.highest) for _ in "12345"
    }
    assert [whole.holds(one) for one in sorted(edges)] == [plain.holds(one) for one in sorted(edges)]
    assert whole.row() == single.row(), "runs or single numbers: it is the same"


@given(RUNS)
def test_a_window_comes_out_of_a_snapshot_as_it_was(runs: list[tuple[int, int]]) -> None:
    before = noted(runs)
    after = window_of(before.row())
    assert after.row() == before.row()
    further = before.highest + 3
    for one in (before, after):
        one.note(further, 2)
    assert after.row() == before.row()


def test_numbers_without_a_gap_are_known_for_ever_and_cost_a_number() -> None:
    made = noted([(1, 1000), (1001, 10 * WINDOW)])
    assert made.holds(1) is made.holds(made.highest) is True
    assert made.row()[3] == WINDOW


def test_behind_a_gap_that_the_window_has_left_nothing_is_known() -> None:
    made = noted([(1, 100), (102, 2 * WINDOW)])
    assert [made.holds(one) for one in (100, 101, 102)] == [None, None, True]
