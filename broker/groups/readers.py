"""The progress of the slowest consumer group, for retention by age; and the groups that were given up.

A group without a member, without a holding gateway (``broker/groups/fold.py``) and without a commit for ``silence_s``
is given up: retention does not wait for it. Its offsets stay for members that come back. From nine tenths of
``groups_max`` on given-up groups are deleted.

There may be 100,000 groups, so each tick looks at a slice of them. Invariant: before all were seen once, everything
counts as needed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Final

from broker.groups import fold as offsets
from broker.groups.fold import Offsets
from broker.groups.members import Groups
from broker.kernel.fold import fact_record
from broker.store.message_store import MessageStore
from penstock.errors import Damaged, QueueNotFound, StorageFull

EVERY_S: Final = 10.0
SLICE: Final = 500
"""Groups or queues that a tick looks at."""
_DONE: Final = object()


class Readers:
    """The messages that consumer groups still have to read.

    Attributes:
        needed_from: log position from which on some group still has to read; None if none has to.

    Args:
        silence_s: seconds after which a group without members, holders and commits counts as given up.
        return_s: seconds after which each member from before this broker began has come back.
    """

    def __init__(
        self,
        committed: Offsets,
        groups: Groups,
        store: MessageStore,
        groups_max: int,
        silence_s: float,
        return_s: float,
        now: float,
    ) -> None:
        self._offsets = committed
        self._groups = groups
        self._store = store
        self._kept_max = groups_max * 9 // 10
        self._silence_ms = silence_s * 1000
        self._all_are_back = now + return_s
        self._begins = -math.inf
        self._work: Iterator[None] | None = None
        self.needed_from: int | None = 0

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """A slice of the work, if it is time. ``age_ms``: by which silence is judged (``broker/store_clock.py``)."""
        if self._work is None:
            if now < self._begins:
                return
            self._begins = now + EVERY_S
            self._work = self._look(now, now_ms, age_ms)
        if next(self._work, _DONE) is _DONE:
            self._work = None

    def _look(self, now: float, now_ms: int, age_ms: int) -> Iterator[None]:
        """Yields between slices. Of many groups that read a queue only the slowest has its position looked up."""
        slowest: dict[str, int] = {}
        groups = self._offsets.groups
        for at in range(0, len(groups), SLICE):
            if at:
                yield
            given_up = []
            for group in groups[at : at + SLICE]:
                if self._is_given_up(group, age_ms):
                    given_up.append(group)
                    continue
                for queue, offset in self._offsets.of(group).items():
                    slowest[queue] = min(offset, slowest.get(queue, offset))
            if now >= self._all_are_back:
                self._forget(given_up[: max(0, len(self._offsets) - self._kept_max)], now_ms)
        needed_from: int | None = None
        for number, (queue, offset) in enumerate(slowest.items(), 1):
            position = self._position_of(queue, offset)
            needed_from = position if needed_from is None else min(position, needed_from)
            if number % SLICE == 0:
                yield
        self.needed_from = needed_from

    def _is_given_up(self, group: str, age_ms: int) -> bool:
        is_read = group in self._groups or self._offsets.holders(group)
        return not is_read and age_ms - self._offsets.committed_ms(group) >= self._silence_ms

    def _position_of(self, queue: str, offset: int) -> int:
        try:
            return self._store.position_of(queue, offset)
        except QueueNotFound:  # a light queue that was closed since
            return self._store.written
        except Damaged:  # who knows where that is?
            return self._store.start

    def _forget(self, groups: list[str], now_ms: int) -> None:
        if groups:
            with contextlib.suppress(StorageFull):  # tried again the next time
                self._store.append_facts([fact_record(offsets.TOPIC, Offsets.fact(one, ())) for one in groups], now_ms)
