"""MessagePack payloads."""

from __future__ import annotations

from datetime import UTC, datetime

import msgpack
import pytest

from penstock.spark.decoders.fitting import Undecodable
from penstock.spark.decoders.msgpack import value_of


def test_one_value_is_read() -> None:
    noon = datetime(2026, 11, 28, 12, tzinfo=UTC)
    assert value_of(msgpack.packb({"a": [1, b"x"], "t": noon}, datetime=True)) == {"a": [1, b"x"], "t": noon}
    assert value_of(msgpack.packb({7: 1})) == {7: 1}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "no MessagePack"),
        (b"\x01\x01", "bytes follow the value"),
        (b"\xdd\xff\xff\xff\xff", "no MessagePack"),
        (b"\xa1\xff", "no MessagePack"),
        (b"\xc1", "no MessagePack: FormatError"),
        (msgpack.packb(msgpack.ExtType(5, b"x")), "an extension of MessagePack, 5"),
        (b"\x91" * 5000, "no MessagePack"),
        (b"\x81\x90\x01", "no MessagePack"),
    ],
)
def test_anything_else_is_told(payload: bytes, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        value_of(payload)
