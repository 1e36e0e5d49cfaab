"""Reads messages of queues out of the log: entries from the index, then raw frames, gathered with as few reads as
may be.

Every frame is checked before it leaves: one that is not good any more is passed over and reported, never served.
Nothing is decoded or encoded on the way.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from broker.store import bulk
from broker.store.commit_log import CommitLog
from broker.store.frames import (
    FRAME_BYTES_MIN,
    good_frames,
    is_good,
    queue_id_of,
    queue_offset_of,
    read_head,
    stored_ms_of,
)
from broker.store.index_chunk import ChunkFiles, KeyRuns
from broker.store.key_index import KeyIndex, holds_key, key_hash
from broker.store.queue_index import ENTRY20, ENTRY_BYTES, Queue, QueueIndex
from broker.store.records import KEYFRAME_TOPIC
from penstock.errors import Damaged, OffsetOutOfRange
from penstock.protocol.message import (
    ENTRY,
    FRAME_BYTES_MAX,
    FRAME_HEAD_BYTES,
    RECORD_BYTES_MIN,
    record_properties,
    record_topic,
)
from penstock.protocol.requests.given import GivenPulled
from penstock.protocol.requests.messages import Pulled

GAP_BYTES_MAX: Final = 64 * 1024
"""Frames that stand less than this apart are read together."""
READ_BYTES_MAX: Final = 4 << 20
FIND_MAX: Final = 1_000
"""One search looks at so many messages and index chunks."""
NUMPY_FROM: Final = 64
ENTRIES_MAX: Final = 65_536
FRESH_MAX: Final = 512
"""For who is further behind than so many messages memory is not looked through one by one."""
_NEVER: Final = 1 << 62

Found = tuple[int, int, int, int]  # offset, position, size, tag hash

_log = logging.getLogger(__name__)


class Reading:
    """The read side of a store."""

    def __init__(self, log: CommitLog, index: QueueIndex, keys: KeyIndex, chunks: ChunkFiles) -> None:
        self._log = log
        self._index = index
        self._keys = keys
        self._chunks = chunks
        self.damaged = 0  # frames passed over because they were not good

    def read(self, key: str, offset: int, count_max: int, bytes_max: int, tags: frozenset[int]) -> Pulled:
        """See ``MessageStore.read``."""
        queue = self._index.get(key)
        if not queue.min <= offset <= queue.readable:
            raise OffsetOutOfRange(f"{key} has offsets {queue.min} to {queue.readable}, not {offset}")
        if offset == queue.readable:
            return Pulled(0, offset, queue.min, offset, b"")
        offset = queue.behind_gap(offset)
        if count_max >= bulk.BULK_FROM <= queue.readable - offset and not tags:
            pulled = self._read_neighbours(queue, offset, count_max, bytes_max)
            if pulled is not None:
                return pulled
        if offset >= queue.tail_base and queue.readable - offset <= FRESH_MAX and not tags:
            raw = self._entries(queue, offset, min(count_max, queue.readable - offset))
            found = self._log.fresh.batch(raw, offset, bytes_max)
            if found is not None:
                return Pulled(found[0], offset + found[0], queue.min, queue.readable, found[1])
        wanted, following = self._choose(queue, offset, count_max, bytes_max, tags)
        entries, frames = self._gather(wanted)
        return Pulled(len(entries), following, queue.min, queue.readable, b"".join(entries + frames))

    def read_given(self, key: str, offset: int, count_max: int, bytes_max: int) -> Pulled | GivenPulled | None:
        """See ``MessageStore.read_given``."""
        queue = self._index.get(key)
        if offset == queue.readable:
            return None
        if queue.tail_base <= offset < queue.readable:
            count, runs = self._log.fresh.runs(queue, offset, count_max, bytes_max)
            if count:
                return GivenPulled(count, offset + count, runs)
        return self.read(key, offset, count_max, bytes_max, frozenset())

    def _read_neighbours(self, queue: Queue, offset: int, count_max: int, bytes_max: int) -> Pulled | None:
        """Many entries that stand one behind the other, without work per frame; None where there are few, or not all
        are good."""
        some = self._entries(queue, offset, 2)
        position, size, _ = ENTRY20.unpack_from(some)
        if len(some) == ENTRY_BYTES or ENTRY20.unpack_from(some, ENTRY_BYTES)[0] != position + size:
            return None
        likely = bytes_max // max(size, FRAME_BYTES_MIN) + bulk.BULK_FROM
        raw = self._entries(queue, offset, min(count_max, queue.readable - offset, likely, ENTRIES_MAX))
        count = bulk.neighbours(raw, min(bytes_max, bulk.BULK_BYTES_MAX))
        if count < bulk.BULK_FROM:
            return None
        raw = raw[: count * ENTRY_BYTES]
        frames = bulk.fresh_frames(self._log, raw)
        if frames is None:
            count = bulk.aligned(self._log, raw)
            raw = raw[: count * ENTRY_BYTES]
            frames = bulk.frames(self._log, raw)
        if frames is None:
            return None
        body = b"".join([bulk.rows(raw, offset), *frames])
        return Pulled(count, offset + count, queue.min, queue.readable, body)

    def _choose(
        self, queue: Queue, offset: int, count_max: int, bytes_max: int, tags: frozenset[int]
    ) -> tuple[list[Found], int]:
        """Which entries to deliver, and the offset after the last one looked at."""
        wanted: list[Found] = []
        size_left = bytes_max
        looked_at_max = min(queue.readable, offset + ENTRIES_MAX)
        while offset < looked_at_max and len(wanted) < count_max:
            if queue.behind_gap(offset) != offset:
                return wanted, queue.behind_gap(offset)
            raw = self._entries(queue, offset, min(count_max if not tags else 1024, looked_at_max - offset))
            places = _matching(raw, tags)
            for place, (position, size, tag) in zip(places, _rows(raw, places), strict=True):
                if wanted and (size > size_left or len(wanted) >= count_max):
                    return wanted, offset + place
                if size:
                    wanted.append((offset + place, position, size, tag))
                    size_left -= size
            offset += len(raw) // ENTRY_BYTES
        return wanted, offset

    def _entries(self, queue: Queue, offset: int, count: int) -> bytes:
        """Up to ``count`` entries from ``offset`` on: at least one, fewer at a piece's end."""
        piece = queue.piece_of(offset)
        if piece is None:
            start = (offset - queue.tail_base) * ENTRY_BYTES
            return bytes(queue.tail[start : start + count * ENTRY_BYTES])
        place = piece.place + (offset - piece.base) * ENTRY_BYTES
        return self._chunks.entries(piece.chunk, place, min(count, piece.base + piece.entries - offset) * ENTRY_BYTES)

    def _gather(self, wanted: list[Found]) -> tuple[list[bytes], list[bytes]]:
        """Entry rows and frames of what is good of ``wanted``."""
        rows: list[bytes] = []
        frames: list[bytes] = []
        for run in self._runs(wanted):
            base = run[0][1]
            size = run[-1][1] + run[-1][2] - base
            try:
                data = self._log.read(base, size)
            except Damaged as error:
                self._one_by_one(run, str(error), rows, frames)
                continue
            good = good_frames(data, base, run)
            rows += [ENTRY.pack(*found) for found in good]
            if len(good) == len(run) and sum([found[2] for found in run]) == size:
                frames.append(data)  # neighbours without a gap go out as they are
            else:
                frames += [data[found[1] - base : found[1] - base + found[2]] for found in good]
                self._report_missing(run, good)
        return rows, frames

    def _one_by_one(self, run: list[Found], reason: str, rows: list[bytes], frames: list[bytes]) -> None:
        """A stretch cannot be read as a whole: its other frames still may."""
        if len(run) == 1:
            self._report(run[0][1], reason)
            return
        for found in run:
            more = self._gather([found])
            rows += more[0]
            frames += more[1]

    def _report_missing(self, run: list[Found], good: list[Found]) -> None:
        served = {found[1] for found in good}
        for found in run:
            if found[1] not in served:
                self._report(found[1], "a frame does not match its checksum")

    def _runs(self, wanted: list[Found]) -> Iterator[list[Found]]:
        """Neighbours in the log, together: within one segment, small gaps, bounded size."""
        if not wanted:
            return
        start, end = wanted[0][1], wanted[-1][1] + wanted[-1][2]
        in_one_segment = end <= min(start + READ_BYTES_MAX, self._log.segment_end(start))
        if in_one_segment and end - start - sum([found[2] for found in wanted]) <= GAP_BYTES_MAX:
            yield wanted
            return
        run: list[Found] = []
        near = limit = 0
        for found in wanted:
            end = found[1] + found[2]
            if run and (end > limit or found[1] > near):
                yield run
                run = []
            if not run:
                limit = min(found[1] + READ_BYTES_MAX, self._log.segment_end(found[1]))
            near = end + GAP_BYTES_MAX
            run.append(found)
        if run:
            yield run

    def _report(self, position: int, what: str) -> None:
        self.damaged += 1
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

    def last_position(self, queue: Queue) -> int:
        """Log position of a queue's last entry, -1 if there is none, or none that can be read."""
        if queue.next == queue.min:
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
            raise Damaged(f"the frame at {position} does not match its checksum")
        return frame

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

    def _is_there(self, topic: str, frame: bytes) -> bool:
        """Whether a message is of the topic as it is now, and not of one of its name that was deleted."""
        queue = self._index.find(f"{topic}:{queue_id_of(frame)}")
        return queue is not None and queue_offset_of(frame) >= queue.first

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


def _rows(raw: bytes, places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Position, size and tag hash of the entries at some places."""
    if isinstance(places, range):  # all of them
        return ENTRY20.iter_unpack(raw)
    return (ENTRY20.unpack_from(raw, place * ENTRY_BYTES) for place in places)


def _matching(raw: bytes, tags: frozenset[int]) -> Sequence[int]:
    """Places of the entries whose tag is asked for; all without tags."""
    count = len(raw) // ENTRY_BYTES
    if not tags:
        return range(count)
    if count < NUMPY_FROM:
        return [place for place in range(count) if ENTRY20.unpack_from(raw, place * ENTRY_BYTES)[2] in tags]
    found = np.isin(np.frombuffer(raw, bulk.ENTRY_DTYPE)["tag"], list(tags))
    return [int(place) for place in np.flatnonzero(found)]
