"""Inspection of a data folder for operators: verify it, dump it, make its index again.

``verify`` and ``dump`` only read, take no lock, and work beside a running broker, whose newest bytes may look like a
torn tail. They go through the log in order and report their progress. ``repair_index`` needs the folder for itself.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from broker.store import index_chunk, label, segment, state
from broker.store.bulk import ENTRY_DTYPE
from broker.store.disk import ASIDE, Disk
from broker.store.frames import holds_record, queue_offset_of, read_stored
from broker.store.index_chunk import ChunkReader, Row, Sealed
from broker.store.queue_index import ENTRY_BYTES, LIGHT
from broker.store.records import Folds
from broker.store.recovery import DERIVED, Checkpoints, make_derived, open_segments, open_store, starting_point
from broker.store.retention import removed_by
from broker.store.scan import Scan
from broker.store.segment import Segment
from broker.store.settings import StoreSettings
from penstock.errors import Damaged, DataFolderUnusable
from penstock.protocol.message import FRAME_HEAD_BYTES, record_body

STEP_BYTES: Final = 4 << 20
"""Bytes between two reports of progress, about."""
BLOCK_BYTES: Final = 50_000 * ENTRY_BYTES
"""Entries of a chunk that are looked at at a time."""


class Step(NamedTuple):
    """The progress of a long piece of work, in bytes of the log."""

    done: int
    total: int


@dataclass
class Report:
    """The findings of ``verify``.

    Attributes:
        start, end: positions where the log begins and ends.
        records: good records.
        damage: stretches of the log (from, to) that are rotten, or missing in the middle.
        missing: stretches that are in no file: segments that retention has not removed are not there.
        malformed: positions of good frames that hold no well-formed record.
        missing_bytes: bytes that the log was longer on the disk, as a checkpoint says; they are gone.
        torn_bytes: bytes behind the end that are neither log nor reserved zeros; a start cuts them away.
        bad_files: derived files that are damaged; a start makes them again.
        stray_entries: index entries that point to no record, though the log is sound there.
        lost: topic queue and offset of messages that were in a damaged stretch, as far as the index still knows them.
    """

    start: int = 0
    end: int = 0
    records: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    malformed: list[int] = field(default_factory=list)
    missing_bytes: int = 0
    torn_bytes: int = 0
    bad_files: list[str] = field(default_factory=list)
    stray_entries: int = 0
    lost: list[tuple[str, int]] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is lost and nothing needs to be made again."""
        lost = self.damage or self.missing or self.missing_bytes or self.malformed
        return not (lost or self.bad_files or self.stray_entries)


class Dumped(NamedTuple):
    """One record of the log, for a person."""

    position: int
    size: int
    topic: str
    queue_id: int
    offset: int
    flag: int
    stored_ms: int
    properties: bytes
    body: bytes


def verify(disk: Disk) -> Generator[Step, None, Report]:
    """Reads the whole log and its index; yields how far it is, returns what it found. Raises ``DataFolderUnusable``.

    Segments that retention has removed are not missing: a record says so, which is behind them and so still there, or
    the label does.
    """
    reached, bad_checkpoints = _check_checkpoints(disk)  # before the log, which a running broker makes longer meanwhile
    segments = open_log(disk)
    report = Report(start=segments[0].base)
    try:
        known = label.read(disk)  # behind the segments, of which retention may remove some meanwhile
        begins = 0 if known is None else known.begins
        chunks = _chunks(disk, report)
        report.bad_files += bad_checkpoints
        scan = Scan(segments, report.start, _begin_of_replay(disk, segments, reached))
        report.damage = scan.damage
        checked = _EntryCheck(disk, chunks, report)
        total = segments[-1].base + segments[-1].file.size() - report.start
        told = 0
        for position, frame in scan:
            report.records += 1
            if not holds_record(frame):
                report.malformed.append(position)
            else:
                begins = max(begins, removed_by(frame, position))
            checked.take(position)
            if position - told >= STEP_BYTES:
                told = position
                yield Step(position - report.start, total)
        report.end = scan.end
        is_short = begins < report.start and (known is not None or begins > 0)
        report.missing = [*([(begins, report.start)] if is_short else []), *scan.missing]
        report.missing_bytes = max(0, reached - scan.end)
        checked.finish(scan.end)
        report.torn_bytes = _torn_bytes(segments, scan.end)
        yield Step(total, total)
        return report
    finally:
        _close(segments)


