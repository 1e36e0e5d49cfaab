"""The state at one position of the log: the folds' snapshot and every queue's next offset, as bytes.

One encoding serves two places: a *checkpoint* file, which is derived and may vanish, and a *keyframe* at the start
of a log segment, which makes the log self-contained from there. docs/formats/index.md is the page. It may be large,
so it is written from the pieces in which it was made, and no more than a part of it is copied at a time.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple, cast

import msgpack

from broker.store.disk import Disk
from broker.store.frames import crc_of
from broker.store.label import BACK_HINT, newer
from broker.store.queue_index import Passed
from broker.store.records import KEYFRAME_TOPIC, Bytes
from broker.store.rows import array_head, bytes_head
from penstock.protocol.message import encode_record, record_body

FOLDER: Final = "checkpoint"
SUFFIX: Final = ".ckpt"
MAGIC: Final = 0x50454E43  # "PENC"
VERSION: Final = 1
Piece = bytes | bytearray
HEAD: Final = struct.Struct(">IIIQ")  # crc-32c of all that follows, magic, version, position
KEEP: Final = 2
"""Checkpoints that are kept; older ones are removed."""
POSITION_DIGITS: Final = 20
DIGITS: Final = frozenset("0123456789")
PART_BYTES_MAX: Final = 1 << 20
_NONE_PASSED: Final = Passed()


class QueueRow(NamedTuple):
    """Key of a queue, the offset that its next entry gets, and the first one that it ever had."""

    key: str
    next: int
    first: int


class Keyframe(NamedTuple):
    """The segment at ``base`` has a whole keyframe, the last part of which is the frame at ``position``."""

    base: int
    position: int


class State(NamedTuple):
    """Folds, queues and keyframes at a position of the log, the store time (ms) of the last record before it, 0 if it
    is not known, and the damage that was passed over."""

    folds: bytes
    queues: list[QueueRow]
    keyframes: list[Keyframe]
    last_ms: int = 0
    passed: Passed = _NONE_PASSED


def state_pieces(
    folds: Piece,
    count: int,
    rows: Iterable[bytes],
    keyframes: Iterable[Keyframe],
    last_ms: int,
    passed: Passed = _NONE_PASSED,
) -> list[Piece]:
    """The state as bytes, in pieces; that of the folds is not copied. ``rows``: of ``count`` queues in the order of
    their keys."""
    head = array_head(5) + bytes_head(len(folds))
    later = [sorted(keyframes), last_ms, passed]
    return [head, folds, array_head(count), *rows, b"".join(map(msgpack.packb, later))]


def decode_state(data: Bytes) -> State:
    """The state in bytes that were checked before. ``b""`` is the state before the first record."""
    if not data:
        return State(b"", [], [])
    folds, queues, keyframes, *later = msgpack.unpackb(data)
    last_ms, passed = later[0] if later else 0, Passed(*later[1]) if len(later) > 1 else _NONE_PASSED
    rows, marks = [QueueRow(*row) for row in queues], [Keyframe(*row) for row in keyframes]
    return State(folds, rows, marks, last_ms, passed)  # older states have three items, or four


def checkpoint_path(position: int) -> str:
    """Path of the checkpoint at a log position."""
    return f"{FOLDER}/{position:020d}{SUFFIX}"


def _parts_of(pieces: Sequence[Piece], part_bytes: int = PART_BYTES_MAX) -> Iterator[bytes]:
    """The same bytes in parts of ``part_bytes``, the last of which, and there is one, may have fewer."""
    part: list[memoryview] = []
    room = part_bytes
    for piece in [memoryview(piece) for piece in pieces]:
        at = 0
        while len(piece) - at > room:
            yield b"".join((*part, piece[at : at + room]))
            at += room
            part, room = [], part_bytes
        part.append(piece[at:])
        room -= len(piece) - at
    yield b"".join(part)


def checkpoint_pieces(position: int, state: Sequence[Piece]) -> Iterator[bytes]:
    """The file of a checkpoint, in pieces, of the state in pieces."""
    head = HEAD.pack(0, MAGIC, VERSION, position)[4:]
    yield crc_of(chain([head], _parts_of(state))).to_bytes(4, "big") + head
    yield from _parts_of(state)


def decode_checkpoint(data: bytes, position: int) -> Bytes | None:
    """The state in a checkpoint file, None if it is damaged in any way. Raises ``DataFolderUnusable`` for a good one of
    a newer version."""
    if len(data) < HEAD.size:
        return None
    crc, magic, version, stored_position = HEAD.unpack_from(data)
    if magic != MAGIC or version < VERSION or (version == VERSION and stored_position != position):
        return None
    if crc != crc_of(data[at : at + PART_BYTES_MAX] for at in range(4, len(data), PART_BYTES_MAX)):
        return None
    if version > VERSION:
        raise newer(f"{checkpoint_path(position)} has version {version}", VERSION, BACK_HINT)
    return memoryview(data)[HEAD.size :]


def stored_positions(disk: Disk, folder: str, suffix: str) -> list[int]:
    """Positions for which a folder has a file, in order; other names are not ours and left alone. Raises
    ``OSError``."""
    names = [name.removesuffix(suffix) for name in disk.names(folder) if name.endswith(suffix)]
    return sorted([int(name) for name in names if len(name) == POSITION_DIGITS and set(name) <= DIGITS])


def derived_positions(disk: Disk, folder: str, suffix: str) -> list[int]:
    """The same of a folder that may be missing or unusable, for all in it is derived: none then."""
    with contextlib.suppress(OSError):
        return stored_positions(disk, folder, suffix)
    return []


def keyframe_records(
    state: Sequence[Piece], base: int, now_ms: int, part_bytes: int = PART_BYTES_MAX
) -> Iterator[bytes]:
    """The system records of the keyframe of the segment at ``base``: the state there, given in pieces, in parts of so
    many bytes, each with its number and how many there are."""
    parts = max(1, -(-sum(map(len, state)) // part_bytes))
    for number, part in enumerate(_parts_of(state, part_bytes)):
        body = cast(bytes, msgpack.packb([number, parts, part, base]))
        yield encode_record(KEYFRAME_TOPIC.encode(), body, b"", born_ms=now_ms)


class KeyframeReader:
    """Puts the parts of one segment's keyframe together; other records may stand between them.

    Attributes:
        has_begun: a part of it was there.
        is_over: a part of a later one was there: the next begins when one is whole, or will never be.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self._pieces: list[bytes] = []
        self.has_begun = self.is_over = False

    def take(self, record: Bytes) -> bytes | None:
        """The whole state with its last part, else None. A part out of order starts over."""
        number, parts, piece, base = msgpack.unpackb(record_body(record))
        self.is_over = base > self._base
        if base != self._base:
            return None
        self.has_begun = True
        if number != len(self._pieces):
            self._pieces.clear()
            if number:
                return None
        self._pieces.append(piece)
        if len(self._pieces) < parts:
            return None
        state = b"".join(self._pieces)
        self._pieces.clear()
        return state


class KeyframeMarks:
    """The segments that have a whole keyframe, as far as the log was read."""

    def __init__(self, marks: Iterable[Keyframe] = ()) -> None:
        self._marks = {mark.base: mark for mark in marks}
        self._base = -1
        self._following = 0

    def __iter__(self) -> Iterator[Keyframe]:
        return iter(self._marks.values())

    def get(self, base: int) -> Keyframe | None:
        """The end of a segment's keyframe, None if it has no whole one."""
        return self._marks.get(base)

    def take(self, record: Bytes, position: int) -> None:
        """The record of the frame at ``position`` is a part of a keyframe."""
        number, parts, _, base = msgpack.unpackb(record_body(record))
        in_order = number == 0 or (base, number) == (self._base, self._following)
        self._base, self._following = base, number + 1 if in_order else -1
        if self._following == parts:
            self._marks[base] = Keyframe(base, position)

    def forget_before(self, start: int) -> None:
        """The log begins at ``start`` now."""
        self._marks = {base: mark for base, mark in self._marks.items() if base >= start}
