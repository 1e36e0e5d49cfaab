"""Conditions one by one: which of them end a judgement, and what they look at."""

from __future__ import annotations

import pytest

from penstock.protocol.selectors.conditions import SAME, And, Condition, Known, Not, Or, TextEquality
from penstock.protocol.selectors.values import ERROR, FALSE, TRUE, UNKNOWN, Subject

NOTHING = Subject(b"")
ALL = (FALSE, TRUE, UNKNOWN, ERROR)


def judged(condition: Condition) -> int:
    return condition.judge(NOTHING)


@pytest.mark.parametrize("first", ALL)
@pytest.mark.parametrize("second", ALL)
def test_and_and_or_are_three_valued_and_look_no_further_than_they_must(first: int, second: int) -> None:
    terms: list[Condition] = [Known(first), Known(second)]
    if first in (FALSE, ERROR):
        both = first
    elif second in (FALSE, ERROR):
        both = second
    else:
        both = UNKNOWN if UNKNOWN in (first, second) else TRUE
    assert judged(And(terms)) == both
    opposite = {FALSE: TRUE, TRUE: FALSE, UNKNOWN: UNKNOWN, ERROR: ERROR}
    inverted: list[Condition] = [Known(opposite[first]), Known(opposite[second])]
    assert judged(Or(inverted)) == opposite[both]


def test_not_leaves_the_unknown_unknown() -> None:
    assert [judged(Not(Known(one))) for one in ALL] == [TRUE, FALSE, UNKNOWN, ERROR]


def test_a_property_equals_a_text_by_its_bytes() -> None:
    condition = TextEquality(b"a", SAME, "é".encode())
    assert condition.judge(Subject("a\x01é".encode())) == TRUE
    assert condition.judge(Subject(b"a\x01e")) == FALSE
    assert judged(condition) == UNKNOWN
