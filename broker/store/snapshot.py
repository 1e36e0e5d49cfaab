"""The state at one position of the log, taken at once and made into bytes later, a piece at a time.

A ``Snapshot`` is made when the log stands at its position: the folds freeze their tables, and the queues are noted. The
rest follows in pieces of bounded size while records are appended: frozen tables do not change, and a queue's tail knows
the positions of its entries. So the bytes are those of the one position, whenever they are made.

Invariant: it is finished before the index before its position leaves the tails (``sealing.py``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from broker.store import state
from broker.store.queue_index import Queue, QueueIndex
from broker.store.rows import packed_rows, slices_in_order

SLICE_QUEUES: Final = 2_000
"""Queues looked at between two turns of the loop."""
SLICE_BYTES: Final = 64 * 1024
"""Bytes of the folds that are made at a time, about."""
_DONE: Final = object()


class Snapshot:
    """State of folds and queues at ``position``; see the module."""

    def __init__(
        self,
        position: int,
        last_ms: int,
        folds: Iterator[bytes],
        index: QueueIndex,
        keyframes: Iterable[state.Keyframe],
    ) -> None:
        self.position = position
        self._last_ms = last_ms
        self._passed = index.passed
        self._queues = list(index)
        self._keyframes = list(keyframes)
        self._data: list[state.Piece] = []
        self._ended: list[Queue] = []  # beside each other: no object per queue
        self._end_offsets = array("Q")
        self._bytes = bytearray()  # of the folds, in one stretch: many parts of it would leave holes in memory
        self._folds = self._take_folds(folds)
        self._work: Iterator[None] | None = self._make()

    def step(self) -> bool:
        """A bounded piece of the work; whether all of it is done."""
        if self._work is not None and next(self._work, _DONE) is _DONE:
            self._work = None
        return self._work is None

    def finish(self) -> list[state.Piece]:
        """The state as bytes, in pieces; all of the work at once where it is not done."""
        while not self.step():
            pass
        return self._data

    def ends_in_slices(self, size: int) -> Iterator[list[tuple[Queue, int]]]:
        """Queues that had unsealed entries at the position, in the order of their keys, and the offset that each had
        reached; a number of them at a time."""
        self.finish()
        for at in range(0, len(self._ended), size):
            yield list(zip(self._ended[at : at + size], self._end_offsets[at : at + size], strict=True))

    def finish_folds(self) -> None:
        """The folds may be frozen again."""
        for _ in self._folds:
            pass

    def _take_folds(self, folds: Iterator[bytes]) -> Iterator[None]:
        size = 0
        for part in folds:
            self._bytes += part
            size += len(part)
            if size > SLICE_BYTES or not part:  # an empty one stands for work of another kind
                size = 0
                yield

    def _make(self) -> Iterator[None]:
        yield from self._folds
        rows: list[bytes] = []
        by_key: dict[str, Queue] = {}
        for at in range(0, len(self._queues), SLICE_QUEUES):
            if at:
                yield
            by_key.update([(queue.key, queue) for queue in self._queues[at : at + SLICE_QUEUES]])
        for keys in slices_in_order(by_key, SLICE_QUEUES):
            if rows:
                yield
            rows.append(packed_rows([self._row(by_key[key]) for key in keys]))
        later = self._keyframes, self._last_ms, self._passed
        self._data = state.state_pieces(self._bytes, len(by_key), rows, *later)
        self._queues = []

    def _row(self, queue: Queue) -> tuple[str, int, int]:
        count = queue.entries_before(self.position)
        if count:
            self._ended.append(queue)
            self._end_offsets.append(queue.tail_base + count)
        return queue.key, queue.tail_base + count, queue.first
