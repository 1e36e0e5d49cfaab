"""Patterns of client ids: what they match, and that no user name reads as a pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.text_patterns import PATTERN_BYTES_MAX, check_pattern, is_match

TEXT = st.text("ab*%u-", max_size=8)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("d1", ["d1"], ["d", "d1x", "D1", ""]),
        ("d1-*", ["d1-", "d1-7"], ["d1", "xd1-7"]),
        ("*", ["", "anything", "a b"], []),
        ("*-door", ["-door", "a-door"], ["door", "a-doors"]),
        ("a*b*c", ["abc", "axbxc", "abbc"], ["ac", "acb", "ab"]),
        ("ab*ba", ["abba", "ab-ba"], ["aba"]),
        ("%u", ["alice"], ["alice2", "%u", ""]),
        ("%u-*", ["alice-1", "alice-"], ["alice", "malice-1"]),
        ("*/%u/*", ["a/alice/b"], ["a/bob/b"]),
    ],
)
def test_a_pattern_matches_whole_ids(pattern: str, matching: list[str], others: list[str]) -> None:
    check_pattern(pattern)
    assert [one for one in matching + others if is_match(pattern, "alice", one, allows=True)] == matching


@given(TEXT, st.text("ab*-.", min_size=1, max_size=3), st.text("ab*-.", max_size=10))
def test_a_pattern_matches_as_its_regular_expression_does(pattern: str, user: str, client: str) -> None:
    form = "".join(
        {"*": ".*", "%u": re.escape(user)}.get(part, re.escape(part)) for part in re.split(r"(\*|%u)", pattern)
    )
    has_form = re.fullmatch(form, client) is not None
    assert is_match(pattern, user, client, allows=True) is has_form
    assert is_match(pattern, user, client, allows=False) is has_form


def test_an_anonymous_client_is_allowed_nothing_by_a_user_name_and_denied_everything() -> None:
    for client in ("", "-1", "x-1"):
        assert not is_match("%u-1", "", client, allows=True)
    assert [is_match("%u-1", "", client, allows=False) for client in ("-1", "x-1", "x")] == [True, True, False]


@pytest.mark.parametrize("pattern", ["#", "a/#", "+", "a/+/b", "%c", "a%c", "x" * (PATTERN_BYTES_MAX + 1)])
def test_a_pattern_that_can_hardly_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        check_pattern(pattern)
