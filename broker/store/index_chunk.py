"""Index chunks: the sealed queue entries of one stretch of the log, sorted by queue, in one file.
docs/formats/index.md is the page.

A chunk file is named by the first position of its stretch. It holds a head, a directory (msgpack: per queue its key,
first offset, count and place), the entries, and the keys' hashes with their positions, one row for neighbours with the
same key. It is derived: a chunk that is missing or damaged is made again from the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from broker.store.disk import Disk, File
from broker.store.frames import crc32c, crc_of
from broker.store.queue_index import ENTRY_BYTES, Queue
from broker.store.rows import array_head, packed_rows
from penstock.errors import Damaged

FOLDER: Final = "index"
SUFFIX: Final = ".idx"
MAGIC: Final = 0x50454E49  # "PENI"
VERSION: Final = 2
# crc-32c of all that follows, magic, version, first position, end position, witness, directory bytes, entry bytes,
# number of key rows
HEAD: Final = struct.Struct(">IIIQQIIQI")
KEY: Final = struct.Struct(">IQII")
"""Hash of a key, and which records have it: from a first position on one every so many bytes, and so many of them."""
KEY_DTYPE: Final = np.dtype([("hash", ">u4"), ("first", ">u8"), ("step", ">u4"), ("count", ">u4")])
HASH_BYTES: Final = 4
OPEN_FILES_MAX: Final = 64
PIECE_BYTES: Final = 1 << 20
"""The entries of a long queue are copied and written in pieces of this size, those of short ones put together."""
REPAIR_HINT: Final = "restart the broker: it makes its index again from the log"


class Row(NamedTuple):
    """One queue's share of a chunk. ``place`` counts from the first entry byte."""

    key: str
    base: int
    entries: int
    place: int


class Chunk(NamedTuple):
    """A chunk's directory, as read from its file. ``witness``: the first four bytes of the log at ``start``, so that a
    chunk of another log is not believed."""

    start: int
    end: int
    witness: int
    rows: list[Row]


def chunk_path(start: int) -> str:
    """Path of the chunk whose stretch begins at position ``start``."""
    return f"{FOLDER}/{start:020d}{SUFFIX}"


class ChunkParts:
    """A chunk in the making: queues are added some at a time, in the order of their keys."""

    def __init__(self) -> None:
        self._rows: list[bytes] = []
        self._entries: list[bytes] = []
        self._count = 0
        self._place = 0

    def add(self, takes: Iterable[tuple[Queue, int]]) -> None:
        """Takes in the first entries of some queues' tails, so many of each."""
        rows, short = [], []
        for queue, count in takes:
            size = count * ENTRY_BYTES
            rows.append((queue.key, queue.tail_base, count, self._place))
            self._place += size
            if size < PIECE_BYTES:
                short.append(queue.tail[:size])
            else:
                self._entries += [b"".join(short), *_cut(queue.tail, size)]
                short.clear()
        self._count += len(rows)
        self._rows.append(packed_rows(rows))
        self._entries.append(b"".join(short))

    def pieces(self, start: int, end: int, witness: int, keys: np.ndarray[Any, Any]) -> list[bytes]:
        """The file of the chunk, in pieces; ``keys`` sorted by hash."""
        directory = [array_head(self._count), *self._rows]
        directory_bytes = sum(map(len, directory))
        head = HEAD.pack(0, MAGIC, VERSION, start, end, witness, directory_bytes, self._place, len(keys))[4:]
        rest = [*directory, *self._entries, keys.tobytes()]
        return [crc_of([head, *rest]).to_bytes(4, "big") + head, *rest]


def _cut(tail: bytearray, size: int) -> list[bytes]:
    """The first bytes of a tail, copied once."""
    with memoryview(tail) as whole, whole[:size] as view:
        return [bytes(view[at : at + PIECE_BYTES]) for at in range(0, size, PIECE_BYTES)]


def positions_of(keys: np.ndarray[Any, Any]) -> list[int]:
    """The positions of all records that key rows stand for, in the order of the rows."""
    found: list[int] = []
    for _, first, step, count in keys.tolist():
        found += range(first, first + (step or 1) * count, step or 1)
    return found


def decode_chunk(data: bytes, start: int) -> Chunk | None:
    """The directory of a chunk file, None if it is damaged in any way."""
    if len(data) < HEAD.size:
        return None
    crc, magic, version, first, end, witness, directory_bytes, entry_bytes, keys = HEAD.unpack_from(data)
    size = HEAD.size + directory_bytes + entry_bytes + keys * KEY_DTYPE.itemsize
    if (magic, version, first, size) != (MAGIC, VERSION, start, len(data)) or crc != crc32c(data[4:]):
        return None
    rows = msgpack.unpackb(data[HEAD.size : HEAD.size + directory_bytes])
    return Chunk(start, end, witness, [Row(*row) for row in rows])


def entries_at(data: bytes) -> int:
    """Place of the first entry in a good chunk file."""
    return HEAD.size + int(HEAD.unpack_from(data)[6])


class ChunkFiles:
    """Reads entries and keys out of chunk files; keeps a bounded number of them open."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: dict[int, tuple[File, int, int, int]] = {}  # file, place of entries, place of keys, number of keys

    def entries(self, chunk: int, place: int, size: int) -> bytes:
        """``size`` bytes of entries from ``place`` on. Raises ``Damaged``."""
        file, entries_from, _, _ = self._file(chunk)
        return self._read(chunk, file, size, entries_from + place)

    def find_key(self, chunk: int, key_hash: int) -> list[int]:
        """Positions of the records whose key has this hash, oldest first. Raises ``Damaged``."""
        file, _, keys_from, count = self._file(chunk)
        size = KEY_DTYPE.itemsize

        def hash_of(number: int) -> int:
            return int.from_bytes(self._read(chunk, file, HASH_BYTES, keys_from + number * size), "big")

        low = bisect_left(range(count), key_hash, key=hash_of)
        high = bisect_right(range(count), key_hash, lo=low, key=hash_of)
        found = self._read(chunk, file, (high - low) * size, keys_from + low * size)
        return positions_of(np.frombuffer(found, KEY_DTYPE))

    @staticmethod
    def _read(chunk: int, file: File, size: int, at: int) -> bytes:
        """Chunks were checked when the broker started or written since: this is about harm done meanwhile."""
        try:
            data = file.pread(size, at)
        except OSError as error:
            raise Damaged(f"index chunk {chunk} cannot be read: {error.strerror}", hint=REPAIR_HINT) from None
        if len(data) < size:
            raise Damaged(f"index chunk {chunk} ends early", hint=REPAIR_HINT)
        return data

    def _file(self, chunk: int) -> tuple[File, int, int, int]:
        found = self._open.pop(chunk, None)
        if found is None:
            try:
                file = self._disk.open(chunk_path(chunk))
            except OSError as error:
                raise Damaged(f"index chunk {chunk} cannot be opened: {error.strerror}", hint=REPAIR_HINT) from None
            head = HEAD.unpack(self._read(chunk, file, HEAD.size, 0))
            entries_from = HEAD.size + head[6]
            found = (file, entries_from, entries_from + head[7], head[8])
            if len(self._open) >= OPEN_FILES_MAX:
                self.close(next(iter(self._open)))
        self._open[chunk] = found  # the most recently used is last
        return found

    def close(self, chunk: int) -> None:
        """Closes a chunk's file if it is open."""
        found = self._open.pop(chunk, None)
        if found is not None:
            found[0].close()

    def close_all(self) -> None:
        """Closes all files."""
        for chunk in list(self._open):
            self.close(chunk)
