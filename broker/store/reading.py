"""Reads messages of queues from the log: entries from the index, then raw frames with as few reads as possible.

Every frame is checked before it leaves: a damaged one is skipped and reported, never served. Nothing is decoded or
encoded on the way.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from broker.store import bulk
from broker.store.commit_log import CommitLog
from broker.store.frames import crc32c, good_within, is_good, queue_id_of, queue_offset_of, read_head, stored_ms_of
from broker.store.index_chunk import ChunkFiles, KeyRuns
from broker.store.key_index import KeyIndex, holds_key, key_hash
from broker.store.queue_index import ENTRY20, ENTRY_BYTES, Queue, QueueIndex
from broker.store.records import KEYFRAME_TOPIC
from penstock.errors import Damaged, OffsetOutOfRange, Unavailable
from penstock.protocol.message import (
    ENTRY,
    FRAME_BYTES_MAX,
    FRAME_HEAD_BYTES,
    RECORD_BYTES_MIN,
    UNIQUE_KEY,
    property_of,
    record_properties,
    record_topic,
)
from penstock.protocol.requests.given import GivenPulled
from penstock.protocol.requests.messages import Pulled
from topicmap.queues import is_system

GAP_BYTES_MAX: Final = 64 * 1024
"""Frames that stand less than this apart are read together."""
READ_BYTES_MAX: Final = 4 << 20
FIND_MAX: Final = 1_000
"""Messages and index chunks that one search looks at."""
ENTRIES_MAX: Final = 65_536
"""Entries that one pull looks at."""
ENTRIES_AT_ONCE: Final = 4_096
"""Entries that a pull reads at a time."""
ID_LOOKS_MAX: Final = 64
"""Messages that a search for a unique id looks at: hardly another message has the same hash."""
SAMPLED: Final = 64
"""The newest entries of a queue, from which the size of all its messages is estimated."""
ABSENT: Final = -1
PERHAPS: Final = -2
"""In place of the position of a message that is not there, and of one of which bounded work does not say."""
_NEVER: Final = 1 << 62
_UNIQUE: Final = UNIQUE_KEY.encode()

Found = tuple[int, int, int, int]  # offset, position, size, tag hash

_log = logging.getLogger(__name__)


class Reading:
    """The read side of a store."""

    def __init__(
        self, log: CommitLog, index: QueueIndex, keys: KeyIndex, chunks: ChunkFiles, is_alone: bool = True
    ) -> None:
        """``is_alone``: there is no other copy, so what is not good is passed over; else a read that meets it ends in
        ``Unavailable``, to be repeated when it is repaired."""
        self._log = log
        self._is_alone = is_alone
        self._index = index
        self._keys = keys
        self._chunks = chunks
        self._long = bulk.LongReads(log, self._report)
        self.damaged = 0  # frames passed over because they were not good

    def read(self, key: str, offset: int, count_max: int, bytes_max: int, tags: frozenset[int]) -> Pulled:
        """See ``MessageStore.read``."""
        queue = self._index.get(key)
        if not queue.min <= offset <= queue.next:
            raise OffsetOutOfRange(f"{key} has offsets {queue.min} to {queue.readable}, not {offset}")
        if offset >= queue.readable:  # a leader that is new does not know yet all that was readable at the last one
            return Pulled(0, offset, queue.min, queue.readable, b"")
        offset = queue.behind_gap(offset)
        ahead = queue.readable - offset
        if (ahead if tags else min(ahead, count_max)) >= bulk.BULK_FROM:
            return self._read_many(queue, offset, count_max, bytes_max, tags)
        if offset >= queue.tail_base and not tags:
            raw = self._entries(queue, offset, min(count_max, ahead))
            found = self._log.fresh.batch(raw, offset, bytes_max)
            if found is not None:
                return Pulled(found[0], offset + found[0], queue.min, queue.readable, found[1])
        wanted, following = self._choose(queue, offset, count_max, bytes_max, tags)
        frames: list[bytes] = []
        good = self._long.take_few(wanted, frames) if wanted else []
        rows = [ENTRY.pack(*found) for found in good]
        return Pulled(len(rows), following, queue.min, queue.readable, b"".join(rows + frames))

    def read_given(self, key: str, offset: int, count_max: int, bytes_max: int) -> Pulled | GivenPulled | None:
        """See ``MessageStore.read_given``."""
        queue = self._index.get(key)
        if queue.readable <= offset <= queue.next:
            return None
        if queue.tail_base <= offset < queue.readable:
            count, runs = self._log.fresh.runs(queue, offset, count_max, bytes_max)
            if count:
                return GivenPulled(count, offset + count, runs)
        return self.read(key, offset, count_max, bytes_max, frozenset())

    def _read_many(self, queue: Queue, offset: int, count_max: int, bytes_max: int, tags: frozenset[int]) -> Pulled:
        """The same of many messages, without work per message."""
        entries, offsets, following = self._choose_many(queue, offset, count_max, bytes_max, tags)
        gathered = self._long.gather(entries)
        if gathered.done < len(entries):
            following = int(offsets[gathered.done])
            entries, offsets = entries[: gathered.done], offsets[: gathered.done]
        if gathered.good is not None:
            entries, offsets = entries[gathered.good], offsets[gathered.good]
        body = b"".join([bulk.rows(entries, offsets), *gathered.frames])
        return Pulled(len(entries), following, queue.min, queue.readable, body, crc32c(body))

    def _choose_many(
        self, queue: Queue, offset: int, count_max: int, bytes_max: int, tags: frozenset[int]
    ) -> tuple[bulk.Entries, bulk.Numbers, int]:
        """The entries to deliver, their offsets, and the offset after the last one looked at."""
        found: list[bytes] = []
        offsets = [np.empty(0, np.int64)]
        end, near, bytes_max = min(queue.readable, offset + ENTRIES_MAX), 0, min(bytes_max, bulk.BATCH_BYTES_MAX)
        while offset < end and count_max > 0 and bytes_max > 0 and queue.behind_gap(offset) == offset:
            most = min(end - offset, ENTRIES_AT_ONCE)
            raw = self._entries(queue, offset, most if tags else min(most, count_max))
            entries = np.frombuffer(raw, bulk.ENTRY_DTYPE)
            places, looked_at = bulk.choose(entries, tags, count_max, bytes_max)
            if len(places):
                some = entries if len(places) == len(entries) else entries[places]
                size = int(some["size"].sum(dtype=np.int64))
                if found and size > bytes_max:
                    break
                found.append(some.tobytes())
                offsets.append(places + offset)
                count_max -= len(places)
                bytes_max -= size
                near = near or int(some["position"][0]) + bulk.WORK_BYTES_MAX
            offset += looked_at
            if looked_at < len(entries) or (near and int(entries["position"][-1]) > near):
                break
        return np.frombuffer(b"".join(found), bulk.ENTRY_DTYPE), np.concatenate(offsets), queue.behind_gap(offset)

    def _choose(
        self, queue: Queue, offset: int, count_max: int, bytes_max: int, tags: frozenset[int]
    ) -> tuple[list[Found], int]:
        """The entries to deliver of few, and the offset after the last one looked at."""
        wanted: list[Found] = []
        while offset < queue.readable and len(wanted) < count_max:
            if queue.behind_gap(offset) != offset:
                return wanted, queue.behind_gap(offset)
            left = queue.readable - offset
            raw = self._entries(queue, offset, left if tags else min(left, count_max - len(wanted)))
            for position, size, tag in ENTRY20.iter_unpack(raw):
                if size and (not tags or tag in tags):
                    if wanted and (size > bytes_max or len(wanted) >= count_max):
                        return wanted, offset
                    wanted.append((offset, position, size, tag))
                    bytes_max -= size
                offset += 1
        return wanted, offset

    def _entries(self, queue: Queue, offset: int, count: int) -> bytes:
        """Up to ``count`` entries from ``offset`` on: at least one, fewer at a piece's end."""
        piece = queue.piece_of(offset)
        if piece is None:
            start = (offset - queue.tail_base) * ENTRY_BYTES
            return bytes(queue.tail[start : start + count * ENTRY_BYTES])
        place = piece.place + (offset - piece.base) * ENTRY_BYTES
        return self._chunks.entries(piece.chunk, place, min(count, piece.base + piece.entries - offset) * ENTRY_BYTES)

    def _report(self, position: int, what: str) -> None:
        self.damaged += 1
        if not self._is_alone:
            self._log.note_bad_place(position)
            raise Unavailable(f"the message at position {position} is damaged in this copy: it is being repaired")
        _log.error("damage in the log at position %d: %s; it is passed over", position, what)

    def seek_time(self, key: str, stored_ms: int) -> int:
        """See ``MessageStore.seek_time``."""
        queue = self._index.get(key)
        low, high = queue.min, queue.readable
        while low < high:
            middle = (low + high) // 2
            real, position = self._first_real(queue, middle, high)
            if position is None or self.stored_ms(position) >= stored_ms:
                high = middle
            else:
                low = real + 1
        return self._first_real(queue, low, queue.readable)[0]

    def _first_real(self, queue: Queue, offset: int, end: int) -> tuple[int, int | None]:
        """The first entry from ``offset`` on that is no hole, and its position; None if there is none."""
        while (offset := queue.behind_gap(offset)) < end:
            position, size, _ = ENTRY20.unpack_from(self._entries(queue, offset, 1))
            if size:
                return offset, position
            offset += 1
        return end, None

    def stored_ms(self, position: int) -> int:
        """Store time of the record at a position."""
        return stored_ms_of(self._log.read(position, FRAME_HEAD_BYTES + RECORD_BYTES_MIN))

    def stored_ms_of_first(self, base: int) -> int:
        """Store time of a segment's first frame; never, if it cannot be read: age alone then removes nothing."""
        try:
            return stored_ms_of(self.frame(base))
        except Damaged:
            return _NEVER

    def position_of(self, key: str, offset: int) -> int:
        """See ``MessageStore.position_of``."""
        queue = self._index.get(key)
        _, position = self._first_real(queue, max(offset, queue.min), queue.next)
        return self._log.end if position is None else position

    def frame_at(self, key: str, offset: int) -> bytes:
        """See ``MessageStore.frame_at``."""
        queue = self._index.get(key)
        if not queue.min <= offset < queue.readable:
            raise OffsetOutOfRange(f"{key} has offsets {queue.min} to {queue.readable}, not {offset}")
        offset, _ = self._first_real(queue, offset, queue.next)
        position, size, _ = ENTRY20.unpack_from(self._entries(queue, offset, 1))
        [frame] = self._frames_in(position, position + size, [(position, size)])
        return frame or self.frame(position)  # which raises the cause

    def size_of(self, key: str) -> int:
        """See ``MessageStore.size_of``."""
        queue = self._index.get(key)
        offset = queue.behind_gap(max(queue.min, queue.readable - SAMPLED))
        if offset >= queue.readable:
            return 0
        raw = self._entries(queue, offset, queue.readable - offset)
        sizes = [size for _, size, _ in ENTRY20.iter_unpack(raw) if size]
        return sum(sizes) * (queue.readable - queue.min) // len(sizes) if sizes else 0

    def last_position(self, queue: Queue) -> int:
        """Log position of a queue's last entry, -1 if there is none, or none that can be read."""
        if queue.next == queue.begin:
            return -1
        try:
            last, _, _ = ENTRY20.unpack(self._entries(queue, queue.next - 1, 1))
        except Damaged:
            return -1
        return int(last)

    def offset_at(self, key: str, position: int) -> int:
        """See ``MessageStore.offset_at``."""
        queue = self._index.get(key)
        low, high = queue.min, queue.next
        while low < high:
            middle = (low + high) // 2
            real, found = self._first_real(queue, middle, high)
            if found is None or found >= position:
                high = middle
            else:
                low = real + 1
        return self._first_real(queue, low, queue.next)[0]

    def frame(self, position: int) -> bytes:
        """The frame at a position. Raises ``Damaged``."""
        head = read_head(self._log.read(position, FRAME_HEAD_BYTES))
        frame = self._log.read(position, min(head.length, FRAME_BYTES_MAX))
        if not is_good(frame, position):
            self._log.note_bad_place(position)
            raise Damaged(f"the frame at {position} does not match its checksum")
        return frame

    def message_at(self, position: int) -> tuple[str, Pulled]:
        """See ``MessageStore.message_at``."""
        if self._log.start <= position < self._log.committed:
            try:
                frame = self.frame(position)
                topic = record_topic(memoryview(frame)[FRAME_HEAD_BYTES:]).decode()
                if not is_system(topic) and self._is_there(topic, frame):
                    row = ENTRY.pack(queue_offset_of(frame), position, len(frame), 0)
                    return topic, Pulled(1, 0, 0, 0, row + frame)
            except (Damaged, UnicodeDecodeError):
                pass  # nothing begins there, or nothing that is good
        raise OffsetOutOfRange(f"no message is stored at position {position} of the log")

    def frames(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """The frames at positions, with their sizes; neighbours are read together. Empty where one is not good."""
        found: list[bytes] = []
        at = 0
        while at < len(places):
            first, size = places[at]
            end, until = first + size, at + 1
            last = min(first + GAP_BYTES_MAX, self._log.segment_end(first))
            while until < len(places) and places[until][0] == end and end + places[until][1] <= last:
                end += places[until][1]
                until += 1
            found += self._frames_in(first, end, places[at:until])
            at = until
        return found

    def _frames_in(self, first: int, end: int, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        data = b""
        with contextlib.suppress(Damaged):
            data = self._log.read(first, end - first)
        for position, size in places:
            start = position - first
            if good_within(data, start, size, position):
                yield data[start : start + size]
                continue
            frame = b""
            with contextlib.suppress(Damaged):  # what cannot be read at once may be, one by one
                frame = self.frame(position)
            yield frame

    def holds_keyframe(self, position: int) -> bool:
        """Whether a part of a keyframe is at a position, durable and undamaged."""
        try:
            topic = record_topic(memoryview(self.frame(position))[FRAME_HEAD_BYTES:]).decode()
        except Damaged:
            return False
        return topic == KEYFRAME_TOPIC and position < self._log.committed

    def find(self, topic: str, key: str, since_ms: int, until_ms: int, count_max: int, before: int) -> Pulled:
        """See ``MessageStore.find``."""
        rows: list[bytes] = []
        frames: list[bytes] = []
        size = following = 0
        for looked_at, (end, position) in enumerate(self._candidates(key_hash(topic, key.encode()), until_ms, before)):
            if looked_at >= FIND_MAX or size >= READ_BYTES_MAX or len(rows) >= count_max:
                following = end
                break
            if position < 0:
                continue
            try:
                frame = self.frame(position)
            except Damaged as error:
                self._report(position, str(error))
                continue
            stored_ms = stored_ms_of(frame)
            if stored_ms < since_ms:
                break  # store times never go back: all others are older
            size += len(frame)
            record = memoryview(frame)[FRAME_HEAD_BYTES:]
            same = record_topic(record).decode() == topic and holds_key(record_properties(record), key.encode())
            if same and stored_ms < until_ms and position < self._log.committed and self._is_there(topic, frame):
                rows.append(ENTRY.pack(queue_offset_of(frame), position, len(frame), 0))
                frames.append(frame)
        return Pulled(len(rows), following, 0, 0, b"".join(rows + frames))

    def position_of_id(self, topic: str, unique_id: bytes) -> int:
        """See ``MessageStore.position_of_id``."""
        looks = 0
        try:
            for _, position in self._candidates(key_hash(topic, unique_id), _NEVER, _NEVER):
                looks += 1
                if looks > ID_LOOKS_MAX:
                    return PERHAPS
                if position < 0:
                    continue
                record = memoryview(self.frame(position))[FRAME_HEAD_BYTES:]
                same = property_of(record_properties(record), _UNIQUE) == unique_id
                if same and record_topic(record) == topic.encode():
                    return position
        except Damaged:
            return PERHAPS
        return ABSENT

    def _is_there(self, topic: str, frame: bytes) -> bool:
        """Whether a message is of the topic as it is now, and not of one of its name that was deleted."""
        queue = self._index.find(f"{topic}:{queue_id_of(frame)}")
        return queue is not None and queue_offset_of(frame) >= max(queue.first, queue.floor)

    def _candidates(self, wanted: int, until_ms: int, before: int) -> Iterator[tuple[int, int]]:
        """Positions before ``before`` whose key may be meant and whose time is before ``until_ms``, newest first, each
        with the position before which to go on if it is not looked at. A look into a chunk counts as one, of -1."""
        chunks = self._keys.chunks
        if not chunks or before > chunks[-1].end:
            yield from self._earlier(self._keys.recent(wanted), until_ms, before)
        for chunk in reversed(chunks):
            if chunk.start < before:
                yield chunk.end, -1
                yield from self._earlier(self._chunks.find_key(chunk.number, wanted), until_ms, before)

    def _earlier(self, runs: KeyRuns, until_ms: int, before: int) -> Iterator[tuple[int, int]]:
        count = bisect_left(runs, before, key=_first_of)
        count = bisect_left(runs, until_ms, hi=count, key=lambda run: self._stored_ms_if_good(run.start))
        for number, run in enumerate(runs.newest_first(count)):
            some = run
            if not number:  # the limits may be within this one
                some = run[: bisect_left(run, before)]
                some = some[: bisect_left(some, until_ms, key=self._stored_ms_if_good)]
            for position in reversed(some):
                yield position + 1, position

    def _stored_ms_if_good(self, position: int) -> int:
        """Store time of the record at a position; that of a damaged one counts as early, so that it hides no other."""
        try:
            return stored_ms_of(self.frame(position))
        except Damaged:
            return -1


def _first_of(run: range) -> int:
    return run.start
