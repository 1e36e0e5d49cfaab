"""LIKE patterns against trying everything, and their cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.selectors.like import LikePattern
from tests.penstock.protocol.selectors.naive import like

texts = st.text(st.sampled_from("abé%_"), max_size=8)
patterns = st.lists(st.sampled_from(["%", "_", "a", "b", "é", "!%", "!_", "!!"]), max_size=8).map("".join)


@given(pattern=patterns, text=texts)
@settings(max_examples=125)
def test_a_pattern_matches_what_trying_everything_matches(pattern: str, text: str) -> None:
    assert LikePattern(pattern, "!").matches(text.encode()) == like(text, pattern, "!")


@pytest.mark.parametrize(
    ("pattern", "escape", "says"),
    [("a", "xx", "one character"), ("a", "%", "neither"), ("!a", "!", "not before 'a'"), ("a!", "!", "not at the end")],
)
def test_a_wrong_escape_is_told(pattern: str, escape: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LikePattern(pattern, escape)


def test_an_empty_pattern_matches_the_empty_text_only() -> None:
    assert LikePattern("").matches(b"")
    assert not LikePattern("").matches(b"a")


class Counted(str):
    """A text that counts how often its characters are looked at."""

    looked_at = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        for letter in super().__iter__():
            Counted.looked_at += 1
            yield letter


@pytest.mark.interpreted
def test_the_worst_pattern_looks_at_each_character_once() -> None:
    pattern = LikePattern("%" + "a_" * 200 + "b")
    Counted.looked_at = 0
    assert not pattern._matches_bits(Counted("a" * 5000))
    assert Counted.looked_at == 5000
