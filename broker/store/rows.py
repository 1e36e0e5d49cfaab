"""Long tables made into msgpack arrays a slice at a time, in the order of their keys. Pure.

The slices end to end are the bytes that one call would have made of the whole; between them other tasks may run.
Rows may be large: a piece ends where it has ``PIECE_BYTES``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, cast

import msgpack

PIECE_BYTES: Final = 1 << 20
SAMPLES: Final = 32
"""Keys, of about a slice's, that are looked at to find where slices end."""


def slices_in_order(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    """All keys in order, at most ``size`` in a slice; the first slices of many keys are empty: they are the sorting."""
    source = iter(keys)
    runs: list[list[str]] = []
    while run := sorted(islice(source, size)):
        runs.append(run)
        if len(run) == size:
            yield []
    for part in _merged(runs, size):
        for at in range(0, len(part), size):
            yield part[at : at + size]


def _merged(runs: list[list[str]], size: int) -> Iterator[list[str]]:
    """All keys of sorted runs, in order, in parts of about ``size``. Evenly spaced keys of all runs say where a part
    ends; what each run has up to there is put together and sorted, which for sorted pieces is a merge, in C. A heap of
    the runs takes four times as long."""
    step = max(1, size // SAMPLES)
    samples = sorted(chain.from_iterable([run[::step] for run in runs]))
    taken = [0] * len(runs)
    for edge in samples[SAMPLES::SAMPLES]:
        part: list[str] = []
        for number, run in enumerate(runs):
            at = taken[number]
            end = taken[number] = bisect_left(run, edge, at)
            part += run[at:end]
        part.sort()
        yield part
    yield sorted(chain.from_iterable([run[at:] for run, at in zip(runs, taken, strict=True)]))


def packed_rows(rows: Iterable[Any]) -> bytes:
    """The msgpack values of some rows, end to end."""
    packer = msgpack.Packer(autoreset=False)
    for row in rows:
        packer.pack(row)
    return cast(bytes, packer.bytes())


def packed_pieces(rows: Iterable[Any]) -> Iterator[bytes]:
    """The same in pieces, each ended by the row with which it has ``PIECE_BYTES``; the last one may be empty."""
    packer = msgpack.Packer(autoreset=False)
    for row in rows:
        packer.pack(row)
        if len(packer.getbuffer()) >= PIECE_BYTES:
            yield cast(bytes, packer.bytes())
            packer.reset()
    yield cast(bytes, packer.bytes())


def bytes_head(size: int) -> bytes:
    """The head of ``size`` bytes as a msgpack value."""
    width = 1 if size < 1 << 8 else 2 if size < 1 << 16 else 4
    return {1: b"\xc4", 2: b"\xc5", 4: b"\xc6"}[width] + size.to_bytes(width, "big")


def array_head(count: int) -> bytes:
    """The head of a msgpack array of ``count`` values."""
    return cast(bytes, msgpack.Packer().pack_array_header(count))


def packed_table(keys: Iterable[str], count: int, row: Callable[[str], Any], size: int) -> Iterator[bytes]:
    """The msgpack array of one row per key, in the order of the keys, a slice at a time."""
    yield array_head(count)
    for some in slices_in_order(keys, size):
        yield from packed_pieces(map(row, some))
