"""A pulled batch as it came: its messages become ``Arrival`` objects only where code looks at one.

Most batches are *even*: consecutive messages of one device, all with the same size, flag and properties, that do not
expire. Of frames this is seen by comparing columns of the batch, all messages at once; a run that a broker in the same
process hands over is even as it is. Sending such a batch needs nothing else (``gateway/messages/outgoing.py``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from gateway.messages.envelope import (
    ENTRY_BYTES,
    FLAG_AT,
    FRAME,
    HEAD_BYTES,
    SYSTEM_AT,
    Arrival,
    Heading,
    Origin,
    arrival_of,
    arrivals,
    given_arrivals,
    read_heading,
)
from penstock.errors import InvalidMessage
from penstock.protocol.message import ENTRY, NEVER
from penstock.protocol.runs import Run

EVEN_FROM: Final = 8
"""Fewer messages are as quickly looked at one by one as compared."""
_NUMBER_BYTES: Final = 4
_BODY_BYTES: Final = 56
"""What a body by itself takes in memory besides its bytes."""


@lru_cache(maxsize=1024)
def _columns(body_bytes: int, tail_bytes: int) -> np.dtype[Any]:
    """Of a frame: its flag, its system flag, the length of its body, its body, and its tail."""
    sizes = (_NUMBER_BYTES, _NUMBER_BYTES, _NUMBER_BYTES, body_bytes, tail_bytes)
    length_at, tail_at = HEAD_BYTES - _NUMBER_BYTES, HEAD_BYTES + body_bytes
    return np.dtype(
        {
            "names": ["flag", "system", "length", "body", "tail"],
            "formats": [("V", size) for size in sizes],
            "offsets": [FLAG_AT, SYSTEM_AT, length_at, HEAD_BYTES, tail_at],
            "itemsize": tail_at + tail_bytes,
        }
    )


@lru_cache(maxsize=1024)
def column(at: int, size: int, row_bytes: int) -> np.dtype[Any]:
    """Of rows with a number of bytes, the ``size`` bytes at a place, as the field ``column``."""
    return np.dtype({"names": ["column"], "formats": [("V", size)], "offsets": [at], "itemsize": row_bytes})


_SIZES: Final = column(16, _NUMBER_BYTES, ENTRY_BYTES)
"""Of an entry, the size of its frame."""


class Stretch:
    """Stretch of even messages, as they came.

    Attributes:
        first: offset of the first one in the queue that was pulled; the others follow.
        count: how many there are.
        body_bytes: size of the body of each.
        weight: bytes that each of them keeps in memory.
    """

    __slots__ = ("_heading", "_origin", "body_bytes", "count", "first", "weight")

    def __init__(
        self, first: int, count: int, heading: Heading, body_bytes: int, weight: int, origin: Origin | None
    ) -> None:
        self.first = first
        self.count = count
        self.body_bytes = body_bytes
        self.weight = weight
        self._heading = heading
        self._origin = origin

    def part(self, start: int, stop: int) -> Stretch:
        """The messages from number ``start`` to before ``stop``; it keeps nothing of the others."""
        raise NotImplementedError

    def bodies(self) -> list[bytes]:
        """The body of each."""
        raise NotImplementedError

    def behind(self, prefix: bytes) -> bytearray:
        """The body of each behind this prefix, end to end."""
        raise NotImplementedError

    def position(self, number: int) -> int:
        """Log position of one of them."""
        raise NotImplementedError

    def arrival(self, number: int) -> Arrival:
        """One of them by itself."""
        raise NotImplementedError


class FrameStretch(Stretch):
    """Stretch of even messages as the entries and frames of a pull."""

    __slots__ = ("_data", "_frame_bytes")

    def __init__(
        self,
        first: int,
        count: int,
        heading: Heading,
        body_bytes: int,
        frame_bytes: int,
        data: bytes,
        origin: Origin | None,
    ) -> None:
        super().__init__(first, count, heading, body_bytes, ENTRY_BYTES + frame_bytes, origin)
        self._frame_bytes = frame_bytes
        self._data = data

    def part(self, start: int, stop: int) -> Stretch:
        size, data = self._frame_bytes, self._data
        at = self.count * ENTRY_BYTES
        some = data[start * ENTRY_BYTES : stop * ENTRY_BYTES] + data[at + start * size : at + stop * size]
        return FrameStretch(self.first + start, stop - start, self._heading, self.body_bytes, size, some, self._origin)

    def bodies(self) -> list[bytes]:
        data, size, step = self._data, self.body_bytes, self._frame_bytes
        first = self.count * ENTRY_BYTES + HEAD_BYTES
        return [data[at : at + size] for at in range(first, first + self.count * step, step)]

    def behind(self, prefix: bytes) -> bytearray:
        size, count = self.body_bytes, self.count
        made = bytearray((prefix + bytes(size)) * count)
        columns = _columns(size, self._frame_bytes - HEAD_BYTES - size)
        bodies = np.frombuffer(self._data, columns, count, count * ENTRY_BYTES)["body"]
        np.frombuffer(made, column(len(prefix), size, len(prefix) + size), count)["column"] = bodies
        return made

    def position(self, number: int) -> int:
        position: int = ENTRY.unpack_from(self._data, number * ENTRY_BYTES)[1]
        return position

    def arrival(self, number: int) -> Arrival:
        data = self._data
        at = self.count * ENTRY_BYTES + number * self._frame_bytes
        queue_id, flag, queue_offset, _, born_ms, stored_ms, _ = FRAME.unpack_from(data, at)
        body = at + HEAD_BYTES
        payload = data[body : body + self.body_bytes]
        offset, position, heading, origin = self.first + number, self.position(number), self._heading, self._origin
        return Arrival(offset, position, flag, payload, heading, born_ms, stored_ms, queue_id, queue_offset, origin)


class RunStretch(Stretch):
    """Stretch of even messages as a run that a broker in this process has stored."""

    __slots__ = ("_run",)

    def __init__(self, first: int, run: Run, heading: Heading, origin: Origin | None) -> None:
        body_bytes = len(run.bodies[0])
        super().__init__(first, len(run.bodies), heading, body_bytes, body_bytes + _BODY_BYTES, origin)
        self._run = run

    def part(self, start: int, stop: int) -> Stretch:
        return RunStretch(self.first + start, self._run.part(start, stop), self._heading, self._origin)

    def bodies(self) -> list[bytes]:
        return self._run.bodies

    def behind(self, prefix: bytes) -> bytearray:
        return bytearray(prefix).join([b"", *self._run.bodies])

    def position(self, number: int) -> int:
        return self._run.position + number * self._run.step

    def arrival(self, number: int) -> Arrival:
        return arrival_of(self._run, number, self.first + number, self._heading, self._origin)


class Batch:
    """Messages that a pull brought. ``first`` and ``last`` are log positions of its first and last message, -1 if it is
    empty; ``even`` has all of it where it is even."""

    __slots__ = ("_arrivals", "count", "even", "first", "last")

    def __init__(self, count: int, even: Stretch | None, made: list[Arrival] | None) -> None:
        """It is ``even`` or ``made``."""
        self.count = count
        self.even = even
        self._arrivals = made
        self.first = self.last = -1
        if even is not None:
            self.first, self.last = even.position(0), even.position(count - 1)
        elif made:
            self.first, self.last = made[0].position, made[-1].position

    def __len__(self) -> int:
        return self.count

    @property
    def newest(self) -> Arrival | None:
        """Its last message."""
        if self._arrivals is None and self.even is not None:
            return self.even.arrival(self.count - 1)
        return self._arrivals[-1] if self._arrivals else None

    @property
    def arrivals(self) -> list[Arrival]:
        """Its messages one by one."""
        made = self._arrivals
        if made is None:
            even = self.even
            assert even is not None
            made = self._arrivals = [even.arrival(number) for number in range(self.count)]
        return made


def pulled_batch(count: int, body: bytes | memoryview, origin: Origin | None = None) -> Batch:
    """The batch of the entries and frames in a pull's reply. Raises ``InvalidMessage`` if it is shorter than it
    says."""
    data = body if isinstance(body, bytes) else bytes(body)
    even = _even(count, data, origin) if count >= EVEN_FROM else None
    return Batch(count, even, arrivals(count, data, origin) if even is None else None)


EMPTY: Final = Batch(0, None, [])


def sound_batch(count: int, body: bytes | memoryview, origin: Origin | None = None) -> Batch:
    """The same, empty where the broker frames its reply wrongly: nothing of it can be believed."""
    try:
        return pulled_batch(count, body, origin)
    except InvalidMessage:
        return EMPTY


def given_batch(offset: int, runs: list[Run], origin: Origin | None = None) -> Batch:
    """The batch of runs that a broker in this process hands over; ``offset`` is that of the first message."""
    if len(runs) == 1:
        run = runs[0]
        count = len(run.bodies)
        if count >= EVEN_FROM:
            heading = read_heading(run.tail)
            if heading.expiry_s == NEVER and not run.unusual:
                return Batch(count, RunStretch(offset, run, heading, origin), None)
    made = given_arrivals(offset, runs, origin)
    return Batch(len(made), None, made)


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
    body_bytes = FRAME.unpack_from(data, at)[6]
    tail_bytes = size - HEAD_BYTES - body_bytes
    if tail_bytes < 4:
        return None
    rows = np.frombuffer(data, _columns(body_bytes, tail_bytes), count, at)
    sizes = np.frombuffer(data, _SIZES, count)["column"]
    if rows["system"].tobytes().count(0) != count * _NUMBER_BYTES:
        return None  # some are compressed, perhaps
    if not (_are_alike(rows["flag"]) and _are_alike(rows["length"]) and _are_alike(rows["tail"]) and _are_alike(sizes)):
        return None
    heading = read_heading(data[at + size - tail_bytes : at + size])
    if heading.expiry_s != NEVER:
        return None
    return FrameStretch(first, count, heading, body_bytes, size, data, origin)


def _are_alike(column: np.ndarray[Any, Any]) -> bool:
    """Whether all values are the same bytes."""
    values = column.tobytes()
    return values == values[: column.itemsize] * len(column)
