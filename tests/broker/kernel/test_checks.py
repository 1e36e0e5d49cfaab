"""Texts in requests."""

from __future__ import annotations

import pytest

from broker.kernel.checks import check_text
from penstock.errors import InvalidRequest


@pytest.mark.parametrize("text", ["a", "é", "日" * 3, "x" * 10])
def test_a_text_within_its_bound_passes(text: str) -> None:
    check_text("a name", text, 10)


@pytest.mark.parametrize(
    ("text", "error"),
    [("", "a name has 1 to 10 bytes"), ("日" * 4, "a name has 1 to 10 bytes"), ("\ud800", "without surrogates")],
)
def test_any_other_is_refused_by_its_name(text: str, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        check_text("a name", text, 10)
