"""The filter index: its answers, its order, what it remembers, and what hostile filters can make it do."""

from __future__ import annotations

import itertools
from math import comb

import pytest

from topicmap import filters as module
from topicmap.filters import COMMON_MAX, RARE_SHAPES_MAX, SHAPES_MAX, FilterIndex


def index_of(*filters: str) -> FilterIndex:
    index = FilterIndex()
    for filter in filters:
        index.add(filter)
    return index


def shapes(depth: int, count: int) -> list[str]:
    """``count`` filters of one depth, each of a shape of its own."""
    combinations = itertools.product("+a", repeat=depth)
    return ["/".join(levels) for levels in itertools.islice(combinations, count)]


def test_it_is_a_set_of_filters() -> None:
    index = FilterIndex()
    assert index.add("a/+")
    assert not index.add("a/+")
    assert index.add("a/b")
    assert len(index) == 2
    assert list(index) == ["a/+", "a/b"]
    assert "a/+" in index
    assert "a/#" not in index
    assert index.remove("a/+")
    assert not index.remove("a/+")
    assert list(index) == ["a/b"]


def test_every_matching_filter_is_found_once_and_in_order() -> None:
    index = index_of("a/#", "#", "a/b", "+/b", "a/+", "a/b/#", "+/+", "b/+", "a", "a/b/c")
    assert index.match("a/b") == ["#", "+/+", "+/b", "a/#", "a/+", "a/b", "a/b/#"]


def test_the_order_does_not_depend_on_how_the_filters_came() -> None:
    filters = [*shapes(6, 40), "a/a/a/a/a/a", "#", "a/#"]
    one, other = index_of(*filters), index_of(*reversed(filters))
    assert one.match("a/a/a/a/a/a") == other.match("a/a/a/a/a/a")


def test_a_leading_wildcard_does_not_match_a_dollar_name() -> None:
    index = index_of("#", "+/a", "+/#", "$SYS/#", "$SYS/+", "+")
    assert index.match("$SYS/a") == ["$SYS/#", "$SYS/+"]
    assert index.match("$") == []
    assert index.match("SYS/a") == ["#", "+/#", "+/a"]


@pytest.mark.parametrize("filter", ["a/b/c", "a/b/#", "a/b/+", "a/+/c", "+/b/c", "#", "a/#", "a/b/c/#", "+/#"])
def test_what_is_remembered_follows_filters_that_come_and_go(filter: str) -> None:
    index = index_of("a/b/c/d", "other/+")
    assert index.match("a/b/c") == []
    index.add(filter)
    assert index.match("a/b/c") == [filter]
    index.remove(filter)
    assert index.match("a/b/c") == []


def test_a_name_that_a_filter_does_not_change_stays_remembered() -> None:
    index = index_of("a/b/+")
    before = index.match("a/b/c")
    index.add("a/x/+")
    index.add("a/b/d")
    index.add("a/b/d/#")
    assert index.match("a/b/c") is before


@pytest.mark.interpreted
def test_what_is_remembered_is_bounded_in_names_and_in_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 10)
    monkeypatch.setattr(module, "REMEMBERED_FILTERS_MAX", 12)
    index = index_of("#", "+/#", "a/+")
    for number in range(100):
        assert index.match(f"a/{number}") == ["#", "+/#", "a/+"]
        index.add(f"a/{number}" if number % 2 else f"a/{number}/+")
        index.remove(f"a/{number - 5}")
        assert len(index._remembered) <= 10
        assert sum(map(len, index._remembered.values())) == index._remembered_filters <= 12
        assert sorted(name for names in index._alike.values() for name in names) == sorted(index._remembered)


def test_filters_of_more_shapes_than_are_hashed_are_found_too() -> None:
    filters = shapes(10, 200)
    index = index_of(*filters)
    assert index.match("a/a/a/a/a/a/a/a/a/a") == sorted(filters)
    for filter in filters[::2]:
        index.remove(filter)
    assert index.match("a/a/a/a/a/a/a/a/a/a") == sorted(filters[1::2])
    for filter in filters[1::2]:
        index.remove(filter)
    assert index.match("a/a/a/a/a/a/a/a/a/a") == []
    assert index._trie == {}
    assert not index._shapes


