"""The index from queues to log entries: topic queues and light queues by one mechanism, without a file per queue.

An entry has 20 bytes: log position 8, frame size 4, tag hash 8. Entries of the newest part of the log are in memory,
per queue (``tail``); older ones are in index chunks (``index_chunk.py``). A *hole* (size 0) stands for a record that
was lost to damage, so that later offsets keep their meaning. There may be 100,000 queues: one without entries has no
containers of its own, and pieces are packed (28 bytes each).

Invariants, per queue: positions of entries grow (a hole has that of the next entry); ``min <= readable <= next``;
entries become readable in order and stay so; offsets are never used twice (a light queue starts at the log position
that opened it: ``first``), and none is beyond the log's end. Between two pieces there may be a gap that damage left
(``move_light_queues``).
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Sequence
from typing import Final, NamedTuple

from penstock.errors import QueueNotFound

LIGHT: Final = "~"
"""The names of all light queues begin so, and no topic's."""
ENTRY20: Final = struct.Struct(">QIq")
ENTRY_BYTES: Final = ENTRY20.size
_PIECE: Final = struct.Struct(">QIQQ")
_CHUNK_AT: Final = 12
_EMPTY: Final = bytearray()
"""The tail of all queues that have none; never written to."""


def hole(position: int) -> bytes:
    """The entry of a record that was lost to damage somewhere before ``position``."""
    return ENTRY20.pack(position, 0, 0)


class Piece(NamedTuple):
    """A queue's entries in one chunk: offsets ``base`` to ``base + entries``, from byte ``place`` of the entries on in
    the chunk with the number ``chunk``."""

    base: int
    entries: int
    chunk: int
    place: int


class Passed(NamedTuple):
    """The known facts of damage that starts have passed over.

    Attributes:
        lost: the number of offsets that were, at most, given out in queues of topics of which it has left nothing.
        log_end: where the log ended when some was passed over last: light queues have moved there.
        unsettled: damage (from, to) for which no lost offsets are kept yet.
    """

    lost: int = 0
    log_end: int = 0
    unsettled: Sequence[Sequence[int]] = ()


class Queue:
    """The index of one queue. ``ahead``: messages of the append that is being laid out; ``waits``: not all of its
    entries are readable yet. ``floor``: nothing before it is given out any more, though it may be there still; it is
    part of no state of the store, for the folds say it (``records.MadeQueue``)."""

    __slots__ = ("ahead", "first", "floor", "key", "pieces", "readable", "tail", "tail_base", "waits")

    def __init__(self, key: str, first: int) -> None:
        self.key = key
        self.first = first
        self.floor = 0
        self.pieces = b""  # packed: a queue's oldest first
        self.tail = _EMPTY
        self.tail_base = first
        self.readable = first
        self.ahead = 0
        self.waits = False

    @property
    def next(self) -> int:
        """Offset that the next entry gets."""
        return self.tail_base + len(self.tail) // ENTRY_BYTES

    @property
    def begin(self) -> int:
        """The first offset that has an entry."""
        return int.from_bytes(self.pieces[:8], "big") if self.pieces else self.tail_base

    @property
    def min(self) -> int:
        """The first offset that is still given out. A floor counts as far as the queue is readable."""
        begin, floor = self.begin, self.floor
        return begin if floor <= begin else max(begin, min(floor, self.readable))

    def _piece(self, number: int) -> Piece:
        return Piece._make(_PIECE.unpack_from(self.pieces, number * _PIECE.size))

    def _pieces_below(self, bound: int, field_at: int) -> int:
        """The number of pieces with less than ``bound`` in a field of eight bytes, which grows from each to the
        next."""
        pieces, size = self.pieces, _PIECE.size
        low, high = 0, len(pieces) // size
        while low < high:
            middle = (low + high) // 2
            at = middle * size + field_at
            if int.from_bytes(pieces[at : at + 8], "big") < bound:
                low = middle + 1
            else:
                high = middle
        return low

    def _holder(self, offset: int) -> int:
        """Number of the last piece that begins at or before ``offset``, -1 if none does."""
        return self._pieces_below(offset + 1, 0) - 1

    def behind_gap(self, offset: int) -> int:
        """The offset itself, or where the queue goes on if it is in a gap between two pieces."""
        if offset >= self.tail_base or offset < self.begin:
            return offset
        number = self._holder(offset)
        piece = self._piece(number)
        if offset < piece.base + piece.entries:
            return offset
        following = (number + 1) * _PIECE.size
        return self._piece(number + 1).base if following < len(self.pieces) else self.tail_base

    def piece_of(self, offset: int) -> Piece | None:
        """The sealed piece that holds ``offset``; None if it is in the tail."""
        return None if offset >= self.tail_base else self._piece(self._holder(offset))

    def take_from_tail(self, count: int, chunk: int, place: int) -> None:
        """The first ``count`` entries of the tail are in a chunk now."""
        self.pieces += _PIECE.pack(self.tail_base, count, chunk, place)
        self.tail_base += count
        if self.readable == self.tail_base:
            self.readable = self.tail_base  # one number for both: there may be many of them
        if len(self.tail) == count * ENTRY_BYTES:
            self.tail = _EMPTY
        else:
            del self.tail[: count * ENTRY_BYTES]

    def move(self, base: int) -> None:
        """The entries that are in no chunk yet begin at an offset; none of them is readable."""
        self.tail_base = self.readable = base

    def _own(self, piece: Piece) -> Piece:
        """The part of a piece that is this queue's: all offsets below its first belong to an earlier one of the same
        name. Where that ended at this one's first offset, as topics do, one piece of a merged chunk holds the end of
        one and the beginning of the other."""
        before = self.first - piece.base
        if not 0 < before < piece.entries:
            return piece
        return Piece(self.first, piece.entries - before, piece.chunk, piece.place + before * ENTRY_BYTES)

    def precede(self, piece: Piece) -> bool:
        """Takes in the piece before the oldest known entry; False if it is not of this queue but of an earlier one of
        the same name."""
        piece = self._own(piece)
        if piece.base < self.first or piece.base + piece.entries > self.begin:
            return False
        self.pieces = _PIECE.pack(*piece) + self.pieces
        return True

    def join(self, joined: Piece, sources: Container[int]) -> None:
        """The pieces in the chunks ``sources`` that have the same offsets as ``joined`` are this one piece now, if they
        are this queue's and not those of an earlier one of the same name."""
        joined = self._own(joined)
        first = last = self._holder(joined.base)
        if first < 0 or self._piece(first).base != joined.base:
            return
        left, size = joined.entries, _PIECE.size
        while left > 0 and last * size < len(self.pieces):
            piece = self._piece(last)
            if piece.chunk not in sources:
                return
            left -= piece.entries
            last += 1
        if not left:
            self.pieces = self.pieces[: first * size] + _PIECE.pack(*joined) + self.pieces[last * size :]

    def forget_before(self, position: int) -> None:
        """The pieces in chunks that begin before a log position go; they are the oldest."""
        gone = self._pieces_below(position, _CHUNK_AT)
        if gone:
            self.pieces = self.pieces[gone * _PIECE.size :]

    def entries_before(self, position: int, low: int = 0) -> int:
        """The number of tail entries for frames before a log position; the first ``low`` are not looked at."""
        tail = self.tail
        high = len(tail) // ENTRY_BYTES
        if not high or ENTRY20.unpack_from(tail, (high - 1) * ENTRY_BYTES)[0] < position:
            return high
        while low < high:
            middle = (low + high) // 2
            if ENTRY20.unpack_from(tail, middle * ENTRY_BYTES)[0] < position:
                low = middle + 1
            else:
                high = middle
        return low


