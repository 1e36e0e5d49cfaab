"""The store's face: append, read, sync, and the folds that follow the log.

Everything that is known here is a function of the log's prefix: ``_apply`` takes in one record after another, the
same way at the append and at recovery. An append is encoded into one buffer and written with one call; only then do
queues and folds learn of it, so that a refused or failed append leaves nothing behind.

Threads: all methods belong to one thread but ``sync``, which may run beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.store import index_chunk, state
from broker.store.commit_log import CommitLog
from broker.store.disk import Disk
from broker.store.frames import put_frame
from broker.store.key_index import KeyIndex
from broker.store.queue_index import ENTRY20, HOLE, Queue, QueueIndex
from broker.store.reading import Reading
from broker.store.records import KEYFRAME_TOPIC, SEAL_TOPIC, SYSTEM_PREFIX, Change, Folds, Incoming, Stored
from broker.store.retention import segments_to_drop
from broker.store.settings import StoreSettings
from penstock.errors import PenstockError, StorageFull
from penstock.message import (
    FLAG_RETAIN,
    FRAME_HEAD_BYTES,
    STORED,
    encode_record,
    property_of,
    tag_hash,
)
from penstock.requests import Bounds, Placed, Pulled

_NO_HOST: Final = bytes(8)
_TAGS: Final = b"TAGS"


class MessageStore:
    """A broker's stored state. ``recovery.open_store`` makes one."""

    def __init__(
        self, disk: Disk, settings: StoreSettings, folds: Folds, log: CommitLog, index: QueueIndex, keys: KeyIndex
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._folds = folds
        self._log = log
        self._index = index
        self._keys = keys
        self._chunks = index_chunk.ChunkFiles(disk)
        self._reading = Reading(log, index, keys, self._chunks)
        self._topic_queues: dict[tuple[str, int], Queue] = {}
        self._epoch = 1
        self._last_is_seal = False
        self._quiet_since_ms = 0
        self.sealed = log.start  # everything before it is in index chunks
        self._sealings: list[tuple[int, bytes]] = []  # positions and states of the checkpoints to come
        self.damage: list[tuple[int, int]] = []  # stretches of the log that failed their checksum: from, to

    # ------------------------------------------------------------ appending

    @property
    def written(self) -> int:
        """Position after the last append."""
        return self._log.end

    @property
    def start(self) -> int:
        """The first position that is still there."""
        return self._log.start

    @property
    def damaged(self) -> int:
        """Frames that reads passed over because they were not good any more."""
        return self._reading.damaged

    @property
    def durable(self) -> int:
        """Position up to which everything is fsynced."""
        return self._log.durable

    def append(self, batch: Sequence[Incoming], now_ms: int) -> list[Placed]:
        """Stores checked records, in order; returns where. All or nothing, unless the batch spans segments and a
        later one fails.

        Raises ``StorageFull`` (nothing was stored, try again later) or ``StorageFailed`` (the store takes no more).
        """
        placed: list[Placed] = []
        at = 0
        while at < len(batch):
            size, end = 0, at
            room = self._log.room()
            while end < len(batch):
                length = FRAME_HEAD_BYTES + len(batch[end].record)
                if size + length > room:
                    break
                size += length
                end += 1
            if end == at:
                self._roll(now_ms)
                continue
            part = batch[at:end] if (at, end) != (0, len(batch)) else batch
            placed += self._append_part(part, size, now_ms)
            at = end
        return placed

    def _append_part(self, batch: Sequence[Incoming], size: int, now_ms: int) -> list[Placed]:
        self._log.reserve(size, urgent=all(one.topic.startswith(SYSTEM_PREFIX) for one in batch))
        buffer = bytearray(size)
        base, watermark, stored = self._log.end, self._log.durable, STORED.pack(now_ms, _NO_HOST)
        next_of: dict[Queue, int] = {}
        placed: list[Placed] = []
        at = 0
        for record, topic, queue_id, _flag, _properties, _in_cache in batch:
            offset = 0
            if not topic.startswith(SYSTEM_PREFIX):
                queue = self._topic_queue(topic, queue_id)
                offset = next_of.get(queue, -1)
                if offset < 0:
                    offset = queue.next
                next_of[queue] = offset + 1
            placed.append(Placed(queue_id, offset, base + at))
            at += put_frame(buffer, at, record, queue_id, offset, base + at, stored, self._epoch, watermark)
        self._log.append(buffer)
        self._last_is_seal = False
        self._quiet_since_ms = now_ms
        view = memoryview(buffer)
        for one, place in zip(batch, placed, strict=True):
            start = place.position - base
            self._apply(one, place.position, view[start : start + FRAME_HEAD_BYTES + len(one.record)], now_ms)
        return placed

    def _topic_queue(self, topic: str, queue_id: int) -> Queue:
        queue = self._topic_queues.get((topic, queue_id))
        if queue is None:
            queue = self._topic_queues[topic, queue_id] = self._index.ensure(f"{topic}:{queue_id}")
        return queue

    def _apply(self, record: Incoming, position: int, frame: memoryview, stored_ms: int) -> None:
        """Queues and folds take in one record of the log; the same at the append and at recovery."""
        topic, properties = record.topic, record.properties
        if topic.startswith(SYSTEM_PREFIX):
            if topic not in (SEAL_TOPIC, KEYFRAME_TOPIC):
                self._fold(record, position, frame, stored_ms)
            return
        tag = property_of(properties, _TAGS) if properties else b""
        entry = ENTRY20.pack(position, len(frame), tag_hash(tag.decode("utf-8", "replace")) if tag else 0)
        index = self._index
        index.add(self._topic_queue(topic, record.queue_id), entry, at_once=record.in_cache)
        for key in self._folds.queues_of(topic, properties):
            index.add(index.ensure(key, position), entry, at_once=record.in_cache)
        if properties:
            self._keys.add(topic, properties, position)
        if record.flag & FLAG_RETAIN:
            self._fold(record, position, frame, stored_ms)

    def _fold(self, record: Incoming, position: int, frame: memoryview, stored_ms: int) -> None:
        stored = Stored(
            position,
            len(frame),
            record.topic,
            record.queue_id,
            record.flag,
            record.properties,
            stored_ms,
            bytes(frame),
        )
        change: Change = self._folds.apply(stored)
        for key in change.opened:
            self._index.ensure(key, position)
        for key in change.ended:
            self._index.drop(key)

    def replay(self, record: Stored, queue_offset: int) -> None:
        """Recovery hands over one record of the log. A gap before its offset is a record lost to damage: holes keep
        its place."""
        if not record.topic.startswith(SYSTEM_PREFIX):
            queue = self._topic_queue(record.topic, record.queue_id)
            for _ in range(queue_offset - queue.next):
                self._index.add(queue, HOLE, at_once=True)
        incoming = Incoming(b"", record.topic, record.queue_id, record.flag, record.properties)
        self._apply(incoming, record.position, memoryview(record.frame), record.stored_ms)

    def _roll(self, now_ms: int) -> None:
        """Begins a new segment with a keyframe, so that the log can be read from there alone."""
        self._log.roll(self._epoch)
        snapshot = state.encode_state(self._folds.snapshot(), self._index)
        self._sealings.append((self._log.end, snapshot))  # no chunk reaches over a segment's border
        records = list(state.keyframe_records(snapshot, now_ms))
        size = sum(FRAME_HEAD_BYTES + len(record) for record in records)
        if size <= self._settings.segment_bytes // 4:
            keyframe = [Incoming(record, KEYFRAME_TOPIC, 0, 0, b"") for record in records]
            self._append_part(keyframe, size, now_ms)

    # ------------------------------------------------------------ durability

    def sync_point(self) -> int:
        """What the next ``sync`` will cover; to be taken before it."""
        return self._log.sync_point()

    def sync(self) -> None:
        """Blocks until everything before the last sync point is on the medium. Raises ``StorageFailed``, and then
        for ever."""
        self._log.sync()

    def mark_durable(self, point: int) -> None:
        """A sync that began after ``point`` was taken has returned: what lies before it may be read and
        acknowledged."""
        self._log.mark_durable(point)
        self._index.mark_durable(point)

    def take_readable(self) -> list[str]:
        """Queues that gained readable messages since the last call."""
        return self._index.take_fresh()

    # ------------------------------------------------------------ reading

    def ensure_queue(self, topic: str, queue_id: int) -> None:
        """Makes a topic's queue known, so that it has bounds before its first message."""
        self._topic_queue(topic, queue_id)

    def bounds(self, queue: str) -> Bounds:
        """First offset and readable end of a queue. Raises ``QueueNotFound``."""
        found = self._index.get(queue)
        return Bounds(queue, found.min, found.readable)

    def next_offset(self, queue: str) -> int:
        """Offset that the next message of a queue gets. Raises ``QueueNotFound``."""
        return self._index.get(queue).next

    def read(
        self, queue: str, offset: int, count_max: int, bytes_max: int, tags: frozenset[int] = frozenset()
    ) -> Pulled:
        """Messages of a queue from ``offset`` on: at least one if there is one. Raises ``QueueNotFound``,
        ``OffsetOutOfRange``."""
        return self._reading.read(queue, offset, count_max, bytes_max, tags)

    def seek_time(self, queue: str, stored_ms: int) -> int:
        """First readable offset stored at or after a time; the end if there is none. Raises ``QueueNotFound``."""
        return self._reading.seek_time(queue, stored_ms)

    def find(self, topic: str, key: str, since_ms: int, until_ms: int, count_max: int) -> Pulled:
        """Readable messages of a topic by key or unique id within a time range, newest first."""
        return self._reading.find(topic, key, since_ms, until_ms, count_max)

    # ------------------------------------------------------------ upkeep

    def tick(self, now_ms: int) -> None:
        """Upkeep, a bounded piece per call: seals index chunks, writes the durable watermark down, applies
        retention."""
        if self._log.failed is not None:
            return
        try:
            self._seal_silence(now_ms)
            self._seal_index()
            self._retain(now_ms)
            self._log.keep_emergency_room()
        except StorageFull:
            return  # goes on by itself when there is room again

    def _seal_silence(self, now_ms: int) -> None:
        """After some silence a tiny record carries the watermark, so that rot in the last batch is told from a torn
        tail."""
        quiet_ms = now_ms - self._quiet_since_ms
        synced = self._log.durable == self._log.end
        if not self._last_is_seal and synced and quiet_ms >= self._settings.seal_after_s * 1000:
            self.seal(now_ms)

    def seal(self, now_ms: int) -> None:
        """Appends a seal: an empty system record whose frame carries the durable watermark."""
        record = encode_record(SEAL_TOPIC.encode(), b"", b"", born_ms=now_ms)
        self.append([Incoming(record, SEAL_TOPIC, 0, 0, b"")], now_ms)
        self._last_is_seal = True

    def _seal_index(self) -> None:
        planned = self._sealings[-1][0] if self._sealings else self.sealed
        if self._log.end - planned >= self._settings.chunk_bytes:
            self._sealings.append((self._log.end, state.encode_state(self._folds.snapshot(), self._index)))
        if self._sealings and self._log.durable >= self._sealings[0][0]:
            self.seal_index(*self._sealings[0])
            del self._sealings[0]

    def seal_index(self, position: int, snapshot: bytes) -> None:
        """Moves the entries before ``position`` into a chunk file, beside a checkpoint of the state there."""
        start = self.sealed
        if position == start:
            return
        takes = [(queue, queue.entries_before(position)) for queue in self._index if queue.tail]
        takes = [(queue, count) for queue, count in takes if count]
        takes.sort(key=lambda take: take[0].key)
        keys = self._keys.sealed_before(position)
        data = index_chunk.encode_chunk(start, position, takes, keys)
        try:
            self._disk.replace(index_chunk.chunk_path(start), data)
            self._disk.replace(state.checkpoint_path(position), state.encode_checkpoint(position, snapshot))
        except OSError as error:
            raise StorageFull(f"cannot write the index: {error.strerror}") from None
        place = 0
        for queue, count in takes:
            queue.take_from_tail(count, start, place)
            place += count * ENTRY20.size
        self._keys.drop_before(position, start)
        self.sealed = position
        for old in state.stored_positions(self._disk, state.FOLDER, state.SUFFIX)[: -state.KEEP]:
            self._disk.remove(state.checkpoint_path(old))

    def _retain(self, now_ms: int) -> None:
        reading = self._reading
        base = segments_to_drop(
            self._log.bases,
            self._log.end,
            lambda at: at <= min(self.sealed, self._log.durable) and reading.begins_with_keyframe(at),
            reading.stored_ms,
            now_ms,
            self._settings,
        )
        if base <= self._log.start:
            return
        self._log.drop_before(base)
        for chunk in self._keys.chunks_before(base):
            self._index.forget_chunk(chunk)
            self._chunks.close(chunk)
            self._keys.forget_chunk(chunk)
            self._disk.remove(index_chunk.chunk_path(chunk))

    def close(self, now_ms: int) -> None:
        """Clean stop: syncs, checkpoints and gives the folder back. Safe after a failure too."""
        try:
            if self._log.failed is None:
                if not self._last_is_seal:
                    self.seal(now_ms)
                point = self.sync_point()
                self.sync()
                self.mark_durable(point)
                self.seal_index(point, state.encode_state(self._folds.snapshot(), self._index))
        except PenstockError:
            pass  # what was acknowledged is durable; recovery makes the rest again
        finally:
            self._chunks.close_all()
            self._log.close()
            self._disk.unlock()
