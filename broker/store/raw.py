"""The log as it travels between copies: whole frames one behind the other, of a blank frame only its head.

docs/formats/replica.md is the page. A *stretch* begins at a position of the log and ends behind a frame, never behind a
blank: a stretch that reaches the end of a segment contains the first frame of the next one. Frames of one size are
split many at a time (``alike.py``). Pure but for reads of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from broker.store.alike import Alike, good_alike, looks_alike
from broker.store.commit_log import CommitLog
from broker.store.frames import EPOCH_AT, FRAME_BYTES_MIN, blank_length, frame_length, good_within
from penstock.errors import Damaged, ProtocolError
from penstock.protocol.message import FRAME_BYTES_MAX, FRAME_HEAD_BYTES

RUN_FRAMES_MAX: Final = 1024
_EPOCH: Final = slice(EPOCH_AT, EPOCH_AT + 4)


class BadPlace(Exception):
    """This copy of the log has no good frame where one should be."""

    def __init__(self, position: int) -> None:
        super().__init__(f"this copy of the log has no good frame at position {position}")
        self.position = position


class Part(NamedTuple):
    """Frames of a stretch that stand one behind the other in one segment: ``frames`` from ``position`` to ``behind``,
    which are the bytes ``start`` to ``stop`` of the stretch. A blank alone has no frames; behind it a segment
    begins."""

    position: int
    behind: int
    start: int
    stop: int
    frames: Sequence[bytes]


def parts_of(data: bytes, position: int, *, at: int = 0, is_raw: bool = False) -> Iterator[Part]:
    """The good frames and blanks of a stretch that begins at ``position``, up to the first place that holds neither:
    where the last part stops. Every frame is checked by its checksum and its place. ``is_raw``: it is as a disk has it,
    with what blanks fill."""
    end = len(data)
    while at < end:
        if end - at < FRAME_HEAD_BYTES:
            return
        length = frame_length(data, at, end - at) if end - at >= FRAME_BYTES_MIN else 0
        if not length:
            blank = blank_length(data[at : at + FRAME_HEAD_BYTES])
            if not blank:
                return
            yield Part(position, position + blank, at, at + FRAME_HEAD_BYTES, ())
            at += blank if is_raw else FRAME_HEAD_BYTES
            position += blank
            continue
        start = at
        frames: Sequence[bytes] | None = good_alike(data, at, length, position, RUN_FRAMES_MAX)
        if frames is None:
            frames = _few(data, at, position)
            at += sum(map(len, frames))
        else:
            at += len(frames) * length
        if not frames:
            return
        yield Part(position, position + at - start, start, at, frames)
        position += at - start


def _few(data: bytes, at: int, position: int) -> list[bytes]:
    """Good frames one behind the other, up to the first of many that are alike."""
    frames: list[bytes] = []
    begin, end = at, len(data)
    while end - at >= FRAME_BYTES_MIN and len(frames) < RUN_FRAMES_MAX:
        length = frame_length(data, at, end - at)
        if frames and length != len(frames[-1]) and length and looks_alike(data, at, length):
            break
        if not length or not good_within(data, at, length, position + at - begin):
            break
        frames.append(data[at : at + length])
        at += length
    return frames


def split(part: Part, size: int) -> tuple[Part, Part]:
    """The frames of a part in its first ``size`` bytes, at whose end one ends, and the others."""
    frames, number = part.frames, 0
    if isinstance(frames, Alike):
        number = size // frames.step
        first: Sequence[bytes] = Alike(frames.data, frames.at, frames.step, number)
        rest: Sequence[bytes] = Alike(frames.data, frames.at + size, frames.step, frames.rows - number)
    else:
        left = size
        while left > 0:
            left -= len(frames[number])
            number += 1
        first, rest = frames[:number], frames[number:]
    middle, place = part.start + size, part.position + size
    return Part(part.position, place, part.start, middle, first), Part(place, part.behind, middle, part.stop, rest)


def epochs_of(frames: Sequence[bytes]) -> tuple[int, int]:
    """The lowest and the highest epoch of frames; they are the first and the last one's, or (1, 0) where epochs go
    back."""
    if isinstance(frames, Alike):
        column = frames.column(EPOCH_AT, ">u4")
        first, last = int(column[0]), int(column[-1])
        if first == last:
            return (first, last) if bool((column == first).all()) else (1, 0)
        return (first, last) if bool((np.diff(column.astype("i8")) >= 0).all()) else (1, 0)
    numbers = [frame[_EPOCH] for frame in frames]
    is_sorted = len(set(numbers)) == 1 or numbers == sorted(numbers)
    return (int.from_bytes(numbers[0], "big"), int.from_bytes(numbers[-1], "big")) if is_sorted else (1, 0)


def checked_parts(data: bytes, position: int, before: int, epoch_max: int | None = None) -> list[Part]:
    """All parts of a stretch that another copy has sent. ``before``: epoch of the frame that ends at ``position``;
    ``epoch_max``: the highest that may come, where one is known.

    Raises ``ProtocolError`` where a frame or blank is not good, the last part has no frames, or epochs go back.
    """
    parts = list(parts_of(data, position))
    if not parts or parts[-1].stop != len(data) or not parts[-1].frames:
        raise ProtocolError(f"the received part of the log at position {position} is damaged")
    check_epochs(parts, before, epoch_max)
    return parts


def check_epochs(parts: Sequence[Part], before: int, epoch_max: int | None = None) -> int:
    """The epoch of the last frame, or ``before`` where there is none. Raises ``ProtocolError`` where epochs go back."""
    last = before
    for part in parts:
        if part.frames:
            lowest, highest = epochs_of(part.frames)
            if not last <= lowest <= highest or (epoch_max is not None and highest > epoch_max):
                raise ProtocolError(f"epochs go back in the log at position {part.position}")
            last = highest
    return last


def raw_parts(data: bytes, position: int) -> list[Part]:
    """The frames of bytes that are as a disk has them, and the blanks between these. What is left behind the last part
    may be the beginning of a frame, or a blank. Raises ``ProtocolError`` where it is neither."""
    parts = list(parts_of(data, position, is_raw=True))
    while parts and not parts[-1].frames:
        parts.pop()
    stop = parts[-1].stop if parts else 0
    left = len(data) - stop
    is_part = left < FRAME_BYTES_MIN or frame_length(data, stop, FRAME_BYTES_MAX) > left
    if not is_part and not blank_length(data[stop : stop + FRAME_HEAD_BYTES]):
        raise ProtocolError(f"the received part of the log behind position {position} is damaged")
    return parts


def read_stretch(log: CommitLog, position: int, bytes_max: int, until: int, *, from_disk: bool = False) -> bytes:
    """The stretch from ``position`` on, up to about ``bytes_max`` bytes but at least a frame, and not beyond ``until``;
    empty where there is none. What was appended just now comes as it was written unless it is wanted ``from_disk``, the
    rest is read and checked. Raises ``BadPlace``."""
    return read_frames(log, position, bytes_max, until, from_disk=from_disk)[0]


def read_frames(
    log: CommitLog, position: int, bytes_max: int, until: int, *, from_disk: bool = False
) -> tuple[bytes, int]:
    """The same, and the position behind its last frame."""
    until = min(until, log.end)
    if 0 < until - position <= bytes_max and not from_disk:
        fresh = log.fresh.between(position, until)
        if fresh is not None:
            return fresh, until
    found: list[bytes] = []
    size, is_behind_blank, behind = 0, False, position
    while position < until and (size < bytes_max or is_behind_blank):
        try:
            piece, last, following = _read_piece(log, position, bytes_max - size, until)
        except BadPlace:
            if size and not is_behind_blank:
                break
            raise
        found.append(piece)
        size += len(piece)
        if last > position:
            behind = last
        is_behind_blank, position = following > last, following
    if is_behind_blank:
        found[-1] = found[-1][:-FRAME_HEAD_BYTES]  # nothing stands behind it yet
    return b"".join(found), behind


def _read_piece(log: CommitLog, position: int, bytes_max: int, until: int) -> tuple[bytes, int, int]:
    """Frames of one segment, with the head of the blank behind them where they come to it; where the last of them ends,
    and what position comes next: another one behind a blank."""
    border = log.segment_end(position) if position < log.active.base else log.end
    room = min(until, border) - position
    data = _read(log, position, min(room, max(bytes_max, FRAME_BYTES_MIN)))
    length = frame_length(data, 0, room) if len(data) >= FRAME_BYTES_MIN else 0
    if length > len(data):
        data = _read(log, position, length)
    stop, following = 0, position
    for part in parts_of(data, position):
        stop = part.stop
        if not part.frames:
            return data[:stop], following, border
        following = part.behind
    if not stop:
        raise BadPlace(position)
    return data[:stop], following, following


def _read(log: CommitLog, position: int, size: int) -> bytes:
    """The bytes that the disk gives; empty if it gives none."""
    try:
        return log.read_some(position, size)
    except Damaged:
        raise BadPlace(position) from None
