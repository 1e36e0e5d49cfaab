"""Which of a session's filters match a name, as bits: the first filter's is the lowest.

Every cursor of a session asks for it with every message that it comes to, so answers are remembered. Pure.
"""

from __future__ import annotations

from typing import Final

from topicmap.filters import FilterIndex
from topicmap.names import SHORT_BYTES_MAX, matches

COMPARED_MAX: Final = 32
"""Number of filters that a new name is compared with one by one; for more there is an index, which takes memory."""
NAMES_MAX: Final = 256
NAMES_PER_FILTER: Final = 32
NAMES_OF_MANY_MAX: Final = 4096
"""Number of names that are remembered for many filters: each cursor looks at all names of a pull before the next one
does."""


class Matching:
    """Matches of filters that do not change. The same one may be there several times: at several brokers."""

    __slots__ = ("_filters", "_index", "_names_max", "_places", "_remembered")

    def __init__(self, filters: list[str]) -> None:
        self._filters = filters
        self._names_max = min(max(NAMES_MAX, NAMES_PER_FILTER * len(filters)), NAMES_OF_MANY_MAX)
        self._remembered: dict[str, int] = {}
        self._index: FilterIndex | None = None
        self._places: dict[str, int] = {}
        if len(filters) > COMPARED_MAX:
            self._index = FilterIndex()
            for at, filter in enumerate(filters):
                self._index.add(filter)
                self._places[filter] = self._places.get(filter, 0) | 1 << at

    def bits(self, name: str) -> int:
        """A bit for each filter that matches a legal name."""
        found = self._remembered.get(name, -1)
        if found < 0:
            found = self._search(name)
            if len(name) <= SHORT_BYTES_MAX:
                if len(self._remembered) >= self._names_max:
                    self._remembered.clear()
                self._remembered[name] = found
        return found

    def _search(self, name: str) -> int:
        found = 0
        if self._index is None:
            for at, filter in enumerate(self._filters):
                if matches(filter, name):
                    found |= 1 << at
        else:
            for filter in self._index.search(name):
                found |= self._places[filter]
        return found


def places(bits: int) -> list[int]:
    """The set bits, the lowest first. There may be a thousand, and mostly one is set."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
