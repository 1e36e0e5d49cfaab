"""The filter index: which of many open filters match a topic name.

Filters are hashed by *shape*: the places of their ``+`` levels and whether they end in ``#``. All filters of one
shape are one dictionary, keyed by the levels that are left; a name is looked up once per shape that fits its depth.
That is a few dictionary look-ups per publish whatever the number of filters, a few objects per filter and little for
the garbage collector to walk. Hostile filters can make many shapes; beyond ``SHAPES_MAX`` of them further filters go
to a plain trie, whose work per match is bounded too. Results of recent names are remembered and dropped when a
filter that matches them comes or goes.

Invariants: ``match`` gives exactly the filters ``f`` with ``names.matches(f, name)``, each once, in the order of shapes
and then of insertion, so that two runs agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from topicmap.names import matches

SHAPES_MAX: Final = 64
REMEMBERED_MAX: Final = 4096
_SEPARATOR: Final = "\x00"  # no legal name holds it


class _Shape(NamedTuple):
    """``plus`` are the places of the ``+`` levels, ``depth`` the number of levels without ``#``, ``open_end`` says
    if it ends in #."""

    plus: tuple[int, ...]
    depth: int
    open_end: bool


def _shape_of(levels: list[str]) -> _Shape:
    open_end = levels[-1] == "#"
    depth = len(levels) - open_end
    return _Shape(tuple(i for i in range(depth) if levels[i] == "+"), depth, open_end)


class FilterIndex:
    """A set of legal filters that can be asked which of them match a name."""

    def __init__(self) -> None:
        self._filters: dict[str, None] = {}
        self._shapes: dict[_Shape, dict[str, str]] = {}
        self._by_depth: dict[int, list[tuple[_Shape, dict[str, str]]]] = {}  # fitting shapes of a name's depth
        self._trie: dict[str, Any] = {}
        self._trie_size = 0
        self._remembered: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, filter: str) -> bool:
        return filter in self._filters

    def __iter__(self) -> Iterator[str]:
        return iter(self._filters)

    def add(self, filter: str) -> bool:
        """Takes a legal filter in; False if it was there."""
        if filter in self._filters:
            return False
        self._filters[filter] = None
        levels = filter.split("/")
        shape = _shape_of(levels)
        if shape in self._shapes or len(self._shapes) < SHAPES_MAX:
            if shape not in self._shapes:
                self._shapes[shape] = {}
                self._by_depth.clear()
            self._shapes[shape][_key(levels, shape)] = filter
        else:
            _insert(self._trie, levels, filter)
            self._trie_size += 1
        self._forget(filter)
        return True

    def remove(self, filter: str) -> bool:
        """Takes a filter out; False if it was not there."""
        if filter not in self._filters:
            return False
        del self._filters[filter]
        levels = filter.split("/")
        shape = _shape_of(levels)
        table = self._shapes.get(shape)
        if table is not None and table.pop(_key(levels, shape), None) is not None:
            if not table:
                del self._shapes[shape]
                self._by_depth.clear()
        else:
            _delete(self._trie, levels)
            self._trie_size -= 1
        self._forget(filter)
        return True

    def match(self, name: str) -> list[str]:
        """The filters that match a legal name. The list is shared: callers must not change it."""
        found = self._remembered.get(name)
        if found is None:
            found = self._search(name)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[name] = found
        return found

    def _search(self, name: str) -> list[str]:
        levels = name.split("/")
        guarded = name[:1] == "$"
        found: list[str] = []
        for shape, table in self._fitting(len(levels)):
            if guarded and (shape.plus[:1] == (0,) or shape.depth == 0):
                continue
            filter = table.get(_key(levels, shape))
            if filter is not None:
                found.append(filter)
        if self._trie_size:
            _walk(self._trie, levels, guarded, found)
        return found

    def _fitting(self, depth: int) -> list[tuple[_Shape, dict[str, str]]]:
        fitting = self._by_depth.get(depth)
        if fitting is None:
            fitting = [
                (shape, table)
                for shape, table in self._shapes.items()
                if shape.depth == depth or (shape.open_end and shape.depth < depth)
            ]
            self._by_depth[depth] = fitting
        return fitting

    def _forget(self, filter: str) -> None:
        """Drops the remembered results that this filter changes."""
        if len(self._remembered) > 256:
            self._remembered.clear()  # cheaper than to test them all, and they come back one by one
            return
        for name in [name for name in self._remembered if matches(filter, name)]:
            del self._remembered[name]


def _key(levels: list[str], shape: _Shape) -> str:
    """The levels that a shape leaves, as one string."""
    kept = levels[: shape.depth]
    if shape.plus:
        kept = list(kept)
        for place in shape.plus:
            kept[place] = ""
    return _SEPARATOR.join(kept)


_END: Final = "\x00end"  # no legal level holds U+0000


def _insert(trie: dict[str, Any], levels: list[str], filter: str) -> None:
    node = trie
    for level in levels:
        node = node.setdefault(level, {})
    node[_END] = filter


def _delete(trie: dict[str, Any], levels: list[str]) -> None:
    path = [trie]
    for level in levels:
        path.append(path[-1][level])
    del path[-1][_END]
    for node, level in zip(reversed(path[:-1]), reversed(levels), strict=True):
        if node[level]:
            break
        del node[level]


def _walk(trie: dict[str, Any], levels: list[str], guarded: bool, found: list[str]) -> None:
    """Adds the trie's matches, level by level without recursion. The work is bounded by the trie's nodes at each
    depth."""
    nodes = [trie]
    for depth, level in enumerate(levels):
        following: list[dict[str, Any]] = []
        for node in nodes:
            if not (guarded and depth == 0):
                if "#" in node:
                    found.append(node["#"][_END])
                if "+" in node:
                    following.append(node["+"])
            if level in node:
                following.append(node[level])
        nodes = following
    for node in nodes:
        if _END in node:
            found.append(node[_END])
        if "#" in node:
            found.append(node["#"][_END])
