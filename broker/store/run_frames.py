"""The frames of a run of messages, which differ in their bodies alone. docs/formats/log.md is the page.

Byte for byte what ``frames.pack_frame`` makes of ``message.encode_record``, without making the records first: one
``pack`` and two checksums each. Of many messages the first is laid out so and repeated; what changes from one to the
next is written as columns, and only the checksums are left. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from broker.store.bulk import ENTRY_DTYPE
from broker.store.frames import crc32c
from broker.store.queue_index import ENTRY20
from broker.store.records import IncomingRun
from penstock.message import BODY_AT, FRAME_HEAD_BYTES, FRAME_MAGIC, OFFSETS_AT, QUEUE_ID_AT, RECORD_MAGIC

MANY: Final = 16
"""For fewer messages numpy does not pay."""
_PAIR: Final = struct.Struct(">II")
_BODY_SUM_AT: Final = FRAME_HEAD_BYTES + QUEUE_ID_AT - 4
_OFFSETS_AT: Final = FRAME_HEAD_BYTES + OFFSETS_AT
_BODY_SUM_MASK: Final = 0x7FFFFFFF

Column = np.ndarray[Any, Any]


@lru_cache(maxsize=4096)
def _layout(
    body_bytes: int, tail_bytes: int, queue_id: int, flag: int
) -> tuple[Callable[..., bytes], bytes, bytes, bytes, bytes]:
    """What packs all of a frame behind its checksum, and what such frames have in common, packed: magic and length,
    record size and record magic, queue id and flag, and what stands between store host and body.

    The layout: magic, length | epoch, watermark | record size, record magic | body checksum | queue id, flag | queue
    offset, position, system flag 0, born time, no born host | store time and host | 0, body length | body | tail.
    """
    length = FRAME_HEAD_BYTES + BODY_AT + body_bytes + tail_bytes
    return (
        struct.Struct(f">8sIQ8sI8sQQ4xQ8x16s16s{body_bytes}s{tail_bytes}s").pack,
        _PAIR.pack(FRAME_MAGIC, length),
        _PAIR.pack(length - FRAME_HEAD_BYTES, RECORD_MAGIC),
        _PAIR.pack(queue_id, flag),
        bytes(12) + body_bytes.to_bytes(4, "big"),  # reconsume times, prepared transaction offset
    )


@lru_cache(maxsize=4096)
def _columns(length: int) -> np.dtype[Any]:
    """What differs between the frames of a run but their bodies; ``checked`` is all that the checksum covers."""
    formats = [">u4", f"V{length - 4}", ">u4", ">u8", ">u8"]
    offsets = [0, 4, _BODY_SUM_AT, _OFFSETS_AT, _OFFSETS_AT + 8]
    names = ["sum", "checked", "body_sum", "offset", "position"]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": length})


def frame_bytes(run: IncomingRun) -> int:
    """The size of each frame of a run."""
    return FRAME_HEAD_BYTES + BODY_AT + len(run.bodies[0]) + len(run.tail)


def lay_out(
    run: IncomingRun, epoch: int, watermark: int, stored: bytes, offset: int, position: int, tag: int
) -> tuple[bytes, bytes]:
    """The frames end to end, and the queue's entries for them.

    ``stored``: store time and host, packed. ``offset`` and ``position`` are of the first one.
    """
    bodies = run.bodies
    if len(bodies) < MANY:
        return _one_by_one(run, bodies, epoch, watermark, stored, offset, position, tag)
    first, entry = _one_by_one(run, bodies[:1], epoch, watermark, stored, offset, position, tag)
    places = np.arange(position, position + len(first) * len(bodies), len(first))
    entries = np.frombuffer(bytearray(entry * len(bodies)), ENTRY_DTYPE)
    entries["position"] = places
    return _repeated(first, run, offset, places), entries.tobytes()


def _one_by_one(
    run: IncomingRun,
    bodies: Sequence[bytes],
    epoch: int,
    watermark: int,
    stored: bytes,
    offset: int,
    position: int,
    tag: int,
) -> tuple[bytes, bytes]:
    tail, born_ms, size, length = run.tail, run.born_ms, len(bodies[0]), frame_bytes(run)
    pack, begin, record, place, end = _layout(size, len(tail), run.queue_id, run.flag)
    entry, body_sum, frame_sum = ENTRY20.pack, zlib.crc32, crc32c
    frames: list[bytes] = []
    entries: list[bytes] = []
    for body in bodies:
        checked = body_sum(body) & _BODY_SUM_MASK
        frame = pack(
            begin, epoch, watermark, record, checked, place, offset, position, born_ms, stored, end, body, tail
        )
        frames.append(frame_sum(frame).to_bytes(4, "big"))
        frames.append(frame)
        entries.append(entry(position, length, tag))
        offset += 1
        position += length
    return b"".join(frames), b"".join(entries)


def _repeated(first: bytes, run: IncomingRun, offset: int, places: Column) -> bytes:
    """The frames of a run by the first of them."""
    bodies, tail, count = run.bodies, run.tail, len(run.bodies)
    between = bytearray(tail + first[: len(first) - len(tail) - len(bodies[0])])
    frames = between.join([b"", *bodies, b""])
    rows = np.frombuffer(frames, _columns(len(first)), count, len(tail))
    rows["body_sum"] = np.fromiter(map(zlib.crc32, bodies), "u4", count) & _BODY_SUM_MASK
    rows["offset"] = np.arange(offset, offset + count)
    rows["position"] = places
    rows["sum"] = np.fromiter(map(crc32c, rows["checked"].tolist()), "u4", count)
    return rows.tobytes()
