"""Merges neighbouring index chunks, so that a queue has few pieces.

A chunk is sealed soon, so that little of the index is in memory. But each queue in it keeps 28 bytes for its piece. So
eight neighbours become one, and all chunks of a finished segment: a queue has one piece per segment, and some in the
newest. Sources are read in order and the result is written once per level, in bounded pieces between which others run.

Invariants: a merge never spans two segments; it ends where a start may have to begin (the newest chunk takes no part);
its sources are removed only when it is on the medium and all queues point to it; a damaged source is given up, never
copied.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import logging
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, starmap
from typing import Any, Final, TypeVar

import msgpack
import numpy as np

from broker.store.disk import Disk
from broker.store.frames import crc_of, extend
from broker.store.index_chunk import (
    CRC_BYTES,
    HEAD,
    KEY,
    KEY_DTYPE,
    LEVELS,
    PIECE_BYTES,
    REPAIR_HINT,
    ChunkFiles,
    ChunkReader,
    Row,
    Sealed,
    chunk_path,
    pack_head,
)
from broker.store.key_index import KeyIndex
from broker.store.queue_index import ENTRY_BYTES, Piece, QueueIndex
from broker.store.rows import array_head, packed_rows
from penstock.errors import Damaged

MERGED: Final = 8
"""Neighbours that become one while their segment is being written,"""
DIRECTORIES_BYTES_MIN: Final = 1 << 16
"""if they have the pieces of many queues: the least bytes of their directories."""
MERGED_BYTES_MAX: Final = 256 << 20
SOURCES_MAX: Final = 64
"""No more than this, and no more files, are made into one."""
SLICE_ROWS: Final = 2_000
"""Rows of a directory, or queues, handled between two turns of the loop."""
SLICE_KEYS: Final = 4_000
"""Key rows of each source compared at a time."""
_HASHES: Final = 1 << 32
"""Key hashes are lower than this."""
RETRY_MS: Final = 60_000
"""A merge for which the disk had no room is tried again after this time."""

_log = logging.getLogger(__name__)
_DONE: Final = object()
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
T = TypeVar("T")


def next_merge(chunks: Sequence[Sealed], bases: Sequence[int], damaged: frozenset[int]) -> tuple[list[Sealed], int]:
    """The oldest neighbours that shall become one, and its level; no neighbours if nothing is to be done.

    Args:
        chunks: all of them, in order.
        bases: where segments begin.
        damaged: numbers of chunks that cannot be read.
    """
    starts = [chunk.start for chunk in chunks[:-1]]
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        first = bisect_left(starts, base)
        last = len(starts) if following is None else bisect_left(starts, following)
        inside = chunks[first:last]
        finished = bool(inside) and inside[-1].end == following
        for run in _runs(inside, LEVELS - 2 if finished else 0, damaged):
            if finished and len(run) > 1:
                return run, LEVELS - 1
            if not finished and len(run) >= MERGED and _have_many_pieces(run[:MERGED]):
                return run[:MERGED], 1
    return [], 0


def _have_many_pieces(run: Sequence[Sealed]) -> bool:
    return sum([chunk.directory_bytes for chunk in run]) >= DIRECTORIES_BYTES_MIN


def _runs(chunks: Sequence[Sealed], level_max: int, damaged: frozenset[int]) -> Iterator[list[Sealed]]:
    """Neighbours that may become one."""
    run: list[Sealed] = []
    size = 0
    for chunk in chunks:
        mergeable = chunk.level <= level_max and chunk.number not in damaged
        if not mergeable or size + chunk.size > MERGED_BYTES_MAX or len(run) == SOURCES_MAX:
            yield run
            run, size = [], 0
        if mergeable:
            run.append(chunk)
            size += chunk.size
    yield run


class Merging:
    """A merge of chunks, and the work on it."""

    def __init__(self, disk: Disk, index: QueueIndex, keys: KeyIndex, files: ChunkFiles) -> None:
        self._disk = disk
        self._index = index
        self._keys = keys
        self._files = files
        self._work: Generator[None, None, None] | None = None
        self._sources: list[Sealed] = []  # of the work
        self._counts = False  # what was made of them: queues begin to point to it
        self._goes = False  # and is about to go: no more queues need to
        self._damaged: frozenset[int] = frozenset()
        self._looked_at: tuple[int, int] = (0, 0)
        self._not_before_ms = 0

    def step(self, bases: Sequence[int], now_ms: int) -> None:
        """A bounded piece of the work, if there is any. ``bases``: where segments begin."""
        if self._work is None:
            chunks = self._keys.chunks
            looked_at = (len(chunks), chunks[-1].number if chunks else 0)
            if looked_at == self._looked_at or now_ms < self._not_before_ms:
                return
            self._sources, level = next_merge(chunks, bases, self._damaged)
            if not self._sources:
                self._looked_at = looked_at
                return
            self._work = self._carry_out(self._sources, level)
        try:
            if next(self._work, _DONE) is _DONE:
                self._work = None
        except Damaged as error:
            _log.error("index chunks stay apart: %s", error)
            self._work = None
            self._damaged |= {source.number for source in self._sources}
        except OSError as error:
            _log.error("index chunks cannot be made into one: %s", error.strerror)
            self._work = None
            self._not_before_ms = now_ms + RETRY_MS

    def _reader(self, number: int) -> ChunkReader:
        try:
            return ChunkReader(self._disk, number)
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR:
                raise
            raise _unreadable(error) from None

    def make_room(self, now_ms: int) -> None:
        """The disk is full: unfinished work gives its room back, and takes it again after a while at the earliest;
        other work goes on to the removal of its sources."""
        if self._work is None:
            return
        if not self._counts:
            self.give_up()
            self._not_before_ms = now_ms + RETRY_MS
        elif next(self._work, _DONE) is _DONE:
            self._work = None

    def leave(self, position: int) -> None:
        """Chunks before a position, at which a segment begins, are about to go: no work is left on any of them. Queues
        may point to what was made or to its sources: both are before the position."""
        if self._work is not None and self._sources[0].start < position:
            if self._counts:
                self._goes = True
                deque(self._work, 0)
            self.give_up()

    def give_up(self) -> None:
        """Leaves the work undone; a start makes good what it leaves behind."""
        if self._work is not None:
            self._work.close()
            self._work = None

    def _carry_out(self, sources: list[Sealed], level: int) -> Generator[None, None, None]:
        self._counts = self._goes = False
        draft = _Draft(sources, level)
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(contextlib.closing(self._reader(one.number))) for one in sources]
            yield from _read(draft.plan(readers))
            yield from self._disk.replace(chunk_path(draft.number), _read(draft.pieces(readers)), draft.head)
        self._counts = True
        numbers = frozenset([source.number for source in sources])
        for handled, row in enumerate(draft.rows(), 1):
            queue = self._index.find(row.key)
            if queue is not None:
                queue.join(Piece(row.base, row.entries, draft.number, row.place), numbers)
            if handled % SLICE_ROWS == 0:
                yield
                if self._goes:
                    break
        self._keys.merge_chunks(sources, draft.sealed)
        for source in sources:
            yield
            self._files.remove(source.number)


class _Draft:
    """A chunk in the making. ``plan`` reads the directories of its sources, ``pieces`` the rest."""

    def __init__(self, sources: Sequence[Sealed], level: int) -> None:
        self._sources = sources
        self.number = sources[0].start + level
        self._directory: list[bytes] = []
        self._turns = array("H")  # for each row of a source, in the order of keys: which source
        self._sizes = array("Q")  # and how many bytes of entries
        self._head = b""
        self._crc = 0
        self.sealed = sources[0]

    def plan(self, readers: Sequence[ChunkReader]) -> Iterator[None]:
        """Makes the directory."""
        rows: list[Row] = []
        count = place = 0
        in_order = heapq.merge(*map(_numbered, range(len(readers)), readers), key=_in_order)
        for handled, (source, row) in enumerate(in_order, 1):
            size = row.entries * ENTRY_BYTES
            self._turns.append(source)
            self._sizes.append(size)
            last = rows[-1] if rows else None
            if last is not None and last.key == row.key and last.base + last.entries == row.base:
                rows[-1] = last._replace(entries=last.entries + row.entries)
            else:
                if len(rows) >= SLICE_ROWS:
                    count += len(rows)
                    self._directory.append(packed_rows(rows))
                    rows.clear()
                rows.append(row._replace(place=place))
            place += size
            if handled % SLICE_ROWS == 0:
                yield
        self._directory = [array_head(count + len(rows)), *self._directory, packed_rows(rows)]
        self._note(readers, place)

    def _note(self, readers: Sequence[ChunkReader], entry_bytes: int) -> None:
        start, end = self._sources[0].start, self._sources[-1].end
        directory_bytes, keys = sum(map(len, self._directory)), sum([reader.keys for reader in readers])
        self._head = pack_head(start, end, readers[0].witness, directory_bytes, entry_bytes, keys)
        size = HEAD.size + directory_bytes + entry_bytes + keys * KEY.size
        self.sealed = Sealed(self.number, start, end, size, directory_bytes)

    def pieces(self, readers: Sequence[ChunkReader]) -> Iterator[bytes]:
        """The file. Raises ``Damaged`` if a source is not as it was written."""
        yield bytes(HEAD.size)
        self._crc = crc_of([self._head])
        for piece in chain(self._directory, self._entries(readers), _keys(readers)):
            self._crc = extend(piece, self._crc)
            yield piece
        for reader in readers:
            reader.finish()

    def head(self) -> bytes:
        """The file's beginning, when all pieces were taken."""
        return self._crc.to_bytes(CRC_BYTES, "big") + self._head

    def rows(self) -> Iterator[Row]:
        """The directory."""
        unpacker = msgpack.Unpacker()
        for piece in self._directory[1:]:
            unpacker.feed(piece)
            yield from starmap(Row, unpacker)

    def _entries(self, readers: Sequence[ChunkReader]) -> Iterator[bytes]:
        some: list[bytes] = []
        total = 0
        for source, size in zip(self._turns, self._sizes, strict=True):
            for at in range(0, size, PIECE_BYTES):
                some.append(readers[source].take(min(PIECE_BYTES, size - at)))
                total += len(some[-1])
                if total >= PIECE_BYTES or len(some) >= SLICE_ROWS:
                    yield b"".join(some)
                    some.clear()
                    total = 0
        yield b"".join(some)


