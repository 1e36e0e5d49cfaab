"""Which records carry a key or unique id: hashes with positions, sealed into the index chunks with the queues' entries.

Only hashes are kept, so a hit may be another key's; the reader compares the key itself (``reading.py``). Newest
stretch in memory, older ones sorted by hash in their chunk: a look-up is one binary search per chunk.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from broker.store.index_chunk import KEY_DTYPE
from penstock.message import property_of

SLICES: Final = 8
"""Sorting all keys of a chunk at once would hold up everybody else."""
_SLICE_HASHES: Final = np.uint32((1 << 32) // SLICES)
MANY: Final = 16
"""For fewer records numpy does not pay."""
KEY_PROPERTIES: Final = (b"KEYS", b"UNIQ_KEY")


def key_hash(topic: str, key: bytes) -> int:
    """Hash of a key within a topic, 32 bits."""
    return zlib.crc32(key, zlib.crc32(topic.encode()))


def keys_of(topic: str, properties: bytes) -> tuple[int, ...]:
    """Hashes of a record's keys: its key, each word of it, and its unique id."""
    hashes: dict[int, None] = {}
    for name in KEY_PROPERTIES:
        if name in properties:
            value = property_of(properties, name)
            for key in (value, *value.split(b" ")) if value else ():
                if key:
                    hashes[key_hash(topic, key)] = None
    return tuple(hashes)


def holds_key(properties: bytes, key: bytes) -> bool:
    """Whether a record has this key, one word of its keys, or this unique id."""
    values = [property_of(properties, name) for name in KEY_PROPERTIES]
    return any(key == value or key in value.split(b" ") for value in values if value)


class KeyIndex:
    """Hashes and positions of the newest stretch, and the chunks that hold the rest."""

    def __init__(self) -> None:
        self._hashes = array("I")
        self._positions = array("Q")
        self._chunks: list[tuple[int, int]] = []  # start and end position of each sealed stretch, in order

    def add(self, hashes: Iterable[int], position: int) -> None:
        """Takes in the keys of one record."""
        for one in hashes:
            self._hashes.append(one)
            self._positions.append(position)

    def add_run(self, hashes: Sequence[int], first: int, step: int, count: int) -> None:
        """Takes in ``count`` records that all have the same keys, one every ``step`` bytes from position ``first``."""
        if count == 1:
            self.add(hashes, first)
        elif count < MANY:
            for one in hashes:
                self._hashes.extend([one] * count)
                self._positions.extend(range(first, first + step * count, step))
        else:
            positions = np.arange(first, first + step * count, step).tobytes()
            for one in hashes:
                self._hashes.extend(array("I", (one,)) * count)
                self._positions.frombytes(positions)

    def recent(self, wanted: int) -> list[int]:
        """Positions of unsealed records whose key has this hash, oldest first."""
        return [position for one, position in zip(self._hashes, self._positions, strict=True) if one == wanted]

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """Start and end of each sealed stretch, oldest first."""
        return self._chunks

    def sealed_before(self, position: int) -> Iterator[np.ndarray[Any, Any]]:
        """The hashes and positions of records before ``position``, sorted by hash and then position: a chunk's key
        part, in slices. What comes between two slices changes nothing."""
        count = bisect_left(self._positions, position)
        keys = np.empty(count, KEY_DTYPE)
        keys["hash"] = np.frombuffer(self._hashes, "u4", count) if count else []
        keys["position"] = np.frombuffer(self._positions, "u8", count) if count else []
        places = keys["hash"] // _SLICE_HASHES
        for number in range(SLICES):
            some = keys[places == number]
            yield some[np.argsort(some["hash"], kind="stable")]  # positions are in order already

    def drop_before(self, position: int, chunk: int) -> None:
        """The records before ``position`` are in the chunk that begins at ``chunk`` now."""
        count = bisect_left(self._positions, position)
        del self._hashes[:count], self._positions[:count]
        self.know_chunk(chunk, position)

    def know_chunk(self, start: int, end: int) -> None:
        """There is a chunk of this stretch, after all those known."""
        self._chunks.append((start, end))

    def chunks_before(self, position: int) -> list[int]:
        """Starts of the chunks whose stretch ends at or before ``position``."""
        return [start for start, end in self._chunks if end <= position]

    def forget_chunk(self, start: int) -> None:
        """Retention removed a chunk."""
        self._chunks = [chunk for chunk in self._chunks if chunk[0] != start]
