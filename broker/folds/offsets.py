"""Fold of consumer offsets: for each group, the next offset to read in each queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.requests import QueueOffset

TOPIC: Final = "%sys%offsets"


class Offsets:
    """Committed positions of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, int]] = {}

    @property
    def groups(self) -> list[str]:
        """Groups that ever committed."""
        return list(self._groups)

    def of(self, group: str) -> Mapping[str, int]:
        """Queue -> committed offset of a group; empty where it never committed."""
        return self._groups.get(group, {})

    @staticmethod
    def fact(group: str, offsets: Iterable[QueueOffset]) -> list[Any]:
        """Body of the record that commits offsets."""
        return [group, [list(one) for one in offsets]]

    def apply(self, body: list[Any]) -> None:
        """Takes in a record's body."""
        group, offsets = body
        self._groups.setdefault(group, {}).update((queue, offset) for queue, offset in offsets)

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return sorted([group, sorted([queue, at] for queue, at in own.items())] for group, own in self._groups.items())

    def restore(self, snapshot: list[Any]) -> None:
        """Takes the state of a snapshot."""
        self._groups = {group: dict(own) for group, own in snapshot}
