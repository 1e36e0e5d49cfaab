"""Opens a store: finds the log's end, brings folds and indexes to that point, and makes all of it durable.

1. The end: a torn tail is cut, damage is reported and skipped (``scan.py``).
2. The state: the newest valid checkpoint before which all index chunks are good, else a segment's keyframe, else the
   log's beginning. Files of the index after it are removed.
3. The replay of the rest.
4. The sync, before anything is reported. Bytes that no sync is known to have covered are written again before it,
   because the last sync may have failed. A seal then says so in the log.

After damage everything is sealed at once, so that the next start begins behind it.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgpack

from broker.store import index_chunk, label, segment, state
from broker.store.commit_log import CommitLog, witness_at
from broker.store.disk import DRAFT, Disk
from broker.store.frames import BLANK_BYTES_MIN, read_stored, stored_ms_of
from broker.store.index_chunk import ChunkReader, Sealed
from broker.store.key_index import KeyIndex
from broker.store.message_store import MessageStore
from broker.store.queue_index import Piece, QueueIndex
from broker.store.raw import Part
from broker.store.records import KEYFRAME_TOPIC, Folds
from broker.store.scan import WINDOW_BYTES, Scan
from broker.store.segment import Segment, segment_path
from broker.store.settings import StoreSettings
from penstock.errors import Damaged, DataFolderUnusable
from penstock.protocol.message import FRAME_HEAD_BYTES

DERIVED: Final = (index_chunk.FOLDER, state.FOLDER)

PROGRESS_BYTES: Final = 4 << 20
Progress = Callable[[int, int], None]

_log = logging.getLogger(__name__)


def _nobody(done: int, total: int) -> None:
    """Ignores progress."""


def open_store(
    disk: Disk,
    settings: StoreSettings,
    folds: Folds,
    now_ms: int,
    on_progress: Progress = _nobody,
    *,
    is_owned: bool = True,
    committed: int | None = None,
    cut_at: int | None = None,
) -> MessageStore:
    """Locks the folder and recovers the store in it, or begins one. ``on_progress`` gets bytes replayed and in all.
    ``is_owned``: whether this node leads the log; if not, nothing is appended (``MessageStore.own``).
    ``committed``: for a copy of a log that is on other disks too: what is known to be committed, beside what the log's
    own watermarks say. Queues and folds know the log up to there, and the rest waits for a leader; damage is kept for
    repair (``MessageStore.damage``), and queues and folds stop before it. ``None``: there is no other copy.
    ``cut_at``: the log is cut at this frame's begin first; it was not committed.
    ``now_ms``: store time of records in an empty log; otherwise the log's last store time counts, because the clock is
    not checked yet (``broker/store_clock.py``).

    Raises ``DataFolderLocked``, ``DataFolderUnusable``, ``StorageFailed``; for a copy ``StateLost``.
    """
    disk.lock(segment.FOLDER)
    try:
        return _open_locked(disk, settings, folds, now_ms, on_progress, Opening(is_owned, committed, cut_at))
    except OSError as error:
        disk.unlock()
        raise DataFolderUnusable(f"cannot use the data folder: {error.strerror} ({error.filename or ''})") from None
    except BaseException:
        disk.unlock()
        raise


class StateLost(Exception):
    """A copy of a log that begins late has no state to begin with: it needs the whole log from another copy."""


class Opening(NamedTuple):
    """The options of opening a store; see ``open_store``."""

    is_owned: bool
    committed: int | None = None
    cut_at: int | None = None


def _open_locked(
    disk: Disk, settings: StoreSettings, folds: Folds, now_ms: int, on_progress: Progress, how: Opening
) -> MessageStore:
    known = label.read(disk)
    disk.make_folder(segment.FOLDER)
    make_derived(disk)
    segments = open_segments(disk, settings)
    try:
        checkpoints = Checkpoints(disk)
        begins = segments[0].base if known is None else known.begins
        durable = _check_length(checkpoints, segments, begins)
        if how.cut_at is not None:
            _cut(disk, segments, max(how.cut_at, durable))
        if known is None or known.format < label.FORMAT:
            _write_label(disk, begins)
        limit: int | None = None
        while True:
            start = starting_point(disk, segments, checkpoints, limit)
            if start.is_lost and how.committed is not None:
                raise StateLost
            _remove_later(disk, start)
            try:
                store, log = _restore(disk, settings, folds, segments, start, how)
            except _OlderState as error:
                limit = error.position
                continue
            begin, known_end = start.position, start.state.passed.log_end
            checkpoints.forget()
            del start  # the state may be large, and is in the folds by now
            try:
                if how.committed is not None:
                    _replay_copy(disk, store, log, segments, begin, durable, how.committed, on_progress)
                else:
                    _replay(disk, store, log, segments, begin, durable, known_end, now_ms, on_progress)
                break
            except _OlderState as error:
                limit = error.position
    except BaseException:
        for one in segments:
            one.file.close()
        raise
    _tell_of_harm(store, segments[0].base, max(begins if known else 0, folds.removed.before) or begins)
    store.settle(log.last_ms or now_ms)
    return store


def _write_label(disk: Disk, begins: int) -> None:
    try:
        label.write(disk, begins)
    except OSError as error:  # the next start tries it again
        _log.error("%s cannot be written: %s", label.PATH, error.strerror)


def _tell_of_harm(store: MessageStore, start: int, begins: int) -> None:
    if start > begins:
        store.missing.insert(0, (begins, start))
    for first, last in store.missing:
        _log.error("positions %d to %d of the log are in no file of log/: messages there are lost", first, last)
    for first, last in store.damage:
        if (first, last) not in store.missing:
            _log.error("the log is damaged from position %d to %d: reported, never served, kept as it is", first, last)


def make_derived(disk: Disk) -> None:
    """Makes the folders of derived files. Anything else in the place of one, or that cannot be listed, is set aside;
    where that does not work either the store goes without: ``Sealing`` tells of it."""
    for folder in DERIVED:
        try:
            disk.make_folder(folder)
            disk.names(folder)
        except OSError as error:
            _log.error("%s/ cannot be used: %s. It is made anew from the log", folder, error.strerror)
            with contextlib.suppress(OSError):
                disk.set_aside(folder)
                disk.make_folder(folder)


def _check_length(checkpoints: Checkpoints, segments: list[Segment], begins: int) -> int:
    """A checkpoint is written when the log is durable up to it, and retention removes only what is durable, so a log
    that ends before either has lost something: it was cut, or an older copy or an empty folder stands in its place. Its
    offsets would be given out again. Returns up to where the log is known to have been durable."""
    reached, written = max(checkpoints.newest(), begins), segments[-1].base + segments[-1].file.size()
    if reached > written:
        raise DataFolderUnusable(
            f"the log ends at position {written:,} or before and was on the disk to {reached:,}: a part of it is gone",
            hint="put the log back; or remove index/ and checkpoint/ and log/label.toml, and what is lost is given"
            " up, offsets included",
        )
    return reached


class _OlderState(Exception):
    """The replay began behind damage that a start has passed over, with a state from before that."""

    def __init__(self, position: int) -> None:
        """``position``: where the damage begins."""
        self.position = position


class Checkpoints:
    """The checkpoints of a folder, the newest first. What was read last is kept: it may be large, and mostly it is what
    is wanted next."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._last: tuple[int, state.State | None] = -1, None
        self.positions = state.derived_positions(disk, state.FOLDER, state.SUFFIX)[::-1]

    def newest(self) -> int:
        """The position of the newest good one, 0 if there is none."""
        return next((position for position in self.positions if self.at(position) is not None), 0)

    def at(self, position: int) -> state.State | None:
        """The state in the one at a position, ``None`` if that is not good."""
        if self._last[0] != position:
            self._last = -1, None  # before the next one is there
            self._last = position, self._read(position)
        return self._last[1]

    def forget(self) -> None:
        """Drops the bytes that were read."""
        self._last = -1, None

    def _read(self, position: int) -> state.State | None:
        with contextlib.suppress(OSError, ValueError, TypeError, msgpack.UnpackException):
            data = state.decode_checkpoint(self._disk.read(state.checkpoint_path(position)), position)
            return None if data is None else state.decode_state(data)
        return None


