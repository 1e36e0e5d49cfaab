"""What a handler has unfinished, against a model: any messages, taken in order, finished in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.unfinished import Flow, Unfinished
from penstock.errors import InvalidRequest


@given(st.integers(0, 5), st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=8), st.integers(0, 4))), st.data())
def test_the_floor_is_the_lowest_unfinished_message_whatever_is_finished_first(
    begun: int, batches: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    """Gaps before, between and behind messages stand for what a filter left out."""
    unfinished, open_offsets, end = Unfinished(begun), set[int](), begun
    for gaps, behind in batches:
        offsets = []
        for gap in gaps:
            offsets.append(end + gap)
            end += gap + 1
        end += behind
        unfinished.take(offsets, end)
        open_offsets |= set(offsets)
        for offset in data.draw(
            st.lists(st.sampled_from(sorted(open_offsets)), unique=True) if open_offsets else st.just([])
        ):
            before = unfinished.floor
            unfinished.finish(offset)
            open_offsets.remove(offset)
            assert unfinished.floor == min(open_offsets, default=end) >= before
            assert (len(unfinished), unfinished.span) == (len(open_offsets), end - unfinished.floor)
    assert unfinished.end == end


@pytest.mark.parametrize("name", ["messages", "bytes", "span"])
def test_a_flow_lets_something_through(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}_max is a whole number from 1 on"):
        Flow(**{name: 0})
