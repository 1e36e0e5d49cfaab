"""The filter index: which of many open filters match a topic name.

A filter without wildcards matches the name that it is. The others are hashed by *shape*: the places of their ``+``
levels and whether they end in ``#``. All filters of one shape are one dictionary, keyed by the levels that are left; a
name is looked up once per shape that fits its depth. That is a few dictionary look-ups per publish whatever the number
of filters, and strings only, nothing for the garbage collector to walk. Results of recent names are remembered; a
filter that comes or goes drops those that it changes.

Hostile filters can make many shapes. Beyond ``SHAPES_MAX`` of one depth further shapes go to a plain trie, and
``has_room`` says no to new *rare* shapes beyond ``RARE_SHAPES_MAX`` there: those of which there are more than
``COMMON_MAX`` with as many levels and ``+``. All that people use (``site/+/line/+/#``, whatever has no more than nine
levels) is common, and so is never refused because of other clients' filters. The work of a match is bounded: at each
level a walk through the trie has at most one node per rare shape, and as many again for the common ones, which are few
or have few levels.

Invariants: ``match`` gives exactly the filters ``f`` with ``names.matches(f, name)``, each once, sorted: whatever the
order in which filters came, two indexes of the same filters agree. A filter with wildcards is in a shape's table or in
the trie, never in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import Any, Final, NamedTuple

from topicmap.names import SHORT_BYTES_MAX, matches

SHAPES_MAX: Final = 16
"""Hashed shapes of one depth, and hashed shapes that end in ``#``: a match makes at most twice as many look-ups."""
RARE_SHAPES_MAX: Final = 512
COMMON_MAX: Final = 128

REMEMBERED_MAX: Final = 4096
REMEMBERED_FILTERS_MAX: Final = 1 << 18
_DROP_ALL_ABOVE: Final = 64  # of the names that may be changed: dropping is then cheaper than testing each

_SEPARATOR: Final = "\x00"  # no legal name holds it
_END: Final = "\x00end"  # nor this


class _Shape(NamedTuple):
    """``plus`` are the places of the ``+`` levels, ``depth`` the number of levels without ``#``, ``open_end`` says
    if it ends in #."""

    plus: tuple[int, ...]
    depth: int
    open_end: bool


def _shape_of(levels: list[str]) -> _Shape:
    open_end = levels[-1] == "#"
    depth = len(levels) - open_end
    return _Shape(tuple([place for place in range(depth) if levels[place] == "+"]), depth, open_end)


def _is_rare(shape: _Shape) -> bool:
    return comb(shape.depth, len(shape.plus)) > COMMON_MAX


def _has_wildcard(filter: str) -> bool:
    return "+" in filter or "#" in filter


def _group_of(shape: _Shape) -> int:
    """Shapes of one group share the limit ``SHAPES_MAX``: those of one depth, and those that end in #."""
    return -1 if shape.open_end else shape.depth