def open_segments(disk: Disk, settings: StoreSettings, folder: str = segment.FOLDER, start: int = 0) -> list[Segment]:
    """The segments of the log in order; the first one is made, at ``start``, if there is none."""
    bases = state.stored_positions(disk, folder, segment.SUFFIX)
    if not bases:
        return [Segment(start, disk.open(segment_path(start, folder), create=True), settings.segment_bytes)]
    segments: list[Segment] = []
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        file = disk.open(segment_path(base, folder))
        last_size = max(settings.segment_bytes, file.size())  # the setting may have become smaller
        segments.append(Segment(base, file, last_size if following is None else following - base))
    return segments


def _restore(
    disk: Disk, settings: StoreSettings, folds: Folds, segments: list[Segment], start: StartingPoint, how: Opening
) -> tuple[MessageStore, CommitLog]:
    """Folds, queues and keys as they were at the starting point."""
    is_alone = how.committed is None
    index, keys = QueueIndex(reads_committed=not is_alone), KeyIndex()
    index.passed = start.state.passed
    folds.restore(start.state.folds)
    for key, offset, first in start.state.queues:
        index.ensure(key, offset).first = first
    for key, floor in folds.floors():
        known = index.find(key)
        if known is not None:
            known.floor = floor
    for chunk in start.chunks:
        keys.know_chunk(chunk)
    for chunk in reversed(start.chunks):
        try:
            with contextlib.closing(ChunkReader(disk, chunk.number)) as reader:
                rows = list(reader.rows())
        except (OSError, Damaged) as error:  # it was good a moment ago
            _log.error("an index chunk cannot be read: %s", error)
            raise _OlderState(chunk.start) from None
        for row in reversed(rows):
            queue = index.find(row.key)
            if queue is not None:  # a light queue that ended later is not there any more
                queue.precede(Piece(row.base, row.entries, chunk.number, row.place))
    log = CommitLog(disk, settings, segments, segments[-1].base)
    log.last_ms = start.state.last_ms
    found, state_bytes = start.state.keyframes, len(start.state.folds)
    store = MessageStore(
        disk, settings, folds, log, index, keys, start.position, found, state_bytes, how.is_owned, is_alone
    )
    return store, log


