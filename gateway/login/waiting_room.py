"""What waits to be checked, by where it comes from: addresses have turns, so that one that brings much waits for
itself and not the others for it.

A room that is full turns away the last of the address that has most, and a newcomer only where that is its own. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class WaitingRoom(Generic[T]):
    """At most ``most`` wait; the first of each address goes before the second of any."""

    __slots__ = ("_by_address", "_count", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: dict[str, deque[T]] = {}  # whose turn it is stands first

    def __len__(self) -> int:
        return self._count

    def add(self, address: str, one: T) -> T | None:
        """Takes one in. The one for which there is no room, this or another; ``None`` where there is."""
        turned_away, waiting = None, self._by_address.get(address, deque())
        if self._count >= self._most:
            longest = max(self._by_address.values(), key=len, default=waiting)
            if len(longest) <= len(waiting) + 1:
                return one
            turned_away = longest.pop()
            self._count -= 1
        waiting.append(one)
        self._by_address[address] = waiting
        self._count += 1
        return turned_away

    def take(self) -> T | None:
        """The one whose turn it is."""
        if not self._count:
            return None
        address = next(iter(self._by_address))
        waiting = self._by_address.pop(address)
        one = waiting.popleft()
        if waiting:
            self._by_address[address] = waiting
        self._count -= 1
        return one
