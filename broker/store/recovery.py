"""Opens a store: finds where the log ends, brings folds and indexes to that point, and makes all of it durable.

The log decides. A bad frame is a *torn tail* if nothing good behind it was written after it was synced (its
watermark says so): the tail is cut there, nobody was told of it. Otherwise it is *rot*: the stretch up to the next
good frame is reported and passed over, never cut. State is restored at the newest valid checkpoint before which all
index chunks are good, else at a segment's keyframe, else at the log's beginning; the rest is replayed. Files of the
index that the replay makes anew are removed first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.store import commit_log, index_chunk, state
from broker.store.commit_log import CommitLog, Segment, segment_path
from broker.store.disk import Disk
from broker.store.frames import MAGIC_BYTES, frame_length, is_blank, is_good, queue_offset_of, read_head, read_stored
from broker.store.key_index import KeyIndex
from broker.store.message_store import MessageStore
from broker.store.queue_index import Piece, QueueIndex
from broker.store.records import KEYFRAME_TOPIC, Folds
from broker.store.settings import StoreSettings
from penstock.errors import DataFolderUnusable
from penstock.message import FRAME_HEAD_BYTES

FOLDERS: Final = (commit_log.FOLDER, index_chunk.FOLDER, state.FOLDER)

_log = logging.getLogger(__name__)


def open_store(disk: Disk, settings: StoreSettings, folds: Folds, now_ms: int) -> MessageStore:
    """Locks the folder and recovers the store in it, or begins one.

    Raises ``DataFolderLocked``, ``DataFolderUnusable``.
    """
    disk.lock()
    try:
        return _open_locked(disk, settings, folds, now_ms)
    except OSError as error:
        disk.unlock()
        raise DataFolderUnusable(f"cannot use the data folder: {error.strerror} ({error.filename or ''})") from None
    except BaseException:
        disk.unlock()
        raise


def _open_locked(disk: Disk, settings: StoreSettings, folds: Folds, now_ms: int) -> MessageStore:
    for folder in FOLDERS:
        disk.make_folder(folder)
    segments = _open_segments(disk, settings)
    start = _starting_point(disk, segments)
    index, keys = QueueIndex(), KeyIndex()
    folds.restore(start.state.folds)
    for key, offset in start.state.queues:
        index.ensure(key, offset)
    for chunk in start.chunks:
        keys.know_chunk(chunk.start, chunk.end)
        for row in chunk.rows:
            queue = index.find(row.key)
            if queue is not None:  # a light queue that closed later is not there any more
                queue.pieces.append(Piece(row.base, row.entries, chunk.start, row.place))
    log = CommitLog(disk, settings, segments, segments[-1].base)
    store = MessageStore(disk, settings, folds, log, index, keys)
    store.sealed = start.position
    scan = Scan(segments, start.position)
    for position, frame in scan:
        store.replay(read_stored(frame, position), queue_offset_of(frame))
    _cut(disk, segments, scan.end)
    log.begin_at(scan.end)
    store.damage = scan.damage
    for first, last in scan.damage:
        _log.error("the log is damaged from position %d to %d: reported, never served, kept as it is", first, last)
    store.seal(now_ms)
    point = store.sync_point()
    store.sync()
    store.mark_durable(point)
    store.take_readable()
    return store


def _open_segments(disk: Disk, settings: StoreSettings) -> list[Segment]:
    bases = state.stored_positions(disk, commit_log.FOLDER, commit_log.SUFFIX)
    if not bases:
        return [Segment(0, disk.open(segment_path(0), create=True), settings.segment_bytes)]
    segments = []
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        file = disk.open(segment_path(base))
        segments.append(Segment(base, file, settings.segment_bytes if following is None else following - base))
    return segments


class StartingPoint(NamedTuple):
    """Where the replay begins: the state there, and the chunks of everything before."""

    position: int
    state: state.State
    chunks: list[index_chunk.Chunk]


def _starting_point(disk: Disk, segments: list[Segment]) -> StartingPoint:
    start = segments[0].base
    chunks = _good_chunks(disk, start)
    covered = chunks[-1].end if chunks else start
    for position in reversed(state.stored_positions(disk, state.FOLDER, state.SUFFIX)):
        if start <= position <= covered:
            snapshot = state.decode_checkpoint(disk.read(state.checkpoint_path(position)), position)
            kept = [chunk for chunk in chunks if chunk.end <= position]
            if snapshot is not None and (kept[-1].end if kept else start) == position:
                return _from_here(disk, position, snapshot, kept)
    for base in reversed([segment.base for segment in segments]):
        kept = [chunk for chunk in chunks if chunk.end <= base]
        if base <= covered and (kept[-1].end if kept else start) == base:
            snapshot = _keyframe_at(segments, base) if base else b""
            if snapshot is not None:
                return _from_here(disk, base, snapshot, kept)
    _log.error("no state for the log's first position %d: topics and offsets from before it are unknown", start)
    return _from_here(disk, start, b"", [])


def _from_here(disk: Disk, position: int, snapshot: bytes, chunks: list[index_chunk.Chunk]) -> StartingPoint:
    """Removes what the replay will make anew."""
    kept = {chunk.start for chunk in chunks}
    for start in state.stored_positions(disk, index_chunk.FOLDER, index_chunk.SUFFIX):
        if start not in kept:
            disk.remove(index_chunk.chunk_path(start))
    for later in state.stored_positions(disk, state.FOLDER, state.SUFFIX):
        if later > position:
            disk.remove(state.checkpoint_path(later))
    return StartingPoint(position, state.decode_state(snapshot), chunks)


def _good_chunks(disk: Disk, start: int) -> list[index_chunk.Chunk]:
    """The unbroken row of good chunks from the log's start on."""
    chunks: list[index_chunk.Chunk] = []
    wanted = start
    for first in state.stored_positions(disk, index_chunk.FOLDER, index_chunk.SUFFIX):
        if first != wanted:
            continue
        chunk = index_chunk.decode_chunk(disk.read(index_chunk.chunk_path(first)), first)
        if chunk is None or chunk.end <= first:
            break
        chunks.append(chunk)
        wanted = chunk.end
    return chunks


