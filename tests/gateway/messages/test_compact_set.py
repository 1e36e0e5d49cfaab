"""Few things, compared with a dict at every step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.messages.compact_set import CompactSet

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 4)))


@given(STEPS)
def test_it_holds_what_a_dict_holds_in_the_same_order(steps: list[tuple[bool, int]]) -> None:
    few, model = CompactSet[int](), dict[int, None]()
    for adds, thing in steps:
        if adds:
            few.add(thing)
            model[thing] = None
        else:
            assert few.discard(thing) == (thing in model)
            model.pop(thing, None)
        assert few.all() == list(model)
        assert few.sole() == (next(iter(model)) if len(model) == 1 else None)
        assert (len(few), bool(few)) == (len(model), bool(model))
        assert [thing in few for thing in range(5)] == [thing in model for thing in range(5)]


def test_the_list_is_a_copy() -> None:
    few = CompactSet[str]()
    few.add("a")
    few.all().append("b")
    assert few.all() == ["a"]
