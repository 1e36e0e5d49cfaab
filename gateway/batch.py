"""A pulled batch as it came: messages of it are made into ``Arrival`` objects only where somebody looks at one.

Most batches are *even*: consecutive messages of one device, all with the same size, flag and properties, that do not
expire. What differs in them is told by a few columns, cut out of the frames with one call; whoever sends such a batch
needs nothing else (``gateway/delivery.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gateway.envelope import FRAME, NEVER, WHERE_FLAG_AT, Arrival, Heading, Origin, arrivals, read_heading
from penstock.message import ENTRY

EVEN_FROM: Final = 2
"""A single message is as quickly looked at as asked."""


@lru_cache(maxsize=1024)
def _columns(body_bytes: int, tail_bytes: int) -> struct.Struct:
    """Of a frame: what ``FRAME`` says of it, then body and tail."""
    return struct.Struct(f"{FRAME.format}{body_bytes}s{tail_bytes}s")


class Stretch:
    """Even messages, or some of them: a column each of what differs.

    Attributes:
        first: offset of the first one in the queue that was pulled; the others follow.
        flag: application flag of all.
        heading: what they have in common.
    """

    __slots__ = ("_origin", "_positions", "_stored", "_wheres", "bodies", "first", "flag", "heading")

    def __init__(
        self,
        first: int,
        flag: int,
        heading: Heading,
        bodies: Sequence[bytes],
        positions: Sequence[int],
        stored: Sequence[int],
        wheres: Sequence[bytes],
        origin: Origin | None,
    ) -> None:
        self.first = first
        self.flag = flag
        self.heading = heading
        self.bodies = bodies
        self._positions = positions
        self._stored = stored
        self._wheres = wheres
        self._origin = origin

    def part(self, start: int, stop: int) -> Stretch:
        """The messages from number ``start`` to before ``stop``."""
        some = slice(start, stop)
        positions, stored, wheres = self._positions[some], self._stored[some], self._wheres[some]
        first = self.first + start
        return Stretch(first, self.flag, self.heading, self.bodies[some], positions, stored, wheres, self._origin)

    def arrival(self, number: int) -> Arrival:
        """One of them by itself."""
        return Arrival(
            self.first + number,
            self._positions[number],
            self.flag,
            self.bodies[number],
            self.heading,
            self._stored[number],
            self._wheres[number],
            self._origin,
        )


class Batch:
    """What a pull brought. ``first`` and ``last`` are log positions of its first and last message, -1 if it is empty;
    ``even`` has all of it where it is even."""

    __slots__ = ("_arrivals", "count", "even", "first", "last")

    def __init__(self, count: int, body: bytes | memoryview, origin: Origin | None = None) -> None:
        """Raises ``InvalidMessage`` if it is shorter than it says."""
        data = bytes(body)
        self.count = count
        self.even = _even(count, data, origin) if count >= EVEN_FROM else None
        self._arrivals = arrivals(count, data, origin) if self.even is None else None
        self.first = self.last = -1
        if count:
            self.first, self.last = ENTRY.unpack_from(data)[1], ENTRY.unpack_from(data, (count - 1) * ENTRY.size)[1]

    def __len__(self) -> int:
        return self.count

    @property
    def arrivals(self) -> list[Arrival]:
        """Its messages one by one."""
        made = self._arrivals
        if made is None:
            even = self.even
            assert even is not None
            made = self._arrivals = [even.arrival(number) for number in range(self.count)]
        return made


def _even(count: int, data: bytes, origin: Origin | None) -> Stretch | None:
    """The messages of a batch if they are even; one that is too short is none."""
    at = count * ENTRY.size
    if at > len(data):
        return None
    first, _, size, _ = ENTRY.unpack_from(data)
    if ENTRY.unpack_from(data, at - ENTRY.size)[0] - first != count - 1 or len(data) - at != count * size:
        return None
    if size < FRAME.size + 4:
        return None
    body_bytes = FRAME.unpack_from(data, at)[2]
    tail_bytes = size - FRAME.size - body_bytes
    if tail_bytes < 4:
        return None
    _, positions, sizes, _ = zip(*ENTRY.iter_unpack(data[:at]), strict=True)
    wheres, stored, lengths, bodies, tails = zip(*_columns(body_bytes, tail_bytes).iter_unpack(data[at:]), strict=True)
    if sizes.count(size) != count or lengths.count(body_bytes) != count or tails.count(tails[0]) != count:
        return None
    flag = wheres[0][WHERE_FLAG_AT]
    heading = read_heading(tails[0])
    if heading.expiry_s != NEVER or [where[WHERE_FLAG_AT] for where in wheres].count(flag) != count:
        return None
    return Stretch(first, flag, heading, bodies, positions, stored, wheres, origin)
