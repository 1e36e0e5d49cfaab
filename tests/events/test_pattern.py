from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.cloudevents import from_document
from events.pattern import LEVELS_MAX, Pattern
from events.problems import Problem
from tests.events.pattern_cases import CASES, REFUSED, d

USUAL = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def event(given: dict[str, Any]) -> Any:
    return from_document(USUAL | given)


def test_the_table_has_a_hundred_cases() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(("pattern", "wanted", "other"), CASES)
def test_a_pattern_wants_one_event_and_leaves_another_out(pattern: Any, wanted: Any, other: Any) -> None:
    compiled = Pattern(pattern)
    assert (compiled.matches(event(wanted)), compiled.matches(event(other))) == (True, False)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_is_no_pattern_is_refused(pattern: Any) -> None:
    with pytest.raises(Problem) as caught:
        Pattern(pattern)
    assert caught.value.code == "invalid-config"


def test_a_refusal_points_at_the_fault() -> None:
    with pytest.raises(Problem) as caught:
        Pattern({"data": {"a/b": ["x", {"prefix": ""}]}})
    assert caught.value.more == {"pointer": "/data/a~1b/1/prefix"}


def test_ten_levels_are_taken_and_eleven_are_not() -> None:
    pattern: Any = ["a"]
    for _ in range(LEVELS_MAX):
        pattern = {"data": pattern}
    Pattern(pattern)
    with pytest.raises(Problem, match="levels"):
        Pattern({"data": pattern})


def test_an_explanation_names_each_term_with_what_was_found() -> None:
    rows = Pattern({"type": ["t"], "data": {"x": [{"numeric": [">", 5]}]}}).explain(event(d(3)))
    told = [(row["pointer"], row["found"], row["matches"]) for row in rows]
    assert told == [("/type", "t", True), ("/data/x", 3, False)]


def test_texts_of_type_and_source_are_pushed_to_the_broker() -> None:
    selector = Pattern({"type": ["a", "b"], "source": ["/s"], "subject": [{"prefix": "x"}]}).selector()
    assert selector == "(CE_type IS NULL OR CE_type IN ('a', 'b')) AND (CE_source IS NULL OR CE_source IN ('/s'))"


def test_what_a_selector_cannot_say_is_not_pushed() -> None:
    assert Pattern({"type": ["it's"], "source": [{"exists": True}]}).selector() == ""


# ---------------------------------------------------------------- beside an evaluator that does it the plain way

GONE = object()


def naive(pattern: Any, value: Any) -> bool:
    """The grammar's sentences, one after the other, without compiling anything."""
    if isinstance(pattern, list):
        if value is GONE:
            return {"exists": False} in pattern
        return {"exists": True} in pattern or naive_any(pattern, value)
    if isinstance(value, list) and value:
        return any(naive(pattern, one) for one in value)
    found = value if isinstance(value, dict) else {}
    keys = all(naive(one, found.get(key, GONE)) for key, one in pattern.items() if key != "$or")
    return keys and ("$or" not in pattern or any(naive(one, value) for one in pattern["$or"]))


def naive_any(terms: list[Any], value: Any) -> bool:
    if isinstance(value, list):
        return any(naive_any(terms, one) for one in value)
    return not isinstance(value, dict) and any(naive_term(term, value) for term in terms)


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def naive_term(term: Any, value: Any) -> bool:
    if not isinstance(term, dict):
        return (is_number(term) and is_number(value) and term == value) or (type(term) is type(value) and term == value)
    [(operator, given)] = term.items()
    if operator == "anything-but":
        return not any(naive_term(one, value) for one in given)
    if operator == "numeric":
        pairs = zip(given[::2], given[1::2], strict=True)
        return is_number(value) and all(
            {"<": value < bound, ">": value > bound, "=": value == bound}[sign] for sign, bound in pairs
        )
    if operator == "exists" or not isinstance(value, str):
        return False
    if operator == "cidr":
        try:
            return ipaddress.ip_address(value) in ipaddress.ip_network(given)
        except ValueError:
            return False
    if operator == "wildcard":
        return naive_wildcard(given, value)
    return {"prefix": value.startswith(given), "suffix": value.endswith(given), "contains": given in value}[operator]


def naive_wildcard(pattern: str, value: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "*":
        return any(naive_wildcard(pattern[1:], value[at:]) for at in range(len(value) + 1))
    return bool(value) and pattern[0] == value[0] and naive_wildcard(pattern[1:], value[1:])


texts = st.text("ab", max_size=4)
some_text = st.text("ab", min_size=1, max_size=2)
scalars = texts | st.integers(-2, 2) | st.booleans() | st.none() | st.sampled_from([0.5, "10.1.1.1"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(some_text, inner, max_size=3), max_leaves=8
)
signs = st.tuples(st.sampled_from("<>="), st.integers(-2, 2)).map(list)
wildcards = st.text("ab*", min_size=1, max_size=4).filter(lambda text: "**" not in text)
terms = (
    scalars
    | st.sampled_from([{"exists": True}, {"exists": False}, {"cidr": "10.0.0.0/8"}])
    | st.tuples(st.sampled_from(["prefix", "suffix", "contains"]), some_text).map(lambda pair: dict([pair]))
    | st.builds(lambda given: {"wildcard": given}, wildcards)
    | st.builds(lambda given: {"numeric": given}, signs | st.tuples(signs, signs).map(lambda two: two[0] + two[1]))
    | st.builds(lambda given: {"anything-but": given}, st.lists(scalars, min_size=1, max_size=3))
)
leaves = st.lists(terms, min_size=1, max_size=3)
patterns = st.recursive(
    st.dictionaries(some_text, leaves, min_size=1, max_size=2),
    lambda inner: (
        st.dictionaries(some_text, inner | leaves, min_size=1, max_size=2)
        | st.builds(lambda keys, either: keys | {"$or": either}, inner, st.lists(inner, min_size=2, max_size=2))
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=100)
@given(patterns, values)
def test_compiled_patterns_say_what_the_plain_evaluator_says(pattern: Any, value: Any) -> None:
    assert Pattern({"data": pattern}).matches(event({"data": value})) == naive({"data": pattern}, {"data": value})


def is_pattern(spec: object) -> bool:
    try:
        Pattern(spec)
    except Problem:
        return False
    return True


json_values = st.recursive(scalars, lambda one: st.lists(one) | st.dictionaries(st.text(max_size=9), one), max_leaves=9)


@settings(deadline=None, max_examples=50)
@given(json_values)
def test_anything_is_a_pattern_or_a_problem(given: Any) -> None:
    assert is_pattern(given) in (True, False)
    assert is_pattern({"data": {"x": [given]}}) in (True, False)
