"""The store's face: append, read, sync, upkeep.

Everything that is known here is a function of the log's prefix (``writing.py``); the index is derived
(``sealing.py``); what leaves is raw frames (``reading.py``). ``recovery.open_store`` makes a store.

Threads: all methods belong to one thread but ``sync`` and ``give_back``, which may run beside the others.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from broker.store import label
from broker.store.commit_log import CommitLog
from broker.store.destinations import Destination, Incoming
from broker.store.disk import Disk
from broker.store.following import Following
from broker.store.frames import stored_ms_of
from broker.store.index_chunk import ChunkFiles, Sealed
from broker.store.key_index import KeyIndex
from broker.store.merging import Merging
from broker.store.queue_index import LIGHT, Passed, QueueIndex, hole
from broker.store.reading import Reading
from broker.store.records import Folds
from broker.store.retention import Removal, segments_to_drop
from broker.store.sealing import KeyframeDue, Sealing
from broker.store.settings import StoreSettings
from broker.store.state import Keyframe, KeyframeMarks
from broker.store.writing import Writing
from penstock.errors import PenstockError, StorageFailed, StorageFull, TooLarge
from penstock.protocol.message import BODY_AT, BODY_BYTES_MAX, FRAME_HEAD_BYTES
from penstock.protocol.requests.given import GivenPulled
from penstock.protocol.requests.messages import Placed, Pulled
from penstock.protocol.requests.topics import Bounds
from penstock.protocol.runs import Run

_FACT_BYTES: Final = 512
"""What a record of a fact has beside its body is less."""
_FRAME_BYTES_MIN: Final = FRAME_HEAD_BYTES + BODY_AT
LOST_PLACES_MAX: Final = 10_000
"""Offsets of each queue that are kept for records that damage may have taken: more of them cost memory."""
HOLD_CHECK_MS: Final = 1_000
"""Seconds after which the store looks again whether the folder is still its own."""
QUIET_MS: Final = 50
"""Seconds without an append after which the store counts as idle."""
_log = logging.getLogger(__name__)


class MessageStore:
    """A broker's stored state.

    Attributes:
        damage: stretches of the log (from, to) that recovery found damaged: kept, never served.
        missing: stretches of it that recovery found in no file.
        is_owned: whether this node leads the log: only then anything is appended.
        is_alone: whether there is no other copy of the log: what this disk has is committed.
        log: its bytes, for the replication.
        following: the way in which they come from another node that leads.
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
        keyframes: Iterable[Keyframe] = (),
        state_bytes: int = 0,
        is_owned: bool = True,
        is_alone: bool = True,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._folds = folds
        self._log = self.log = log
        self._index = index
        self._keys = keys
        self._chunks = ChunkFiles(disk)
        self._reading = Reading(log, index, keys, self._chunks, is_alone)
        self._sealing = Sealing(disk, settings, folds, log, index, keys, sealed, state_bytes)
        self._sealing.keyframes = KeyframeMarks(keyframes)
        self._sealing.keyframes.forget_before(log.start)
        self._merging = Merging(disk, index, keys, self._chunks)
        self._writing = Writing(folds, log, index, keys, self._sealing)
        self.following = Following(log, self._writing, self._sealing)
        self._quiet_since_ms = 0
        self._held_at_ms = 0
        self._cannot_remove = False
        self._is_behind_damage = False  # and what was read there is not planned to be sealed yet
        self._catches_up = True  # the disk has room for what a replay seals
        self.damage: list[tuple[int, int]] = []
        self.missing: list[tuple[int, int]] = []
        self._noted = log.start  # the beginning that retention has left, as the label says
        self.is_owned = self._sealing.is_owned = is_owned
        self.is_alone = is_alone

    # ------------------------------------------------------------ appending

    @property
    def written(self) -> int:
        """Position after the last append."""
        return self._log.end

    @property
    def last_ms(self) -> int:
        """Store time of the last record; 0 if there is none."""
        return self._log.last_ms

    @property
    def start(self) -> int:
        """The first position that is still there."""
        return self._log.start

    @property
    def sealed(self) -> int:
        """Position before which everything is in index chunks."""
        return self._sealing.sealed

    @property
    def damaged(self) -> int:
        """Frames that reads passed over because they were not good any more, and stretches that recovery did, or
        missed."""
        return self._reading.damaged + len({*self.damage, *self.missing})

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room for the last append that wanted more of it."""
        return self._log.is_full

    @property
    def index_trouble(self) -> str:
        """The reason why the index cannot be written, empty if it can."""
        return self._sealing.trouble

    @property
    def durable(self) -> int:
        """Position up to which this disk has everything."""
        return self._log.durable

    @property
    def committed(self) -> int:
        """Position up to which everything is on as many disks as it has to be on, and readable."""
        return self._log.committed

    @property
    def batch_bytes_max(self) -> int:
        """The largest number of bytes of one append's frames: a segment's room."""
        return self._log.fresh_room

    def append(self, batch: Sequence[Incoming], now_ms: int) -> list[Placed]:
        """Stores facts, or other runs of single messages, in order, all or none; returns where. Raises as
        ``append_runs``."""
        runs = [one.run for one in batch]
        if runs:
            self.append_runs(runs, [one.destination for one in batch], now_ms)
        return [Placed(run.queue_id, run.offset, run.position) for run in runs]

    def append_runs(self, runs: list[Run], destinations: list[Destination], now_ms: int) -> None:
        """Stores checked runs of messages, each to its destination, in order, all or none, and notes on them where.
        ``queue_id`` is noted already.

        Raises ``StorageFull`` (nothing was stored, try again later), ``TooLarge`` (more than a segment holds) or
        ``StorageFailed`` (the store takes no more; whether this batch will be found again is unknown).
        """
        if self._log.held_back is not None:
            raise self._log.held_back
        self._quiet_since_ms = now_ms
        self._writing.append(runs, destinations, now_ms)

    @property
    def fact_bytes_max(self) -> int:
        """The largest number of bytes of a fact's body: a record of its own, in a segment."""
        return min(BODY_BYTES_MAX, self.batch_bytes_max - _FACT_BYTES)

    def append_facts(self, facts: Sequence[Incoming], now_ms: int) -> None:
        """Stores records that need not be stored all or none, in order, in as many appends as segments have room for.
        Raises as ``append``: some of them may be stored then, from the first one on."""
        try:
            self.append(facts, now_ms)
        except TooLarge:
            half = len(facts) // 2
            if not half:
                raise
            self.append_facts(facts[:half], now_ms)
            self.append_facts(facts[half:], now_ms)

    @property
    def applied(self) -> int:
        """Position up to which queues and folds know the log."""
        return self._log.end if self.is_owned else self.following.applied

    def own(self) -> None:
        """This node leads the log from here on, of which all is taken in."""
        if not self.is_owned:
            assert self.applied == self._log.end, "a leader knows its log"
            self._writing.end_replay()
        self.is_owned = self._sealing.is_owned = True

    def disown(self) -> None:
        """It does not any more."""
        self.following.begin_at(self.applied)
        self.is_owned = self._sealing.is_owned = False

    def begin_epoch(self, number: int, record: Incoming, now_ms: int) -> None:
        """Appends the record with which an epoch begins: the first frame that carries its number, as all behind it do.
        Numbers only grow. Raises as ``append``: nothing is changed then."""
        self._quiet_since_ms = now_ms
        self._writing.begin_epoch(number, record, now_ms)

    def replay(self, position: int, frames: Sequence[bytes], durable: int | None) -> None:
        """Recovery hands over good frames one behind the other, the first at ``position``. ``durable``: up to where the
        log is known to have been synced, ``None`` behind damage: nothing from there on is sealed before all is known
        (``settle``)."""
        if durable is not None:
            self._sealing.plan_if_due(position)
            if self._catches_up:
                try:
                    self._sealing.catch_up(durable)
                except StorageFull:
                    self._catches_up = False
        self._writing.replay(position, frames)

    def take_passed(self) -> list[tuple[int, int]]:
        """The begin of damage that starts have passed over, by the records replayed since the last call, and the log's
        end then."""
        passed, self._writing.passed = self._writing.passed, []
        return passed

    def replay_border(self, position: int) -> None:
        """Recovery comes to a new segment or to the first damage: no chunk reaches over either."""
        self._sealing.plan(position)

    def pass_over(self, damage: list[tuple[int, int]], count: int, now_ms: int) -> int | None:
        """Recovery has reached the first damage and looked ahead: this is all damage, with a number of records behind
        the first. Records before it are sealed and keep their offsets. The light queues of the lost records are
        unknown, so records behind the damage cannot keep their offsets. They get new ones beyond all that were ever
        given: the log's end and on. No offset means another message. So the log must grow until it is beyond all
        offsets again, before anything else is stored and before any reader gets them, for another start could give
        them out again; on a full disk that waits. Returns up to where the log is durable then, ``None`` if it has not
        grown: before that nothing behind the damage is sealed."""
        self.damage = damage
        self._writing.epoch = max(1, self._folds.epoch)
        self.sync_all()
        self._sealing.seal_before(damage[0][0])
        end, before = self._log.end, self._index.passed
        known = {(first, last) for first, last in before.unsettled}
        self._index.passed = Passed(before.lost, end, sorted(known.union(damage)))
        self._writing.grows_to = end + 1 + count + self._index.move_light_queues(end, damage[-1][1])
        self._writing.damage_at = damage[0][0]
        if not self.is_owned or not self._writing.grows_here:
            return None
        try:
            self._writing.grow(now_ms)
            self.sync_all()
        except StorageFull:
            return None
        return self._log.durable

    def settle(self, now_ms: int) -> None:
        """Recovery has replayed everything: makes it durable, says so in the log if it is this node's, and seals what
        piled up; after damage all of it, so that the next start begins behind it and moves nothing again."""
        self._writing.epoch = max(1, self._folds.epoch)
        self._writing.end_replay()
        self.sync_all()
        if self.is_alone:
            self.following.begin_at(self._log.end)
        else:
            self._index.mark_readable(self._log.committed)
        if self._index.passed.unsettled:
            self._keep_lost_places()
        with contextlib.suppress(StorageFull):  # that was told, and goes on by itself when there is room
            if self.is_owned:
                self._writing.grow(now_ms)
                self.sync_all()
                self._seal_end(now_ms)
            self._plan_behind_damage()
            self._sealing.finish(now_ms)
            self._log.keep_emergency_room()
            self._sealing.probe()
        if self._index.holds_moved and self.is_owned:
            _log.error("there is no room to pass over the damage: messages of filters behind it are not delivered")
        self.take_readable()

    def _seal_end(self, now_ms: int) -> None:
        if not self._writing.ends_with_seal:
            self._writing.seal(now_ms)
            self.sync_all()

    def _plan_behind_damage(self) -> None:
        """Plans the seal of everything read behind damage, once the log has grown."""
        if self._is_behind_damage and self._log.end >= self._writing.grows_to:
            self._is_behind_damage = False
            self._sealing.plan(self._log.end)

    def _keep_lost_places(self) -> None:
        """The queues of the lost records are unknown: each of a topic's queues may have had as many of them, behind its
        last good one, as there was room for. Their offsets were given out, so no other message gets them. A topic may
        be lost with the record that made it: what is made from now on begins behind as many."""
        places = [(first, max(1, (end - first) // _FRAME_BYTES_MIN)) for first, end in self._index.passed.unsettled]
        for topic, number in self._folds.topic_queues():
            self.ensure_queue(topic, number)
        for queue in self._index:
            if not queue.key.startswith(LIGHT):
                known = self._reading.last_position(queue)
                lost = sum([count for first, count in places if first > known])
                if lost:
                    self._index.add(queue, hole(self._log.end - 1) * min(lost, LOST_PLACES_MAX), True)
        passed = self._index.passed
        lost = min(passed.lost + sum([count for _, count in places]), LOST_PLACES_MAX)
        self._index.passed = Passed(lost, passed.log_end)
        self._is_behind_damage = True

    def sync_all(self) -> None:
        """Blocks until this disk has everything, and takes it for committed where there is no other copy: for a start,
        before anything is served."""
        point = self.sync_point()
        self.sync()
        self.mark_durable(point)
        if self.is_alone:
            self.mark_committed(point)

    # ------------------------------------------------------------ durability

    def sync_point(self) -> int:
        """The point that the next ``sync`` covers; to be taken before it."""
        return self._log.sync_point()

    def sync(self) -> None:
        """Blocks until everything before the last sync point is on the medium. Raises ``StorageFailed``, and then
        for ever."""
        self._log.sync()

    def mark_durable(self, point: int) -> None:
        """A sync that began after ``point`` was taken has returned: this disk has what lies before it."""
        self._log.mark_durable(point)

    def mark_committed(self, point: int) -> None:
        """Notes that enough disks have the log before ``point``: it may be read, and is never cut."""
        self._log.mark_committed(point)
        if point >= self._writing.grows_to:
            self._index.holds_moved = False
        self._index.mark_readable(point)

    def tidy(self) -> None:
        """Work that appends leave for after their answers: no request waits for it."""
        self._log.tidy()

    def take_readable(self) -> list[str]:
        """Queues that gained readable messages since the last call."""
        return self._index.take_fresh()

    # ------------------------------------------------------------ reading

    def ensure_queue(self, topic: str, queue_id: int) -> None:
        """Makes a topic's queue known, so that it has bounds before its first message."""
        self._writing.topic_queue(topic, queue_id)

    def bounds(self, queue: str) -> Bounds:
        """First offset and readable end of a queue. Raises ``QueueNotFound``."""
        found = self._index.get(queue)
        return Bounds(queue, found.min, found.readable, max(found.first, min(found.floor, found.min)))

    def next_offset(self, queue: str) -> int:
        """Offset that the next message of a queue gets. Raises ``QueueNotFound``."""
        return self._index.get(queue).next

    def position_of(self, queue: str, offset: int) -> int:
        """Log position of an entry of a queue, the log's end for its next one: what a reader that stands there still
        needs. Raises ``QueueNotFound``; an offset before the first one counts as the first."""
        return self._reading.position_of(queue, offset)

    def frame_at(self, queue: str, offset: int) -> bytes:
        """The frame of a readable message of a queue, or of the next one where there is none. Raises ``QueueNotFound``,
        ``OffsetOutOfRange`` or ``Damaged``."""
        return self._reading.frame_at(queue, offset)

    def size_of(self, queue: str) -> int:
        """About how many bytes the readable messages of a queue have: their number, times the mean of some of the
        newest. Raises ``QueueNotFound``."""
        return self._reading.size_of(queue)

    def stored_ms(self, position: int) -> int:
        """The store time of the record at a log position. Raises ``Damaged``."""
        return stored_ms_of(self._reading.frame(position))

    def frame(self, position: int) -> bytes:
        """The frame at a log position. Raises ``Damaged``."""
        return self._reading.frame(position)

    def message_at(self, position: int) -> tuple[str, Pulled]:
        """The topic of the readable message at a log position, and it alone. Raises ``OffsetOutOfRange``."""
        return self._reading.message_at(position)

    def frames(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """The frames at log positions, with their sizes, in that order; empty where one is damaged."""
        return self._reading.frames(places)

    def offset_at(self, queue: str, position: int) -> int:
        """Offset of a queue's first message that is stored at a log position or behind it, the end if there is none.
        Raises ``QueueNotFound``."""
        return self._reading.offset_at(queue, position)

    def read(
        self, queue: str, offset: int, count_max: int, bytes_max: int, tags: frozenset[int] = frozenset()
    ) -> Pulled:
        """Messages of a queue from ``offset`` on: at least one if there is one. Raises ``QueueNotFound``,
        ``OffsetOutOfRange``."""
        return self._reading.read(queue, offset, count_max, bytes_max, tags)

    def read_given(self, queue: str, offset: int, count_max: int, bytes_max: int) -> Pulled | GivenPulled | None:
        """The same for a reader in this process: runs as values where they are at hand, ``None`` where ``read`` would
        give nothing. Raises as ``read``."""
        return self._reading.read_given(queue, offset, count_max, bytes_max)

    def seek_time(self, queue: str, stored_ms: int) -> int:
        """First readable offset stored at or after a time; the end if there is none. Raises ``QueueNotFound``."""
        return self._reading.seek_time(queue, stored_ms)

    def find(self, topic: str, key: str, since_ms: int, until_ms: int, count_max: int, before: int = 1 << 62) -> Pulled:
        """Readable messages of a topic by key or unique id within a time range and before a log position, newest first,
        as many as bounded work finds. Its ``next``: the ``before`` with which to go on, 0 if there is nothing more."""
        return self._reading.find(topic, key, since_ms, until_ms, count_max, before)

    def position_of_id(self, topic: str, unique_id: bytes) -> int:
        """The position of the latest message with a unique id, readable already or not; ``ABSENT`` where there is none,
        ``PERHAPS`` where bounded work does not say (``reading.py``)."""
        return self._reading.position_of_id(topic, unique_id)

    # ------------------------------------------------------------ upkeep

    def tick(self, now_ms: int, age_ms: int | None = None) -> None:
        """The upkeep of this node's files, a bounded piece per call: seals index chunks and merges them, prepares room,
        removes what the log says is removed. Appends nothing.

        ``age_ms``: a time that does not go slowly as store times may, ``now_ms`` unless it is given. Raises
        ``StorageFailed`` where the folder is not this store's any more.
        """
        if self._log.failed is not None:
            return
        self._check_hold(now_ms if age_ms is None else age_ms)
        try:
            self._plan_behind_damage()
            self._log.keep_emergency_room()
            self._sealing.plan_if_due(self.applied)
            self._sealing.tick(now_ms)
            if now_ms - self._quiet_since_ms >= QUIET_MS:
                self._log.prepare()
        except StorageFull:
            pass  # goes on by itself when there is room again; until then retention is what makes room
        if self._log.is_full or self._sealing.trouble:
            self._merging.make_room(now_ms)
        else:
            self._merging.step(self._log.bases, now_ms)
        self._note_beginning(self._log.start)
        removed = self._folds.removed
        if self._log.start < removed.before and removed.said_at < self._log.committed:
            self.remove_before(removed.before)

    def _check_hold(self, now_ms: int) -> None:
        """Another broker may be at work in a folder that was replaced: nothing is written there any more."""
        if 0 <= now_ms - self._held_at_ms < HOLD_CHECK_MS:
            return
        self._held_at_ms = now_ms
        if lost := self._disk.lost:
            hint = "stop a broker before its files are moved"
            self._log.failed = StorageFailed(f"the data folder is not this broker's any more: {lost}", hint=hint)
            raise self._log.failed

    @property
    def has_failed(self) -> bool:
        """Whether nothing is ever appended again."""
        return self._log.failed is not None

    def is_silent(self, now_ms: int) -> bool:
        """Whether it is time for a seal: a tiny record that carries the watermark, so that rot in the last batch is
        told from a torn tail."""
        quiet_ms = now_ms - self._quiet_since_ms
        synced = self._log.durable == self._log.end
        return not self._writing.ends_with_seal and synced and quiet_ms >= self._settings.seal_after_s * 1000

    def seal(self, now_ms: int) -> None:
        """Writes the watermark down now. Raises ``StorageFull``."""
        self._writing.seal(now_ms)

    @property
    def keyframe_due(self) -> KeyframeDue | None:
        """The state at a segment's begin that waits to be written behind it, or to be passed: until then nothing more
        is sealed."""
        return self._sealing.keyframe_due

    def write_keyframe(self, now_ms: int, parts_max: int) -> None:
        """Appends parts of the keyframe that is due, each of up to 1 MiB. Raises ``StorageFull``: it begins anew."""
        due = self._sealing.keyframe_due
        assert due is not None, "a keyframe is due"
        try:
            for record in due.parts(now_ms, parts_max):
                self._writing.write_keyframe(record, now_ms)
        except StorageFull:
            due.start_over()
            raise
        if self._sealing.keyframes.get(due.base) is not None:
            self._sealing.pass_keyframe()

    def pass_keyframe(self) -> None:
        """The segment whose keyframe is due has none: it goes with the next that has one."""
        self._sealing.pass_keyframe()

    def grow(self, now_ms: int) -> None:
        """Makes the log as long as damage that was passed over asks for; mostly none does. Raises ``StorageFull``."""
        self._writing.grow(now_ms)

    @property
    def leaves(self) -> bool:
        """Whether what was removed still has its room on the disk."""
        return self._disk.leaves

    def give_back(self) -> None:
        """Gives that room back: blocks for a third of a second per GiB."""
        self._disk.give_back()

    def _note_beginning(self, position: int) -> None:
        """Writes the log's beginning into its label, so that removed segments are not missing. On a full disk it does
        so when there is room, because retention makes it."""
        if self._noted < position:
            with contextlib.suppress(OSError):
                label.write(self._disk, position)
                self._noted = position

    @property
    def lacks_beginning(self) -> bool:
        """Whether the log's first segments are missing, though they were not removed."""
        return bool(self.missing) and self.missing[0][1] == self._log.start

    def removal_due(self, age_ms: int, needed_from: int | None = None) -> Removal | None:
        """The removal that retention would make now."""
        return segments_to_drop(
            self._log.bases,
            self._log.end,
            self._safe,
            needed_from,
            self._has_keyframe,
            self._reading.stored_ms_of_first,
            age_ms,
            self._settings,
        )

    @property
    def _safe(self) -> int:
        """Everything before is committed, and its index is sealed."""
        return min(self.sealed, self._log.settled)

    def remove_before(self, base: int) -> None:
        """Removes the segments before the one at ``base``, if they are sealed and the log can be read from there alone;
        else nothing. What the disk does not remove is tried again."""
        if base not in self._log.bases or base > self._safe or not self._has_keyframe(base):
            return
        start = self._log.start
        self._note_beginning(base)
        try:
            self._log.drop_before(base)
        except OSError as error:
            if not self._cannot_remove:
                self._cannot_remove = True
                _log.error("a segment of the log cannot be removed: %s", error.strerror)
        else:
            self._cannot_remove = False
        if self._log.start > start:
            self._sealing.keyframes.forget_before(self._log.start)
            self._merging.leave(self._log.start)
            self._forget_chunks(self._keys.chunks_before(self._log.start))

    def _has_keyframe(self, base: int) -> bool:
        """Whether the log can be read from the segment at ``base`` alone."""
        mark = self._sealing.keyframes.get(base)
        return mark is not None and self._reading.holds_keyframe(mark.position)

    def _forget_chunks(self, chunks: Sequence[Sealed]) -> None:
        if chunks:
            self._index.forget_before(chunks[-1].end)  # once for all: there may be many queues
        for chunk in chunks:
            self._keys.forget_chunk(chunk)
            self._chunks.remove(chunk.number)

    def close(self, now_ms: int) -> None:
        """Clean stop: syncs, checkpoints and gives the folder back. Safe after a failure too."""
        try:
            if self._log.failed is None:
                self._finish(now_ms)
        except PenstockError as error:
            _log.error("no clean stop: %s", error)  # what was acknowledged is durable; recovery makes the rest again
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the folder as it is, to be opened again: uncommitted frames may be cut then."""
        self._merging.give_up()
        self._chunks.close_all()
        self._log.close()
        self._disk.unlock()

    def _finish(self, now_ms: int) -> None:
        self.sync_all()
        if self.is_owned:
            self._seal_end(now_ms)
        self.disown()  # no owner is there to write keyframes
        self._sealing.plan(self.applied)
        self._sealing.finish(now_ms)
