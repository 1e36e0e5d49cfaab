"""The log's frames as bytes: writing one around a record, checking one, reading one back. docs/formats/log.md is the
page.

Pure: bytes in, bytes out. A frame is good when its magic, its length, its CRC-32C and the position inside its record
all agree with the place where it stands, so a bit flip anywhere shows, and a frame written to the wrong place does too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi, iso_hdlc

from broker.store.records import Stored
from penstock.errors import InvalidMessage
from penstock.protocol.message import (
    BLANK_MAGIC,
    BODY_AT,
    BORN_AT,
    FRAME_BYTES_MAX,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_MAGIC,
    OFFSETS,
    OFFSETS_AT,
    QUEUE_ID_AT,
    RECORD_BYTES_MIN,
    STORED,
    STORED_AT,
    check_record,
)

crc32c: Final[Callable[[bytes | memoryview], int]] = iscsi
"""Of a frame."""
crc32: Final[Callable[[bytes], int]] = iso_hdlc
"""Of a body: CRC-32 as zlib has it."""
extend: Final[Callable[[bytes, int], int]] = iscsi
"""The CRC-32C of what had the one that is given, with these bytes behind it."""


def crc_of(pieces: Iterable[bytes]) -> int:
    """CRC-32C of many pieces end to end."""
    crc = 0
    for piece in pieces:
        crc = extend(piece, crc)
    return crc


BLANK_BYTES_MIN: Final = FRAME_HEAD_BYTES
FRAME_BYTES_MIN: Final = FRAME_HEAD_BYTES + RECORD_BYTES_MIN
MAGIC_BYTES: Final = FRAME_MAGIC.to_bytes(4, "big")
FAMILY: Final = MAGIC_BYTES[:3]
"""Of the magics of all formats of frames; the last byte is the format's digit."""
FORMAT: Final = MAGIC_BYTES[3] - 0x30
FLAG_AT: Final = QUEUE_ID_AT + 4
# Of a whole frame: watermark, queue id, flag, queue offset, store time, body length; all else is passed over
_INDEXED: Final = struct.Struct(">16xQ 12xIIQ 8x 20xQ 20xI")
_BODY_AT: Final = FRAME_HEAD_BYTES + BODY_AT
_CRC_BYTES: Final = 4
LENGTH_AT: Final = 8
"""Of a frame: its length."""
EPOCH_AT: Final = 12
"""Of a frame: its epoch, in four bytes."""
_OFFSETS_AT: Final = FRAME_HEAD_BYTES + OFFSETS_AT
_QUEUE_ID_AT: Final = FRAME_HEAD_BYTES + QUEUE_ID_AT
POSITION_AT: Final = _OFFSETS_AT + 8
"""Of a frame: its own position."""
_POSITION_AT: Final = _OFFSETS_AT + 8 - _CRC_BYTES
_BORN_AT: Final = FRAME_HEAD_BYTES + BORN_AT
_STORED_AT: Final = FRAME_HEAD_BYTES + STORED_AT


Place = tuple[int, int, int, int]


class Head(NamedTuple):
    """The head of a frame."""

    crc: int
    magic: int
    length: int
    epoch: int
    watermark: int


def blank_frame(length: int, epoch: int, watermark: int) -> bytes:
    """The head of the blank frame that fills ``length`` bytes at the end of a segment."""
    head = FRAME_HEAD.pack(0, BLANK_MAGIC, length, epoch, watermark)[_CRC_BYTES:]
    return crc32c(head).to_bytes(_CRC_BYTES, "big") + head


def read_head(data: bytes | memoryview) -> Head:
    """The head of a frame, unchecked."""
    return Head(*FRAME_HEAD.unpack_from(data))


def is_blank(data: bytes, room: int) -> bool:
    """Whether ``data`` begins with a good blank frame that fills exactly ``room`` bytes."""
    if len(data) < FRAME_HEAD_BYTES:
        return False
    head = read_head(data)
    good = head.crc == crc32c(bytes(data[_CRC_BYTES:FRAME_HEAD_BYTES]))
    return head.magic == BLANK_MAGIC and head.length == room and good


def frame_length(data: bytes | memoryview, at: int, room: int) -> int:
    """Length of the frame whose head is at ``at`` if it can be one within ``room`` bytes, else 0."""
    _, magic, length, _, _ = FRAME_HEAD.unpack_from(data, at)
    return length if magic == FRAME_MAGIC and FRAME_BYTES_MIN <= length <= min(room, FRAME_BYTES_MAX) else 0