def _read(pieces: Iterator[T]) -> Iterator[T]:
    """Reads the sources. One that the disk cannot read is damaged; other errors of the disk pass."""
    try:
        yield from pieces
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError) -> Damaged:
    return Damaged(f"one of them cannot be read: {error.strerror}", hint=REPAIR_HINT)


def _numbered(number: int, reader: ChunkReader) -> Iterator[tuple[int, Row]]:
    return ((number, row) for row in reader.rows())


def _in_order(one: tuple[int, Row]) -> str:
    """The sort key of a row: its queue. Rows of one queue stay in the order of their sources, and in their order
    there."""
    return one[1].key


class _KeyRows:
    """The key rows of a source, in their order: a slice of them is in memory."""

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._left = reader.keys
        self._read()

    def _read(self) -> None:
        count = min(SLICE_KEYS, self._left)
        self._left -= count
        self._rows = np.frombuffer(self._reader.take(count * KEY.size), KEY_DTYPE)
        self._hashes = self._rows["hash"].astype("i8")

    @property
    def known_to(self) -> int:
        """All rows with lower hashes than this one are in memory, or were taken."""
        return int(self._hashes[-1]) if self._left else _HASHES

    def take(self, below: int) -> np.ndarray[Any, Any]:
        """The next rows with hashes below this one, at most a slice; none if there are no more."""
        count = int(np.count_nonzero(self._hashes < below))  # however damaged they are, that of the last row is counted
        taken = self._rows[:count]
        self._rows, self._hashes = self._rows[count:], self._hashes[count:]
        if self._left and not len(self._rows):
            self._read()
        return taken


def _keys(readers: Sequence[ChunkReader]) -> Iterator[bytes]:
    """The key rows of all sources, sorted by hash; those of one hash in the order of the sources."""
    sources = [_KeyRows(reader) for reader in readers]
    bound = 0
    while bound < _HASHES:
        bound = min([source.known_to for source in sources])
        rows = np.concatenate([source.take(bound) for source in sources], dtype=KEY_DTYPE)
        some = [rows[np.argsort(rows["hash"], kind="stable")].tobytes()]
        total = len(some[0])
        for source in sources:  # any number of records may have this one hash; their rows are in order already
            while len(rows := source.take(bound + 1)):
                some.append(rows.tobytes())
                total += len(some[-1])
                if total >= PIECE_BYTES:
                    yield b"".join(some)
                    some.clear()
                    total = 0
        yield b"".join(some)
