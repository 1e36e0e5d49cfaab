"""The epochs of a log's positions, and the position where two logs part.

Two logs that have the same epoch at a position are equal up to it. So short lists of epochs show where two logs differ,
whatever their size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter

from penstock.protocol.requests.replicas import EpochAt

_POSITION = itemgetter(1)


def begun_before(begun: Sequence[EpochAt], position: int) -> EpochAt:
    """The epoch of the frame that ends at a position, and where that epoch begins; zeros at the log's beginning."""
    number = bisect_left(begun, position, key=_POSITION)
    return begun[number - 1] if number else EpochAt(0, 0)


def begun_within(begun: Sequence[EpochAt], start: int, stop: int) -> tuple[EpochAt, ...]:
    """The epochs that begin at ``start`` or behind it, before ``stop``."""
    return tuple(begun[bisect_left(begun, start, key=_POSITION) : bisect_left(begun, stop, key=_POSITION)])


def parting(own: Sequence[EpochAt], theirs: Sequence[EpochAt], start: int, stop: int) -> int:
    """The position where two logs part that are equal up to ``start`` and both reach ``stop``: there, or before."""
    mine, other = begun_within(own, start, stop), begun_within(theirs, start, stop)
    if mine == other:
        return stop
    for one, two in zip(mine, other, strict=False):
        if one != two:
            return min(one.position, two.position)
    longer = max(mine, other, key=len)
    return longer[min(len(mine), len(other))].position
