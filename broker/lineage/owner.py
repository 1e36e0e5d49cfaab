"""The owner of a log: appends the records that the log needs for its upkeep.

Seals, keyframes, growth behind damage and removals are records, and only the leader of a log writes records. A store
without an owner appends nothing: it carries out the records that it reads (``MessageStore.tick``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.kernel.fold import fact_record
from broker.lineage.removals import TOPIC, Removals
from broker.store.message_store import MessageStore
from broker.store.records import Folds
from penstock.errors import StorageFull

Carrier = Callable[[int, int], bool]
KEYFRAME_SHARE: Final = 4
"""Keyframes take at most this fraction of the log: after one of a large state some segments have none, and go with the
next that has one."""
PARTS_PER_TICK: Final = 8
"""Parts of a keyframe written in a tick if other work waits for it; one otherwise."""

_log = logging.getLogger(__name__)


class LogOwner:
    """The upkeep of a log by its owner, a bounded piece per call.

    Args:
        store: the log's, on this node.
        folds: what the log says.
        carriers: each appends what still counts of the log before a position once more, a bounded number at a time, and
            returns whether nothing of it is left there.
    """

    def __init__(self, store: MessageStore, folds: Folds, carriers: Sequence[Carrier] = ()) -> None:
        self._store = store
        self._carriers = carriers
        self._folds = folds
        store.own()

    def tick(self, now_ms: int, age_ms: int, needed_from: int | None = None) -> None:
        """Lets the log grow behind damage, writes keyframes, and the watermark after silence, applies retention.

        ``age_ms``: the time by which retention judges ages. ``needed_from``: the position up to which all named readers
        have read; None without readers. Raises ``StorageFailed``.
        """
        store = self._store
        if store.has_failed:
            return
        with contextlib.suppress(StorageFull):  # tried again at the next tick
            store.grow(now_ms)
            self._write_keyframe(now_ms)
            if store.is_silent(now_ms):
                store.seal(now_ms)
        with contextlib.suppress(StorageFull):
            self._retain(now_ms, age_ms, needed_from)

    def _write_keyframe(self, now_ms: int) -> None:
        """The state at a segment's begin goes into the log behind it, so that the log can be read from there alone:
        retention has steps of no more than a few times the state."""
        due = self._store.keyframe_due
        if due is None:
            return
        if due.behind < KEYFRAME_SHARE * due.size:
            self._store.pass_keyframe()
        else:
            self._store.write_keyframe(now_ms, PARTS_PER_TICK if due.holds_up else 1)

    def _retain(self, now_ms: int, age_ms: int, needed_from: int | None) -> None:
        """Removes by a record; the store carries it out once that is committed. On a full disk it is the other way
        round: the removal makes room for its record."""
        store = self._store
        if self._folds.removed.before < store.start and not store.lacks_beginning:
            self._say_removed(store.start, now_ms)  # on a full disk, or by an older version
        removal = store.removal_due(age_ms, needed_from)
        if removal is None or removal.end <= self._folds.removed.before:
            return
        if not all([carry(removal.end, now_ms) for carry in self._carriers]):
            return  # the next tick goes on
        if removal.forced:
            _log.warning("retention removes positions %d to %d, which a reader still needs", removal.start, removal.end)
        try:
            self._say_removed(removal.end, now_ms)
        except StorageFull:
            store.remove_before(removal.end)

    def _say_removed(self, before: int, now_ms: int) -> None:
        self._store.append([fact_record(TOPIC, Removals.fact(before))], now_ms)
