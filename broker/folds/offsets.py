"""Fold of consumer offsets: for each group, the next offset to read in each queue, and when it last committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from penstock.requests import QueueOffset

KEY: Final = "offsets"
TOPIC: Final = "%sys%offsets"
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(slots=True)
class GroupProgress:
    """Committed offsets of one group by queue. ``committed_ms``: store time of its last commit."""

    committed_ms: int = 0
    offsets: dict[str, int] = field(default_factory=dict)


class Offsets:
    """Committed positions of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupProgress] = {}

    @property
    def groups(self) -> list[str]:
        """Groups that ever committed."""
        return list(self._groups)

    def of(self, group: str) -> Mapping[str, int]:
        """Queue -> committed offset of a group; empty where it never committed."""
        known = self._groups.get(group)
        return known.offsets if known else _NONE

    def committed_ms(self, group: str) -> int:
        """Store time of a group's last commit, 0 if it never committed."""
        known = self._groups.get(group)
        return known.committed_ms if known else 0

    @staticmethod
    def fact(group: str, offsets: Iterable[QueueOffset]) -> list[Any]:
        """Body of the record that commits offsets."""
        return [group, [list(one) for one in offsets]]

    def apply(self, body: list[Any], stored_ms: int) -> None:
        """Takes in a record's body."""
        group, offsets = body[:2]
        progress = self._groups.setdefault(group, GroupProgress())
        progress.committed_ms = stored_ms
        progress.offsets.update((queue, offset) for queue, offset in offsets)

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return [
            [group, progress.committed_ms, sorted([queue, at] for queue, at in progress.offsets.items())]
            for group, progress in sorted(self._groups.items())
        ]

    def restore(self, snapshot: list[Any]) -> None:
        """Takes the state of a snapshot."""
        self._groups = {group: GroupProgress(at_ms, dict(offsets)) for group, at_ms, offsets in snapshot}