class QueueIndex:
    """All queues of a broker, and which of them have entries that are not readable yet.

    Attributes:
        added: bytes of all entries that were ever added.
        passed: the damage that was passed over.
        holds_moved: entries that have moved are not readable yet.
        reads_committed: nothing is readable before it is committed, for there are other copies.
    """

    def __init__(self, *, reads_committed: bool = False) -> None:
        self.added = 0
        self.passed = Passed()
        self.holds_moved = False
        self.reads_committed = reads_committed
        self._moved_to = self._moved_before = 0
        self._queues: dict[str, Queue] = {}
        self._waiting: list[Queue] = []
        self._fresh: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def get(self, key: str) -> Queue:
        """The queue of that name. Raises ``QueueNotFound``."""
        queue = self._queues.get(key)
        if queue is None:
            raise QueueNotFound(f"there is no queue {key}")
        return queue

    def find(self, key: str) -> Queue | None:
        """The queue of that name if there is one."""
        return self._queues.get(key)

    def ensure(self, key: str, first: int = 0) -> Queue:
        """The queue of that name, made with first offset ``first`` if it is new."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(key, first)
            if first < self._moved_before and key.startswith(LIGHT):
                queue.move(self._moved_to)
        return queue

    def drop(self, key: str) -> None:
        """Forgets a queue; its entries go with the chunks that hold them. It counts as fresh: a waiting request is
        told."""
        queue = self._queues.pop(key, None)
        if queue is not None:
            queue.waits = False
            self._fresh[key] = None

    def add(self, queue: Queue, entries: bytes, at_once: bool) -> None:
        """Adds entries, one behind the other. ``at_once``: they need no sync to be readable, unless an earlier one of
        the queue does."""
        self.added += len(entries)
        if queue.tail is _EMPTY:
            queue.tail = bytearray(entries)
        else:
            queue.tail += entries
        if queue.waits:
            return
        if at_once and not self.reads_committed:
            queue.readable += len(entries) // ENTRY_BYTES
            self._fresh[queue.key] = None
        else:
            queue.waits = True
            self._waiting.append(queue)

    def move_light_queues(self, base: int, opened_before: int) -> int:
        """The unsealed entries of all light queues begin at offset ``base``, and so do queues that are opened before a
        position. None is readable as long as ``holds_moved`` is set. Returns how many of these entries the longest
        has."""
        self._moved_to, self._moved_before = base, opened_before
        self.holds_moved = True
        longest = 0
        for queue in self._queues.values():
            if queue.key.startswith(LIGHT):
                queue.move(base)
                longest = max(longest, len(queue.tail) // ENTRY_BYTES)
                if queue.tail and not queue.waits:
                    queue.waits = True
                    self._waiting.append(queue)
        return longest

    def mark_readable(self, point: int) -> None:
        """Makes the entries of frames before ``point`` readable."""
        waiting = []
        for queue in self._waiting:
            if not queue.waits:
                continue  # it was dropped
            if self.holds_moved and queue.key.startswith(LIGHT):
                waiting.append(queue)
                continue
            readable = queue.tail_base + queue.entries_before(point, max(0, queue.readable - queue.tail_base))
            if readable > queue.readable:
                queue.readable = readable
                self._fresh[queue.key] = None
            queue.waits = readable < queue.next
            if queue.waits:
                waiting.append(queue)
        self._waiting = waiting

    def take_fresh(self) -> list[str]:
        """Queues that gained readable entries since the last call."""
        if not self._fresh:
            return []
        fresh = list(self._fresh.keys())
        self._fresh.clear()
        return fresh

    def forget_before(self, position: int) -> None:
        """Drops every queue's pieces of the chunks before a log position, at which one ends: retention removed them."""
        for queue in self._queues.values():
            queue.forget_before(position)
