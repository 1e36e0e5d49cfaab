"""Checkpointer: moves the index of older log out of memory, one chunk file and one checkpoint at a time.

A *plan* is a snapshot of the state at a position of the log: after every ``chunk_bytes``, and where a segment or the
first damage begins, so that no chunk spans either. It is carried out later in pieces: the snapshot becomes bytes; at
the beginning of a segment the log's owner may write them as its keyframe; when the log is committed up to the position,
chunk and checkpoint are written. Queues that ended meanwhile are sealed too, because their end may yet be lost.

Chunks and checkpoints are derived and have checksums, so they are written without a sync. If they cannot be written,
messages are stored and served all the same: the log has an error at once, and the write is repeated. Meanwhile only
starts of segments are planned, because each plan holds the state.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from broker.store import index_chunk, state
from broker.store.commit_log import CommitLog
from broker.store.disk import Disk
from broker.store.index_chunk import Sealed
from broker.store.key_index import KeyIndex
from broker.store.queue_index import ENTRY_BYTES, QueueIndex
from broker.store.records import Folds
from broker.store.settings import StoreSettings
from broker.store.snapshot import Snapshot
from broker.store.state import KeyframeMarks, Piece
from penstock.errors import StorageFull

SLICE_QUEUES: Final = 2_000
"""Queues sealed between two turns of the loop."""
SLICE_KEYS: Final = 20_000
"""Keys sorted between two such turns, or an eighth of a chunk's."""
WRITE_BYTES: Final = 1 << 20
"""About this number of bytes of a chunk or checkpoint is written at a time."""
_DONE: Final = object()
CHECKPOINT_SHARE: Final = 4
"""The size of a checkpoint, at most, as a multiple of the log since the last one: a large state is written less
often."""
STATE_MULTIPLE: Final = 8
STRETCH: Final = 4
"""The distance of two plans in the log, in sizes of the state, and its limit in chunks: making the state into bytes
takes time, a tenth of a second with 100,000 filters."""
INDEX_SHARE: Final = 4
"""The index since the last plan, at most, as a multiple of the bytes of the log that a chunk is for."""
KEYFRAME_PART: Final = 4
"""A part of a keyframe has at most this fraction of a segment."""
KEPT_PLANS: Final = 2
RETRY_MS: Final = 2_000
"""Where the index cannot be written that is tried again after this time."""
_log = logging.getLogger(__name__)


class KeyframeDue:
    """The state at a segment's begin, which may be written behind it.

    Attributes:
        base: where the segment begins.
        size: bytes of the state.
        behind: how much log lies between it and the latest segment that has a keyframe, or the log's begin.
        holds_up: whether other plans wait until it is written or passed.
    """

    def __init__(self, base: int, pieces: list[Piece], behind: int, part_bytes: int) -> None:
        self.base = base
        self.size = sum(map(len, pieces))
        self.behind = behind
        self.holds_up = False
        self._pieces = pieces
        self._part_bytes = part_bytes
        self._parts: Iterator[bytes] | None = None

    def parts(self, now_ms: int, count_max: int) -> Iterator[bytes]:
        """The next parts, as records."""
        if self._parts is None:
            self._parts = state.keyframe_records(self._pieces, self.base, now_ms, self._part_bytes)
        return islice(self._parts, count_max)

    def start_over(self) -> None:
        """A part could not be stored: all come again."""
        self._parts = None