def dump(disk: Disk, since: int = 0) -> Iterator[Dumped]:
    """Every good record from a position on (the first frame at or behind it), system records included. Raises
    ``DataFolderUnusable``."""
    segments = open_log(disk)
    base = max((one.base for one in segments if one.base <= since), default=segments[0].base)
    try:
        for position, frame in Scan(segments, base):
            if position >= since:
                one = read_stored(frame, position)
                yield Dumped(
                    position,
                    one.size,
                    one.topic,
                    one.queue_id,
                    queue_offset_of(frame),
                    one.flag,
                    one.stored_ms,
                    one.properties,
                    record_body(memoryview(frame)[FRAME_HEAD_BYTES:]),
                )
    finally:
        _close(segments)


def repair_index(
    disk: Disk, settings: StoreSettings, folds: Folds, now_ms: int, on_progress: Callable[[int, int], None]
) -> list[tuple[int, int]]:
    """Removes all derived files and makes them again from the log; returns the stretches that are damaged.

    ``on_progress`` gets bytes done and in all. Raises as ``open_store``.
    """
    _close(open_log(disk))
    disk.lock(segment.FOLDER)
    try:
        make_derived(disk)
        for folder in DERIVED:
            for name in disk.names(folder):
                if ASIDE not in name:
                    disk.remove(f"{folder}/{name}")
    except OSError as error:
        raise DataFolderUnusable(f"cannot remove the index: {error.strerror}") from None
    finally:
        disk.unlock()
    store = open_store(disk, settings, folds, now_ms, on_progress)
    store.close(store.last_ms)
    return store.damage


def open_log(disk: Disk) -> list[Segment]:
    """The segments of the log in a data folder, open, in order; the caller closes them. Raises
    ``DataFolderUnusable``."""
    try:
        label.read(disk)
        if not state.stored_positions(disk, segment.FOLDER, segment.SUFFIX):
            raise DataFolderUnusable("there is no log in this folder", hint="name the folder that holds log/")
        segments = open_segments(disk, StoreSettings())
    except OSError as error:
        raise DataFolderUnusable(
            f"there is no log that can be read: {error.strerror}", hint="name the folder that holds log/"
        ) from None
    return segments


def _close(segments: list[Segment]) -> None:
    for one in segments:
        one.file.close()


def _begin_of_replay(disk: Disk, segments: list[Segment], reached: int) -> int:
    """The position where the next start begins to read: it cuts nothing before, so damage there is no torn tail. At
    most up to where the log ``reached`` before the segments were opened: a running broker may have ended the last one
    since."""
    return min(starting_point(disk, segments, Checkpoints(disk)).position, max(reached, segments[-1].base))


def _torn_bytes(segments: list[Segment], end: int) -> int:
    """Bytes behind the log's end, without the zeros at their end."""
    torn = 0
    for one in segments:
        at = max(end - one.base, 0)
        size = one.file.size()
        while at < size:
            data = one.file.pread(min(STEP_BYTES, size - at), at).rstrip(b"\0")
            if data:
                torn = max(torn, one.base + at + len(data) - end)
            at += STEP_BYTES
    return torn


