"""Moves the index of older log out of memory: one chunk file and one checkpoint at a time.

A *plan* is made at a position of the log (after every ``chunk_bytes``, and at each segment's begin, so that no chunk
reaches over a segment's border): the state there, and how far each queue reached. It is carried out later, once the
log is durable up to that position; queues that ended meanwhile are still written, because their end may yet be lost.

Chunks and checkpoints are derived and checked by checksum, so they are written without a sync: what a power loss tears
is made again from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.store import index_chunk, state
from broker.store.commit_log import CommitLog
from broker.store.disk import Disk
from broker.store.key_index import KeyIndex
from broker.store.queue_index import ENTRY_BYTES, Queue, QueueIndex
from broker.store.records import Folds
from broker.store.segment import storage_error
from broker.store.settings import StoreSettings
from penstock.errors import StorageFull

SLICE_QUEUES: Final = 5_000
"""So many queues are sealed between two looks at the rest of the world."""


class Plan(NamedTuple):
    """What to seal. ``ends``: queues that have unsealed entries, and the offset that each had reached."""

    position: int
    snapshot: bytes
    ends: list[tuple[Queue, int]]


class Sealing:
    """The sealed part of the index and the plans to extend it. ``sealed``: everything before it is in chunks."""

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        folds: Folds,
        log: CommitLog,
        index: QueueIndex,
        keys: KeyIndex,
        sealed: int,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._folds = folds
        self._log = log
        self._index = index
        self._keys = keys
        self._plans: deque[Plan] = deque()
        self._work: Iterator[None] | None = None
        self.sealed = sealed

    def snapshot(self) -> bytes:
        """The state of folds and queues now."""
        return state.encode_state(self._folds.snapshot(), self._index)

    def plan(self, position: int, snapshot: bytes) -> None:
        """Plans to seal everything before ``position``, at which the state is ``snapshot``."""
        if position > self.planned:
            ends = [(queue, queue.next) for queue in self._index if queue.tail]
            self._plans.append(Plan(position, snapshot, ends))

    @property
    def planned(self) -> int:
        """The position up to which everything is sealed or will be."""
        return self._plans[-1].position if self._plans else self.sealed

    def plan_if_due(self, position: int) -> None:
        """Plans at ``position`` if enough log lies behind the last plan."""
        if position - self.planned >= self._settings.chunk_bytes:
            self.plan(position, self.snapshot())

    def step(self) -> None:
        """Carries the oldest plan on by a bounded piece, if its stretch is durable; the whole of it when others wait
        behind it. Raises ``StorageFull``; the plan is kept then."""
        if self._work is None:
            if not self._plans or self._plans[0].position > self._log.durable:
                return
            self._work = self._seal(self._plans[0])
        try:
            next(self._work)
            while len(self._plans) > 1:
                next(self._work)
        except StopIteration:
            self._work = None
            self._plans.popleft()
        except StorageFull:
            self._work = None
            raise

    def finish(self) -> None:
        """Carries out all plans whose stretch is durable. Raises ``StorageFull``."""
        while self._plans and self._plans[0].position <= self._log.durable:
            self.step()

    def _seal(self, plan: Plan) -> Iterator[None]:
        """Yields between pieces of the work. A tail's beginning never changes meanwhile, and each queue has its
        entries either in its tail or in the chunk."""
        start = self.sealed
        takes = [(queue, end - queue.tail_base) for queue, end in plan.ends if end > queue.tail_base]
        takes.sort(key=_key_of)
        parts = index_chunk.ChunkParts()
        for number, (queue, count) in enumerate(takes, 1):
            parts.add(queue, count)
            if number % SLICE_QUEUES == 0:
                yield
        self._write(start, plan, parts)
        place = 0
        for number, (queue, count) in enumerate(takes, 1):
            queue.take_from_tail(count, start, place)
            place += count * ENTRY_BYTES
            if number % SLICE_QUEUES == 0:
                yield
        self._keys.drop_before(plan.position, start)
        self.sealed = plan.position

    def _write(self, start: int, plan: Plan, parts: index_chunk.ChunkParts) -> None:
        keys = self._keys.sealed_before(plan.position)
        chunk = parts.encode(start, plan.position, self._log.witness(start), keys)
        checkpoint = state.encode_checkpoint(plan.position, plan.snapshot)
        try:
            self._disk.replace(index_chunk.chunk_path(start), chunk, durable=False)
            self._disk.replace(state.checkpoint_path(plan.position), checkpoint, durable=False)
            for old in state.stored_positions(self._disk, state.FOLDER, state.SUFFIX)[: -state.KEEP]:
                self._disk.remove(state.checkpoint_path(old))
        except OSError as error:
            reason = storage_error(error)  # derived files decide nothing: the plan waits, whatever the reason
            raise StorageFull(f"the index cannot be written: {reason.message}") from None


def _key_of(take: tuple[Queue, int]) -> str:
    return take[0].key
