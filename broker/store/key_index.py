"""Which records carry a key or unique id: hashes with positions, sealed into the index chunks with the queues' entries.

Only hashes are kept, so a hit may be another key's; the reader compares the key itself (``reading.py``). Newest
stretch in memory, older ones sorted by hash in their chunk: a look-up is one binary search per chunk.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from broker.store.index_chunk import KEY, KEY_DTYPE, KeyRuns, Sealed
from penstock.protocol.message import KEYS, KEYS_BASE64, property_of

SLICES: Final = 8
"""Sorting all keys of a chunk at once would stop all other work."""
_SLICE_HASHES: Final = np.uint32((1 << 32) // SLICES)
_HASH_SHIFT: Final = np.uint64(32)
_PLACE_MASK: Final = np.uint64((1 << 32) - 1)
_ROW: Final = np.dtype(f"V{KEY_DTYPE.itemsize}")
"""A row as one piece: numpy copies a record of several fields field by field."""
key_row: Final = KEY.pack
"""The row of a key (its hash) that ``count`` records have, one every ``step`` bytes from position ``first``."""
_KEYS: Final = KEYS.encode()
_KEYS_BASE64: Final = KEYS_BASE64.encode()  # begins as the other, so that one look finds either
KEY_PROPERTIES: Final = (_KEYS, b"UNIQ_KEY")


def key_hash(topic: str, key: bytes) -> int:
    """Hash of a key within a topic, 32 bits."""
    return zlib.crc32(key, zlib.crc32(topic.encode()))


def keys_of(topic: str, properties: bytes) -> tuple[int, ...]:
    """Hashes of a record's keys: its key, each word of it, and its unique id."""
    hashes: dict[int, None] = {}
    for name in KEY_PROPERTIES:
        if name in properties:
            value = property_of(properties, name)
            if not value and name == _KEYS:
                value = property_of(properties, _KEYS_BASE64)
            for key in (value, *value.split(b" ")) if value else ():
                if key:
                    hashes[key_hash(topic, key)] = None
    return tuple(hashes)


def holds_key(properties: bytes, key: bytes) -> bool:
    """Whether a record has this key, one word of its keys, or this unique id."""
    values = [property_of(properties, name) for name in (*KEY_PROPERTIES, _KEYS_BASE64)]
    return any(key == value or key in value.split(b" ") for value in values if value)


class KeyIndex:
    """Hashes and positions of the newest stretch, and the chunks that hold the rest."""

    def __init__(self) -> None:
        # Rows as a chunk has them, but in the order of their positions; numpy is given copies, because they grow.
        self._rows = bytearray()
        self._chunks: list[Sealed] = []  # in order

    def add(self, hashes: Iterable[int], position: int) -> None:
        """Takes in the keys of one record."""
        self.add_rows([key_row(one, position, 0, 1) for one in hashes])

    def add_rows(self, rows: list[bytes]) -> None:
        """Takes in what ``key_row`` has made, in the order of positions."""
        self._rows += b"".join(rows)

    def recent(self, wanted: int) -> KeyRuns:
        """The unsealed records whose key has this hash."""
        rows = np.frombuffer(bytes(self._rows), KEY_DTYPE)
        mine = rows[rows["hash"] == wanted]
        return KeyRuns(len(mine), lambda begin, end: mine[begin:end].tobytes())

    def _divided(self, position: int) -> int:
        """The number of bytes of the rows of records before a position; a run on both sides of it becomes two."""
        rows, size = self._rows, KEY.size
        end = size * bisect_left(range(len(rows) // size), position, key=self._first_of)
        begin = end
        before: list[bytes] = []
        behind: list[bytes] = []
        while begin:
            key, first, step, count = KEY.unpack_from(rows, begin - size)
            if first + step * (count - 1) < position:
                break
            begin -= size
            here = -(-(position - first) // step)
            before.insert(0, KEY.pack(key, first, step, here))
            behind.insert(0, KEY.pack(key, first + here * step, step, count - here))
        rows[begin:end] = b"".join(before + behind)
        return end

    def _first_of(self, row: int) -> int:
        first: int = KEY.unpack_from(self._rows, row * KEY.size)[1]
        return first

    @property
    def chunks(self) -> list[Sealed]:
        """The chunks that hold the sealed part of the index, oldest first."""
        return self._chunks

    def sealed_before(self, position: int) -> Iterator[np.ndarray[Any, Any]]:
        """The key rows of records before ``position``, sorted by hash and then position: a chunk's key part, in
        slices. Appends between two slices change nothing."""
        rows = np.frombuffer(self._rows[: self._divided(position)], KEY_DTYPE)
        whole = rows.view(_ROW)
        hashes = rows["hash"].astype("u4")
        places = hashes // _SLICE_HASHES
        for number in range(SLICES):
            here = np.flatnonzero(places == number)
            # positions are in order already; numpy sorts numbers several times as fast as it finds out their order
            order = hashes[here].astype("u8") << _HASH_SHIFT | here.astype("u8")
            order.sort()
            yield whole[order & _PLACE_MASK].view(KEY_DTYPE)

    def drop_before(self, chunk: Sealed) -> None:
        """The records before the end of ``chunk`` are in it, and in those before it, now."""
        del self._rows[: self._divided(chunk.end)]
        self.know_chunk(chunk)

    def know_chunk(self, chunk: Sealed) -> None:
        """Adds a chunk, after all known ones."""
        self._chunks.append(chunk)

    def merge_chunks(self, sources: Sequence[Sealed], merged: Sealed) -> None:
        """One chunk holds what these did, which follow each other."""
        at = self._chunks.index(sources[0])
        self._chunks[at : at + len(sources)] = [merged]

    def chunks_before(self, position: int) -> list[Sealed]:
        """The chunks whose stretch ends at or before ``position``."""
        return [chunk for chunk in self._chunks if chunk.end <= position]

    def forget_chunk(self, chunk: Sealed) -> None:
        """Retention removed a chunk."""
        self._chunks.remove(chunk)
