"""A pulled batch as it came: messages of it are made into ``Arrival`` objects only where somebody looks at one.

Most batches are *even*: consecutive messages of one device, all with the same size, flag and properties, that do not
expire. That they are is seen by comparing columns of the batch, all messages at once; whoever sends such a batch needs
nothing else (``gateway/delivery.py``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from gateway.envelope import (
    ENTRY_BYTES,
    FRAME,
    HEAD_BYTES,
    NEVER,
    WHERE_AT,
    WHERE_FLAG_AT,
    Arrival,
    Heading,
    Origin,
    arrivals,
    read_heading,
)
from penstock.message import ENTRY

EVEN_FROM: Final = 8
"""Fewer messages are as quickly looked at one by one as compared."""
_LENGTH_BYTES: Final = 4
_SIZES: Final = np.dtype({"names": ["size"], "formats": ["V4"], "offsets": [16], "itemsize": ENTRY_BYTES})
"""Of an entry, the size of its frame."""


@lru_cache(maxsize=1024)
def _columns(body_bytes: int, tail_bytes: int) -> np.dtype[Any]:
    """Of a frame: the low byte of its flag, the length of its body, its body, and its tail."""
    sizes = (1, _LENGTH_BYTES, body_bytes, tail_bytes)
    length_at, tail_at = HEAD_BYTES - _LENGTH_BYTES, HEAD_BYTES + body_bytes
    return np.dtype(
        {
            "names": ["flag", "length", "body", "tail"],
            "formats": [("V", size) for size in sizes],
            "offsets": [WHERE_AT + WHERE_FLAG_AT, length_at, HEAD_BYTES, tail_at],
            "itemsize": tail_at + tail_bytes,
        }
    )


class Stretch:
    """Even messages, or some of them, as they came.

    Attributes:
        first: offset of the first one in the queue that was pulled; the others follow.
        count: how many there are.
        flag: application flag of all.
        heading: what they have in common.
        body_bytes: size of the body of each.
        weight: bytes that each of them keeps in memory.
    """

    __slots__ = ("_data", "_frame_bytes", "_origin", "body_bytes", "count", "first", "flag", "heading", "weight")

    def __init__(
        self,
        first: int,
        count: int,
        flag: int,
        heading: Heading,
        body_bytes: int,
        frame_bytes: int,
        data: bytes,
        origin: Origin | None,
    ) -> None:
        self.first = first
        self.count = count
        self.flag = flag
        self.heading = heading
        self.body_bytes = body_bytes
        self.weight = ENTRY_BYTES + frame_bytes
        self._frame_bytes = frame_bytes
        self._data = data
        self._origin = origin

    def part(self, start: int, stop: int) -> Stretch:
        """The messages from number ``start`` to before ``stop``."""
        size, data = self._frame_bytes, self._data
        at = self.count * ENTRY_BYTES
        some = data[start * ENTRY_BYTES : stop * ENTRY_BYTES] + data[at + start * size : at + stop * size]
        first, count = self.first + start, stop - start
        return Stretch(first, count, self.flag, self.heading, self.body_bytes, size, some, self._origin)

    def bodies(self) -> np.ndarray[Any, Any]:
        """The body of each."""
        columns = _columns(self.body_bytes, self._frame_bytes - HEAD_BYTES - self.body_bytes)
        bodies: np.ndarray[Any, Any] = np.frombuffer(self._data, columns, self.count, self.count * ENTRY_BYTES)["body"]
        return bodies

    def arrival(self, number: int) -> Arrival:
        """One of them by itself."""
        data = self._data
        at = self.count * ENTRY_BYTES + number * self._frame_bytes
        where, stored_ms, _ = FRAME.unpack_from(data, at)
        body = at + HEAD_BYTES
        payload = data[body : body + self.body_bytes]
        position = ENTRY.unpack_from(data, number * ENTRY_BYTES)[1]
        return Arrival(self.first + number, position, self.flag, payload, self.heading, stored_ms, where, self._origin)


class Batch:
    """What a pull brought. ``first`` and ``last`` are log positions of its first and last message, -1 if it is empty;
    ``even`` has all of it where it is even."""

    __slots__ = ("_arrivals", "count", "even", "first", "last")

    def __init__(self, count: int, body: bytes | memoryview, origin: Origin | None = None) -> None:
        """Raises ``InvalidMessage`` if it is shorter than it says."""
        data = body if isinstance(body, bytes) else bytes(body)
        self.count = count
        self.first = self.last = -1
        self._arrivals: list[Arrival] | None = None
        self.even = _even(count, data, origin) if count >= EVEN_FROM else None
        if self.even is None:
            made = self._arrivals = arrivals(count, data, origin)
            if made:
                self.first, self.last = made[0].position, made[-1].position
        else:
            self.first = ENTRY.unpack_from(data)[1]
            self.last = ENTRY.unpack_from(data, (count - 1) * ENTRY_BYTES)[1]

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
    at = count * ENTRY_BYTES
    if at > len(data):
        return None
    first, _, size, _ = ENTRY.unpack_from(data)
    if ENTRY.unpack_from(data, at - ENTRY_BYTES)[0] - first != count - 1 or len(data) - at != count * size:
        return None
    if size < HEAD_BYTES + 4:
        return None
    body_bytes = FRAME.unpack_from(data, at)[2]
    tail_bytes = size - HEAD_BYTES - body_bytes
    if tail_bytes < 4:
        return None
    rows = np.frombuffer(data, _columns(body_bytes, tail_bytes), count, at)
    sizes = np.frombuffer(data, _SIZES, count)["size"]
    if not (_are_alike(rows["flag"]) and _are_alike(rows["length"]) and _are_alike(rows["tail"]) and _are_alike(sizes)):
        return None
    heading = read_heading(data[at + size - tail_bytes : at + size])
    if heading.expiry_s != NEVER:
        return None
    flag = data[at + WHERE_AT + WHERE_FLAG_AT]
    return Stretch(first, count, flag, heading, body_bytes, size, data, origin)


def _are_alike(column: np.ndarray[Any, Any]) -> bool:
    """Whether all values are the same bytes."""
    values = column.tobytes()
    return values == values[: column.itemsize] * len(column)
