"""The appender: appends, and the one way in which queues and folds take in messages.

Everything is stored as runs of messages (``penstock/protocol/runs.py``): those of devices and producers, and facts,
each a run of its own. An append is one piece of frames, written with one call. Only then do queues and folds learn of
it, so a refused append leaves nothing behind. ``_take_in`` is the same at the append and at recovery: all state is a
function of the log's prefix. A batch never spans two segments: it is stored as a whole or not at all
(``broker/messages/parts.py`` cuts larger requests).
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from broker.store.alike import Alike, Groups
from broker.store.commit_log import CommitLog
from broker.store.destinations import Destination, Incoming, incoming_of
from broker.store.frames import indexed, stored_ms_of
from broker.store.key_index import KeyIndex, key_hash, key_row, keys_of
from broker.store.level import Level
from broker.store.queue_index import LIGHT, Queue, QueueIndex, hole
from broker.store.records import KEYFRAME_TOPIC, SEAL_TOPIC, Folds, MadeQueue, Stored
from broker.store.run_frames import LOW, entries_of, frame_bytes
from broker.store.sealing import Sealing
from penstock.errors import InvalidMessage, StorageFull, TooLarge
from penstock.protocol.message import (
    BODY_BYTES_MAX,
    FLAG_GIVEN_BACK,
    FLAG_ONCE,
    FLAG_RETAIN,
    FLAG_SEQUENCED,
    FLAG_WOKEN,
    FRAME_HEAD_BYTES,
    encode_record,
    property_of,
    record_body,
    tag_hash,
)
from penstock.protocol.runs import DIGITS, HEXADECIMAL, Run, check_counts, counted

_TAGS: Final = b"TAGS"
_UNIQUE: Final = b"UNIQ_KEY"
_EXCHANGE: Final = b"MQTT_ID"
_FOLDED: Final = FLAG_RETAIN | FLAG_ONCE | FLAG_WOKEN | FLAG_GIVEN_BACK
_REMEMBERED_MAX: Final = 8192
_PASSED: Final = struct.Struct(">QQ")
"""A seal that makes the log grow behind damage begins with where that begins, and where the log ended."""
_SEAL_BYTES: Final = FRAME_HEAD_BYTES + len(encode_record(SEAL_TOPIC.encode(), bytes(_PASSED.size), b""))
_ANY: Final = 1 << 62
_CACHE: Final = Level.CACHE
_LOW_HASHES: Final = [zlib.crc32(low) ^ zlib.crc32(LOW[0]) for low in LOW]
"""What the last two digits of an id change in its hash: CRCs of texts that differ in their ends alone differ in what
these ends do."""


class Writing:
    """Appends to the log and keeps queues, keys and folds in step with it."""

    def __init__(self, folds: Folds, log: CommitLog, index: QueueIndex, keys: KeyIndex, sealing: Sealing) -> None:
        self._folds = folds
        self._log = log
        self._index = index
        self._keys = keys
        self._sealing = sealing
        self._topic_queues: dict[tuple[str, int], Queue] = {}
        self._nowhere = Queue("", 0)  # that of facts: they are in none
        self._replayed: dict[bytes, Destination] = {}  # of a replay, by tail
        self._counting: dict[bytes, Destination] = {}  # the same of tails with ids that count, by what is before these
        self.epoch = 1  # what is written before the first epoch begins
        self.ends_with_seal = False
        self.grows_to = 0  # light queues have given out offsets up to there: nothing else is stored before the log is
        self.damage_at = 0  # what that is for begins there
        self.passed: list[tuple[int, int]] = []  # damage that starts have passed over, and where the log ended then

    def append(self, runs: list[Run], destinations: list[Destination], now_ms: int) -> None:
        """See ``MessageStore.append_runs``. Facts alone may use the emergency reserve."""
        urgent = destinations[0].is_system and all([one.is_system for one in destinations])
        self._append_urgent(runs, destinations, now_ms, urgent)

    def _append_urgent(self, runs: list[Run], destinations: list[Destination], now_ms: int, urgent: bool) -> None:
        if self._log.end < self.grows_to:
            self.grow(now_ms)
        self._append_next(runs, destinations, now_ms, urgent)

    def _append_next(self, runs: list[Run], destinations: list[Destination], now_ms: int, urgent: bool) -> None:
        log, size = self._log, 0
        for run in runs:
            size += len(run.bodies) * frame_bytes(run)
        if size > log.room():
            self._begin_segment(size, urgent)
        log.reserve(size, urgent=urgent)
        now_ms = max(now_ms, log.last_ms)
        queues: list[Queue] = []
        entries: list[bytes] = []
        try:
            frames = b"".join(self._lay_out(runs, destinations, now_ms, queues, entries))
            first = log.append(frames)
        except BaseException:
            for run in runs:
                run.position = -1
            raise
        finally:
            for queue in queues:
                queue.ahead = 0
        log.last_ms = now_ms
        self.ends_with_seal = False
        if self._take_in(runs, destinations, queues, entries, frames, first):  # gateways read by light queues
            log.fresh.keep(runs)

    def _lay_out(
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
                queue = self._lead_to(destination, run.queue_id)
            layout = destination.layout_of(run, self.epoch)
            offset = 0 if destination.is_system else queue.next + queue.ahead
            run.placed(position, layout.length, run.queue_id, offset, now_ms)
            entries.append(layout.frames(run, watermark, pieces))
            queues.append(queue)
            count = len(run.bodies)
            queue.ahead += count
            position += count * layout.length
        return pieces

    def begin_epoch(self, number: int, record: Incoming, now_ms: int) -> None:
        """See ``MessageStore.begin_epoch``."""
        assert number > self._folds.epoch, "an epoch begins once"
        self.grow(now_ms)
        before, self.epoch = self.epoch, number
        try:
            self._append_next([record.run], [record.destination], now_ms, True)
        except StorageFull:
            self.epoch = before
            raise

    def seal(self, now_ms: int) -> None:
        """Appends a seal: a system record whose frame carries the durable watermark."""
        run, destination = _seal(b"", now_ms)
        self._append_urgent([run], [destination], now_ms, False)
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
            run, destination = _seal(body, now_ms)
            self._append_next([run], [destination], now_ms, True)
            self.ends_with_seal = True

    def topic_queue(self, topic: str, queue_id: int, first_max: int = _ANY) -> Queue:
        """The queue of a topic, created if missing. A new one begins behind the offsets that an earlier queue of its
        name may have lost, but at ``first_max`` at most."""
        queue = self._topic_queues.get((topic, queue_id))
        if queue is None:
            queue = self._topic_queues[topic, queue_id] = self._index.ensure(
                f"{topic}:{queue_id}", min(self._index.passed.lost, first_max)
            )
        return queue

    def _begin_segment(self, size: int, urgent: bool) -> None:
        """Begins a new segment; the state at its begin is noted, and written into it a little later."""
        if size > self._log.fresh_room:
            raise TooLarge(f"a batch of {size} bytes does not fit a segment; nothing of it was stored")
        self._log.roll(self.epoch, urgent=urgent)
        self._sealing.plan(self._log.end)

    def write_keyframe(self, record: bytes, now_ms: int) -> None:
        """Appends a part of a keyframe. Raises ``StorageFull``."""
        run, destination = incoming_of(record)
        self._append_urgent([run], [destination], now_ms, True)

    # ------------------------------------------------------------ queues and folds

    def _take_in(
        self,
        runs: list[Run],
        destinations: list[Destination],
        queues: list[Queue],
        entries: list[bytes],
        frames: bytes,
        first: int,
    ) -> bool:
        """Queues, keys and folds take in runs of the log, each by what the folds know at that point; the messages of
        one have the same place in all of them. ``queues``: their topic queues. ``frames``: the log from position
        ``first`` on, where it holds facts and what else folds take in. Returns whether a light queue has any of
        them."""
        index, changes, is_light = self._index, self._folds.changes, False
        rows: list[bytes] = []
        for number, run in enumerate(runs):
            destination, entry = destinations[number], entries[number]
            if destination.is_system:
                if destination.id_at >= 0:  # the message in it may be sent again
                    rows += _id_rows(destination.id_hash, run.tail, run.position, run.step, 1)
                self._take_in_fact(destination, run, frames, run.position - first)
                changes = self._folds.changes
                continue
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
                rows.append(key_row(key, run.position, run.step, len(run.bodies)))
            if destination.id_at >= 0:
                rows += _id_rows(destination.id_hash, run.tail, run.position, run.step, len(run.bodies))
                if run.flag & FLAG_SEQUENCED and not run.flag & _FOLDED:
                    self._note_ids(destination, run, 0, len(run.bodies), run.stored_ms)
            if run.flag & _FOLDED:
                self._fold(destination, run, frames, run.position - first)
                changes = self._folds.changes
        if rows:
            self._keys.add_rows(rows)
        return is_light

    def _take_in_fact(self, destination: Destination, run: Run, frames: bytes, at: int) -> None:
        if destination.topic == KEYFRAME_TOPIC:
            frame = memoryview(frames)[at : at + run.step]
            self._sealing.keyframes.take(frame[FRAME_HEAD_BYTES:], run.position)
        elif destination.topic != SEAL_TOPIC:
            self._fold(destination, run, frames, at)

    def _note_ids(self, destination: Destination, run: Run, at: int, count: int, stored_ms: int) -> None:
        """Folds take in the ids of ``count`` messages of a run, from number ``at`` on."""
        position = run.position + at * run.step
        self._folds.note_ids(destination.producer, run.number + at, count, stored_ms, position, run.step)

    def _fold(self, destination: Destination, run: Run, frames: bytes, at: int) -> None:
        """Folds take in the messages of a run, one after the other; its frames are at ``at``. Those that woke say the
        same, each of them: they are taken in together."""
        topic, index, position, step = destination.topic, self._index, run.position, run.step
        count = len(run.bodies)
        together = count if run.flag & _FOLDED == FLAG_WOKEN else 1
        for number in range(0, count, together):
            frame = frames[at : at + step]
            own = counted(run.tail, number) if number and destination.id_at >= 0 else run.tail
            properties = destination.properties_of(own)
            stored = Stored(
                position, step, topic, run.queue_id, run.flag, properties, stored_ms_of(frame), frame, together
            )
            if run.flag & FLAG_SEQUENCED and destination.id_at >= 0:
                self._note_ids(destination, run, number, together, stored.stored_ms)
            change = self._folds.apply(stored)
            for key in change.opened:
                index.ensure(key, position)
            for key in change.ended:
                self._end(key)
            for made in change.made:
                self._make(made)
            position += step
            at += step

    def _lead_to(self, destination: Destination, queue_id: int, first_max: int = _ANY) -> Queue:
        """The topic queue of messages, to which their destination does not lead yet."""
        topic = destination.topic
        if destination.queue is None and (destination.id_at >= 0 or not destination.is_system):
            _learn(destination)
        queue = self._nowhere if destination.is_system else self.topic_queue(topic, queue_id, first_max)
        destination.queue = queue
        destination.queue_id = queue_id
        return queue

    def _end(self, key: str) -> None:
        """A queue ends; one of its name that is made later is another one."""
        self._index.drop(key)
        topic, colon, number = key.rpartition(":")
        if colon and not key.startswith(LIGHT):
            self._topic_queues.pop((topic, int(number)), None)
            self.end_replay()  # some lead to it

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
        else:
            queue.floor = max(queue.floor, first)

    # ------------------------------------------------------------ recovery

    def replay(self, position: int, frames: Sequence[bytes]) -> None:
        """Recovery hands over a run of the log: good frames one behind the other, the first at ``position``. Neighbours
        that differ as the messages of a run do are taken in together, as they were when they were stored."""
        if isinstance(frames, Alike):
            self._replay_alike(position, frames)
        else:
            self._replay_each(position, frames)

    def _replay_alike(self, position: int, frames: Alike) -> None:
        """The same of frames whose runs are separated many at a time."""
        groups, begin, step, log = Groups(frames), 0, frames.step, self._log
        while begin < frames.rows:
            tail, queue_id, flag = groups.tail(begin), int(groups.queue_ids[begin]), int(groups.flags[begin])
            to = self._destination_of(tail)
            end = groups.end(begin, to.id_at >= 0)
            if to.is_system or flag & _FOLDED:
                self._replay_each(position + begin * step, frames[begin:end])
            else:
                self.ends_with_seal = False
                log.last_ms = max(log.last_ms, int(groups.stored_ms[begin]))
                first, offset = position + begin * step, int(groups.offsets[begin])
                if to.queue is None or to.queue_id != queue_id:
                    self._lead_to(to, queue_id, offset)
                number = int(tail[-DIGITS:], 16) if to.id_at >= 0 else -1
                entries = groups.entries(begin, end, position, to.tag)
                self._take_again(to, flag, queue_id, tail, number, first, step, end - begin, offset, b"", entries)
            begin = end

    def _replay_each(self, position: int, frames: Sequence[bytes]) -> None:
        log, folded = self._log, _FOLDED
        to: Destination | None = None
        tail, queue_id, flag, first, step, offset, count, number = b"", 0, 0, position, 0, 0, 0, -1
        for frame in frames:
            _, its_queue_id, its_flag, its_offset, stored_ms, tail_at = indexed(frame)
            its_tail = frame[tail_at:]
            if (
                count
                and stored_ms <= log.last_ms
                and its_offset == offset + count
                and len(frame) == step
                and its_queue_id == queue_id
                and its_flag == flag
                and not flag & folded
                and len(its_tail) == len(tail)
                and (
                    its_tail == tail
                    if number < 0
                    else its_tail[:-DIGITS] == tail[:-DIGITS] and its_tail[-DIGITS:] == b"%012x" % (number + count)
                )
            ):
                count += 1
                position += step
                continue
            if to is not None and count:
                self._take_again(to, flag, queue_id, tail, number, first, step, count, offset, b"")
            if stored_ms > log.last_ms:
                log.last_ms = stored_ms
            to = self._destination_of(its_tail)
            tail, queue_id, flag, first, step, offset = (
                its_tail,
                its_queue_id,
                its_flag,
                position,
                len(frame),
                its_offset,
            )
            number = int(tail[-DIGITS:], 16) if to.id_at >= 0 else -1
            count = 1
            position += step
            if to.is_system or flag & folded:
                self._take_again(to, flag, queue_id, tail, number, first, step, 1, offset, frame)
                count = 0
            self.ends_with_seal = to.topic == SEAL_TOPIC
        if to is not None and count:
            self._take_again(to, flag, queue_id, tail, number, first, step, count, offset, b"")

    def _take_again(
        self,
        to: Destination,
        flag: int,
        queue_id: int,
        tail: bytes,
        number: int,
        position: int,
        step: int,
        count: int,
        offset: int,
        frame: bytes,
        entries: bytes = b"",
    ) -> None:
        """Takes in a number of messages of the log. ``frame``: of a fact, or of a message that folds take in: the only
        one. ``entries``: for their queues, where these are at hand."""
        queue = to.queue
        if queue is None or to.queue_id != queue_id:
            queue = self._lead_to(to, queue_id, offset)
        if not to.is_system:
            if offset > queue.next:  # records before it were lost to damage: holes keep their places
                self._add_holes(queue, offset, position)
            entries = entries or entries_of(position, step, count, to.tag)
        elif to.topic == SEAL_TOPIC:
            self._note_passed(frame)
        run = Run(tail, flag, 0, [b""] * count)  # its bodies are in the log, and not read here
        run.placed(position, step, queue_id, offset, self._log.last_ms)
        run.number = number
        self._take_in([run], [to], [queue], [entries], frame, position)

    def end_replay(self) -> None:
        """Forgets what only a replay needs."""
        self._replayed.clear()
        self._counting.clear()

    def _destination_of(self, tail: bytes) -> Destination:
        """The destination of records with this tail, without an id that counts; remembered unless they never come
        again."""
        digits = tail[-DIGITS:]
        destination = self._replayed.get(tail)
        if destination is None and HEXADECIMAL.issuperset(digits):
            destination = self._counting.get(tail[:-DIGITS])
        if destination is not None:
            return destination
        topic_bytes = tail[0] << 8 | tail[1]
        topic, properties = tail[2 : 2 + topic_bytes].decode("utf-8", "replace"), tail[4 + topic_bytes :]
        id_at = -1
        if _UNIQUE in properties:
            with contextlib.suppress(InvalidMessage):
                id_at = check_counts(tail, 4 + topic_bytes, 1) - 4 - topic_bytes
        destination = Destination(topic, properties, Level.QUORUM, id_at)
        if id_at >= 0 or (_UNIQUE not in properties and _EXCHANGE not in properties):
            remembered = self._replayed if id_at < 0 else self._counting
            if len(remembered) >= _REMEMBERED_MAX:
                remembered.clear()
            remembered[tail if id_at < 0 else tail[:-DIGITS]] = destination
        return destination

    def _note_passed(self, seal: bytes) -> None:
        body = record_body(memoryview(seal)[FRAME_HEAD_BYTES:])
        if len(body) >= _PASSED.size:
            self.passed.append(_PASSED.unpack_from(body))

    def _add_holes(self, queue: Queue, offset: int, position: int) -> None:
        for _ in range(offset - queue.next):
            self._index.add(queue, hole(position), True)


def _seal(body: bytes, now_ms: int) -> Incoming:
    return incoming_of(encode_record(SEAL_TOPIC.encode(), body, b"", born_ms=now_ms))


def _learn(destination: Destination) -> None:
    """Works out the hashes of tag, keys and id."""
    topic, properties, id_at = destination.topic, destination.properties, destination.id_at
    tag = property_of(properties, _TAGS)
    destination.tag = tag_hash(tag.decode("utf-8", "replace")) if tag else 0
    if id_at < 0:
        destination.keys = keys_of(topic, properties)
    else:
        destination.keys = keys_of(topic, properties[: id_at - len(_UNIQUE) - 1])
        destination.id_hash = key_hash(topic, properties[id_at:-DIGITS])


def _id_rows(before: int, tail: bytes, position: int, step: int, count: int) -> list[bytes]:
    """The rows in the index of keys for ids that count. ``before``: the hash of the text before the digits of all;
    ``tail``: the first one's."""
    rows: list[bytes] = []
    pack, hashes = key_row, _LOW_HASHES
    low = int(tail[-2:], 16)
    high = zlib.crc32(tail[-DIGITS:-2] + LOW[0], before)
    for number in range(count):
        rows.append(pack(high ^ hashes[low], position, step, 1))
        position += step
        low += 1
        if low == 256 and number + 1 < count:
            high, low = zlib.crc32(counted(tail, number + 1)[-DIGITS:], before), 0
    return rows
