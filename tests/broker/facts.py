"""Records of durable facts, as the log hands them to folds."""

from __future__ import annotations

from typing import Any

from broker.kernel.fold import Fold, fact_record
from broker.store.records import Change, Stored
from penstock.protocol.message import FRAME_HEAD_BYTES
from tests.broker.store.store_rig import record_of


def fact(topic: str, body: list[Any], position: int = 0, stored_ms: int = 0) -> Stored:
    """The stored record of a fact; only what folds look at of its frame is there."""
    frame = bytes(FRAME_HEAD_BYTES) + record_of(fact_record(topic, body))
    return Stored(position, len(frame), topic, 0, 0, b"", stored_ms, frame)


def take(fold: Fold, body: list[Any], position: int = 0, stored_ms: int = 0) -> Change:
    """Has a fold take in a fact of its first topic."""
    return fold.apply(fact(fold.TOPICS[0], body, position, stored_ms))