def _keyframe_at(segments: list[Segment], base: int) -> bytes | None:
    """The state in the keyframe with which a segment begins, None if there is no whole one."""
    reader = state.KeyframeReader()
    for position, frame in Scan([segment for segment in segments if segment.base == base], base):
        record = read_stored(frame, position)
        if record.topic != KEYFRAME_TOPIC:
            return None
        snapshot = reader.take(memoryview(frame)[FRAME_HEAD_BYTES:])
        if snapshot is not None:
            return snapshot
    return None


def _cut(disk: Disk, segments: list[Segment], end: int) -> None:
    """Ends the log at ``end``: what lies behind is a torn tail."""
    while segments[-1].base > end:
        segment = segments.pop()
        segment.file.close()
        disk.remove(segment_path(segment.base))
    last = segments[-1]
    last.file.truncate(end - last.base)
    last.reserved = end - last.base


class Scan:
    """Iterates the good frames from a position on: (position, frame). Afterwards ``end`` and ``damage`` are known."""

    def __init__(self, segments: list[Segment], position: int) -> None:
        self._segments = [segment for segment in segments if segment.base + segment.size > position]
        self.end = position
        self.damage: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for number, segment in enumerate(self._segments):
            at = max(self.end, segment.base) - segment.base
            while at < segment.size:
                frame = self._frame(segment, at)
                if frame:
                    yield segment.base + at, frame
                    at += len(frame)
                    self.end = segment.base + at
                    continue
                if is_blank(segment.file.pread(FRAME_HEAD_BYTES, at), segment.size - at):
                    self.end = segment.base + segment.size
                    break
                following = self._after_damage(number, at)
                if following is None:
                    self.end = segment.base + at
                    return
                self.damage.append((segment.base + at, following))
                self.end = following
                at = following - segment.base

    def _frame(self, segment: Segment, at: int) -> bytes:
        """The good frame at a place of a segment, ``b""`` if there is none."""
        head = segment.file.pread(FRAME_HEAD_BYTES, at)
        if len(head) < FRAME_HEAD_BYTES:
            return b""
        length = frame_length(head, 0, segment.size - at)
        frame = segment.file.pread(length, at) if length else b""
        return frame if len(frame) == length and length and is_good(frame, segment.base + at) else b""

    def _after_damage(self, number: int, at: int) -> int | None:
        """Position of the next good frame behind a bad place that had been synced; None if the bad place is a torn
        tail."""
        bad = self._segments[number].base + at
        first_good: int | None = None
        for segment in self._segments[number:]:
            place = at + 1 if segment is self._segments[number] else 0
            for position, watermark in self._good_frames(segment, place):
                if first_good is None:
                    first_good = position
                if watermark > bad:
                    return first_good
        return None

    def _good_frames(self, segment: Segment, at: int) -> Iterator[tuple[int, int]]:
        """Position and watermark of every good frame from a place on, found by its magic."""
        data = segment.file.pread(segment.file.size() - at, at) if segment.file.size() > at else b""
        found = data.find(MAGIC_BYTES)
        while found >= 0:
            place = at + found - 4  # the magic stands behind the checksum
            frame = self._frame(segment, place) if place >= at else b""
            if frame:
                yield segment.base + place, read_head(frame).watermark
                found += len(frame) - 1
            found = data.find(MAGIC_BYTES, found + 1)
