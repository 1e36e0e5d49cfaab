"""Fold of retained messages: the last one of each MQTT topic name, whole, as its log frame.

A record with the retain flag decides the value in the same append that stores it; one with an empty body removes it.
Frames are kept in memory, so that they outlive retention; the service limits their number and bytes before the append.

Names are found in order through a list that is put in order when somebody asks: until then new names wait behind it
and names that went stay in it, so that a change costs the same whatever the number of names. A search goes past whole
subtrees in which nothing can match.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Final

from broker.folds.frozen import Table
from topicmap.names import first_match

KEY: Final = "retained"
FEW: Final = 64
"""So many new names are put in their places one by one; more of them are merged."""


class Retained:
    """The retained message of each name.

    Attributes:
        bytes: size of all frames.
        changed_at: log position behind the last record that changed anything; 0 if none did since the start.
    """

    def __init__(self) -> None:
        self._frames: Table[bytes] = Table()
        self._names: list[str] = []  # in order; names that are not in ``_frames`` any more are passed over
        self._new: dict[str, None] = {}  # names of ``_frames`` that are not in ``_names``
        self._gone: set[str] = set()  # names of ``_names`` that are not in ``_frames``; only ever looked up
        self.bytes = 0
        self.changed_at = 0

    def __len__(self) -> int:
        return len(self._frames)

    def size_of(self, name: str) -> int:
        """Bytes of the frame retained under a name, 0 if there is none."""
        return len(self._frames.get(name, b""))

    def put(self, name: str, frame: bytes, position: int) -> None:
        """The frame of the record before ``position`` is the retained message of that name now."""
        if name not in self._frames:
            if name in self._gone:
                self._gone.discard(name)
            else:
                self._new[name] = None
        self.bytes += len(frame) - self.size_of(name)
        self._frames[name] = frame
        self.changed_at = position

    def remove(self, name: str, position: int) -> None:
        """There is no retained message of that name any more, says the record before ``position``."""
        frame = self._frames.pop(name, None)
        if frame is None:
            return
        self.bytes -= len(frame)
        self.changed_at = position
        if name in self._new:
            del self._new[name]
        else:
            self._gone.add(name)

    def matching(self, filter: str, after: str, looked_at_max: int) -> Iterator[tuple[str, bytes | None]]:
        """Name and frame of what matches, in order of names after ``after``; ends with (name, None) where it stopped
        for its bound."""
        if "+" not in filter and not filter.endswith("#"):
            if filter > after and filter in self._frames:
                yield filter, self._frames[filter]
            return
        names = self._in_order()
        place = bisect_right(names, after)
        for _ in range(looked_at_max):
            if place == len(names):
                return
            name = names[place]
            first = first_match(filter, name)
            if first is None:
                return
            if first != name:
                place = bisect_left(names, first, place + 1)
                continue
            if name in self._frames:
                yield name, self._frames[name]
            place += 1
        if place < len(names):
            yield names[place - 1], None

    def _in_order(self) -> list[str]:
        """All names in order, perhaps with some that went."""
        if len(self._gone) * 2 > len(self._names):
            self._names = [name for name in self._names if name not in self._gone]
            self._gone = set()
        if len(self._new) <= FEW:
            for name in self._new:
                insort(self._names, name)
        else:
            self._names += sorted(self._new)
            self._names.sort()  # two runs in order: a merge
        self._new = {}
        return self._names

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._frames.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        """The state as bytes of msgpack, as it is now; made later, a slice at a time."""
        return self._frames.freeze(_row)

    def restore(self, snapshot: list[Any]) -> None:
        """Takes the state of a snapshot."""
        self._frames = Table((name, frame) for name, frame in snapshot)
        self._names, self._new, self._gone = sorted(self._frames), {}, set()
        self.bytes = sum(map(len, self._frames.values()))
        self.changed_at = 0


def _row(name: str, frame: bytes) -> list[Any]:
    return [name, frame]
