"""The topic map against plain truth: any filters and names, any order of comings and goings."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from topicmap.filters import FilterIndex
from topicmap.names import InvalidName, check_filter, check_name, first_match, matches, parse_share
from topicmap.queues import (
    TopicMap,
    TopicQueue,
    check_topic,
    decode_level,
    encode_level,
    is_system,
    parse_topic_queue,
    readable,
    topic_queue,
)

# Few letters make collisions likely; "$", the empty level and a separator-like character are the traps.
levels = st.sampled_from(["", "a", "b", "$x", "a%b", "ab"])
names = st.lists(levels, min_size=1, max_size=6).map("/".join).filter(bool)
filters = (
    st.tuples(st.lists(levels | st.just("+"), max_size=6), st.booleans())
    .map(lambda made: "/".join([*made[0], "#"] if made[1] or not made[0] else made[0]))
    .filter(bool)
)
PLAIN = frozenset(string.ascii_letters + string.digits + "-_")
any_text = st.text(st.characters(exclude_categories=[]), max_size=40)


def naive_match(filter: str, name: str) -> bool:
    """MQTT 4.7 by recursion over the levels, written apart from the code under test."""
    if name.startswith("$") and filter.split("/")[0] in ("+", "#"):
        return False

    def fits(wanted: list[str], given_levels: list[str]) -> bool:
        if wanted == ["#"]:
            return True
        if not wanted or not given_levels:
            return wanted == given_levels
        return wanted[0] in ("+", given_levels[0]) and fits(wanted[1:], given_levels[1:])

    return fits(filter.split("/"), name.split("/"))


@given(filters, names)
@settings(max_examples=50)
def test_the_plain_matcher_agrees_with_a_naive_one(filter: str, name: str) -> None:
    check_filter(filter)
    check_name(name)
    assert matches(filter, name) == naive_match(filter, name)


# What stands before the slash in the order of strings parts a name from what is below it.
ordered_levels = levels | st.sampled_from(["a!", "a-", "a0", "$", "%"])
ordered_names = st.lists(ordered_levels, min_size=1, max_size=5).map("/".join).filter(bool)
ordered_filters = (
    st.tuples(st.lists(ordered_levels | st.just("+"), max_size=5), st.booleans())
    .map(lambda made: "/".join([*made[0], "#"] if made[1] or not made[0] else made[0]))
    .filter(bool)
)


@given(ordered_filters, st.sets(ordered_names, min_size=1, max_size=40))
@settings(max_examples=75)
def test_no_match_is_left_out_where_names_are_passed_over(filter: str, some: set[str]) -> None:
    for name in some:
        first = first_match(filter, name)
        assert (first == name) == naive_match(filter, name)
        assert first is None or first >= name
        passed_over = [one for one in some if name <= one and (first is None or one < first)]
        assert [one for one in passed_over if naive_match(filter, one)] == []


@given(st.sets(filters, max_size=60), st.lists(names, max_size=10))
@settings(max_examples=50)
def test_the_index_finds_exactly_the_filters_that_match(wanted: set[str], asked: list[str]) -> None:
    index = FilterIndex()
    for filter in wanted:
        index.add(filter)
    for name in asked:
        assert index.match(name) == sorted(filter for filter in wanted if naive_match(filter, name))


class IndexAgainstNaiveMatcher(RuleBasedStateMachine):
    """What is remembered never differs from the truth, whatever comes and goes; many shapes fill the trie."""

    def __init__(self) -> None:
        super().__init__()
        self.index = FilterIndex()
        self.truth: set[str] = set()

    @rule(filter=filters)
    def comes(self, filter: str) -> None:
        assert self.index.add(filter) == (filter not in self.truth)
        self.truth.add(filter)

    @rule(filter=filters)
    def goes(self, filter: str) -> None:
        assert self.index.remove(filter) == (filter in self.truth)
        self.truth.discard(filter)

    @rule(depth=st.integers(4, 6), numbers=st.sets(st.integers(0, 63), max_size=30), goes=st.booleans())
    def many_shapes_come_or_go(self, depth: int, numbers: set[int], goes: bool) -> None:
        for number in numbers:
            filter = "/".join("+" if number >> place & 1 else "a" for place in range(depth))
            (self.index.remove if goes else self.index.add)(filter)
            (self.truth.discard if goes else self.truth.add)(filter)

    @rule(asked=st.lists(names, max_size=5) | st.sampled_from([["a/a/a/a"], ["a/a/a/a/a/a", "a/b/a/b/a"]]))
    def is_asked(self, asked: list[str]) -> None:
        for name in asked:
            assert self.index.match(name) == sorted(filter for filter in self.truth if naive_match(filter, name))

    @invariant()
    def holds_the_same_set(self) -> None:
        assert set(self.index) == self.truth
        assert len(self.index) == len(self.truth)


IndexAgainstNaiveMatcher.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestIndexAgainstNaiveMatcher = IndexAgainstNaiveMatcher.TestCase


@given(any_text)
@settings(max_examples=30)
def test_any_string_is_a_legal_name_or_invalid_and_nothing_else(text: str) -> None:
    for check in (check_name, check_filter, parse_share, check_topic, parse_topic_queue, decode_level, encode_level):
        try:
            check(text)
        except InvalidName:
            continue


def _is_legal(text: str) -> bool:
    try:
        check_name(text)
    except InvalidName:
        return False
    return True


# Levels around 255 bytes as a topic, and up to the 65,535 bytes that a name of MQTT may have.
short_levels = any_text.filter(lambda text: "/" not in text).filter(_is_legal)
long_levels = st.builds(
    lambda level, times, end: (
        (level * (times // len(level.encode()) + 1) + end).encode()[:65_535].decode("utf-8", "ignore")
    ),
    short_levels,
    st.sampled_from([180, 250, 255, 256, 700, 65_535]),
    st.sampled_from(["", "x", "é", "日", "%", "|"]),
)
first_levels = short_levels | long_levels


@given(first_levels, first_levels)
@settings(max_examples=50)
def test_distinct_first_levels_give_distinct_topics_and_every_topic_gives_its_level_back(one: str, other: str) -> None:
    first, second = encode_level(one), encode_level(other)
    assert (first == second) == (one == other)
    for level, topic in ((one, first), (other, second)):
        check_topic(topic)
        assert not is_system(topic)
        assert TopicMap().place(f"{level}/x").topic == TopicMap().topic_of(f"{level}/+/#") == topic
        if "|" in topic:
            assert level.startswith(readable(topic).removesuffix("…"))
            assert len(quoted(level)) > 255, "only what has no room is cut"
        else:
            assert decode_level(topic) == readable(topic) == level


def quoted(level: str) -> str:
    """The escaped level, written apart from the code under test."""
    return "".join(chr(byte) if chr(byte) in PLAIN else f"%{byte:02X}" for byte in level.encode())


@given(names, st.integers(0, 1 << 16))
def test_a_topic_queue_reads_back_and_is_never_a_light_queue(name: str, queue_id: int) -> None:
    topic = TopicMap().place(name).topic
    assert parse_topic_queue(topic_queue(topic, queue_id)) == TopicQueue(topic, queue_id)
    assert not topic.startswith("~")