def _replay(
    disk: Disk,
    store: MessageStore,
    log: CommitLog,
    segments: list[Segment],
    start: int,
    durable: int,
    known_end: int,
    now_ms: int,
    on_progress: Progress,
) -> None:
    """Reads the log from ``start`` on, and cuts it where it ends. At the first damage it looks how much there is behind
    it, before it goes on there. ``known_end``: ``Passed.log_end`` of the state at ``start``. Raises ``_OlderState``."""
    total = segments[-1].base + segments[-1].file.size() - start
    told = start
    borders = [one.base for one in segments if one.base > start]

    def come_to(position: int) -> None:
        while borders and borders[0] <= position:
            store.replay_border(borders.pop(0))

    def take(position: int, frames: Sequence[bytes], known: int | None) -> None:
        nonlocal told
        come_to(position)
        store.replay(position, frames, known)
        older = [damage_at for damage_at, log_end in store.take_passed() if damage_at < start and log_end > known_end]
        if older and start > segments[0].base:
            raise _OlderState(min(older))
        if position - told >= PROGRESS_BYTES:
            told = position
            on_progress(position - start, total)

    scan = Scan(segments, start, durable)
    for position, frames in scan.runs():
        if scan.damage:
            break
        take(position, frames, max(durable, scan.watermark))
    if not scan.damage:
        _end_log(disk, log, segments, start, scan, scan.watermark)
    else:
        first, behind = scan.damage[0]
        gone = [stretch for stretch in scan.missing if stretch[1] <= behind]
        come_to(first)
        store.replay_border(first)
        ahead = Scan(segments, behind, durable)
        count = 0
        for _, frames in ahead.runs():
            count += len(frames)
            log.last_ms = max(log.last_ms, stored_ms_of(frames[-1]))
        _end_log(disk, log, segments, start, ahead, max(scan.watermark, ahead.watermark))
        known = store.pass_over([(first, behind), *ahead.damage], count, log.last_ms or now_ms)
        scan = Scan(segments, behind, log.durable)
        store.missing = gone + ahead.missing
        for position, frames in scan.runs():
            take(position, frames, known)
    come_to(scan.end)
    on_progress(total, total)


