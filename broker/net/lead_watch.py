"""Decides when a leader hands the lead over: its disk is full, or has been far slower than another voter's for a while.

A leader keeps the lead for at least ``KEEP_S``. It gives the lead only to a voter whose disk has room and was quick all
that time. If all disks are full, or all are slow, the lead stays. Pure: ``now`` is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

KEEP_S: Final = 10.0
SLOW_S: Final = 0.5
"""A sync that takes longer is slow."""
SLOW_FOR_S: Final = 10.0
"""A leader whose syncs were slow for this long hands the lead over."""
FAR: Final = 5.0
"""A slow disk's syncs take at least this many times as long as another voter's."""


class DiskState(NamedTuple):
    """A node's disk. ``is_full``: it had no room for the last frames. ``sync_s``: what its latest sync has taken, or
    the one that is under way takes already."""

    is_full: bool = False
    sync_s: float = 0.0


class SyncTimes:
    """The durations of syncs, including the one under way."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._latest_s = 0.0
        self._worst_s = 0.0

    def begin(self, now: float) -> None:
        """A sync begins."""
        self._began = now

    def end(self, now: float) -> None:
        """It has ended."""
        if self._began is not None:
            self._latest_s = now - self._began
            self._worst_s = max(self._worst_s, self._latest_s)
            self._began = None

    def latest_s(self, now: float) -> float:
        """The duration of the latest sync, or of the one under way."""
        return max(self._latest_s, self._running_s(now))

    def take_worst_s(self, now: float) -> float:
        """The longest since the last call; 0 where there was none."""
        worst, self._worst_s = max(self._worst_s, self._running_s(now)), 0.0
        return worst

    def _running_s(self, now: float) -> float:
        return now - self._began if self._began is not None else 0.0


class Handover(NamedTuple):
    """The lead should go to ``node``; ``why`` in words."""

    node: str
    why: str


class LeadWatch:
    """A leader's disk beside those of the other voters, over all its leaderships."""

    def __init__(self) -> None:
        self._disks: dict[str, DiskState] = {}
        self._worst_s: dict[str, float] = {}
        self._epoch = 0
        self._since = 0.0
        self._slow_since: float | None = None

    def heard(self, node: str, disk: DiskState) -> None:
        """Another node has said how its disk is."""
        self._disks[node] = disk
        self._worst_s[node] = max(self._worst_s.get(node, 0.0), disk.sync_s)

    def has_room(self, node: str) -> bool:
        """Whether its disk is not full, as far as is known."""
        return not self._disks.get(node, DiskState()).is_full

    def look(self, epoch: int, own: DiskState, heirs: Sequence[str], now: float) -> Handover | None:
        """To whom the lead should go, to be asked once a second. ``epoch``: 0 while this node does not lead. ``own``:
        with the longest sync since the last look. ``heirs``: voters that could lead, the best first."""
        if epoch != self._epoch:
            self._epoch, self._since, self._slow_since = epoch, now, None
        if not epoch:
            return None
        if own.sync_s < SLOW_S:
            self._slow_since = None
        elif self._slow_since is None:
            self._slow_since = now
            self._worst_s.clear()
        if now - self._since < KEEP_S:
            return None
        found = self._better(own, [one for one in heirs if self.has_room(one)], now)
        if found is not None:
            self._since, self._slow_since = now, None  # it may not take the lead: then not at once again
        return found

    def _better(self, own: DiskState, roomy: Sequence[str], now: float) -> Handover | None:
        if own.is_full and roomy:
            return Handover(roomy[0], "the disk is full")
        if self._slow_since is None or now - self._slow_since < SLOW_FOR_S:
            return None
        quick = [one for one in roomy if FAR * self._worst_s.get(one, own.sync_s) <= own.sync_s]
        return Handover(quick[0], f"a sync takes {own.sync_s:.1f} s here") if quick else None
