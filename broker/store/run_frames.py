"""The frames of a run of messages, which differ in their bodies alone. docs/formats/log.md is the page.

Byte for byte what ``writing.Writing`` makes of ``message.encode_record``, without making the records first: one
``pack`` and two checksums each. Of many messages the first is laid out so and repeated; what changes from one to the
next is written as columns, and only the checksums are left. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from broker.store.bulk import ENTRY_DTYPE
from broker.store.frames import crc32, crc32c
from broker.store.queue_index import ENTRY20
from penstock.message import BODY_AT, FRAME_HEAD_BYTES, FRAME_MAGIC, OFFSETS_AT, QUEUE_ID_AT, RECORD_MAGIC
from penstock.runs import Run

MANY: Final = 32
"""For fewer messages numpy does not pay."""
_BEGIN: Final = struct.Struct(">III")
_PAIR: Final = struct.Struct(">II")
_TIMES: Final = struct.Struct(">4xQ8xQ")
_WATERMARK: Final = struct.Struct(">Q")
_BODY_SUM_AT: Final = FRAME_HEAD_BYTES + QUEUE_ID_AT - 4
_OFFSETS_AT: Final = FRAME_HEAD_BYTES + OFFSETS_AT
_BODY_SUM_MASK: Final = 0x7FFFFFFF

Column = np.ndarray[Any, Any]


class Layout:
    """What the frames of runs with the same sizes, queue, flag and tag have in common. The runs of one append mostly
    have watermark and times in common too, so what these make is kept from run to run.

    Behind its checksum a frame has: magic, length, epoch | watermark | record size, record magic | body checksum |
    queue id, flag | queue offset, position | system flag 0 | born time | no born host | store time | no store host,
    twelve zeros, body length | body | tail.
    """

    __slots__ = (
        "_begin",
        "_born_ms",
        "_end",
        "_entry_end",
        "_lead",
        "_pack",
        "_place",
        "_record",
        "_rest",
        "_stored_ms",
        "_watermark",
        "body_bytes",
        "flag",
        "length",
        "queue_id",
    )

    def __init__(self, body_bytes: int, tail_bytes: int, queue_id: int, flag: int, epoch: int, tag: int) -> None:
        self.body_bytes = body_bytes
        self.queue_id = queue_id
        self.flag = flag
        self.length = length = _length(body_bytes, tail_bytes)
        self._pack: Callable[..., bytes] = struct.Struct(f">28sI8sQQ52s{body_bytes}s{tail_bytes}s").pack
        self._begin = _BEGIN.pack(FRAME_MAGIC, length, epoch)
        self._record = _PAIR.pack(length - FRAME_HEAD_BYTES, RECORD_MAGIC)
        self._place = _PAIR.pack(queue_id, flag)
        self._end = bytes(20) + body_bytes.to_bytes(4, "big")
        self._entry_end = ENTRY20.pack(0, length, tag)[8:]
        self._watermark = self._born_ms = self._stored_ms = -1
        self._lead = self._rest = b""

    def fits(self, run: Run) -> bool:
        """Whether it is that of a run whose tail and tag it has."""
        return len(run.bodies[0]) == self.body_bytes and run.queue_id == self.queue_id and run.flag == self.flag

    def frames(self, run: Run, count: int, watermark: int, pieces: list[bytes]) -> bytes:
        """Adds checksum and rest of each frame, in turn, of the first ``count`` messages of a run that knows its place;
        returns the queue's entries for them."""
        if watermark != self._watermark or run.born_ms != self._born_ms or run.stored_ms != self._stored_ms:
            self._watermark, self._born_ms, self._stored_ms = watermark, run.born_ms, run.stored_ms
            self._lead = self._begin + _WATERMARK.pack(watermark) + self._record
            self._rest = _TIMES.pack(run.born_ms, run.stored_ms) + self._end
        lead, rest, place, entry_end, tail = self._lead, self._rest, self._place, self._entry_end, run.tail
        offset, position = run.offset, run.position
        entries = b""
        for number in range(count):
            body = run.bodies[number]
            frame = self._pack(lead, crc32(body) & _BODY_SUM_MASK, place, offset, position, rest, body, tail)
            pieces.append(crc32c(frame).to_bytes(4, "big"))
            pieces.append(frame)
            entry = position.to_bytes(8, "big") + entry_end
            entries = entries + entry if number else entry
            offset += 1
            position += self.length
        return entries


@lru_cache(maxsize=4096)
def _layout(body_bytes: int, tail_bytes: int, queue_id: int, flag: int, epoch: int, tag: int) -> Layout:
    return Layout(body_bytes, tail_bytes, queue_id, flag, epoch, tag)


def layout_of(run: Run, epoch: int, tag: int) -> Layout:
    """The layout of a run's frames."""
    return _layout(len(run.bodies[0]), len(run.tail), run.queue_id, run.flag, epoch, tag)


@lru_cache(maxsize=4096)
def _columns(length: int) -> np.dtype[Any]:
    """What differs between the frames of a run but their bodies; ``checked`` is all that the checksum covers."""
    formats = [">u4", f"V{length - 4}", ">u4", ">u8", ">u8"]
    offsets = [0, 4, _BODY_SUM_AT, _OFFSETS_AT, _OFFSETS_AT + 8]
    names = ["sum", "checked", "body_sum", "offset", "position"]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": length})


def frame_bytes(run: Run) -> int:
    """The size of each frame of a run."""
    return _length(len(run.bodies[0]), len(run.tail))


def _length(body_bytes: int, tail_bytes: int) -> int:
    return FRAME_HEAD_BYTES + BODY_AT + body_bytes + tail_bytes


def lay_out(run: Run, layout: Layout, watermark: int, pieces: list[bytes]) -> bytes:
    """Adds the frames of a run that knows its place, in pieces; returns the queue's entries for them."""
    count, length = len(run.bodies), layout.length
    if count < MANY:
        return layout.frames(run, count, watermark, pieces)
    first: list[bytes] = []
    entry = layout.frames(run, 1, watermark, first)
    places = np.arange(run.position, run.position + length * count, length)
    rows = np.frombuffer(bytearray(entry * count), ENTRY_DTYPE)
    rows["position"] = places
    pieces.append(_repeated(b"".join(first), run, places))
    return rows.tobytes()


def _repeated(first: bytes, run: Run, places: Column) -> bytes:
    """The frames of a run by the first of them."""
    bodies, tail, count = run.bodies, run.tail, len(run.bodies)
    between = bytearray(tail + first[: len(first) - len(tail) - len(bodies[0])])
    frames = between.join([b"", *bodies, b""])
    rows = np.frombuffer(frames, _columns(len(first)), count, len(tail))
    rows["body_sum"] = np.fromiter(map(crc32, bodies), "u4", count) & _BODY_SUM_MASK
    rows["offset"] = np.arange(run.offset, run.offset + count)
    rows["position"] = places
    rows["sum"] = np.fromiter(map(crc32c, rows["checked"].tolist()), "u4", count)
    return rows.tobytes()