def _replay_copy(
    disk: Disk,
    store: MessageStore,
    log: CommitLog,
    segments: list[Segment],
    start: int,
    durable: int,
    committed: int,
    on_progress: Progress,
) -> None:
    """``_replay`` for a log of which there are other copies: takes it in up to what is committed, or to damage. A blank
    at the end that is not committed is left out: it belongs to the frame behind it, which is not there."""
    total = segments[-1].base + segments[-1].file.size() - start
    scan, known, told = Scan(segments, start, durable), max(start, committed, durable), start
    store.following.begin_at(start)
    for position, frames in scan.runs():
        if scan.damage:
            break
        known = max(known, scan.watermark)
        size = sum(map(len, frames))
        store.following.find(Part(position, position + size, 0, size, frames), known)
        if position - told >= PROGRESS_BYTES:
            told = position
            on_progress(position - start, total)
    last = scan
    if scan.damage:
        last = Scan(segments, scan.damage[0][1], durable)
        deque(last.runs(), 0)
        store.damage.extend([scan.damage[0], *last.damage])
        store.missing.extend([*[one for one in scan.missing if one[1] <= scan.damage[0][1]], *last.missing])
    known = max(known, scan.watermark, last.watermark)
    if known < last.end:
        last.leave_blank()
    # A watermark says what the group has, not what this disk has.
    _end_log(disk, log, segments, start, last, start, store.damage)
    store.following.found(known, store.damage[0][0] if store.damage else log.end)
    on_progress(total, total)


def _end_log(
    disk: Disk,
    log: CommitLog,
    segments: list[Segment],
    start: int,
    scan: Scan,
    synced: int,
    damage: Sequence[tuple[int, int]] = (),
) -> None:
    """The log ends where the scan does; from ``start`` on nothing counts as synced, and up to ``synced`` it is known to
    be. ``damage`` behind that is left as it is: perhaps it cannot be read. A blank fits behind the last frame, whatever
    size the file has."""
    _cut(disk, segments, scan.end)
    for first, behind in (*damage, (scan.end, scan.end)):
        _write_again(segments, synced, first)
        synced = behind
    last = segments[-1]
    if scan.end == scan.frames_end:
        last.widen(scan.end - last.base + BLANK_BYTES_MIN)
    log.begin_at(scan.end, start)


class StartingPoint(NamedTuple):
    """The place where the replay begins: the state there, and the chunks of everything before. ``is_lost``: the state
    there is missing, and that before the first record stands in its place."""

    position: int
    state: state.State
    chunks: list[Sealed]
    is_lost: bool = False


def starting_point(
    disk: Disk, segments: list[Segment], checkpoints: Checkpoints, limit: int | None = None
) -> StartingPoint:
    """The position where a start begins to read the log, at most ``limit`` if possible: the log before it is neither
    read nor cut. Changes nothing. Raises ``OSError``."""
    start = segments[0].base
    chunks = _good_chunks(disk, segments)
    ends = {start} | {chunk.end for chunk in chunks if limit is None or chunk.end <= limit}
    for position in checkpoints.positions:
        snapshot = checkpoints.at(position) if position in ends else None
        if snapshot is not None:
            return _from_here(position, snapshot, chunks)
    for base in reversed([one.base for one in segments if one.base in ends]):
        snapshot = keyframe_at(segments, base) if base else state.decode_state(b"")
        if snapshot is not None:
            return _from_here(base, snapshot, chunks)
    _log.error("no state for the log's first position %d: topics and offsets from before it are unknown", start)
    return StartingPoint(start, state.decode_state(b""), [], is_lost=True)