class FilterIndex:
    """A set of legal filters that can be asked which of them match a name."""

    def __init__(self) -> None:
        self._filters: dict[str, None] = {}
        self._shapes: dict[_Shape, dict[str, str]] = {}
        self._grouped: dict[int, int] = {}  # group -> hashed shapes in it
        self._by_depth: dict[int, list[tuple[_Shape, dict[str, str]]]] = {}  # hashed shapes that fit a name's depth
        self._trie: dict[str, Any] = {}
        self._trie_shapes: dict[_Shape, int] = {}  # -> filters of it in the trie
        self._rare = 0  # number of rare ones among them
        self._remembered: dict[str, list[str]] = {}
        self._remembered_filters = 0
        self._alike: dict[str, list[str]] = {}  # first two levels -> remembered names that begin so

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, filter: str) -> bool:
        return filter in self._filters

    def __iter__(self) -> Iterator[str]:
        return iter(self._filters)

    def has_room(self, filter: str) -> bool:
        """Whether taking this filter in keeps the work of a match bounded. ``add`` takes it all the same: callers that
        add filters of strangers ask first."""
        if not _has_wildcard(filter):
            return True
        shape = _shape_of(filter.split("/"))
        is_known = self._is_hashed(shape) or shape in self._trie_shapes
        return is_known or self._rare < RARE_SHAPES_MAX or not _is_rare(shape)

    def add(self, filter: str) -> bool:
        """Takes a legal filter in; False if it was there."""
        if filter in self._filters:
            return False
        self._filters[filter] = None
        if not _has_wildcard(filter):
            self._forget_name(filter)
            return True
        levels = filter.split("/")
        shape = _shape_of(levels)
        if self._is_hashed(shape):
            self._table(shape)[_key(levels, shape)] = filter
        else:
            _insert(self._trie, levels, filter)
            count = self._trie_shapes.get(shape, 0)
            self._trie_shapes[shape] = count + 1
            self._rare += not count and _is_rare(shape)
        self._forget(filter, levels, shape)
        return True

    def remove(self, filter: str) -> bool:
        """Takes a filter out; False if it was not there."""
        if filter not in self._filters:
            return False
        del self._filters[filter]
        if not _has_wildcard(filter):
            self._forget_name(filter)
            return True
        levels = filter.split("/")
        shape = _shape_of(levels)
        table = self._shapes.get(shape, {})
        if table.pop(_key(levels, shape), None) is None:
            self._remove_from_trie(levels, shape)
        elif not table:
            del self._shapes[shape]
            self._grouped[_group_of(shape)] -= 1
            self._by_depth.clear()
        self._forget(filter, levels, shape)
        return True

    def match(self, name: str) -> list[str]:
        """The filters that match a legal name, sorted. The list is shared: callers must not change it."""
        found = self._remembered.get(name)
        if found is None:
            found = self.search(name)
            if len(name) <= SHORT_BYTES_MAX:
                self._remember(name, found)
        return found

    def search(self, name: str) -> list[str]:
        """As ``match``, for who remembers names by himself."""
        levels = name.split("/")
        guarded = name[:1] == "$"  # a leading wildcard does not match it (MQTT-4.7.2-1)
        found: list[str] = [name] if name in self._filters else []
        for shape, table in self._fitting(len(levels)):
            filter = table.get(_key(levels, shape))
            if filter is not None and not (guarded and filter[0] in "+#"):
                found.append(filter)
        if self._trie_shapes:
            _walk(self._trie, levels, guarded, found)
        if len(found) > 1:
            found.sort()
        return found

    # ------------------------------------------------------------ shapes and trie

    def _is_hashed(self, shape: _Shape) -> bool:
        return shape in self._shapes or self._grouped.get(_group_of(shape), 0) < SHAPES_MAX

    def _table(self, shape: _Shape) -> dict[str, str]:
        table = self._shapes.get(shape)
        if table is None:
            table = self._shapes[shape] = {}
            group = _group_of(shape)
            self._grouped[group] = self._grouped.get(group, 0) + 1
            self._by_depth.clear()
        return table

    def _remove_from_trie(self, levels: list[str], shape: _Shape) -> None:
        _delete(self._trie, levels)
        self._trie_shapes[shape] -= 1
        if not self._trie_shapes[shape]:
            del self._trie_shapes[shape]
            self._rare -= _is_rare(shape)

    def _fitting(self, depth: int) -> list[tuple[_Shape, dict[str, str]]]:
        fitting = self._by_depth.get(depth)
        if fitting is None:
            fitting = self._by_depth[depth] = [
                (shape, table)
                for shape, table in self._shapes.items()
                if shape.depth == depth or (shape.open_end and shape.depth < depth)
            ]
        return fitting

    # ------------------------------------------------------------ remembered names

    def _remember(self, name: str, found: list[str]) -> None:
        self._remembered_filters += len(found)
        if len(self._remembered) >= REMEMBERED_MAX or self._remembered_filters > REMEMBERED_FILTERS_MAX:
            self._forget_all()
            self._remembered_filters = len(found)
        self._remembered[name] = found
        self._alike.setdefault(_beginning(name.split("/", 2)), []).append(name)

    def _forget_name(self, name: str) -> None:
        found = self._remembered.pop(name, None)
        if found is not None:
            self._remembered_filters -= len(found)
            self._alike[_beginning(name.split("/", 2))].remove(name)

    def _forget_all(self) -> None:
        self._remembered.clear()
        self._alike.clear()
        self._remembered_filters = 0

    def _forget(self, filter: str, levels: list[str], shape: _Shape) -> None:
        """Drops the remembered results that a filter with wildcards changes, and perhaps a few more."""
        if shape.plus[:1] in ((0,), (1,)) or (shape.open_end and shape.depth < 2):
            self._forget_all()  # a wildcard in the first two levels: most names may be changed
            return
        alike = self._alike.get(_beginning(levels))
        if not alike:
            return
        begins = "/".join(levels[: shape.plus[0] if shape.plus else shape.depth])
        kept = []
        if len(alike) <= _DROP_ALL_ABOVE:  # few begin so, and to compare all levels takes many times as long
            kept = [name for name in alike if not (name.startswith(begins) and matches(filter, name))]
            if len(kept) == len(alike):
                return
        for name in alike if not kept else set(alike).difference(kept):
            self._remembered_filters -= len(self._remembered.pop(name))
        if kept:
            self._alike[_beginning(levels)] = kept
        else:
            del self._alike[_beginning(levels)]


def _beginning(levels: list[str]) -> str:
    return _SEPARATOR.join(levels[:2])


def _key(levels: list[str], shape: _Shape) -> str:
    """The levels that a shape leaves, as one string."""
    kept = levels[: shape.depth]
    for place in shape.plus:
        kept[place] = ""
    return _SEPARATOR.join(kept)


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
    """Adds the trie's matches, level by level without recursion."""
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
