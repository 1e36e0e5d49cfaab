"""JSON payloads."""

from __future__ import annotations

import pytest

from penstock.spark.decoders.fitting import Undecodable
from penstock.spark.decoders.json import value_of


def test_one_value_is_read() -> None:
    assert value_of(b' {"a": [1, null]} ') == {"a": [1, None]}
    assert value_of(b"null") is None


@pytest.mark.parametrize("payload", [b"", b"{", b'{"a":1}{"a":2}', b"NaN", b"\xff", b"[" * 5000, b'"\\ud800"'])
def test_anything_else_is_no_json(payload: bytes) -> None:
    with pytest.raises(Undecodable, match="no JSON"):
        value_of(payload)
