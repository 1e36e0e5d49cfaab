"""Fold of the log's removals: a record names the position before which nothing is kept.

Every copy of the log removes its segments there once that record is committed and its own index is sealed up to it. So
the first offset of a queue is the same in all copies, and missing segments differ from removed ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from broker.kernel.fold import fact_of, packed
from broker.store.records import NO_CHANGE, REMOVED_TOPIC, Change, Removed, Stored

TOPIC: Final = REMOVED_TOPIC


class Removals:
    """The removals of a log.

    Attributes:
        latest: the one that reaches farthest.
    """

    KEY: Final = "removed"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self.latest = Removed()

    @staticmethod
    def fact(before: int) -> list[Any]:
        """Body of the record that removes the log before a position."""
        return [before]

    def apply(self, record: Stored) -> Change:
        before = fact_of(record)[0]
        if before > self.latest.before:
            self.latest = Removed(before, record.position)
        return NO_CHANGE

    def freeze(self) -> Iterator[bytes]:
        return packed(self.latest)

    def restore(self, snapshot: list[int] | None) -> None:
        self.latest = Removed(*snapshot or ())
