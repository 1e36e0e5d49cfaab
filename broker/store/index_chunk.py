"""Index chunks: the sealed queue entries of one stretch of the log, sorted by queue, in one file.
docs/formats/index.md is the page.

A chunk has a number: the first position of its stretch and its level, which says how often it was made of smaller ones
(``merging.py``); no record is so short that two numbers could meet. Its file holds a head, a directory (msgpack: per
queue its key, first offset, count and place), the entries, and the keys' hashes with their positions, one row for
neighbours with the same key. It is derived: a chunk that is missing or damaged is made again from the log.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from broker.store.disk import Disk, File
from broker.store.frames import crc_of, extend
from broker.store.label import BACK_HINT, newer
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
"""Hash of a key, and its records: a first position, the step in bytes from one record to the next, and their count."""
KEY_DTYPE: Final = np.dtype([("hash", ">u4"), ("first", ">u8"), ("step", ">u4"), ("count", ">u4")])
HASH_BYTES: Final = 4
CRC_BYTES: Final = 4
LEVELS: Final = 3
"""As it was sealed, made of some neighbours, made of all in a segment."""
OPEN_FILES_MAX: Final = 64
PIECE_BYTES: Final = 1 << 20
"""The entries of a long queue are copied and written in pieces of this size, those of short ones put together."""
READ_BYTES: Final = 1 << 16
"""A file that is read from its beginning to its end is read in blocks of this size."""
OFFSETS_END: Final = 1 << 63
RUNS_AT_ONCE: Final = 256
"""Key rows that a sequential reader reads together."""
REPAIR_HINT: Final = "restart the broker: it makes its index again from the log"

_log = logging.getLogger(__name__)


class Sealed(NamedTuple):
    """A chunk, and the stretch of the log whose entries it holds. ``size``, ``directory_bytes``: of its file."""

    number: int
    start: int
    end: int
    size: int
    directory_bytes: int

    @property
    def level(self) -> int:
        """How often it was made of smaller ones."""
        return self.number - self.start


class Row(NamedTuple):
    """A queue's share of a chunk, or one of two where damage or its end left a gap. ``place`` counts from the first
    entry byte."""

    key: str
    base: int
    entries: int
    place: int


def chunk_path(number: int) -> str:
    """Path of the chunk with that number."""
    return f"{FOLDER}/{number:020d}{SUFFIX}"


def pack_head(start: int, end: int, witness: int, directory_bytes: int, entry_bytes: int, keys: int) -> bytes:
    """The head of a chunk, but for its checksum."""
    return HEAD.pack(0, MAGIC, VERSION, start, end, witness, directory_bytes, entry_bytes, keys)[CRC_BYTES:]


class ChunkParts:
    """A chunk in the making: queues are added some at a time, in the order of their keys. ``directory_bytes``: when its
    pieces were made."""

    def __init__(self) -> None:
        self._rows: list[bytes] = []
        self._entries: list[bytes] = []
        self._count = 0
        self._place = 0
        self.directory_bytes = 0

    def add(self, takes: Iterable[tuple[Queue, int]]) -> None:
        """Takes in the first entries of some queues' tails, with the number for each."""
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
        self.directory_bytes = sum(map(len, directory))
        head = pack_head(start, end, witness, self.directory_bytes, self._place, len(keys))
        rest = [*directory, *self._entries, keys.tobytes()]
        return [crc_of([head, *rest]).to_bytes(4, "big") + head, *rest]


def _cut(tail: bytearray, size: int) -> list[bytes]:
    """The first bytes of a tail, copied once."""
    with memoryview(tail) as whole, whole[:size] as view:
        return [bytes(view[at : at + PIECE_BYTES]) for at in range(0, size, PIECE_BYTES)]


