"""CBOR payloads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.spark.decoders.cbor import value_of
from penstock.spark.decoders.fitting import Undecodable

cbor2 = pytest.importorskip("cbor2")


def test_one_value_is_read() -> None:
    noon = datetime(2026, 11, 28, 12, tzinfo=UTC)
    given = {"a": [1, b"x", 1.5, None], "t": noon, "large": 2**70}
    assert value_of(cbor2.dumps(given)) == given


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "no CBOR"),
        (b"\x01\x01", "bytes follow the value"),
        (b"\x9b" + b"\xff" * 8, "no CBOR"),
        (b"\x5b\x7f" + b"\xff" * 7, "no CBOR"),
        (b"\x61\xff", "no CBOR"),
        (b"\x81" * 100_000, "no CBOR"),
        (b"\xd8\x1d\x00", "no CBOR"),
    ],
)
def test_anything_else_is_told(payload: bytes, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        value_of(payload)
