"""The frames of a run of messages, which differ in their bodies alone. docs/formats/log.md is the page.

Byte for byte what ``frames.pack_frame`` makes of ``message.encode_record``, without making the records first: what the
messages have in common is packed once, what is left is one ``pack`` and two checksums each. Pure.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Final

from broker.store.frames import crc32c
from broker.store.queue_index import ENTRY20
from broker.store.records import IncomingRun
from penstock.message import BODY_AT, FRAME_HEAD_BYTES, FRAME_MAGIC, RECORD_MAGIC

_NO_HOST: Final = bytes(8)
# magic, length, epoch, watermark, record size, record magic
_LEAD: Final = struct.Struct(">IIIQII")
_PLACE: Final = struct.Struct(">II")  # queue id, flag
# sys flag, born time, born host, store time and host, reconsume times, prepared transaction offset, body length
_REST: Final = struct.Struct(">IQ8s16sIQI")


@lru_cache(maxsize=4096)
def _layout(body_bytes: int, tail_bytes: int) -> struct.Struct:
    """All of a frame behind its checksum: what is common, body checksum, place, queue offset, position, what is
    common, body, tail."""
    return struct.Struct(f">{_LEAD.size}sI{_PLACE.size}sQQ{_REST.size}s{body_bytes}s{tail_bytes}s")


def frame_bytes(run: IncomingRun) -> int:
    """The size of each frame of a run."""
    return FRAME_HEAD_BYTES + BODY_AT + len(run.bodies[0]) + len(run.tail)


def lay_out(
    run: IncomingRun, epoch: int, watermark: int, stored: bytes, offset: int, position: int, tag: int
) -> tuple[list[bytes], bytes]:
    """Checksum and rest of each frame, in turn, and the queue's entries for them.

    ``stored``: store time and host, packed. ``offset`` and ``position`` are of the first one.
    """
    bodies, tail = run.bodies, run.tail
    size = len(bodies[0])
    length = FRAME_HEAD_BYTES + BODY_AT + size + len(tail)
    lead = _LEAD.pack(FRAME_MAGIC, length, epoch, watermark, length - FRAME_HEAD_BYTES, RECORD_MAGIC)
    place = _PLACE.pack(run.queue_id, run.flag)
    rest = _REST.pack(0, run.born_ms, _NO_HOST, stored, 0, 0, size)
    pack, entry, body_sum, frame_sum = _layout(size, len(tail)).pack, ENTRY20.pack, zlib.crc32, crc32c
    frames: list[bytes] = []
    entries: list[bytes] = []
    for body in bodies:
        frame = pack(lead, body_sum(body) & 0x7FFFFFFF, place, offset, position, rest, body, tail)
        frames.append(frame_sum(frame).to_bytes(4, "big"))
        frames.append(frame)
        entries.append(entry(position, length, tag))
        offset += 1
        position += length
    return frames, b"".join(entries)
