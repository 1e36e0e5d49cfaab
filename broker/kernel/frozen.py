"""Tables of folds that can be frozen: a snapshot keeps its state while the table goes on changing.

Freezing copies the table, not its values. Before a value changes for the first time after a snapshot, it is replaced by
a copy (``own``). So a snapshot costs the copy of one dictionary at once, and is made into bytes later, a slice at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from broker.store.rows import packed_table

SLICE_ROWS: Final = 2_000
V = TypeVar("V")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Table(dict[str, V]):
    """A dictionary whose values are changed only after ``own`` was asked for them."""

    __slots__ = ("_frozen",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._frozen: Mapping[str, V] = _NOTHING

    def own(self, key: str, copy: Callable[[V], V]) -> V:
        """The value of a key, to be changed: its copy where a snapshot still needs it as it is."""
        value = self[key]
        if self._frozen.get(key) is value:
            value = self[key] = copy(value)
        return value

    def freeze(self, row: Callable[[str, V], list[Any]]) -> Iterator[bytes]:
        """The msgpack array of one row per key, in order, as the table is now; made later, a slice at a time."""
        frozen = self._frozen = dict(self)

        def pieces() -> Iterator[bytes]:
            yield from packed_table(frozen, len(frozen), lambda key: row(key, frozen[key]), SLICE_ROWS)
            if self._frozen is frozen:
                self._frozen = _NOTHING

        return pieces()

    def rows(self, row: Callable[[str, V], list[Any]]) -> list[Any]:
        """One row per key, in order."""
        return [row(key, self[key]) for key in sorted(self)]