class KeyRuns:
    """The records whose key has one hash, oldest first, in runs of positions. There may be very many: rows are read as
    they are looked at."""

    def __init__(self, count: int, read: Callable[[int, int], bytes]) -> None:
        """``read``: the bytes of the key rows from a number on up to another."""
        self._count = count
        self._read = read

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> range:
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._runs(number, number + 1)[0]

    def newest_first(self, count: int) -> Iterator[range]:
        """The first ``count`` runs, beginning with the last of them."""
        for end in range(count, 0, -RUNS_AT_ONCE):
            yield from reversed(self._runs(max(0, end - RUNS_AT_ONCE), end))

    def _runs(self, begin: int, end: int) -> list[range]:
        rows = KEY.iter_unpack(self._read(begin, end))
        return [range(first, first + (step or 1) * count, step or 1) for _, first, step, count in rows]


class ChunkReader:
    """A chunk file that is read from its beginning to its end, in blocks: head, directory, entries, keys.

    Attributes:
        sealed: the chunk.
        witness: the first four bytes of the log where it starts, so that a chunk of another log is not believed.
        directory_bytes, entry_bytes, keys: how long its parts are: bytes, bytes and rows.
    """

    def __init__(self, disk: Disk, number: int) -> None:
        """Raises ``OSError``, ``Damaged`` if this is no chunk with that number, and ``DataFolderUnusable`` if it is one
        of a newer version."""
        self._number = number
        self._file = disk.open(chunk_path(number), is_read_only=True)
        self._crc = 0
        self._at = CRC_BYTES  # of the file: where the next read begins
        self._block = b""
        self._taken = 0  # of the block
        try:
            self._wanted = int.from_bytes(self._file.pread(CRC_BYTES, 0), "big")
            head = HEAD.unpack(bytes(CRC_BYTES) + self.take(HEAD.size - CRC_BYTES))
            _, magic, version, start, end, self.witness, self.directory_bytes, self.entry_bytes, self.keys = head
            if magic == MAGIC and version > VERSION:
                self._refuse_newer(version)
            size = HEAD.size + self.directory_bytes + self.entry_bytes + self.keys * KEY.size
            if (magic, version, size) != (MAGIC, VERSION, self._file.size()) or not 0 <= number - start < LEVELS:
                raise self._damaged("is none")
        except BaseException:
            self.close()
            raise
        self.sealed = Sealed(number, start, end, size, self.directory_bytes)

    def _refuse_newer(self, version: int) -> None:
        """Raises ``Damaged`` if the file is not as it was written: then its version means nothing."""
        while block := self._file.pread(PIECE_BYTES, self._at):
            self._crc = extend(block, self._crc)
            self._at += len(block)
        if self._crc != self._wanted:
            raise self._damaged("is damaged")
        raise newer(f"{chunk_path(self._number)} has version {version}", VERSION, BACK_HINT)

    def take(self, size: int) -> bytes:
        """The next bytes, exactly this number. Raises ``Damaged``, ``OSError``."""
        while len(self._block) - self._taken < size:
            block = self._file.pread(max(READ_BYTES, size), self._at)
            if not block:
                raise self._damaged("ends early")
            self._crc = extend(block, self._crc)
            self._at += len(block)
            self._block = self._block[self._taken :] + block
            self._taken = 0
        taken = self._block[self._taken : self._taken + size]
        self._taken += size
        return taken

    def rows(self) -> Iterator[Row]:
        """The directory, which is what is taken first. Raises ``Damaged``, ``OSError``."""
        unpacker = msgpack.Unpacker()
        left = self.directory_bytes
        count = -1
        try:
            while left:
                block = self.take(min(READ_BYTES, left))
                left -= len(block)
                unpacker.feed(block)
                with contextlib.suppress(msgpack.OutOfData):
                    count = unpacker.read_array_header() if count < 0 else count
                    while count > 0:
                        row = Row(*unpacker.unpack())
                        self._check_row(row)
                        count -= 1
                        yield row
        except (ValueError, TypeError, msgpack.UnpackException):
            raise self._damaged("has no directory") from None
        if count:
            raise self._damaged("has no whole directory")

    def _check_row(self, row: Row) -> None:
        """Raises ``Damaged`` for what is no row of this chunk: its checksum is known only when all is read."""
        numbers = row.base, row.entries, row.place
        if (
            type(row.key) is not str
            or not all([type(number) is int and 0 <= number < OFFSETS_END for number in numbers])
            or row.place + row.entries * ENTRY_BYTES > self.entry_bytes
        ):
            raise self._damaged("has no directory")

    def finish(self) -> None:
        """Takes what is left. Raises ``Damaged`` if anything in the file is not as it was written, ``OSError``."""
        while self._at < self.sealed.size:
            self._block, self._taken = b"", 0
            self.take(1)
        if self._crc != self._wanted:
            raise self._damaged("is damaged")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"index chunk {self._number} {what}", hint=REPAIR_HINT)


