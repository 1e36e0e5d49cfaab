"""Runs of messages: how a gateway hands publications to a broker. docs/formats/runs.md is the page.

A device that publishes repeats itself: topic, properties and often the size of the payload stay, only the payload
changes. A *run* says once what its messages have in common, then gives their bodies; the broker writes the records. So
a message travels in little more than its payload, and what is worked out per run is not worked out per message.

Pure and total: any bytes give runs or ``InvalidRequest``, and the records that they stand for are bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from fastcrc.crc32 import iscsi

from penstock.errors import InvalidRequest
from penstock.protocol.message import BODY_AT

RUN_HEAD: Final = struct.Struct(">IIQII")
"""Bytes of the tail, application flag, born time, number of bodies, bytes of each body."""
RECORDS_BYTES_MAX: Final = 16 * 1024 * 1024
"""So many bytes of records a batch of runs may stand for."""


class Run:
    """Messages that have all in common but the bytes of their bodies.

    Attributes:
        tail: what stands behind the body of each record (``message.record_tail``).
        flag: application flag of each.
        born_ms: wall-clock milliseconds since 1970 at the sender.
        bodies: at least one, all of one size.
        size: bytes of the records that they become.

    Whoever stores it notes on it where: the messages are one behind the other in the log and in every queue that they
    belong to. One object for both, because every publication makes one.

        position: log position of the first one's frame.
        step: bytes of each frame, and so from one to the next.
        queue_id, offset: their topic queue, and the place of the first one in it.
        stored_ms: wall-clock milliseconds since 1970 at which they were stored.
    """

    __slots__ = ("bodies", "born_ms", "flag", "offset", "position", "queue_id", "size", "step", "stored_ms", "tail")

    def __init__(self, tail: bytes, flag: int, born_ms: int, bodies: list[bytes]) -> None:
        self.tail = tail
        self.flag = flag
        self.born_ms = born_ms
        self.bodies = bodies
        self.size = len(bodies) * (BODY_AT + len(bodies[0]) + len(tail))
        self.position = self.offset = -1
        self.step = self.queue_id = self.stored_ms = 0

    def of(self, bodies: list[bytes]) -> Run:
        """The same with other bodies, stored nowhere."""
        return Run(self.tail, self.flag, self.born_ms, bodies)

    def placed(self, position: int, step: int, queue_id: int, offset: int, stored_ms: int) -> Run:
        """This run, stored there."""
        self.position = position
        self.step = step
        self.queue_id = queue_id
        self.offset = offset
        self.stored_ms = stored_ms
        return self

    def part(self, start: int, stop: int) -> Run:
        """The stored messages from number ``start`` to before ``stop``; it keeps nothing of the others."""
        position, offset = self.position + start * self.step, self.offset + start
        return self.of(self.bodies[start:stop]).placed(position, self.step, self.queue_id, offset, self.stored_ms)


checksum_of: Final[Callable[[bytes], int]] = iscsi
"""CRC-32C of a batch of runs: what a request carries beside it."""


def encode_runs(runs: Sequence[Run]) -> bytes:
    """The runs end to end."""
    pack = RUN_HEAD.pack
    parts: list[bytes] = []
    for run in runs:
        parts.append(pack(len(run.tail), run.flag, run.born_ms, len(run.bodies), len(run.bodies[0])))
        parts.append(run.tail)
        parts += run.bodies
    return b"".join(parts)


def decode_runs(data: bytes) -> list[Run]:
    """The runs in ``data``. Raises ``InvalidRequest`` where it is not exactly some runs, or they stand for too much."""
    runs: list[Run] = []
    unpack, at, end, records = RUN_HEAD.unpack_from, 0, len(data), 0
    while at < end:
        if at + RUN_HEAD.size > end:
            raise InvalidRequest(f"{end - at} bytes behind the last run; nothing was stored")
        tail_bytes, flag, born_ms, count, size = unpack(data, at)
        tail_at = at + RUN_HEAD.size
        bodies_at = tail_at + tail_bytes
        at = bodies_at + count * size
        records += count * (BODY_AT + size + tail_bytes)
        if at > end or not count or records > RECORDS_BYTES_MAX:
            raise InvalidRequest(
                f"a run of {count} bodies of {size} bytes with a tail of {tail_bytes} does not fit; nothing was stored"
            )
        if count == 1:
            bodies = [data[bodies_at:at]]
        elif size:
            bodies = [data[start : start + size] for start in range(bodies_at, at, size)]
        else:
            bodies = [b""] * count
        runs.append(Run(data[tail_at:bodies_at], flag, born_ms, bodies))
    return runs
