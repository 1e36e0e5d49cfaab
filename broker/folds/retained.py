"""Fold of retained messages: the last one of each MQTT topic name, whole, as its log frame.

A record with the retain flag decides the value in the same append that stores it; one with an empty body removes it.
Frames are kept in memory, so that they outlive retention; the service limits their number and bytes before the append.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Any

from topicmap.names import matches


class Retained:
    """The retained message of each name, in order of names."""

    def __init__(self) -> None:
        self._frames: dict[str, bytes] = {}
        self._names: list[str] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, name: str) -> bool:
        return name in self._frames

    def put(self, name: str, frame: bytes) -> None:
        """The frame is the retained message of that name now."""
        if name not in self._frames:
            insort(self._names, name)
        else:
            self.bytes -= len(self._frames[name])
        self._frames[name] = frame
        self.bytes += len(frame)

    def remove(self, name: str) -> None:
        """There is no retained message of that name any more."""
        frame = self._frames.pop(name, None)
        if frame is not None:
            self.bytes -= len(frame)
            del self._names[bisect_right(self._names, name) - 1]

    def matching(self, filter: str, after: str, looked_at_max: int) -> Iterator[tuple[str, bytes | None]]:
        """Name and frame of what matches, in order of names after ``after``; ends with (name, None) where it stopped
        for its bound."""
        if "+" not in filter and "#" not in filter:
            if filter > after and filter in self._frames:
                yield filter, self._frames[filter]
            return
        prefix = filter[: min(at for at in (filter.find("+"), filter.find("#")) if at >= 0)]
        stem = prefix.removesuffix("/") if filter.endswith("/#") and prefix + "#" == filter else prefix
        place = max(bisect_right(self._names, after), bisect_right(self._names, stem) - (stem in self._frames))
        for name in self._names[place : place + looked_at_max]:
            if not name.startswith(stem):
                return
            if matches(filter, name):
                yield name, self._frames[name]
        if place + looked_at_max < len(self._names):
            yield self._names[place + looked_at_max - 1], None

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return [[name, self._frames[name]] for name in self._names]

    def restore(self, snapshot: list[Any]) -> None:
        """Takes the state of a snapshot."""
        self._frames = {name: frame for name, frame in snapshot}
        self._names = sorted(self._frames)
        self.bytes = sum(map(len, self._frames.values()))
