"""The write side of a store: appends, and the one way in which queues and folds take in a record.

An append is laid out as one run of frames and written with one call; only then do queues and folds learn of it, so a
refused append leaves nothing behind. ``_take_in`` is the same at the append and at recovery: everything that is known
is a function of the log's prefix. A batch never spans two segments: it is stored as a whole or not at all
(``broker/messages/parts.py`` cuts the requests of producers and devices that are larger).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from broker.store.commit_log import CommitLog
from broker.store.destinations import Destination
from broker.store.frames import FLAG_AT, PATCHED, SYSTEM_FLAG_AT, UNPATCHED_AT, crc32c, stored_ms_of, unpack_frame
from broker.store.key_index import KeyIndex, key_row, keys_of
from broker.store.level import Level
from broker.store.queue_index import ENTRY20, LIGHT, Queue, QueueIndex, hole
from broker.store.records import KEYFRAME_TOPIC, SEAL_TOPIC, Folds, Incoming, MadeQueue, Stored
from broker.store.run_frames import frame_bytes
from broker.store.sealing import Sealing
from penstock.errors import TooLarge
from penstock.protocol.message import (
    BODY_BYTES_MAX,
    FLAG_ONCE,
    FLAG_RETAIN,
    FLAG_WOKEN,
    FRAME_HEAD_BYTES,
    FRAME_MAGIC,
    OFFSETS_AT,
    QUEUE_ID_AT,
    STORED,
    STORED_AT,
    encode_record,
    property_of,
    record_body,
    tag_hash,
)
from penstock.protocol.requests.messages import Placed
from penstock.protocol.runs import Run
from topicmap.queues import SYSTEM_PREFIX

_NO_HOST: Final = bytes(8)
_TAGS: Final = b"TAGS"
_UNIQUE: Final = b"UNIQ_KEY"
_EXCHANGE: Final = b"MQTT_ID"
_FOLDED: Final = FLAG_RETAIN | FLAG_ONCE | FLAG_WOKEN
_FACTS_MAX: Final = 8192
_NO_TAG: Final = 1 << 40
"""Tag hash (which has 32 bits) in the facts of a system record: it is in no queue."""
_PASSED: Final = struct.Struct(">QQ")
"""A seal that makes the log grow behind damage begins with where that begins, and where the log ended."""
_SEAL_BYTES: Final = FRAME_HEAD_BYTES + len(encode_record(SEAL_TOPIC.encode(), bytes(_PASSED.size), b""))
_ANY: Final = 1 << 62
_CACHE: Final = Level.CACHE


class Writing:
    """Appends to the log and keeps queues, keys and folds in step with it."""

    def __init__(self, folds: Folds, log: CommitLog, index: QueueIndex, keys: KeyIndex, sealing: Sealing) -> None:
        self._folds = folds
        self._log = log
        self._index = index
        self._keys = keys
        self._sealing = sealing
        sealing.write_keyframe = self._write_keyframe
        self._topic_queues: dict[tuple[str, int], Queue] = {}
        # What a topic and its properties mean to the indexes: devices repeat them. Tag hash, key hashes.
        self._facts: dict[tuple[str, bytes], tuple[int, tuple[int, ...]]] = {}
        self._topics: dict[bytes, str] = {}
        self.epoch = 1  # what is written before the first epoch begins
        self.ends_with_seal = False
        self.grows_to = 0  # light queues have given out offsets up to there: nothing else is stored before the log is
        self.damage_at = 0  # what that is for begins there
        self.passed: list[tuple[int, int]] = []  # damage that starts have passed over, and where the log ended then

    def append(self, batch: Sequence[Incoming], now_ms: int) -> list[Placed]:
        """See ``MessageStore.append``."""
        if not batch:
            return []
        urgent = batch[0][1].startswith(SYSTEM_PREFIX) and all([one[1].startswith(SYSTEM_PREFIX) for one in batch])
        return self._append_urgent(batch, now_ms, urgent)

    def _append_urgent(self, batch: Sequence[Incoming], now_ms: int, urgent: bool) -> list[Placed]:
        if self._log.end < self.grows_to:
            self.grow(now_ms)
        return self._append_next(batch, now_ms, urgent)

    def _append_next(self, batch: Sequence[Incoming], now_ms: int, urgent: bool) -> list[Placed]:
        size = FRAME_HEAD_BYTES * len(batch) + sum([len(incoming[0]) for incoming in batch])
        if size > self._log.room():
            self._begin_segment(size, urgent)
        return self._append(batch, size, now_ms, urgent)

    def append_runs(self, runs: list[Run], destinations: list[Destination], now_ms: int) -> None:
        """See ``MessageStore.append_runs``."""
        log, size = self._log, 0
        if log.end < self.grows_to:
            self.grow(now_ms)
        for run in runs:
            size += len(run.bodies) * frame_bytes(run)
        if size > log.room():
            self._begin_segment(size, False)
        log.reserve(size)
        now_ms = max(now_ms, log.last_ms)
        queues: list[Queue] = []
        entries: list[bytes] = []
        try:
            frames = b"".join(self._lay_out_runs(runs, destinations, now_ms, queues, entries))
            first = log.append(frames)
        finally:
            for queue in queues:
                queue.ahead = 0
        log.last_ms = now_ms
        self.ends_with_seal = False
        if self._take_in_runs(runs, destinations, queues, entries, frames, first):
            log.fresh.keep(runs)

    def _lay_out_runs(
        self,
        runs: list[Run],
        destinations: list[Destination],
        now_ms: int,
        queues: list[Queue],
        entries: list[bytes],
    ) -> list[bytes]:
        """Notes on each run where it goes, and adds its topic queue and the entries for its queues; returns the pieces
        of all frames."""
        pieces: list[bytes] = []
        position, watermark = self._log.end, self._log.committed
        for number, run in enumerate(runs):
            destination = destinations[number]
            queue = destination.queue
            if queue is None or destination.queue_id != run.queue_id:
                queue = self._lead_to(destination, run)
            layout = destination.layout_of(run, self.epoch)
            run.placed(position, layout.length, run.queue_id, queue.next + queue.ahead, now_ms)
            entries.append(layout.frames(run, watermark, pieces))
            queues.append(queue)
            count = len(run.bodies)
            queue.ahead += count
            position += count * layout.length
        return pieces

    def seal(self, now_ms: int) -> None:
        """Appends a seal: a system record whose frame carries the durable watermark."""
        self._append_urgent([_seal(b"", now_ms)], now_ms, False)
        self.ends_with_seal = True

    @property
    def grows_here(self) -> bool:
        """Whether the log can grow that far without a new segment."""
        return self._log.room() >= self.grows_to - self._log.end + _SEAL_BYTES

    def grow(self, now_ms: int) -> None:
        """Makes the log as long as it has to be (``grows_to``), with seals that say why and are filled with zeros.
        Raises ``StorageFull``, with none of them written unless they are more than the segment holds."""
        log = self._log
        if log.end < self.grows_to:
            log.reserve(self.grows_to - log.end + _SEAL_BYTES, urgent=True)
        while log.end < self.grows_to:
            size = min(self.grows_to - log.end, BODY_BYTES_MAX, log.fresh_room // 2)
            body = _PASSED.pack(self.damage_at, self._index.passed.log_end) + bytes(max(0, size - _PASSED.size))
            self._append_next([_seal(body, now_ms)], now_ms, True)
            self.ends_with_seal = True

    def topic_queue(self, topic: str, queue_id: int, first_max: int = _ANY) -> Queue:
        """The queue of a topic, made if it is new: then it begins behind what may have been lost of one of its name,
        but not behind ``first_max``."""
        queue = self._topic_queues.get((topic, queue_id))
        if queue is None:
            queue = self._topic_queues[topic, queue_id] = self._index.ensure(
                f"{topic}:{queue_id}", min(self._index.passed.lost, first_max)
            )
        return queue

    # ------------------------------------------------------------ the append

    def _append(self, batch: Sequence[Incoming], size: int, now_ms: int, urgent: bool) -> list[Placed]:
        log = self._log
        log.reserve(size, urgent=urgent)
        now_ms = max(now_ms, log.last_ms)
        frames, placed = self._lay_out(batch, log.end, now_ms)
        log.append(b"".join(frames))
        log.last_ms = now_ms
        self.ends_with_seal = False
        positions, lengths = [place[2] for place in placed], [len(tail) + 4 for tail in frames[1::2]]
        self._take_in(batch, positions, lengths, lambda number: frames[2 * number] + frames[2 * number + 1])
        return placed

    def _lay_out(self, batch: Sequence[Incoming], position: int, now_ms: int) -> tuple[list[bytes], list[Placed]]:
        """Checksum and rest of each frame, in turn, and where each goes. Nothing is changed yet."""
        watermark, stored, epoch = self._log.committed, STORED.pack(now_ms, _NO_HOST), self.epoch
        pack, checksum, new, queues = PATCHED.pack, crc32c, tuple.__new__, self._topic_queues
        frames: list[bytes] = []
        placed: list[Placed] = []
        following: dict[tuple[str, int], int] = {}
        for record, topic, queue_id, _, _, _ in batch:
            if type(record) is not bytes:
                record = bytes(record)
            key = (topic, queue_id)
            offset = following.get(key)
            if offset is None and not topic.startswith(SYSTEM_PREFIX):
                offset = (queues.get(key) or self.topic_queue(topic, queue_id)).next
            if offset is None:
                offset = 0  # a system record is in no queue
            else:
                following[key] = offset + 1
            length = FRAME_HEAD_BYTES + len(record)
            tail = (
                pack(
                    FRAME_MAGIC,
                    length,
                    epoch,
                    watermark,
                    record[:QUEUE_ID_AT],
                    queue_id,
                    record[FLAG_AT:OFFSETS_AT],
                    offset,
                    position,
                    record[SYSTEM_FLAG_AT:STORED_AT],
                    stored,
                )
                + record[UNPATCHED_AT:]
            )
            frames.append(checksum(tail).to_bytes(4, "big"))
            frames.append(tail)
            placed.append(new(Placed, (queue_id, offset, position)))
            position += length
        return frames, placed

    def _begin_segment(self, size: int, urgent: bool) -> None:
        """Begins a new segment; the state at its begin is noted, and written into it a little later."""
        if size > self._log.fresh_room:
            raise TooLarge(f"a batch of {size} bytes does not fit a segment; nothing of it was stored")
        self._log.roll(self.epoch, urgent=urgent)
        self._sealing.plan(self._log.end)

    def _write_keyframe(self, record: bytes, now_ms: int) -> None:
        """Appends a part of a keyframe."""
        self._append_urgent([Incoming(record, KEYFRAME_TOPIC, 0, 0, b"")], now_ms, True)

    # ------------------------------------------------------------ queues and folds

    def _take_in(
        self,
        batch: Sequence[Incoming],
        positions: Sequence[int],
        lengths: Sequence[int],
        frame_of: Callable[[int], bytes],
    ) -> None:
        """Queues and folds take in records of the log, one after the other, by what the folds know at that point.
        ``frame_of``: the whole frame of the n-th one."""
        add, ensure, queues = self._index.add, self._index.ensure, self._topic_queues
        facts_of, queues_of, pack = self._facts.get, self._folds.queues_of, ENTRY20.pack
        for number, (incoming, position, length) in enumerate(zip(batch, positions, lengths, strict=True)):
            _, topic, queue_id, flag, properties, level = incoming
            at_once = level is _CACHE
            facts = facts_of((topic, properties)) or self._learn(topic, properties)
            if facts[0] == _NO_TAG:
                if topic == KEYFRAME_TOPIC:
                    self._sealing.keyframes.take(memoryview(frame_of(number))[FRAME_HEAD_BYTES:], position)
                elif topic != SEAL_TOPIC:
                    self._fold(incoming, position, frame_of(number))
            else:
                entry = pack(position, length, facts[0])
                add(queues.get((topic, queue_id)) or self.topic_queue(topic, queue_id), entry, at_once)
                for key in queues_of(topic, properties):
                    add(ensure(key, position), entry, at_once)
                if facts[1]:
                    self._keys.add(facts[1], position)
                if flag & _FOLDED:
                    self._fold(incoming, position, frame_of(number))

    def _take_in_runs(
        self,
        runs: list[Run],
        destinations: list[Destination],
        queues: list[Queue],
        entries: list[bytes],
        frames: bytes,
        first: int,
    ) -> bool:
        """Queues and folds take in runs of the log; the messages of one have the same place in all of them. ``first``:
        the position of ``frames``. Returns whether light queues, by which gateways read, have any of them."""
        index, changes, is_light = self._index, self._folds.changes, False
        keyed: list[bytes] = []
        for number, run in enumerate(runs):
            destination, entry = destinations[number], entries[number]
            if destination.light_as_of != changes:
                light_queues = self._folds.queues_of(destination.topic, destination.properties)
                destination.light = [index.ensure(key, run.position) for key in light_queues]
                destination.light_as_of = changes
            at_once = destination.level is _CACHE
            index.add(queues[number], entry, at_once)
            for light in destination.light:
                index.add(light, entry, at_once)
                is_light = True
            for key in destination.keys:
                keyed.append(key_row(key, run.position, run.step, len(run.bodies)))
            if run.flag & _FOLDED:
                self._fold_run(run, destination, frames, run.position - first)
                changes = self._folds.changes
        self._keys.add_rows(keyed)
        return is_light

    def _fold_run(self, run: Run, destination: Destination, frames: bytes, at: int) -> None:
        """Folds take in the messages of a run, whose frames begin there."""
        one = Incoming(b"", destination.topic, run.queue_id, run.flag, destination.properties, destination.level)
        for number in range(len(run.bodies)):
            begin = at + number * run.step
            self._fold(one, run.position + number * run.step, frames[begin : begin + run.step])

    def _lead_to(self, destination: Destination, run: Run) -> Queue:
        """The topic queue of a run, to which its destination does not lead yet."""
        if destination.queue is None:
            topic, properties = destination.topic, destination.properties
            destination.tag, destination.keys = self._facts.get((topic, properties)) or self._learn(topic, properties)
        queue = destination.queue = self.topic_queue(destination.topic, run.queue_id)
        destination.queue_id = run.queue_id
        return queue

    def _learn(self, topic: str, properties: bytes) -> tuple[int, tuple[int, ...]]:
        """Tag hash and key hashes of a record; remembered unless they never come again."""
        facts: tuple[int, tuple[int, ...]] = (_NO_TAG, ())
        if not topic.startswith(SYSTEM_PREFIX):
            tag = property_of(properties, _TAGS)
            facts = (tag_hash(tag.decode("utf-8", "replace")) if tag else 0, keys_of(topic, properties))
        if _comes_again(properties):
            if len(self._facts) >= _FACTS_MAX:
                self._facts.clear()
            self._facts[topic, properties] = facts
        return facts

    def _fold(self, incoming: Incoming, position: int, frame: bytes) -> None:
        _, topic, queue_id, flag, properties, _ = incoming
        stored_ms = stored_ms_of(frame)
        change = self._folds.apply(Stored(position, len(frame), topic, queue_id, flag, properties, stored_ms, frame))
        for key in change.opened:
            self._index.ensure(key, position)
        for key in change.ended:
            self._end(key)
        for made in change.made:
            self._make(made)

    def _end(self, key: str) -> None:
        """A queue ends; one of its name that is made later is another one."""
        self._index.drop(key)
        topic, colon, number = key.rpartition(":")
        if colon and not key.startswith(LIGHT):
            self._topic_queues.pop((topic, int(number)), None)

    def _make(self, made: MadeQueue) -> None:
        """A topic's queue begins, unless it is there. One that ends before ``first`` is of an earlier life of the topic
        whose end was lost to damage, or was made a moment ago by a replay that looked ahead."""
        topic, queue_id, first = made
        key = f"{topic}:{queue_id}"
        queue = self._index.find(key)
        if queue is not None and queue.next < first:
            self._end(key)
            queue = None
        if queue is None:
            self._topic_queues[topic, queue_id] = self._index.ensure(key, max(first, self._index.passed.lost))

    def replay(self, position: int, frames: Sequence[bytes]) -> None:
        """Recovery hands over a run of the log: good frames one behind the other, the first at ``position``."""
        batch: list[Incoming] = []
        positions: list[int] = []
        following: dict[tuple[str, int], int] = {}
        first, topics, new = 0, self._topics, tuple.__new__
        for number, frame in enumerate(frames):
            _, queue_id, flag, offset, stored_ms, raw_topic, properties = unpack_frame(frame)
            topic = topics.get(raw_topic) or topics.setdefault(raw_topic, raw_topic.decode("utf-8", "replace"))
            if stored_ms > self._log.last_ms:
                self._log.last_ms = stored_ms
            if not topic.startswith(SYSTEM_PREFIX):
                key = (topic, queue_id)
                wanted = following.get(key)
                if wanted is None:
                    wanted = self.topic_queue(topic, queue_id, offset).next
                if offset > wanted:  # records before it were lost to damage: holes keep their places
                    self._take_in(batch, positions, list(map(len, frames[first:number])), frames[first:].__getitem__)
                    batch, positions, first = [], [], number
                    self._add_holes(self.topic_queue(topic, queue_id), offset, position)
                following[key] = max(offset, wanted) + 1
            elif topic == SEAL_TOPIC:
                self._note_passed(frame)
            batch.append(new(Incoming, (b"", topic, queue_id, flag, properties, Level.QUORUM)))
            positions.append(position)
            position += len(frame)
        self._take_in(batch, positions, list(map(len, frames[first:])), frames[first:].__getitem__)
        self.ends_with_seal = bool(batch) and batch[-1].topic == SEAL_TOPIC

    def _note_passed(self, seal: bytes) -> None:
        body = record_body(memoryview(seal)[FRAME_HEAD_BYTES:])
        if len(body) >= _PASSED.size:
            self.passed.append(_PASSED.unpack_from(body))

    def _add_holes(self, queue: Queue, offset: int, position: int) -> None:
        for _ in range(offset - queue.next):
            self._index.add(queue, hole(position), True)


def _seal(body: bytes, now_ms: int) -> Incoming:
    record = encode_record(SEAL_TOPIC.encode(), body, b"", born_ms=now_ms)
    return Incoming(record, SEAL_TOPIC, 0, 0, b"")


def _comes_again(properties: bytes) -> bool:
    """Whether there may be another record with these properties."""
    return _UNIQUE not in properties and _EXCHANGE not in properties
