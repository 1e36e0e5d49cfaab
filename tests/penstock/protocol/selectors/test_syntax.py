"""Trees of selectors are values."""

from __future__ import annotations

from penstock.protocol.selectors.parser import parse


def test_texts_that_say_the_same_are_the_same_tree() -> None:
    one, other = parse("a = 1 AND (b LIKE 'x%')")[0], parse("(a)=1 and\nb like 'x%' -- said so")[0]
    assert one == other
    assert hash(one) == hash(other)
    assert one != parse("a = 1 AND b NOT LIKE 'x%'")[0]
