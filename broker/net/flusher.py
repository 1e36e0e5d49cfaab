"""Group commit: one sync answers all requests that were appended before it began.

The flusher alone calls ``mark_durable``, and ``mark_committed``, which follows by the commit rule. It notes the point
that a sync covers before the sync starts; later appends wait for the next sync. A failed sync is never repeated: the
error ends the broker, because the contents of the disk are unknown.

Appends without a waiting request (topics of level ``cache``) are synced a little later. When recent syncs took less
time than a hand-over to a thread and back, the event loop makes them itself. The reasons: decision 21.
"""

from __future__ import annotations

from typing import Final, Protocol

import trio

from broker.kernel.commit import ONE_COPY, CommitRule
from broker.net.lead import Lead
from penstock.errors import StorageFailed
from penstock.world import Clock, Offload

_LATELY: Final = 16
"""About how many syncs the average duration covers."""
_LONG: Final = 8
"""A sync counts as at most this many quick ones in the average, because a single long one says nothing of the next."""


class Medium(Protocol):
    """A log, as far as it is to be made durable: a ``MessageStore``, or that of a node of a group."""

    @property
    def written(self) -> int: ...
    @property
    def durable(self) -> int: ...
    @property
    def committed(self) -> int: ...

    def sync_point(self) -> int:
        """The point that the next sync covers."""
        ...

    def sync(self) -> None:
        """Blocks. Raises ``StorageFailed``."""
        ...

    def mark_durable(self, point: int) -> None:
        """The disk has everything before ``point``."""
        ...

    def mark_committed(self, point: int) -> None:
        """Notes that enough disks have everything before ``point``."""
        ...

    def tidy(self) -> None:
        """Does the work that appends have left."""
        ...


class Flusher:
    """Makes the log durable: at once what a request waits for, the rest a little later, so that many share a sync."""

    def __init__(
        self,
        store: Medium,
        clock: Clock,
        later_s: float = 0.0,
        later_bytes: int = 0,
        quick_s: float = 0.0,
        rule: CommitRule = ONE_COPY,
    ) -> None:
        """``later_s``, ``later_bytes``: how long, and how many bytes of, appends without a waiting request may stay
        unsynced. ``quick_s``: a disk whose syncs take less on average is synced in the loop; 0: none is.
        ``rule``: the commit rule."""
        self._rule = rule
        self._store = store
        self._clock = clock
        self._later_s = later_s
        self._later_bytes = later_bytes
        self._quick_s = quick_s
        self._takes_s = quick_s  # average duration of recent syncs; none was measured yet
        self._is_needed = False
        self._needed = trio.Event()  # set as often as ``_is_needed`` becomes true, which is not with every message
        self._urgent = trio.Event()
        self._idle: Lead | None = None  # not while a thread syncs
        self._failed: StorageFailed | None = None

    @property
    def is_quick(self) -> bool:
        """Whether the loop may sync by itself."""
        return self._takes_s < self._quick_s

    def need(self, is_waited_for: bool, is_whole: bool) -> None:
        """Calls for a sync. ``is_waited_for``: a request is answered after it. ``is_whole``: no other
        session is about to append. Never waits for long."""
        behind = self._store.written - self._store.durable
        if behind <= 0:
            return
        if is_whole and is_waited_for and self._idle is not None and self.is_quick and self._failed is None:
            self._sync_here(self._idle)
            return
        if not self._is_needed:
            self._is_needed = True
            self._needed.set()
        if is_waited_for or behind > self._later_bytes:
            self._urgent.set()

    def _sync_here(self, lead: Lead) -> None:
        point = self._store.sync_point()
        try:
            took_s = self._sync()
        except StorageFailed as error:
            self._failed = error
            self._is_needed = True
            self._needed.set()
            self._urgent.set()
        else:
            self._done(point, took_s, lead)

    def _sync(self) -> float:
        """Blocks; returns for how long. Raises ``StorageFailed``."""
        began = self._clock.monotonic()
        self._store.sync()
        return self._clock.monotonic() - began

    def _done(self, point: int, took_s: float, lead: Lead) -> None:
        self._takes_s += (min(took_s, _LONG * self._quick_s) - self._takes_s) / _LATELY
        self._store.mark_durable(point)
        lead.synced(took_s)
        self.commit(lead)
        self._store.tidy()

    def commit(self, lead: Lead) -> None:
        """Makes committed messages readable, which another copy may have completed, and answers requests that waited
        for them."""
        store = self._store
        store.mark_committed(max(store.committed, self._rule.committed(store.durable)))
        lead.dispatch.reached(store.durable, store.committed)

    async def run(self, lead: Lead, offload: Offload) -> None:
        """Syncs until cancelled, by way of ``offload`` where the disk is slow. Raises ``StorageFailed``."""
        self._idle = lead
        while True:
            await self._needed.wait()
            if self._later_s and not self._urgent.is_set():
                with trio.move_on_after(self._later_s):
                    await self._urgent.wait()
            self._is_needed = False
            self._needed = trio.Event()
            self._urgent = trio.Event()
            if self._failed is None and self._store.written > self._store.durable:  # else another sync covered it
                if self.is_quick:
                    self._sync_here(lead)
                else:
                    await self._sync_there(lead, offload)
            if self._failed is not None:
                raise self._failed
            self.need(lead.dispatch.waits_for_disk, is_whole=False)

    async def _sync_there(self, lead: Lead, offload: Offload) -> None:
        point = self._store.sync_point()
        self._idle = None
        took_s = await offload(self._sync)
        self._idle = lead
        self._done(point, took_s, lead)
