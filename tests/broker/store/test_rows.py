"""Rows: slices end to end are the bytes of the whole."""

from __future__ import annotations

import msgpack
import pytest

from broker.store.rows import PIECE_BYTES, bytes_head, packed_table, slices_in_order

KEYS = [str(number * 7919 % 1000) for number in range(1000)]


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 20, 1000])
def test_slices_are_in_order_bounded_and_complete(count: int) -> None:
    slices = list(slices_in_order(KEYS[:count], 7))
    assert max(map(len, slices), default=0) <= 7
    assert [key for some in slices for key in some] == sorted(KEYS[:count])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 1000])
def test_a_table_in_slices_is_the_table_packed_at_once(count: int) -> None:
    pieces = list(packed_table(KEYS[:count], count, lambda key: [key, b"1"], 7))
    assert b"".join(pieces) == msgpack.packb([[key, b"1"] for key in sorted(KEYS[:count])])
    assert max(map(len, pieces)) < 80


def test_large_rows_are_several_pieces_of_bounded_size() -> None:
    row = bytes(PIECE_BYTES // 3)
    pieces = list(packed_table(KEYS[:20], 20, lambda key: [key, row], 1000))
    assert b"".join(pieces) == msgpack.packb([[key, row] for key in sorted(KEYS[:20])])
    assert max(map(len, pieces)) < PIECE_BYTES + len(row) + 100


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
def test_bytes_behind_their_head_are_packed(size: int) -> None:
    assert bytes_head(size) + bytes(size) == msgpack.packb(bytes(size))
