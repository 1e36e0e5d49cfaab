"""Trees of selectors: what binds tighter, where a text is wrong, and the bounds."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidFilter
from penstock.protocol.selectors.parser import CHOICES_MAX, DEPTH_MAX, LONG_MAX, NODES_MAX, PATH_MAX, parse
from penstock.protocol.selectors.syntax import And, Comparison, Constant, IsNull, Like, Not, OneOf, Or, Property, Truth

A, B, C = Property("a"), Property("b"), Property("c")
ONE = Constant(1)


def test_and_binds_tighter_than_or_and_chains_are_flat() -> None:
    assert parse("a OR b AND c OR NOT a")[0] == Or((Truth(A), And((Truth(B), Truth(C))), Not(Truth(A))))


def test_not_binds_tighter_than_a_comparison_as_in_rocketmq() -> None:
    assert parse("NOT a = 1")[0] == Comparison(Not(Truth(A)), "=", ONE)
    assert parse("NOT (a = 1)")[0] == Not(Comparison(A, "=", ONE))
    assert parse("a = 1 IS NOT NULL")[0] == IsNull(Comparison(A, "=", ONE), True)


def test_between_is_two_comparisons() -> None:
    assert parse("a BETWEEN 1 AND b AND c")[0] == And(
        (And((Comparison(A, ">=", ONE), Comparison(A, "<=", B))), Truth(C))
    )
    assert parse("a NOT BETWEEN 1 AND b")[0] == Or((Comparison(A, "<", ONE), Comparison(A, ">", B)))


def test_like_and_escape_are_words_only_where_an_operator_stands() -> None:
    like, escape = Property("like"), Property("escape")
    assert parse("like LIKE 'x!%' ESCAPE '!' OR escape = 1")[0] == Or(
        (Like(like, "x!%", "!", False), Comparison(escape, "=", ONE))
    )


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("", 0, "leave it out"),
        ("a = ", 4, "expected a property, a literal or a bracket"),
        ("a = 'x' garbage", 8, "the filter could end here"),
        ("(a = 1", 6, "bracket at character 1"),
        ("a > 'x'", 4, "only numbers"),
        ("'x' < a", 0, "only numbers"),
        ("(a = 1) > 5", 1, "a condition is neither"),
        ("a = NULL", 4, "IS NULL"),
        ("TRUE = 'x'", 5, "truth values and properties only"),
        ("a = 1 AND 5", 10, "a literal is no condition"),
        ("NOT -a", 4, "a number is no condition"),
        ("a IS b", 5, "expected NULL or NOT NULL"),
        ("a IS NOT b", 9, "expected NULL"),
        ("a NOT b", 6, "behind NOT"),
        ("a BETWEEN 1 OR 2", 12, "expected AND"),
        ("a BETWEEN 2 AND 1", 10, "above its end"),
        ("5 IN ('x')", 0, "IN has a property"),
        ("a IN 'x'", 5, "expected ("),
        ("a IN (5)", 6, "a string of the list"),
        ("a IN ('x' 'y')", 10, "expected , or )"),
        ("a CONTAINS b", 11, "in single quotes"),
        ("a LIKE '!'  ESCAPE '!'", 7, "not at the end"),
        ("a LIKE 'x' ESCAPE '%'", 7, "neither % nor _"),
        ("a = 99999999999999999999", 4, str(LONG_MAX)),
        ("a = 1e999", 4, "a number is at most"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, at: int, says: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse(text)
    assert says in str(caught.value)
    assert caught.value.at == at


def refused(text: str) -> str:
    with pytest.raises(InvalidFilter) as caught:
        parse(text)
    return str(caught.value)


def test_nodes_are_bounded() -> None:
    most = (NODES_MAX - 1) // 3
    assert parse(" AND ".join(["a = 1"] * most))[1] == 3 * most + 1
    assert "at most 256" in refused(" AND ".join(["a = 1"] * (most + 1)))


@pytest.mark.parametrize("begin", ["(", "NOT ", "- ", "+ ", "NOT(", "a = - "])
def test_depth_is_bounded_whatever_makes_it(begin: str) -> None:
    assert f"{DEPTH_MAX}" in refused(begin * 10_000 + "a")


def test_a_long_chain_of_comparisons_is_deep() -> None:
    assert f"{DEPTH_MAX} operations deep" in refused(" = ".join(["a"] * (DEPTH_MAX + 1)))
    assert parse(" = ".join(["a"] * DEPTH_MAX))


def test_brackets_as_deep_as_they_may_be_are_read() -> None:
    assert parse("(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX)[0] == Comparison(A, "=", ONE)


def test_lists_and_fields_are_bounded() -> None:
    choices = [f"'{number}'" for number in range(CHOICES_MAX)]
    found = parse(f"a IN ({', '.join(choices)})")[0]
    assert isinstance(found, OneOf)
    assert len(found.choices) == CHOICES_MAX
    assert "at most 128 strings" in refused("a IN (" + ", ".join([*choices, "'x'"]) + ")")
    assert parse("$" + ".a" * PATH_MAX + " = 1")
    assert "16 names deep" in refused("$" + ".a" * (PATH_MAX + 1) + " = 1")
