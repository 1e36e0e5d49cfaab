"""Folds that remember what they were at many positions of their log, live or in a replay."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator

from broker.state import BrokerState
from broker.store.records import Change, Stored

ONE_IN = 4
"""One of so many positions is remembered: what is frozen meanwhile stays frozen at the others."""


class RecordedState(BrokerState):
    """All folds of a broker, and a digest of their snapshot behind one of four records, always the same ones.

    Attributes:
        seen: position and checksum of such a record -> digest of the state behind it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[int, int], bytes] = {}
        self._frozen: _Pieces | None = None

    def apply(self, record: Stored) -> Change:
        change = super().apply(record)
        if record.messages == 1 and zlib.crc32(b"%d" % record.position) % ONE_IN == 0:
            self.seen[record.position + record.size, zlib.crc32(record.frame)] = digest(self)
        return change

    def freeze(self) -> Iterator[bytes]:
        if self._frozen is not None:
            self._frozen.finish()  # folds are frozen once at a time
        self._frozen = _Pieces(super().freeze())
        return self._frozen


class _Pieces:
    """Pieces that are made when they are asked for, or all at once."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._made: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return self._made.pop(0) if self._made else next(self._source)

    def finish(self) -> None:
        self._made += self._source


def digest(state: BrokerState) -> bytes:
    """Equal for equal snapshots."""
    return hashlib.sha256(state.snapshot()).digest()
