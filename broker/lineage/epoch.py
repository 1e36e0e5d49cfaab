"""The epoch in which a broker's service leads its log: begun with a record, once, before any promise in it."""

from __future__ import annotations

from typing import Final

from broker.kernel.fold import fact_record
from broker.lineage import epochs
from broker.lineage.epochs import Epochs
from broker.store.message_store import MessageStore
from penstock.errors import StorageFull

_GENERATION_BITS: Final = 32
_GENERATIONS_FROM: Final = 1 << 61
"""Above all generations of brokers that derived them from the wall clock: clients follow only to higher ones."""


class Epoch:
    """One epoch of a log. Frames before its record belong to the epoch before.

    Attributes:
        number: one more than that of the epoch before.
        is_recorded: whether its record is in the log; without room on the disk that comes later.
    """

    def __init__(self, known: Epochs, store: MessageStore, name: str, number: int = 0) -> None:
        """``name``: the broker's, which is that of its group of copies and, with one copy, of the node too.
        ``number``: in which this node was elected; 0: the next one, for there is no other copy."""
        self.number = number or known.last + 1
        self.is_recorded = False
        store.own()
        self._store = store
        self._fact = Epochs.fact(self.number, name, name)

    def record(self, now_ms: int) -> None:
        """Writes the record if it is not there yet. Raises ``StorageFull``."""
        if not self.is_recorded:
            self._store.begin_epoch(self.number, fact_record(epochs.TOPIC, self._fact), now_ms)
            self.is_recorded = True

    @property
    def first_generation(self) -> int:
        """Below all generations of consumer groups in this epoch, and above those of all earlier epochs."""
        return _GENERATIONS_FROM + (self.number << _GENERATION_BITS)

    def check_recorded(self) -> None:
        """Raises ``StorageFull`` where the epoch is not in the log: the next start would have the same number."""
        if not self.is_recorded:
            raise StorageFull("the disk has no room for the record of this start", hint="free some space")