def _from_here(position: int, snapshot: state.State, chunks: list[Sealed]) -> StartingPoint:
    return StartingPoint(position, snapshot, [chunk for chunk in chunks if chunk.end <= position])


def _remove_later(disk: Disk, begin: StartingPoint) -> None:
    """Removes what the replay will make anew, and files that were not finished. What cannot be removed stays: nothing
    is made there either, so that it keeps its meaning."""
    for folder in DERIVED:
        with _passed_over():
            for name in disk.names(folder):
                if name.endswith(DRAFT):
                    disk.discard(f"{folder}/{name}")
    kept = {chunk.number for chunk in begin.chunks}
    for number in state.derived_positions(disk, index_chunk.FOLDER, index_chunk.SUFFIX):
        if number not in kept:
            with _passed_over():
                disk.remove(index_chunk.chunk_path(number))
    for later in state.derived_positions(disk, state.FOLDER, state.SUFFIX):
        if later > begin.position:
            with _passed_over():
                disk.remove(state.checkpoint_path(later))


@contextlib.contextmanager
def _passed_over() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _log.error("a derived file cannot be removed: %s", error)


def _good_chunks(disk: Disk, segments: list[Segment]) -> list[Sealed]:
    """The unbroken row of good chunks of this log from its start on."""
    chunks: list[Sealed] = []
    wanted = segments[0].base
    numbers = set(state.derived_positions(disk, index_chunk.FOLDER, index_chunk.SUFFIX))
    while True:
        # What a merge left behind, or has not replaced yet, begins at the same position: the larger one is first.
        for number in range(wanted + index_chunk.LEVELS - 1, wanted - 1, -1):
            chunk = _good_chunk(disk, segments, number) if number in numbers else None
            if chunk is not None and chunk.start == wanted:
                break
        else:
            return chunks
        chunks.append(chunk)
        wanted = chunk.end


def _good_chunk(disk: Disk, segments: list[Segment], number: int) -> Sealed | None:
    try:
        checked = index_chunk.check_chunk(disk, number)
    except OSError:
        return None
    if checked is None:
        return None
    chunk, witness = checked
    written = segments[-1].base + segments[-1].file.size()
    return chunk if chunk.start < chunk.end <= written and witness == witness_at(segments, chunk.start) else None


def keyframe_at(segments: list[Segment], base: int) -> state.State | None:
    """The state in a segment's keyframe, None if there is no whole one. It begins in the segment or the next one, or
    where that has no room for a part in the third, and a large one goes on in those behind."""
    reader = state.KeyframeReader(base)
    following = [one for one in segments if one.base >= base]
    begins_before = sum([one.size for one in following[:3]], base)
    for position, frame in Scan(following, base):
        if reader.is_over or (position >= begins_before and not reader.has_begun):
            return None
        record = read_stored(frame, position)
        if record.topic != KEYFRAME_TOPIC:
            continue
        snapshot = reader.take(memoryview(frame)[FRAME_HEAD_BYTES:])
        if snapshot is not None:
            return state.decode_state(snapshot)
    return None


def _cut(disk: Disk, segments: list[Segment], end: int) -> None:
    """Ends the log at ``end``: what lies behind is a torn tail, or room that was reserved."""
    while segments[-1].base > end:
        disk.remove(segment_path(segments[-1].base))
        segments.pop().file.close()
    last = segments[-1]
    if last.file.size() != end - last.base:
        last.cut(end)


def _write_again(segments: list[Segment], start: int, end: int) -> None:
    """Writes a stretch of the log over itself. After a failed sync the system may still show bytes that are not on the
    medium and count as clean, so that no later sync writes them either."""
    for one in segments:
        stop = min(end, one.end) - one.base
        for at in range(max(start - one.base, 0), stop, WINDOW_BYTES):
            one.file.pwrite(one.file.pread(min(WINDOW_BYTES, stop - at), at), at)