class Sealing:
    """The sealed part of the index and the plans to extend it.

    Attributes:
        sealed: everything before it is in chunks.
        keyframes: which segments have one.
        is_owned: whether this node leads the log, so that keyframes are written.
        keyframe_due: the one that waits for the owner of the log.
        trouble: why the index cannot be written, empty if it can.
    """

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        folds: Folds,
        log: CommitLog,
        index: QueueIndex,
        keys: KeyIndex,
        sealed: int,
        state_bytes: int = 0,
    ) -> None:
        """``state_bytes``: about so large is the checkpoint at ``sealed``."""
        self._disk = disk
        self._settings = settings
        self._folds = folds
        self._log = log
        self._index = index
        self._keys = keys
        self._plans: deque[Snapshot] = deque()
        self._work: Iterator[bool] | None = None
        self._now_ms = self._not_before_ms = 0
        self.trouble = ""
        self._added = index.added  # at the last plan
        self._made = Sealed(0, 0, 0, 0, 0)  # the chunk that was written last
        self._state_bytes = state_bytes  # of its checkpoint
        self.sealed = sealed
        self.keyframes = KeyframeMarks()
        self.is_owned = True
        self.keyframe_due: KeyframeDue | None = None

    def plan(self, position: int) -> None:
        """Plans to seal everything before ``position``, at which the log stands now."""
        if position > self.planned:
            self._added = self._index.added
            if self._plans:
                self._plans[-1].finish_folds()  # they are frozen once at a time
            frozen = self._folds.freeze()
            self._plans.append(Snapshot(position, self._log.last_ms, frozen, self._index, self.keyframes))

    @property
    def planned(self) -> int:
        """The position up to which everything is sealed or will be."""
        return self._plans[-1].position if self._plans else self.sealed

    def plan_if_due(self, position: int) -> None:
        """Plans at ``position`` if enough log lies behind the last plan, or enough of the index: where many filters
        match, that of a message is longer than the message. Not while the index cannot be written."""
        if self.trouble:
            return
        chunk, state_bytes = self._settings.chunk_bytes, self._state_bytes
        distance = max(chunk, min(STATE_MULTIPLE * state_bytes, STRETCH * chunk), state_bytes // CHECKPOINT_SHARE)
        if position - self.planned >= distance or self._index.added - self._added >= INDEX_SHARE * distance:
            self.plan(position)

    def tick(self, now_ms: int) -> None:
        """A step, but soon after a failed one. Raises ``StorageFull``."""
        if now_ms >= self._not_before_ms:
            self.step(now_ms)

    def step(self, now_ms: int = 0) -> None:
        """Carries the last plan on by a bounded piece, and those before it as a whole, except parts that wait for the
        log's owner or a sync. So plans do not pile up, however fast the log grows. Raises ``StorageFull``; the plan is
        kept then."""
        self._now_ms = now_ms or self._now_ms
        waits = False
        while self._plans and not waits:
            is_last = len(self._plans) == 1
            if self._work is None:
                self._work = self._carry_out(self._plans[0])
            try:
                waits = next(self._work)
            except StopIteration:
                self._work = None
                self._plans.popleft()
            except StorageFull:
                self._work = None
                raise
            if is_last:
                return

    def pass_keyframe(self) -> None:
        """The keyframe that is due is written, or there will be none."""
        self.keyframe_due = None

    def catch_up(self, durable: int) -> None:
        """Carries plans out while a start reads the log, up to the durable position, because each plan holds the state
        once more. Not the newest: if it begins a segment, its keyframe may follow.
        Raises ``StorageFull``."""
        while len(self._plans) > KEPT_PLANS and self._plans[0].position <= durable:
            deque(self._seal(self._plans[0]), 0)
            self._plans.popleft()

    def finish(self, now_ms: int) -> None:
        """Carries out all plans whose stretch is durable, up to one that waits for the log's owner. Raises
        ``StorageFull``."""
        while self._plans and self._plans[0].position <= self._log.settled and self.keyframe_due is None:
            self.step(now_ms)

    def seal_before(self, position: int) -> None:
        """Carries out all plans up to ``position``, before which all is durable. One for which the disk has no room is
        given up, and what it would have sealed is left to the next. A start does so as it reads the log: keyframes may
        be still to come."""
        while self._plans and self._plans[0].position <= position:
            with contextlib.suppress(StorageFull):
                deque(self._seal(self._plans[0]), 0)
            self._plans.popleft()  # it has noted offsets that are about to move

    def _carry_out(self, plan: Snapshot) -> Iterator[bool]:
        """Yields between pieces of the work, with True when it goes on after a sync or with the next step."""
        while not plan.step():
            yield False
        if self.is_owned and self._lacks_keyframe(plan.position):
            self.keyframe_due = self._keyframe_of(plan)
            while self._waits_for_owner():
                yield True
        while plan.position > self._log.settled:
            yield True
        for _ in self._seal(plan):
            yield False

    def _waits_for_owner(self) -> bool:
        if not self.is_owned:
            self.keyframe_due = None
        if self.keyframe_due is not None:
            self.keyframe_due.holds_up = len(self._plans) > 1
        return self.keyframe_due is not None

    def _lacks_keyframe(self, position: int) -> bool:
        return position > 0 and position in self._log.bases[-2:] and not self.keyframes.get(position)

    def _keyframe_of(self, plan: Snapshot) -> KeyframeDue:
        newest = max([mark.base for mark in self.keyframes], default=self._log.start)
        part_bytes = min(state.PART_BYTES_MAX, self._log.segment_bytes // KEYFRAME_PART)
        return KeyframeDue(plan.position, plan.finish(), plan.position - newest, part_bytes)

    def _seal(self, plan: Snapshot) -> Iterator[None]:
        """Yields between pieces of the work. A tail's beginning never changes meanwhile, and each queue has its
        entries either in its tail or in the chunk."""
        start = self.sealed
        parts = index_chunk.ChunkParts()
        for number, some in enumerate(plan.ends_in_slices(SLICE_QUEUES)):
            if number:
                yield
            parts.add([(queue, end - queue.tail_base) for queue, end in some if end > queue.tail_base])
        yield from self._write(start, plan, parts)
        place = 0
        for number, some in enumerate(plan.ends_in_slices(SLICE_QUEUES)):
            if number:
                yield
            for queue, end in some:
                count = end - queue.tail_base
                if count > 0:
                    queue.take_from_tail(count, start, place)
                    place += count * ENTRY_BYTES
        self._keys.drop_before(self._made)
        self.sealed = plan.position

    def _write(self, start: int, plan: Snapshot, parts: index_chunk.ChunkParts) -> Iterator[None]:
        slices, sorted_keys = [], 0
        for some in self._keys.sealed_before(plan.position):
            slices.append(some)
            sorted_keys += len(some)
            if sorted_keys >= SLICE_KEYS:
                sorted_keys = 0
                yield
        keys = np.concatenate(slices, dtype=index_chunk.KEY_DTYPE)  # else it would turn the bytes round
        chunk = parts.pieces(start, plan.position, self._log.witness(start), keys)
        self._made = Sealed(start, start, plan.position, sum(map(len, chunk)), parts.directory_bytes)
        yield from self._replace(index_chunk.chunk_path(start), chunk)
        snapshot = plan.finish()
        self._state_bytes = sum(map(len, snapshot))
        checkpoint = state.checkpoint_pieces(plan.position, snapshot)
        yield from self._replace(state.checkpoint_path(plan.position), checkpoint)
        with self._told():
            for old in state.stored_positions(self._disk, state.FOLDER, state.SUFFIX)[: -state.KEEP]:
                self._disk.discard(state.checkpoint_path(old))
        if self.trouble:
            self.trouble = ""
            _log.warning("the index can be written again")

    def _replace(self, path: str, pieces: Iterable[bytes]) -> Iterator[None]:
        """Writes a derived file; yields after about every MiB."""
        sizes: list[int] = []
        written = 0
        steps = self._disk.replace(path, _counted(pieces, sizes))
        while True:
            with self._told():
                if next(steps, _DONE) is _DONE:
                    return
            written += sizes[-1]
            if written >= WRITE_BYTES:
                written = 0
                yield

    def probe(self) -> None:
        """Finds out whether the index can be written, long before it has to be. Raises ``StorageFull``."""
        for folder in (index_chunk.FOLDER, state.FOLDER):
            with self._told(), contextlib.closing(self._disk.replace(f"{folder}/probe", [b"?"])) as steps:
                next(steps)  # and no further: it is a draft, and goes

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Derived files decide nothing: the plan waits, whatever the reason."""
        try:
            yield
        except OSError as error:
            if not self.trouble:
                _log.error(
                    "index/ or checkpoint/ cannot be written: %s. Messages are stored and read on; memory and the time"
                    " of the next start grow with what is stored, and retention waits",
                    error.strerror,
                )
            self.trouble = error.strerror or str(error)
            self._not_before_ms = self._now_ms + RETRY_MS
            raise StorageFull(f"the index cannot be written: {self.trouble}") from None


def _counted(pieces: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for piece in pieces:
        sizes.append(len(piece))
        yield piece
