"""Backups of a log: a folder with the same segments and a manifest, made while the broker runs.

The log is the truth and everything else is derived from it, so the segments are the whole backup. A segment that is
full never changes: the next backup into the same folder copies only what is new. The last one is copied up to its last
whole frame, so a backup is a prefix of the log. The manifest is replaced last: until then the backup before it counts.
``docs/formats/backup.md`` is the page.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fastcrc.crc32 import iscsi

from broker.store import label
from broker.store.commit_log import witness_at
from broker.store.disk import Disk, File
from broker.store.inspection import Step, open_log
from broker.store.scan import Scan
from broker.store.segment import FOLDER, Segment, segment_path
from penstock.errors import DataFolderUnusable
from penstock.protocol.message import FRAME_HEAD_BYTES
from penstock.version import VERSION

MANIFEST: Final = f"{FOLDER}/backup.json"
FORMAT: Final = 1
PIECE_BYTES: Final = 4 << 20


class Copied(NamedTuple):
    """One segment in a backup: its first position, the bytes of it that count, their CRC-32C."""

    base: int
    bytes: int
    crc: int


@dataclass(frozen=True)
class Manifest:
    """The contents of a backup.

    Attributes:
        made_ms: wall clock when it was made, in milliseconds.
        start, end: the positions of the log that it covers.
        witness: a position of the log that a sync covered, and the four bytes there. A log that has others there is
            another log, or an older copy that went on.
        files: the segments in order; all but the last are full.
    """

    made_ms: int
    start: int
    end: int
    witness: tuple[int, int]
    files: tuple[Copied, ...]

    def encode(self) -> bytes:
        """The file of a manifest."""
        row = {
            "format": FORMAT,
            "written_by": VERSION,
            "made_ms": self.made_ms,
            "start": self.start,
            "end": self.end,
            "witness": self.witness,
            "files": self.files,
        }
        body = json.dumps(row)
        return json.dumps({"crc": iscsi(body.encode()), "backup": body}).encode()


def read_manifest(target: Disk) -> Manifest | None:
    """The manifest of a backup folder, ``None`` where there is none.

    Raises:
        DataFolderUnusable: it cannot be read, or a newer version wrote it.
    """
    try:
        outer = json.loads(target.read(MANIFEST))
        body = outer["backup"]
        if iscsi(body.encode()) != outer["crc"]:
            raise ValueError("its checksum is wrong")
        row: dict[str, Any] = json.loads(body)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFolderUnusable(
            f"{MANIFEST} cannot be read: {error}", hint="make a new backup in another folder"
        ) from None
    if row["format"] > FORMAT:
        raise DataFolderUnusable(
            f"the backup has format {row['format']} (written by Penstock {row['written_by']})",
            hint="use the newer Penstock",
        )
    position, found = row["witness"]
    return Manifest(
        row["made_ms"], row["start"], row["end"], (position, found), tuple(Copied(*one) for one in row["files"])
    )


@dataclass
class BackupReport:
    """The result of ``back_up``.

    Attributes:
        manifest: what the backup holds now.
        copied_bytes: bytes that this run copied.
        removed: segments that the log no longer has, and the backup neither.
        damage: stretches (from, to) of the copied segments that are rotten in the log itself; they are copied as they
            are.
    """

    manifest: Manifest
    copied_bytes: int
    removed: int
    damage: list[tuple[int, int]]


def back_up(source: Disk, target: Disk, now_ms: int) -> Generator[Step, None, BackupReport]:
    """Brings the backup in ``target`` up to the log in ``source``, whose broker may run; yields how far it is.

    Raises:
        DataFolderUnusable: there is no log in ``source``; or ``target`` holds the backup of another log, or a manifest
            that cannot be read.
        OSError: a disk failed; the backup before this one still counts.
    """
    previous = read_manifest(target)
    target.make_folder(FOLDER)
    with ExitStack() as files:
        segments = open_log(source)
        for one in segments:
            files.callback(one.file.close)
        known = label.read(source)
        if previous is not None:
            _refuse_another_log(previous, segments)
        end = _end_of(segments[-1])
        kept = {one.base: one for one in previous.files[:-1]} if previous is not None else {}
        copies: list[Copied] = []
        fresh: list[int] = []
        total, done = end - segments[0].base, 0
        for one in segments:
            size = min(one.end, end) - one.base
            copy = kept.get(one.base)
            if copy is None or copy.bytes != size:
                copy = yield from _copy(one.file, target, one.base, size, done, total)
                fresh.append(one.base)
            copies.append(copy)
            done += size
        checked = _check(target, copies, fresh)
        manifest = Manifest(now_ms, segments[0].base, end, _witness(segments, checked, previous), tuple(copies))
        label.write(target, min(known.begins if known is not None else 0, segments[0].base))
        _replace(target, MANIFEST, manifest.encode())
    copied_bytes = sum(one.bytes for one in copies if one.base in fresh)
    return BackupReport(manifest, copied_bytes, _remove_others(target, copies), checked.damage)


def _refuse_another_log(previous: Manifest, segments: Sequence[Segment]) -> None:
    position, found = previous.witness
    if position >= segments[0].base and witness_at(segments, position) != found:
        raise DataFolderUnusable(
            "the folder holds the backup of another log, or of one that was longer than this one",
            hint="back up into another folder",
        )


def _end_of(last: Segment) -> int:
    """The end of the last segment's whole frames. Its broker may be writing, so a place that looks damaged is read
    twice."""
    scan = Scan([last], last.base)
    for _ in scan.runs():
        pass
    if scan.damage:
        scan = Scan([last], last.base)
        for _ in scan.runs():
            pass
    return scan.end


def _copy(file: File, target: Disk, base: int, size: int, done: int, total: int) -> Generator[Step, None, Copied]:
    """Copies the first ``size`` bytes of a segment; they are on the medium when it returns."""
    crc = 0

    def pieces() -> Iterator[bytes]:
        nonlocal crc
        for at in range(0, size, PIECE_BYTES):
            piece = file.pread(min(PIECE_BYTES, size - at), at)
            if len(piece) != min(PIECE_BYTES, size - at):
                raise DataFolderUnusable(f"{segment_path(base)} became shorter while it was read")
            crc = iscsi(piece, crc) if at else iscsi(piece)
            yield piece

    head = file.pread(min(size, FRAME_HEAD_BYTES), 0)
    for number, _ in enumerate(target.replace(segment_path(base), pieces(), lambda: head)):
        yield Step(done + min(number * PIECE_BYTES, size), total)
    target.sync_names(FOLDER)
    return Copied(base, size, crc)


def _check(target: Disk, copies: Sequence[Copied], fresh: Sequence[int]) -> Scan:
    """Reads the copied segments once more, from the backup itself. Returns the scan: damage and watermark."""
    with ExitStack() as files:
        segments = []
        for one in copies:
            if one.base in fresh:
                file = target.open(segment_path(one.base), is_read_only=True)
                files.callback(file.close)
                segments.append(Segment(one.base, file, one.bytes))
        scan = Scan(segments, segments[0].base if segments else 0)
        for _ in scan.runs():
            pass
    return scan


def _witness(segments: Sequence[Segment], checked: Scan, previous: Manifest | None) -> tuple[int, int]:
    """The last four bytes that a sync is known to have covered, as far as the newest segments say."""
    position = max(checked.watermark - 4, segments[0].base)
    if previous is not None and previous.witness[0] > position:
        return previous.witness
    return position, witness_at(segments, position)


def _remove_others(target: Disk, copies: Sequence[Copied]) -> int:
    """Removes segments that the manifest does not name; returns how many there were."""
    wanted = {segment_path(one.base).rpartition("/")[2] for one in copies}
    others = [name for name in target.names(FOLDER) if name.endswith(".log") and name not in wanted]
    for name in others:
        target.remove(f"{FOLDER}/{name}")
    return len(others)


def _replace(target: Disk, path: str, data: bytes) -> None:
    for _ in target.replace(path, [bytes(len(data))], lambda: data):
        pass
    target.sync_names(FOLDER)


def restore(backup: Disk, target: Disk) -> Generator[Step, None, Manifest]:
    """Copies a backup's segments into an empty data folder, checking each; yields how far it is.

    Raises:
        DataFolderUnusable: there is no backup, or a file of it is missing, short or has another checksum (what was
            copied before is removed again); or ``target`` already has a log.
        OSError: a disk failed.
    """
    manifest = read_manifest(backup)
    if manifest is None:
        raise DataFolderUnusable(f"there is no {MANIFEST} in the folder", hint="name the folder that holds it")
    target.make_folder(FOLDER)
    if any(name.endswith(".log") for name in target.names(FOLDER)):
        raise DataFolderUnusable("there is a log in the data folder already", hint="restore into a new folder")
    known = label.read(backup)
    total, done = manifest.end - manifest.start, 0
    try:
        for one in manifest.files:
            yield from _restore_one(backup, target, one, done, total)
            done += one.bytes
        label.write(target, known.begins if known is not None else 0)
    except BaseException:
        for name in target.names(FOLDER):
            target.remove(f"{FOLDER}/{name}")
        raise
    return manifest


def _restore_one(backup: Disk, target: Disk, one: Copied, done: int, total: int) -> Generator[Step, None, None]:
    path = segment_path(one.base)
    try:
        file = backup.open(path, is_read_only=True)
    except FileNotFoundError:
        raise DataFolderUnusable(f"{path} is missing in the backup", hint="use another backup") from None
    try:
        if file.size() < one.bytes:
            raise DataFolderUnusable(f"{path} is too short in the backup", hint="use another backup")
        copied = yield from _copy(file, target, one.base, one.bytes, done, total)
    finally:
        file.close()
    if copied.crc != one.crc:
        raise DataFolderUnusable(f"{path} has another checksum than the manifest says", hint="use another backup")