def blank_length(data: bytes) -> int:
    """The length of the blank frame whose head ``data`` begins with, 0 if it is no good one."""
    return read_head(data).length if len(data) >= FRAME_HEAD_BYTES and is_blank(data, read_head(data).length) else 0


def newer_length(head: bytes, room: int) -> int:
    """Length of the frame of a newer format whose head this may be, else 0. Such a frame has head and position where
    ours has them, so that ``good_within`` tells a good one."""
    if len(head) < FRAME_HEAD_BYTES or head[4:7] != FAMILY or not FORMAT < head[7] - 0x30 <= 9:
        return 0
    length = read_head(head).length
    return length if FRAME_BYTES_MIN <= length <= room else 0


def is_good(frame: bytes, position: int) -> bool:
    """Whether a whole frame is good and stands where it was written."""
    return good_within(frame, 0, len(frame), position)


def good_within(data: bytes, at: int, size: int, position: int) -> bool:
    """Whether the ``size`` bytes at ``at`` of ``data`` are one good frame that was written at ``position``."""
    if size < FRAME_BYTES_MIN or at + size > len(data):
        return False
    if OFFSETS.unpack_from(data, at + _OFFSETS_AT)[1] != position:
        return False
    return int.from_bytes(data[at : at + _CRC_BYTES], "big") == crc32c(data[at + _CRC_BYTES : at + size])


def good_frames(data: bytes, base: int, places: Iterable[Place]) -> list[Place]:
    """The places among many that hold a good frame; ``data`` begins at log position ``base``. A place is a tuple whose
    second and third fields are position and size. Says what ``good_within`` says, in half the time."""
    good = []
    checksum, number, end = crc32c, int.from_bytes, len(data)
    for place in places:
        position, size = place[1], place[2]
        at = position - base
        if size < FRAME_BYTES_MIN or not 0 <= at < end - _CRC_BYTES:
            continue
        tail = data[at + _CRC_BYTES : at + size]
        if (
            number(data[at : at + _CRC_BYTES], "big") == checksum(tail)
            and tail[_POSITION_AT : _POSITION_AT + 8] == position.to_bytes(8, "big")
            and len(tail) == size - _CRC_BYTES
        ):
            good.append(place)
    return good


def read_stored(frame: bytes | memoryview, position: int) -> Stored:
    """The record of a good frame as folds see it."""
    _, queue_id, flag, _, stored_ms, topic, properties = unpack_frame(bytes(frame))
    return Stored(position, len(frame), topic.decode("utf-8", "replace"), queue_id, flag, properties, stored_ms, frame)


def indexed(frame: bytes) -> tuple[int, int, int, int, int, int]:
    """Of a good frame: watermark, queue id, flag, queue offset, store time, and where its tail is."""
    watermark, queue_id, flag, offset, stored_ms, body_bytes = _INDEXED.unpack_from(frame)
    return watermark, queue_id, flag, offset, stored_ms, _BODY_AT + body_bytes


def unpack_frame(frame: bytes) -> tuple[int, int, int, int, int, bytes, bytes]:
    """The fields of a good frame for the indexes: watermark, queue id, flag, queue offset, store time, topic,
    properties."""
    watermark, queue_id, flag, offset, stored_ms, body_bytes = _INDEXED.unpack_from(frame)
    topic_at = _BODY_AT + body_bytes + 2
    properties_at = topic_at + (frame[topic_at - 2] << 8 | frame[topic_at - 1])
    return watermark, queue_id, flag, offset, stored_ms, frame[topic_at:properties_at], frame[properties_at + 2 :]


def queue_offset_of(frame: bytes | memoryview) -> int:
    """The offset in its topic queue that a good frame's record was given."""
    return int(OFFSETS.unpack_from(frame, _OFFSETS_AT)[0])


def queue_id_of(frame: bytes | memoryview) -> int:
    """The number of the topic queue that a good frame's record is in."""
    return int.from_bytes(frame[_QUEUE_ID_AT : _QUEUE_ID_AT + 4], "big")


def born_ms_of(frame: bytes | memoryview) -> int:
    """The time at the sender of a frame's record."""
    return int.from_bytes(frame[_BORN_AT : _BORN_AT + 8], "big")


def stored_ms_of(frame: bytes | memoryview) -> int:
    """The store time of a frame."""
    return int(STORED.unpack_from(frame, _STORED_AT)[0])


def holds_record(frame: bytes | memoryview) -> bool:
    """Whether a frame's record is well-formed in itself, for tools that check everything."""
    try:
        check_record(memoryview(frame)[FRAME_HEAD_BYTES:])
    except InvalidMessage:
        return False
    return True
