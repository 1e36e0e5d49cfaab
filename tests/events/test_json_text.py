from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.json_text import LEVELS_MAX, NotJson, is_deep, read_json


@pytest.mark.parametrize(
    "deep", [b"[" * LEVELS_MAX + b"]" * LEVELS_MAX, b'{"a":' * 50 + b"[" * 50 + b"]" * 50 + b"}" * 50]
)
def test_a_text_of_a_hundred_levels_is_read_and_one_of_more_is_not(deep: bytes) -> None:
    assert read_json(deep)
    with pytest.raises(NotJson, match="levels"):
        read_json(b"[" + deep + b"]")


def test_brackets_in_texts_and_beside_each_other_are_no_levels() -> None:
    assert read_json(b'"' + b"[" * 1_000 + b'"') == "[" * 1_000
    assert len(read_json(b"[" + b",".join([b"[]"] * 1_000) + b"]")) == 1_000


@given(st.recursive(st.integers(), lambda one: st.lists(one) | st.dictionaries(st.text(), one), max_leaves=20))
def test_what_is_not_deep_is_found_so(value: object) -> None:
    assert not is_deep(value)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"\xff", b"[" * 2_000 + b"]" * 2_000])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(NotJson):
        read_json(text)
