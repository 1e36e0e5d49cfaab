"""Which records carry a key or unique id: hashes with positions, sealed into the index chunks with the queues' entries.

Only hashes are kept, so a hit may be another key's; the reader compares the key itself (``reading.py``). Newest
stretch in memory, older ones sorted by hash in their chunk: a look-up is one binary search per chunk.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from broker.store.index_chunk import KEY, KEY_DTYPE, positions_of
from penstock.message import property_of

SLICES: Final = 8
"""Sorting all keys of a chunk at once would hold up everybody else."""
_SLICE_SHIFT: Final = 29  # a slice has the hashes that begin with the same three bits
_WHOLE_ROW: Final = np.dtype(("V", KEY.size))
_pack_into: Final = KEY.pack_into
KEEP_BYTES: Final = 8 << 20
"""Room for so many rows stays when they are in a chunk: taking it again costs more than writing them."""
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
        # Rows as a chunk has them, but in the order of their positions, and room behind them; numpy is given copies,
        # because they grow.
        self._rows = bytearray()
        self._used = 0  # bytes
        self._chunks: list[tuple[int, int]] = []  # start and end position of each sealed stretch, in order

    def add(self, hashes: Iterable[int], position: int) -> None:
        """Takes in the keys of one record."""
        self.add_run(tuple(hashes), position, 0, 1)

    def add_run(self, hashes: tuple[int, ...], first: int, step: int, count: int) -> None:
        """Takes in ``count`` records that all have the same keys, one every ``step`` bytes from position ``first``."""
        for one in hashes:
            at = self._used
            if at == len(self._rows):
                self._rows += bytes(max(at, 64 * KEY.size))
            _pack_into(self._rows, at, one, first, step, count)
            self._used = at + KEY.size

    def recent(self, wanted: int) -> list[int]:
        """Positions of unsealed records whose key has this hash, oldest first."""
        rows = np.frombuffer(self._rows[: self._used], KEY_DTYPE)
        return positions_of(rows[rows["hash"] == wanted])

    def _divided(self, position: int) -> int:
        """How many bytes the rows of the records before a position have; a run that lies on both sides of it becomes
        two."""
        rows, size = self._rows, KEY.size
        end = size * bisect_left(range(self._used // size), position, key=self._first_of)
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
        self._used += len(behind) * size
        return end

    def _first_of(self, row: int) -> int:
        first: int = KEY.unpack_from(self._rows, row * KEY.size)[1]
        return first

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """Start and end of each sealed stretch, oldest first."""
        return self._chunks

    def sealed_before(self, position: int) -> Iterator[bytes]:
        """The key rows of records before ``position``, sorted by hash and then position: a chunk's key part, in
        slices. What comes between two slices changes nothing."""
        end = self._divided(position)
        data = bytes(self._rows[:end])
        rows, hashes = np.frombuffer(data, _WHOLE_ROW), np.frombuffer(data, KEY_DTYPE)["hash"].astype("u4")
        slices, high, low = (hashes >> _SLICE_SHIFT).astype("u1"), (hashes >> 16).astype("u2"), hashes.astype("u2")
        for number in range(SLICES):
            here = np.flatnonzero(slices == number)  # in the order of positions already
            for part in (low, high):  # numbers of 16 bits are not compared with each other, which is four times as fast
                here = here[np.argsort(part[here], kind="stable")]
            yield rows[here].tobytes()

    def drop_before(self, position: int, chunk: int) -> None:
        """The records before ``position`` are in the chunk that begins at ``chunk`` now."""
        end = self._divided(position)
        rest = self._rows[end : self._used]
        if len(self._rows) > KEEP_BYTES:
            self._rows = rest
        else:
            self._rows[: len(rest)] = rest
        self._used = len(rest)
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
