"""A pulled batch as the messages of a topic's queue, with little work for each. Pure.

A batch that came with its checksum is what the broker sent, and the broker has checked every frame in it: one look at
all of its bytes says so. In a batch without one each body is checked. Where all frames of a batch are alike (the same
sizes of body, topic and properties) one call cuts them all.
"""

from __future__ import annotations

import struct
from typing import Final

from fastcrc.crc32 import iscsi, iso_hdlc

from penstock.errors import InvalidMessage
from penstock.protocol.message import (
    BODY_AT,
    ENTRY,
    FRAME_HEAD_BYTES,
    RECORD_BYTES_MIN,
    RECORD_MAGIC,
    TOPIC_BYTES_MAX,
    check_record,
)
from penstock.protocol.received import MessageQueue, ReceivedMessage

ALIKE_FROM: Final = 8
"""Fewer are not worth a look at whether they are alike."""
_SIZE_AT: Final = 16
_SIZE_BYTES: Final = 4
# Of a record: size, magic, body crc, body length; the rest is passed over
_CHECKED: Final = struct.Struct(">III72xI")


def checksum_of(batch: bytes) -> int:
    """The CRC-32C of a batch; 0 stands for none."""
    return iscsi(batch)


def decode_queue(
    count: int, batch: bytes | memoryview, queue: MessageQueue, checksum: int = 0
) -> list[ReceivedMessage]:
    """The messages of a batch that was pulled from a topic's queue. Raises ``InvalidMessage``.

    Args:
        count: how many there are.
        batch: their entries, then their frames.
        queue: the queue.
        checksum: of the batch; 0 where it came without one.
    """
    data = bytes(batch)
    start = count * ENTRY.size
    if start > len(data):
        raise InvalidMessage("a pulled batch is shorter than its entries")
    if checksum and iscsi(data) != checksum:
        raise InvalidMessage("a pulled batch does not match its checksum")
    if checksum and count >= ALIKE_FROM:
        size = int.from_bytes(data[_SIZE_AT : _SIZE_AT + _SIZE_BYTES], "big")
        if size >= FRAME_HEAD_BYTES + RECORD_BYTES_MIN and start + count * size == len(data):
            body_bytes = _even_body(data, start, size, count)
            if body_bytes >= 0:
                return _cut(data, start, size, count, body_bytes, queue)
    return _one_by_one(data, start, queue, not checksum)


def _even_body(data: bytes, start: int, size: int, count: int) -> int:
    """The length of the bodies if all frames are alike, else -1. Raises ``InvalidMessage``."""
    at = start + FRAME_HEAD_BYTES
    check_record(data[at : start + size])
    body_bytes = int.from_bytes(data[at + BODY_AT - 4 : at + BODY_AT], "big")
    topic_at = at + BODY_AT + body_bytes
    properties_at = topic_at + 2 + (data[topic_at] << 8 | data[topic_at + 1])
    for place in range(_SIZE_AT, _SIZE_AT + _SIZE_BYTES):
        if data[place : start : ENTRY.size] != data[place : place + 1] * count:
            return -1
    for place in (
        *range(at, at + _SIZE_BYTES),
        *range(at + BODY_AT - 4, at + BODY_AT),
        *(topic_at, topic_at + 1, properties_at, properties_at + 1),
    ):
        if data[place::size] != data[place : place + 1] * count:
            return -1
    return body_bytes


def _cut(data: bytes, start: int, size: int, count: int, body_bytes: int, queue: MessageQueue) -> list[ReceivedMessage]:
    """The messages of frames that are alike."""
    tail_bytes = size - FRAME_HEAD_BYTES - BODY_AT - body_bytes
    first, last = (
        int.from_bytes(data[:8], "big"),
        int.from_bytes(data[start - ENTRY.size : start - ENTRY.size + 8], "big"),
    )
    if last - first == count - 1:
        offsets = list(range(first, first + count))
    else:
        offsets = [row[0] for row in ENTRY.iter_unpack(data[:start])]
    parts = struct.Struct(f"{FRAME_HEAD_BYTES}x{BODY_AT}s{body_bytes}s{tail_bytes}s").iter_unpack(
        memoryview(data)[start:]
    )
    return [
        ReceivedMessage(queue, offset, body, head, tail)
        for offset, (head, body, tail) in zip(offsets, parts, strict=True)
    ]


def _one_by_one(data: bytes, start: int, queue: MessageQueue, checks: bool) -> list[ReceivedMessage]:
    """The messages of any frames; ``checks``: that their bodies are the sent ones."""
    messages: list[ReceivedMessage] = []
    unpack, size_min, end = _CHECKED.unpack_from, FRAME_HEAD_BYTES + RECORD_BYTES_MIN, start
    for offset, _position, size, _tag in ENTRY.iter_unpack(data[:start]):
        at = end + FRAME_HEAD_BYTES
        end += size
        if size < size_min or end > len(data):
            raise InvalidMessage("a pulled batch is shorter than its frames")
        length, magic, checksum, body_bytes = unpack(data, at)
        body_at = at + BODY_AT
        topic_at = body_at + body_bytes
        if length != end - at or magic != RECORD_MAGIC or topic_at + 4 > end:
            check_record(data[at:end])
        body = data[body_at:topic_at]
        properties_at = topic_at + 2 + (data[topic_at] << 8 | data[topic_at + 1])
        if (
            properties_at + 2 > end
            or properties_at + 2 + (data[properties_at] << 8 | data[properties_at + 1]) != end
            or not 2 < properties_at - topic_at <= TOPIC_BYTES_MAX + 2
            or (checks and iso_hdlc(body) & 0x7FFFFFFF != checksum)
        ):
            check_record(data[at:end])  # raises, but where properties are very long
        messages.append(ReceivedMessage(queue, offset, body, data[at:body_at], data[topic_at:end]))
    return messages
