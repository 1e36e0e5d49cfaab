"""The frames of a run of messages, which differ in their bodies and in ids that count. docs/formats/log.md is the page.

Byte for byte what frames around records of ``message.encode_record`` are, without making the records first: one
``pack`` and two checksums each. (As columns of numpy's it is no faster: between two syncs the code is cold.) Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from broker.store.frames import crc32, crc32c
from broker.store.queue_index import ENTRY20
from penstock.protocol.message import BODY_AT, FRAME_HEAD_BYTES, FRAME_MAGIC, RECORD_MAGIC
from penstock.protocol.runs import UNUSUAL, Run, counted

_BEGIN: Final = struct.Struct(">III")
_PAIR: Final = struct.Struct(">II")
_TIMES: Final = struct.Struct(">IQ8sQ")
_END: Final = struct.Struct(">8xIQI")
_WATERMARK: Final = struct.Struct(">Q")
_BODY_SUM_MASK: Final = 0x7FFFFFFF
_LOW_BYTES: Final = 2
"""Digits of an id that are laid over each tail by themselves: those that change from message to message."""
LOW: Final = [b"%02x" % number for number in range(256)]
"""These digits."""


class Layout:
    """The common parts of frames of runs with the same sizes, queue, flag and tag. The runs of one append mostly
    have watermark and times in common too, so what these make is kept from run to run.

    Behind its checksum a frame has: magic, length, epoch | watermark | record size, record magic | body checksum |
    queue id, flag | queue offset, position | system flag, born time and host, store time | no store host, reconsume
    times, prepared, body length | body | tail, in two pieces where ids count.
    """

    __slots__ = (
        "_begin",
        "_born_host",
        "_born_ms",
        "_counts",
        "_end",
        "_entry_end",
        "_epoch",
        "_lead",
        "_pack",
        "_place",
        "_record",
        "_rest",
        "_stored_ms",
        "_system_flag",
        "_watermark",
        "body_bytes",
        "flag",
        "length",
        "queue_id",
        "unusual",
    )

    def __init__(
        self,
        body_bytes: int,
        tail_bytes: int,
        queue_id: int,
        flag: int,
        epoch: int,
        tag: int,
        counts: bool,
        unusual: bytes,
    ) -> None:
        self.body_bytes = body_bytes
        self.queue_id = queue_id
        self.flag = flag
        self.unusual = unusual
        self.length = length = _length(body_bytes, tail_bytes)
        self._epoch = epoch
        self._counts = counts
        ends = f"{tail_bytes - _LOW_BYTES}s{_LOW_BYTES}s" if counts else f"{tail_bytes}s"
        self._pack: Callable[..., bytes] = struct.Struct(f">28sI8sQQ52s{body_bytes}s{ends}").pack
        self._begin = _BEGIN.pack(FRAME_MAGIC, length, epoch)
        self._record = _PAIR.pack(length - FRAME_HEAD_BYTES, RECORD_MAGIC)
        self._place = _PAIR.pack(queue_id, flag)
        self._system_flag, self._born_host, reconsumed, prepared = UNUSUAL.unpack(unusual or bytes(UNUSUAL.size))
        self._end = _END.pack(reconsumed, prepared, body_bytes)
        self._entry_end = ENTRY20.pack(0, length, tag)[8:]
        self._watermark = self._born_ms = self._stored_ms = -1
        self._lead = self._rest = b""

    def fits(self, run: Run, epoch: int) -> bool:
        """Whether it is that of a run whose tail and tag it has, in an epoch."""
        return (
            len(run.bodies[0]) == self.body_bytes
            and run.queue_id == self.queue_id
            and run.flag == self.flag
            and self._epoch == epoch
            and run.unusual == self.unusual
        )

    def frames(self, run: Run, watermark: int, pieces: list[bytes]) -> bytes:
        """Adds checksum and rest of each frame, in turn, of a run that knows its place; returns the queue's entries for
        them."""
        if watermark != self._watermark or run.born_ms != self._born_ms or run.stored_ms != self._stored_ms:
            self._watermark, self._born_ms, self._stored_ms = watermark, run.born_ms, run.stored_ms
            self._lead = self._begin + _WATERMARK.pack(watermark) + self._record
            self._rest = _TIMES.pack(self._system_flag, run.born_ms, self._born_host, run.stored_ms) + self._end
        if self._counts:
            return self._frames_that_count(run, pieces)
        pack, lead, place, rest, tail = self._pack, self._lead, self._place, self._rest, run.tail
        offset, position, length, entry_end = run.offset, run.position, self.length, self._entry_end
        bodies = run.bodies
        if len(bodies) == 1:
            frame = pack(lead, crc32(bodies[0]) & _BODY_SUM_MASK, place, offset, position, rest, bodies[0], tail)
            pieces.append(crc32c(frame).to_bytes(4, "big"))
            pieces.append(frame)
            return position.to_bytes(8, "big") + entry_end
        places: list[bytes] = []
        for body in bodies:
            frame = pack(lead, crc32(body) & _BODY_SUM_MASK, place, offset, position, rest, body, tail)
            pieces.append(crc32c(frame).to_bytes(4, "big"))
            pieces.append(frame)
            places.append(position.to_bytes(8, "big"))
            offset += 1
            position += length
        return entry_end.join(places) + entry_end

    def _frames_that_count(self, run: Run, pieces: list[bytes]) -> bytes:
        """The same where ids count."""
        pack, lead, place, rest, entry_end = self._pack, self._lead, self._place, self._rest, self._entry_end
        offset, position, length = run.offset, run.position, self.length
        tail, low = run.tail[:-_LOW_BYTES], int(run.tail[-_LOW_BYTES:], 16)
        end = run.tail[-_LOW_BYTES:]
        places: list[bytes] = []
        for body in run.bodies:
            frame = pack(lead, crc32(body) & _BODY_SUM_MASK, place, offset, position, rest, body, tail, end)
            pieces.append(crc32c(frame).to_bytes(4, "big"))
            pieces.append(frame)
            places.append(position.to_bytes(8, "big"))
            offset += 1
            position += length
            low += 1
            if low == 256:
                tail, low = counted(run.tail, offset - run.offset)[:-_LOW_BYTES], 0
            end = LOW[low]
        return entry_end.join(places) + entry_end


def entries_of(position: int, step: int, count: int, tag: int) -> bytes:
    """A queue's entries for frames that stand one behind the other."""
    if count == 1:
        return ENTRY20.pack(position, step, tag)
    end = ENTRY20.pack(0, step, tag)[8:]
    places = [place.to_bytes(8, "big") for place in range(position, position + count * step, step)]
    return end.join(places) + end


@lru_cache(maxsize=4096)
def _layout(
    body_bytes: int, tail_bytes: int, queue_id: int, flag: int, epoch: int, tag: int, counts: bool, unusual: bytes
) -> Layout:
    return Layout(body_bytes, tail_bytes, queue_id, flag, epoch, tag, counts, unusual)


def layout_of(run: Run, epoch: int, tag: int) -> Layout:
    """The layout of a run's frames."""
    sizes = len(run.bodies[0]), len(run.tail)
    return _layout(*sizes, run.queue_id, run.flag, epoch, tag, run.counts, run.unusual)


def frame_bytes(run: Run) -> int:
    """The size of each frame of a run."""
    return FRAME_HEAD_BYTES + BODY_AT + len(run.bodies[0]) + len(run.tail)


def _length(body_bytes: int, tail_bytes: int) -> int:
    return FRAME_HEAD_BYTES + BODY_AT + body_bytes + tail_bytes
