"""Fold of consumer offsets: for each group, the next offset to read in each queue, and when it last committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from broker.folds.frozen import Table
from broker.store.queue_index import LIGHT
from penstock.requests.groups import QueueOffset

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
        self._groups: Table[GroupProgress] = Table()
        self._light: dict[str, dict[str, None]] = {}  # light queue -> groups with an offset in it

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

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
        """Body of the record that commits offsets; none: the group is forgotten."""
        return [group, [list(one) for one in offsets]]

    def apply(self, body: list[Any], stored_ms: int) -> None:
        """Takes in a record's body."""
        group, offsets = body[:2]
        if not offsets:
            self._forget_group(group)
            return
        self._groups.setdefault(group, GroupProgress())
        progress = self._groups.own(group, _copied)
        progress.committed_ms = stored_ms
        for queue, offset in offsets:
            progress.offsets[queue] = offset
            self._note(queue, group)

    def _note(self, queue: str, group: str) -> None:
        if queue.startswith(LIGHT):
            self._light.setdefault(queue, {})[group] = None

    def _forget_group(self, group: str) -> None:
        progress = self._groups.pop(group, None)
        for queue in progress.offsets if progress else ():
            if queue in self._light:
                del self._light[queue][group]

    def forget(self, queue: str) -> None:
        """A light queue has ended: its offsets mean nothing any more, also if it begins again."""
        for group in self._light.pop(queue, ()):
            progress = self._groups.own(group, _copied)
            del progress.offsets[queue]
            if not progress.offsets:
                del self._groups[group]

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._groups.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        """The state as bytes of msgpack, as it is now; made later, a slice at a time."""
        return self._groups.freeze(_row)

    def restore(self, snapshot: list[Any]) -> None:
        """Takes the state of a snapshot."""
        self._groups = Table((group, GroupProgress(at_ms, dict(offsets))) for group, at_ms, offsets in snapshot)
        self._light = {}
        for group, progress in self._groups.items():
            for queue in progress.offsets:
                self._note(queue, group)


def _copied(progress: GroupProgress) -> GroupProgress:
    return GroupProgress(progress.committed_ms, dict(progress.offsets))


def _row(group: str, progress: GroupProgress) -> list[Any]:
    return [group, progress.committed_ms, sorted([queue, at] for queue, at in progress.offsets.items())]