def check_chunk(disk: Disk, number: int) -> tuple[Sealed, int] | None:
    """The chunk with that number and its witness, None if it is damaged in any way. Raises ``OSError``, and
    ``DataFolderUnusable`` for one of a newer version."""
    try:
        with contextlib.closing(ChunkReader(disk, number)) as reader:
            reader.finish()
            return reader.sealed, reader.witness
    except Damaged:
        return None


class ChunkFiles:
    """Reads entries and keys out of chunk files; keeps a bounded number of them open."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: dict[int, tuple[File, int, int, int]] = {}  # file, place of entries, place of keys, number of keys

    def entries(self, chunk: int, place: int, size: int) -> bytes:
        """``size`` bytes of entries from ``place`` on. Raises ``Damaged``."""
        file, entries_from, _, _ = self._file(chunk)
        return self._read(chunk, file, size, entries_from + place)

    def find_key(self, chunk: int, key_hash: int) -> KeyRuns:
        """The records whose key has this hash; they can be looked at while the chunk is there. Raises ``Damaged``, as
        does looking at them."""
        file, _, keys_from, count = self._file(chunk)

        def hash_of(number: int) -> int:
            return int.from_bytes(self._read(chunk, file, HASH_BYTES, keys_from + number * KEY.size), "big")

        low = bisect_left(range(count), key_hash, key=hash_of)
        high = bisect_right(range(count), key_hash, lo=low, key=hash_of)

        def read(begin: int, end: int) -> bytes:
            return self._read(
                chunk, self._file(chunk)[0], (end - begin) * KEY.size, keys_from + (low + begin) * KEY.size
            )

        return KeyRuns(high - low, read)

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
                file = self._disk.open(chunk_path(chunk), is_read_only=True)
            except OSError as error:
                raise Damaged(f"index chunk {chunk} cannot be opened: {error.strerror}", hint=REPAIR_HINT) from None
            try:
                found = (file, *self._places(chunk, file))
            except BaseException:
                file.close()
                raise
            if len(self._open) >= OPEN_FILES_MAX:
                self.close(next(iter(self._open)))
        self._open[chunk] = found  # the most recently used is last
        return found

    def _places(self, chunk: int, file: File) -> tuple[int, int, int]:
        """The places of entries and keys in a file, and the number of keys. Raises ``Damaged``."""
        head = HEAD.unpack(self._read(chunk, file, HEAD.size, 0))
        entries_from = HEAD.size + head[6]
        keys_from = entries_from + head[7]
        if keys_from + head[8] * KEY.size > file.size():
            raise Damaged(f"index chunk {chunk} ends early", hint=REPAIR_HINT)
        return entries_from, keys_from, head[8]

    def close(self, chunk: int) -> None:
        """Closes a chunk's file if it is open."""
        found = self._open.pop(chunk, None)
        if found is not None:
            found[0].close()

    def remove(self, chunk: int) -> None:
        """Removes a chunk's file: nothing points to it any more."""
        self.close(chunk)
        try:
            self._disk.discard(chunk_path(chunk))
        except OSError as error:
            _log.error("an index chunk cannot be removed: %s", error.strerror)  # recovery removes it

    def close_all(self) -> None:
        """Closes all files."""
        for chunk in list(self._open):
            self.close(chunk)
