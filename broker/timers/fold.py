"""Fold of sleeping messages: which messages are in the log but in no queue yet, and when each is due.

A message sleeps in a system record, whose position is its id for ever. Messages wake in the order of due time and id.
The record of a message that woke says so itself (``FLAG_WOKEN`` and the property ``TIMER``): all before it have woken,
which is the *mark*. So each wakes exactly once, wherever the log ends after a crash. Retention never takes a sleeping
message: it is *carried* to the log's end, under its id.

The latest cancelled ones are remembered, so that a cancel that is repeated is not told that its message was delivered.

Rows stand in buckets, one for each minute: 28 bytes for a message. 1,000,000 of them take some 30 MB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import msgpack
import numpy as np
import numpy.typing as npt

from broker.kernel.fold import fact_of
from broker.kernel.frozen import Table
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.protocol.message import FLAG_WOKEN, TIMER, property_of
from topicmap.queues import SYSTEM_PREFIX

TOPIC: Final = "%sys%timers"
SLEEP, CANCEL, CARRY = "sleep", "cancel", "carry"
MINUTE_MS: Final = 60_000
CANCELLED_MAX: Final = 10_000
_TIMER: Final = TIMER.encode()
_ROW: Final = struct.Struct(">QQQI")
_TYPE: Final = np.dtype([("due_ms", ">u8"), ("id", ">u8"), ("position", ">u8"), ("size", ">u4")])
_Rows = npt.NDArray[Any]


class Sleeper(NamedTuple):
    """A sleeping message. ``position``, ``size``: where its latest record is, and the bytes of that frame."""

    due_ms: int
    id: int
    position: int
    size: int


class GivenBack(NamedTuple):
    """A message of a group's queue that a member gave back after its ``attempt``: it comes again at ``due_ms``, or is a
    dead letter (0)."""

    group: str
    queue: str
    offset: int
    attempt: int
    due_ms: int


class Bucket:
    """The sleeping messages of one minute. ``is_sorted``: its rows are in the order in which they wake."""

    __slots__ = ("is_sorted", "rows")

    def __init__(self, rows: bytes | bytearray = b"", *, is_sorted: bool = True) -> None:
        self.rows = bytearray(rows)
        self.is_sorted = is_sorted

    def __len__(self) -> int:
        return len(self.rows) // _ROW.size

    def add(self, row: Sleeper) -> None:
        """Adds a message."""
        packed = _ROW.pack(*row)
        self.is_sorted = self.is_sorted and bytes(self.rows[-_ROW.size :]) <= packed
        self.rows += packed

    def sort(self) -> None:
        """Puts the rows in the order in which they wake."""
        if not self.is_sorted:
            self.rows = bytearray(self.in_order())
            self.is_sorted = True

    def in_order(self) -> bytes:
        """The rows in the order in which they wake."""
        if self.is_sorted:
            return bytes(self.rows)
        rows = self.table()
        return rows[np.lexsort((rows["id"], rows["due_ms"]))].tobytes()

    def table(self) -> _Rows:
        """The rows as an array that is not tied to them."""
        return np.frombuffer(bytes(self.rows), _TYPE)

    def find(self, due_ms: int, id: int) -> int:
        """Where in ``rows`` a message stands, -1 if it is not there."""
        key = struct.pack(">QQ", due_ms, id)
        at = self.rows.find(key)
        while at >= 0 and at % _ROW.size:
            at = self.rows.find(key, at + 1)
        return at

    def until(self, due_ms: int, id: int) -> int:
        """How many rows of a sorted bucket are not behind this one."""
        rows, key = self.rows, struct.pack(">QQ", due_ms, id)
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            at = middle * _ROW.size
            if rows[at : at + 16] <= key:
                low = middle + 1
            else:
                high = middle
        return low


class Timers:
    """All sleeping messages of a broker.

    Attributes:
        bytes: of the frames of all of them.
        mark: due time and id of the message that woke last; all before it have woken.
    """

    KEY: Final = "timers"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = FLAG_WOKEN

    def __init__(self) -> None:
        self._buckets: Table[Bucket] = Table()
        self._first: str | None = None  # the earliest bucket; None: not known
        self._count = 0
        self._cancelled: dict[int, None] = {}
        self.bytes = 0
        self.mark = (0, 0)

    def __len__(self) -> int:
        return self._count

    # ------------------------------------------------------------ facts

    @staticmethod
    def sleep(due_ms: int, record: bytes, given_back: GivenBack | None = None) -> list[Any]:
        """Body of the record in which a message sleeps. ``given_back``: which message of a group it was."""
        return [SLEEP, due_ms, record, list(given_back)] if given_back else [SLEEP, due_ms, record]

    @staticmethod
    def record_in(fact: list[Any]) -> bytes:
        """The message in the body of such a record."""
        record: bytes = fact[3] if fact[0] == CARRY else fact[2]
        return record

    @staticmethod
    def cancel(due_ms: int, id: int) -> list[Any]:
        """Body of the record that ends a sleeping message."""
        return [CANCEL, due_ms, id]

    @staticmethod
    def carry(sleeper: Sleeper, record: bytes) -> list[Any]:
        """Body of the record in which a message sleeps on."""
        return [CARRY, sleeper.due_ms, sleeper.id, record]

    def apply(self, record: Stored) -> Change:
        if record.flag & FLAG_WOKEN and not record.topic.startswith(SYSTEM_PREFIX):
            self._wake(*woken_of(record.properties))
            return NO_CHANGE
        kind, due_ms, *more = fact_of(record)
        if kind == SLEEP:
            self._add(Sleeper(max(due_ms, self.mark[0]), record.position, record.position, record.size))
            if len(more) > 1:
                return Change(events=(GivenBack(*more[1]),))
        elif kind == CANCEL:
            self._cancel(due_ms, more[0])
        elif kind == CARRY and self._remove(due_ms, more[0]):
            self._add(Sleeper(due_ms, more[0], record.position, record.size))
        return NO_CHANGE

    def _add(self, sleeper: Sleeper) -> None:
        key = _key(sleeper.due_ms)
        if key in self._buckets:
            bucket = self._buckets.own(key, _copied)
        else:
            bucket = self._buckets[key] = Bucket()
            if self._first is not None:
                self._first = min(self._first, key)
        bucket.add(sleeper)
        self._count += 1
        self.bytes += sleeper.size

    def _remove(self, due_ms: int, id: int) -> bool:
        key = _key(due_ms)
        known = self._buckets.get(key)
        at = -1 if known is None else known.find(due_ms, id)
        if at < 0:
            return False
        rows = self._buckets.own(key, _copied).rows
        size = _ROW.unpack_from(rows, at)[3]
        del rows[at : at + _ROW.size]
        self._lost(key, 1, size)
        return True

    def _cancel(self, due_ms: int, id: int) -> None:
        if self._remove(due_ms, id):
            self._cancelled[id] = None
            if len(self._cancelled) > CANCELLED_MAX:
                del self._cancelled[next(iter(self._cancelled))]

    def _wake(self, due_ms: int, id: int) -> None:
        self.mark = max(self.mark, (due_ms, id))
        if self._wake_first(due_ms, id):
            return
        while (key := self._earliest()) is not None and key <= _key(due_ms):
            bucket = self._buckets.own(key, _copied)
            bucket.sort()
            count = bucket.until(due_ms, id)
            if not count:
                return
            taken = bucket.rows[: count * _ROW.size]
            del bucket.rows[: count * _ROW.size]
            self._lost(key, count, int(np.frombuffer(taken, _TYPE)["size"].sum()))

    def _wake_first(self, due_ms: int, id: int) -> bool:
        """Takes the message out where it is the first of all, as it is when each wakes in its turn."""
        key = self._earliest()
        if key is None or not self._buckets[key].is_sorted:
            return False
        rows = self._buckets.own(key, _copied).rows
        first = _ROW.unpack_from(rows)
        if first[0] != due_ms or first[1] != id:
            return False
        del rows[: _ROW.size]
        self._lost(key, 1, first[3])
        return True

    def _lost(self, key: str, count: int, size: int) -> None:
        self._count -= count
        self.bytes -= size
        if not self._buckets[key].rows:
            del self._buckets[key]
            if self._first == key:
                self._first = None

    def _earliest(self) -> str | None:
        if self._first is None:
            self._first = min(self._buckets, default=None)
        return self._first

    # ------------------------------------------------------------ what it knows

    def state_of(self, due_ms: int, id: int) -> str:
        """The outcome of a message: ``"sleeping"``, ``"woken"``, or ``"unknown"`` (cancelled, or never there)."""
        known = self._buckets.get(_key(due_ms))
        if known is not None and known.find(due_ms, id) >= 0:
            return "sleeping"
        return "woken" if (due_ms, id) <= self.mark and id not in self._cancelled else "unknown"

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is due, at the latest in its minute; ``None`` without any."""
        key = self._earliest()
        if key is None:
            return None
        bucket = self._buckets[key]
        return _ROW.unpack_from(bucket.rows)[0] if bucket.is_sorted else int(key) * MINUTE_MS

    def due(self, now_ms: int, count_max: int, bytes_max: int) -> list[Sleeper]:
        """The messages that are due, in order: at most ``count_max``, and at most ``bytes_max`` unless the first has
        more."""
        found: list[Sleeper] = []
        size, last = 0, _key(now_ms)
        for key in self._in_order(last):
            bucket = self._buckets[key]
            if not bucket.is_sorted:
                bucket = self._buckets.own(key, _copied)
                bucket.sort()
            for row in _ROW.iter_unpack(bytes(bucket.rows[: count_max * _ROW.size])):
                size += row[3]
                if row[0] > now_ms or len(found) >= count_max or (found and size > bytes_max):
                    return found
                found.append(Sleeper(*row))
        return found

    def _in_order(self, last: str) -> Iterator[str]:
        key = self._earliest()
        if key is not None and key <= last:
            yield key
            yield from sorted(other for other in self._buckets if key < other <= last)

    def after(self, due_ms: int, id: int, count_max: int) -> list[Sleeper]:
        """Sleeping messages behind one, in the order in which they wake."""
        found: list[Sleeper] = []
        for key in sorted(key for key in self._buckets if key >= _key(due_ms)):
            for row in _ROW.iter_unpack(self._buckets[key].in_order()):
                if row[:2] > (due_ms, id):
                    found.append(Sleeper(*row))
                    if len(found) >= count_max:
                        return found
        return found

    def before(self, position: int, count_max: int) -> list[Sleeper]:
        """Messages whose latest record is before a log position: those to carry before the log begins there."""
        found: list[Sleeper] = []
        for bucket in self._buckets.values():
            rows = bucket.table()
            old = rows[rows["position"] < position][: count_max - len(found)]
            found += [Sleeper(*row) for row in old.tolist()]
            if len(found) >= count_max:
                break
        return found

    # ------------------------------------------------------------ snapshots

    def freeze(self) -> Iterator[bytes]:
        mark, rows, cancelled = list(self.mark), self._buckets.freeze(_row), list(self._cancelled)

        def pieces() -> Iterator[bytes]:
            yield cast(bytes, msgpack.Packer().pack_array_header(3)) + cast(bytes, msgpack.packb(mark))
            yield from rows
            yield cast(bytes, msgpack.packb(cancelled))

        return pieces()

    def restore(self, snapshot: Sequence[Any] | None) -> None:
        mark, rows, *more = snapshot or ((0, 0), ())
        self.mark = (mark[0], mark[1])
        self._cancelled = dict.fromkeys(more[0] if more else ())
        self._buckets = Table((_key(minute * MINUTE_MS), Bucket(packed)) for minute, packed in rows)
        self._first = None
        self._count = sum(map(len, self._buckets.values()))
        self.bytes = sum(int(bucket.table()["size"].sum()) for bucket in self._buckets.values())


def timer_of(sleeper: Sleeper) -> str:
    """The property of a message that was this sleeping one."""
    return f"{sleeper.due_ms}:{sleeper.id}"


def woken_of(properties: bytes) -> tuple[int, int]:
    """Due time and id of the sleeping message that a message was; zeros where it does not say."""
    due_ms, _, id = property_of(properties, _TIMER).partition(b":")
    return (int(due_ms), int(id)) if due_ms.isdigit() and id.isdigit() else (0, 0)


def _key(due_ms: int) -> str:
    """The name of a minute; names are in the order of time."""
    return f"{due_ms // MINUTE_MS:014d}"


def _copied(bucket: Bucket) -> Bucket:
    return Bucket(bucket.rows, is_sorted=bucket.is_sorted)


def _row(key: str, bucket: Bucket) -> list[Any]:
    return [int(key), bucket.in_order()]
