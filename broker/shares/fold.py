"""Fold of shared subscriptions: which messages of each are settled, that is, need no further delivery.

A shared subscription (*share*) reads the light queue of its filter. Its ``Settled`` is the offset below which
everything is settled and the ranges beyond it. The log position before which everything is settled says the same of
messages that damage has moved to later offsets (docs/decisions/0007). Between two ranges there is at least one message
that a taker was given and has not acknowledged; how many of these there may be is bounded
(``broker/shares/requests.py``), and so is this. A share ends with its last owner (``broker/filters/fold.py``). What a
group pops of a topic's queue is the same under a name of its own (``broker/shares/pops.py``); it ends with the topic.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from broker.filters.fold import ShareEnded
from broker.kernel.fold import fact_of, fact_record
from broker.kernel.frozen import Table
from broker.store.destinations import Incoming
from broker.store.records import NO_CHANGE, Change, Stored
from topicmap.queues import is_pop, share_group, share_queue

TOPIC: Final = "%sys%shares"
BEGIN: Final = "begin"
SETTLE: Final = "settle"
FORGET: Final = "forget"
END: Final = 1 << 62
"""No offset is as high."""
RANGES_PER_RECORD: Final = 500


class Settled:
    """The settled offsets of one share: all below ``floor``, and those in the ranges ``starts[i] <= offset < ends[i]``;
    and all that is stored before ``position``.

    Invariants: ``floor < starts[0] < ends[0] < starts[1] < ...``: ranges that touch are one.
    """

    __slots__ = ("ends", "floor", "position", "starts")

    def __init__(self, floor: int, starts: Sequence[int] = (), ends: Sequence[int] = (), position: int = 0) -> None:
        self.floor = floor
        self.position = position
        self.starts = list(starts)
        self.ends = list(ends)

    def copy(self) -> Settled:
        """One that changes on its own."""
        return Settled(self.floor, self.starts, self.ends, self.position)

    def __contains__(self, offset: int) -> bool:
        if offset < self.floor:
            return True
        at = bisect_right(self.starts, offset) - 1
        return at >= 0 and offset < self.ends[at]

    def open_from(self, offset: int) -> tuple[int, int]:
        """The first offset from ``offset`` on that is not settled, and the next settled one after it."""
        offset = max(offset, self.floor)
        at = bisect_right(self.starts, offset) - 1
        if at >= 0:
            offset = max(offset, self.ends[at])
        return offset, self.starts[at + 1] if at + 1 < len(self.starts) else END

    def floor_with(self, ranges: Iterable[tuple[int, int]]) -> int:
        """The floor with these ranges, which are in order."""
        floor, at = self.floor, 0
        for first, end in ranges:
            if first > floor:
                break
            floor = max(floor, end)
            while at < len(self.starts) and self.starts[at] <= floor:
                floor = max(floor, self.ends[at])
                at += 1
        return floor

    def count_open(self, first: int, end: int) -> int:
        """The number of offsets from ``first`` on and before ``end`` that are not settled."""
        first = max(first, self.floor)
        settled = [min(last, end) - max(begin, first) for begin, last in zip(self.starts, self.ends, strict=True)]
        return max(0, end - first - sum([count for count in settled if count > 0]))

    def add(self, first: int, end: int) -> None:
        """Settles ``first <= offset < end``."""
        low, high = bisect_left(self.ends, first), bisect_right(self.starts, end)
        if low < high:
            first, end = min(first, self.starts[low]), max(end, self.ends[high - 1])
        self.starts[low:high] = [first]
        self.ends[low:high] = [end]
        if self.starts[0] <= self.floor:
            self.floor = max(self.floor, self.ends[0])
            del self.starts[0], self.ends[0]


class Shares:
    """All shares of a broker, by name."""

    KEY: Final = "shares"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self._settled: Table[Settled] = Table()
        self._popped: dict[str, dict[str, None]] = {}  # queue -> names of what groups pop of it
        self._popped_by: dict[str, dict[str, None]] = {}  # group -> the same
        self._ended: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._settled)

    def get(self, share: str) -> Settled | None:
        """The settled messages of a share; not to be kept, it may be replaced."""
        return self._settled.get(share)

    def known(self, share: str) -> Settled:
        """The same of a share that there is."""
        return self._settled[share]

    @property
    def names(self) -> list[str]:
        """All shares."""
        return list(self._settled)

    @staticmethod
    def beginning(share: str, offset: int) -> list[Any]:
        """Body of the record with which a share begins at an offset."""
        return [BEGIN, share, offset]

    @staticmethod
    def forgetting(share: str) -> list[Any]:
        """Body of the record with which what a group pops of a queue ends."""
        return [FORGET, share]

    def popped_by(self, group: str) -> list[str]:
        """Names of what a group pops."""
        return list(self._popped_by.get(group, ()))

    @property
    def popping(self) -> set[str]:
        """Groups that pop, or have popped."""
        return set(self._popped_by)

    @staticmethod
    def settling(share: str, ranges: Sequence[tuple[int, int]], position: int) -> list[Any]:
        """Body of the record that settles ranges, each with its end, and so all that is stored before a position (0:
        nothing new is said by that)."""
        return [SETTLE, share, [list(one) for one in ranges], position]

    def settling_all(
        self, share: str, ranges: Sequence[tuple[int, int]], position_of: Callable[[str, int], int]
    ) -> list[Incoming]:
        """The records that settle any number of ranges. ``position_of``: gives the log position of a queue's offset
        (``MessageStore.position_of``)."""
        settled = self.known(share)
        floor = settled.floor_with(ranges)
        position = position_of(share_queue(share), floor) if floor > settled.floor else 0
        last = (len(ranges) - 1) // RANGES_PER_RECORD * RANGES_PER_RECORD
        return [
            fact_record(TOPIC, self.settling(share, ranges[at : at + RANGES_PER_RECORD], position if at == last else 0))
            for at in range(0, len(ranges), RANGES_PER_RECORD)
        ]

    def apply(self, record: Stored) -> Change:
        body = fact_of(record)
        action, share = body[:2]
        if action == BEGIN:
            self._settled.setdefault(share, Settled(body[2], position=record.position))
            self._note(share)
        elif action == FORGET:
            self._popped.get(share_queue(share), {}).pop(share, None)
            self._end(share)
        elif action == SETTLE and share in self._settled:
            settled = self._settled.own(share, Settled.copy)
            for first, end in body[2]:
                if first < end and end > settled.floor:
                    settled.add(first, end)
            settled.position = max(settled.position, body[3] if len(body) > 3 else 0)
        return NO_CHANGE

    def follow(self, change: Change) -> Change:
        """A share ends with its last owner, what is popped with the topic, or a queue of it."""
        for event in change.events:
            if isinstance(event, ShareEnded):
                self._end(event.share)
        for queue in change.ended if self._popped else ():
            for share in self._popped.pop(queue, ()):
                self._end(share)
        return NO_CHANGE

    def _end(self, share: str) -> None:
        if self._settled.pop(share, None) is not None:
            self._ended[share] = None
        if is_pop(share):
            group = share_group(share)
            shares = self._popped_by.get(group, {})
            shares.pop(share, None)
            if not shares:
                self._popped_by.pop(group, None)

    def _note(self, share: str) -> None:
        if is_pop(share):
            self._popped.setdefault(share_queue(share), {})[share] = None
            self._popped_by.setdefault(share_group(share), {})[share] = None

    def take_ended(self) -> list[str]:
        """Shares that ended since the last call; one of the same name may have begun again."""
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._settled.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        return self._settled.freeze(_row)

    def restore(self, snapshot: list[Any] | None) -> None:
        self._settled, self._popped, self._popped_by = Table(), {}, {}
        for share, floor, ranges, *later in snapshot or ():
            position = later[0] if later else 0
            self._note(share)
            self._settled[share] = Settled(floor, [one[0] for one in ranges], [one[1] for one in ranges], position)


def _row(share: str, settled: Settled) -> list[Any]:
    ranges = [list(one) for one in zip(settled.starts, settled.ends, strict=True)]
    return [share, settled.floor, ranges, settled.position]
