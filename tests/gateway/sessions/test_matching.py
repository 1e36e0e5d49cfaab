"""Which of a session's filters match a name, compared with the plain rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sessions.matching import COMPARED_MAX, NAMES_MAX, Matching, places
from topicmap.names import matches

LEVELS = st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=3)
FILTERS = st.tuples(LEVELS, st.sampled_from(["", "/#"])).map(lambda parts: "/".join(parts[0]) + parts[1])
NAMES = st.lists(st.sampled_from(["a", "b", "c", "$d"]), min_size=1, max_size=4).map("/".join)


def compared(filters: list[str], name: str) -> int:
    return sum(1 << at for at, filter in enumerate(filters) if matches(filter, name))


@given(st.lists(FILTERS, max_size=2 * COMPARED_MAX), st.lists(NAMES, max_size=5))
def test_a_bit_stands_for_each_filter_that_matches(some: list[str], names: list[str]) -> None:
    """With few and with many filters, each of them as often as it is there."""
    for filters in (some, some + [f"x/{number}" for number in range(COMPARED_MAX)] + some):
        matching = Matching(filters)
        for name in names + names:
            assert matching.bits(name) == compared(filters, name)


@pytest.mark.parametrize("count", [2, COMPARED_MAX + 1])
def test_more_names_than_are_remembered_are_found_too(count: int) -> None:
    filters = [f"{number}/+" for number in range(count)]
    matching = Matching(filters)
    names = [f"{number % (count + 1)}/{number}" for number in range(2 * max(NAMES_MAX, 32 * count) + 1)]
    for name in [*names, *names[:10]]:
        assert matching.bits(name) == compared(filters, name)


@given(st.sets(st.integers(0, 1000)))
def test_the_places_of_bits_are_told_lowest_first(some: set[int]) -> None:
    assert places(sum(1 << at for at in some)) == sorted(some)
