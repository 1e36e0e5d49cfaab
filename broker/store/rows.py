"""Long tables made into msgpack arrays a slice at a time, in the order of their keys. Pure.

The slices end to end are the bytes that one call would have made of the whole; between them somebody else may run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, cast

import msgpack


def slices_in_order(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    """All keys in order, at most ``size`` in a slice; the first slices of many keys are empty: they are the sorting."""
    source = iter(keys)
    runs: list[list[str]] = []
    while run := sorted(islice(source, size)):
        runs.append(run)
        if len(run) == size:
            yield []
    merged = heapq.merge(*runs) if len(runs) > 1 else iter(runs[0] if runs else ())
    while slice_ := list(islice(merged, size)):
        yield slice_


def packed_rows(rows: Iterable[Any]) -> bytes:
    """The msgpack values of some rows, end to end."""
    packer = msgpack.Packer(autoreset=False)
    for row in rows:
        packer.pack(row)
    return cast(bytes, packer.bytes())


def array_head(count: int) -> bytes:
    """The head of a msgpack array of ``count`` values."""
    return cast(bytes, msgpack.Packer().pack_array_header(count))


def packed_table(keys: Iterable[str], count: int, row: Callable[[str], Any], size: int) -> Iterator[bytes]:
    """The msgpack array of one row per key, in the order of the keys, a slice at a time."""
    yield array_head(count)
    for some in slices_in_order(keys, size):
        yield packed_rows(map(row, some))
