"""Fold of epochs: their numbers, and the log position at which each began.

Every start of a broker begins an epoch with the first record that it writes. The head of each frame has the number.
Numbers that must never repeat, such as generations of consumer groups, are derived from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from broker.kernel.fold import fact_of, packed
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.protocol.requests.replicas import EpochAt

TOPIC: Final = "%sys%epoch"
EPOCHS_MAX: Final = 10_000
"""The latest ones are kept; a broker that starts every hour needs a year for as many."""


class Epochs:
    """The epochs of a log.

    Attributes:
        begun: number and first log position of each, in order; numbers and positions only grow.
    """

    KEY: Final = "epochs"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self.begun: list[EpochAt] = []

    @property
    def last(self) -> int:
        """The number of the last one, 0 before the first."""
        return self.begun[-1].epoch if self.begun else 0

    @staticmethod
    def fact(epoch: int, group: str, node: str) -> list[Any]:
        """Body of the record with which a node of a group of copies begins an epoch."""
        return [epoch, group, node]

    def apply(self, record: Stored) -> Change:
        epoch = fact_of(record)[0]
        if epoch > self.last:
            self.begun.append(EpochAt(epoch, record.position))
            del self.begun[:-EPOCHS_MAX]
        return NO_CHANGE

    def freeze(self) -> Iterator[bytes]:
        return packed(self.begun)

    def restore(self, snapshot: list[Any] | None) -> None:
        self.begun = [EpochAt(epoch, position) for epoch, position in snapshot or ()]