def _chunks(disk: Disk, report: Report) -> list[Sealed]:
    """The good chunks in order; where a merge has not removed its sources yet, what it made of them. Those before the
    log's begin are passed over: a power cut brought them back after their segment was removed."""
    chunks = []
    for number in state.derived_positions(disk, index_chunk.FOLDER, index_chunk.SUFFIX):
        if number < report.start:
            continue
        checked = None
        try:
            checked = index_chunk.check_chunk(disk, number)
        except FileNotFoundError:  # a running broker has just made one of several
            continue
        except OSError:
            pass  # as bad as a damaged one
        if checked is None:
            report.bad_files.append(index_chunk.chunk_path(number))
        else:
            chunks.append(checked[0])
    chunks.sort(key=lambda chunk: (chunk.start, -chunk.end))
    ends = accumulate([chunk.end for chunk in chunks], max, initial=-1)
    return [chunk for chunk, end in zip(chunks, ends, strict=False) if chunk.end > end]


def _check_checkpoints(disk: Disk) -> tuple[int, list[str]]:
    """The position of the newest good one, up to which the log was on the disk, 0 if there is none; and those that are
    damaged or cannot be read."""
    reached, bad = 0, []
    for position in state.derived_positions(disk, state.FOLDER, state.SUFFIX):
        path = state.checkpoint_path(position)
        try:
            if state.decode_checkpoint(disk.read(path), position) is None:
                bad.append(path)
            else:
                reached = position
        except FileNotFoundError:
            continue  # a running broker has written a newer one
        except OSError:
            bad.append(path)
    return reached, bad


def _are_among(wanted: np.ndarray[Any, Any], positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers that are among these positions, which are in order; they may be many more."""
    if not len(positions):
        return np.zeros(len(wanted), "?")
    wanted = wanted.astype("u8")
    places = np.searchsorted(positions, wanted)
    found: np.ndarray[Any, Any] = positions[np.minimum(places, len(positions) - 1)] == wanted
    return found


class _EntryCheck:
    """Compares each chunk's entries with the frames of its stretch, one chunk in memory at a time."""

    def __init__(self, disk: Disk, chunks: list[Sealed], report: Report) -> None:
        self._disk = disk
        self._chunks = chunks
        self._report = report
        self._seen = array("Q")

    def take(self, position: int) -> None:
        """The log has a good frame at this position."""
        if self._chunks and position >= self._chunks[0].end:
            self.finish(position)
        self._seen.append(position)

    def finish(self, end: int) -> None:
        """Ends the walk: all frames before ``end`` were seen."""
        while self._chunks and self._chunks[0].end <= end:
            chunk = self._chunks.pop(0)
            try:
                self._compare(chunk)
            except FileNotFoundError:
                pass  # merged by a running broker
            except (Damaged, OSError):  # it was good a moment ago
                self._report.bad_files.append(index_chunk.chunk_path(chunk.number))
            del self._seen[:]

    def _compare(self, chunk: Sealed) -> None:
        seen = np.frombuffer(self._seen, "u8")
        with contextlib.closing(ChunkReader(self._disk, chunk.number)) as reader:
            rows = list(reader.rows())
            for at in range(0, reader.entry_bytes, BLOCK_BYTES):
                entries = np.frombuffer(reader.take(min(BLOCK_BYTES, reader.entry_bytes - at)), ENTRY_DTYPE)
                good = _are_among(entries["position"], seen) | (entries["size"] == 0)
                for place in np.flatnonzero(~good).tolist():
                    self._missing(rows, at // ENTRY_BYTES + place, int(entries["position"][place]))

    def _missing(self, rows: list[Row], place: int, position: int) -> None:
        """Entry number ``place`` of a chunk with these rows points to no good frame."""
        if not any(first <= position < last for first, last in self._report.damage):
            self._report.stray_entries += 1
            return
        row = rows[bisect_right(rows, place * ENTRY_BYTES, key=lambda row: row.place) - 1]
        if not row.key.startswith(LIGHT):
            self._report.lost.append((row.key, row.base + place - row.place // ENTRY_BYTES))