def test_the_dollar_rule_holds_in_the_trie_too() -> None:
    index = index_of(*[f"{filter}/#" for filter in shapes(6, SHAPES_MAX)], "#", "+/b/#", "$SYS/b/+/+/#")
    assert len(index._trie_shapes) == 3
    assert index.match("$SYS/b/c/d") == ["$SYS/b/+/+/#"]
    assert index.match("SYS/b/c/d") == ["#", "+/b/#"]


def test_shapes_that_are_gone_make_room_for_hashed_ones() -> None:
    index = index_of(*shapes(8, SHAPES_MAX))
    for filter in list(index):
        index.remove(filter)
    for filter in shapes(8, 2 * SHAPES_MAX)[SHAPES_MAX:]:
        index.add(filter)
    assert not index._trie_shapes


def test_a_name_is_looked_up_in_a_bounded_number_of_tables() -> None:
    index = FilterIndex()
    for depth in range(1, 12):
        for filter in shapes(depth, 50):
            index.add(filter)
            index.add(f"{filter}/#")
    assert max(len(index._fitting(depth)) for depth in range(1, 14)) <= 2 * SHAPES_MAX


def is_rare(filter: str) -> bool:
    levels = filter.removesuffix("/#").split("/")
    return comb(len(levels), levels.count("+")) > COMMON_MAX


def test_there_is_no_room_for_more_rare_shapes_than_a_match_may_visit() -> None:
    index = FilterIndex()
    asked = shapes(14, 5000)
    taken = [filter for filter in asked if index.has_room(filter) and index.add(filter)]
    hashed = asked[:SHAPES_MAX]
    assert len([one for one in taken if is_rare(one) and one not in hashed]) == RARE_SHAPES_MAX
    assert [one for one in asked if not is_rare(one) and one not in taken] == []
    assert index.has_room("exact/name/of/fourteen/levels/f/g/h/i/j/k/l/m/n")
    rare = [one for one in taken if is_rare(one)]
    assert index.has_room(rare[-1].replace("a", "other")), "a shape that is there has room for more filters"
    assert index.has_room("two/+"), "another depth has room of its own"
    assert not index.has_room(asked[-1])
    index.remove(rare[-1])
    assert index.has_room(asked[-1])


@pytest.mark.parametrize(
    "filter", ["x/y/#", "x/+/#", "+/+/x", "x/+/line/+/m/#", "+/a/+/b/+/c/+/d/+", "/".join(["a"] * 126) + "/+/#"]
)
def test_what_people_use_has_room_whatever_others_have_open(filter: str) -> None:
    depth = len(filter.removesuffix("/#").split("/"))
    index = index_of(*[one for one in shapes(14, 3000) if is_rare(one)][: SHAPES_MAX + RARE_SHAPES_MAX])
    for other in shapes(depth, SHAPES_MAX + 1):  # and all that is hashed of its depth, and of those that end in #
        index.add(f"{other}/#")
        index.add(other)
    assert not index.has_room("/".join(["a", "+"] * 7))
    assert index.has_room(filter)


def test_a_walk_through_the_trie_visits_a_bounded_number_of_nodes_at_each_level() -> None:
    index = FilterIndex()
    for depth in (9, 10, 14):
        for filter in (*shapes(depth, 2000), *[f"{one}/#" for one in shapes(depth, 600)]):
            if index.has_room(filter):
                index.add(filter)
    visited, nodes = 0, [index._trie]
    for level in "a" * 14:
        nodes = [node[key] for node in nodes for key in ("+", level) if key in node]
        visited = max(visited, len(nodes))
    assert RARE_SHAPES_MAX / 2 < visited <= 2 * RARE_SHAPES_MAX


def test_the_deepest_filters_need_no_recursion() -> None:
    deep = "/".join(["+"] * 127)
    index = index_of(*shapes(127, SHAPES_MAX + 1), deep, f"{deep}/#")
    name = "/".join(["b"] * 127)
    assert index.match(name) == [deep, f"{deep}/#"]
