"""The broker of one node of a group: opens the node's log, leads it or follows, and pauses it for cuts.

A sync runs in a thread, except while the log is cut or closed. ``LogMedium`` is the log as the flusher sees it: a sync
does not count if the log was cut or opened again meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from broker.kernel.fold import fact_record
from broker.lineage import identity
from broker.lineage.identity import Identity
from broker.net.lead import Lead
from broker.net.lead_watch import DiskState, SyncTimes
from broker.replica import members
from broker.replica.follower_log import FollowerLog
from broker.replica.members import MembersFold
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import Disk
from broker.store.message_store import MessageStore
from broker.store.recovery import Progress, open_store
from penstock.errors import NotLeader, StorageFull
from penstock.protocol.requests.replicas import Members
from penstock.world import Clock, Rng

FULL_FOR_S: Final = 60.0
"""A disk that was full counts as full this long, because space that a cut or retention frees is soon used."""

_log = logging.getLogger(__name__)


class OpenLog:
    """The log of a node as it is open just now.

    Attributes:
        store: another one after each leadership.
        cuts: how often the log was cut, closed or opened again: no sync that began before counts.
        still: held while a sync runs, and while the log is cut or closed.
        syncs: how long they take.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        disk: Disk,
        state: BrokerState,
        clock: Clock,
        still: AbstractContextManager[Any],
        on_progress: Progress,
    ) -> None:
        """Opens it. Raises ``StateLost``, ``DataFolderLocked``, ``DataFolderUnusable``, ``StorageFailed``."""
        self._settings = settings
        self._disk = disk
        self._state = state
        self._clock = clock
        self._on_progress = on_progress
        self.still = still
        self.cuts = 0
        self._full_until = -math.inf
        self.syncs = SyncTimes()
        self.store = self._open(0)
        self._is_open = True

    def _open(self, committed: int) -> MessageStore:
        settings, state, clock = self._settings.store(), self._state, self._clock
        return open_store(
            self._disk, settings, state, clock.wall_ms(), self._on_progress, is_owned=False, committed=committed
        )

    def disk_state(self) -> DiskState:
        """The present state of this node's disk."""
        now = self._clock.monotonic()
        return DiskState(self._is_full(now), self.syncs.latest_s(now))

    def worst_disk_state(self) -> DiskState:
        """The worst state of the disk since the last call."""
        now = self._clock.monotonic()
        return DiskState(self._is_full(now), self.syncs.take_worst_s(now))

    def _is_full(self, now: float) -> bool:
        if self.store.is_full:
            self._full_until = now + FULL_FOR_S
        return now < self._full_until

    def sync_begins(self) -> None:
        """A sync begins, here or in a thread."""
        self.syncs.begin(self._clock.monotonic())

    def sync_ends(self) -> None:
        """It has ended."""
        self.syncs.end(self._clock.monotonic())

    def follower(self) -> FollowerLog:
        """The log as the replication reads and writes it."""
        return HeldLog(self, self._state)

    def again(self) -> None:
        """Closes the log as it is, and opens it again with the same position committed. Raises as the constructor.

        The loop stands still meanwhile: state and log must not be seen half way. It reads the newest checkpoint and at
        most ``chunk_bytes`` of the log behind it; this node does not lead then, and counts the time as a gap
        (``AwakeClock``). Requests of its clients wait until the log is open."""
        with self.still:
            self.cuts += 1
            committed, was_full = self.store.committed, self.store.is_full
            self.store.abandon()
        self.store = self._open(committed)
        if was_full:
            self.store.log.count_as_full()

    def begin_anew(self) -> None:
        """Opens the log after a whole copy of it has come, in the loop as ``again``: the copy may bring a checkpoint no
        nearer than its first keyframe, and all behind it is taken in. No client is served meanwhile, and the group goes
        on without this node. Raises as the constructor."""
        self.store = self._open(0)
        self._is_open = True

    def close(self, now_ms: int) -> None:
        """A clean stop."""
        with self.still:
            self.cuts += 1
            if not self._is_open:
                return
            if self.store.is_owned:
                self.store.disown()
            self.store.close(now_ms)

    def count_cut(self) -> None:
        """The log is cut: a sync that has begun does not count."""
        self.cuts += 1

    def let_go(self) -> None:
        """Closes the log as it is, without a clean stop."""
        with self.still:
            self.cuts += 1
            self._is_open = False
            self.store.abandon()


class HeldLog(FollowerLog):
    """A log that is not cut while a sync runs."""

    def __init__(self, opened: OpenLog, state: BrokerState) -> None:
        self._opened = opened
        super().__init__(opened.store, lambda: state.epochs.begun, lambda: state.members.now)

    def cut(self, position: int) -> None:
        with self._opened.still:
            self._opened.count_cut()
            super().cut(position)


class LogMedium:
    """The log as the flusher sees it.

    Args:
        on_synced: called with the position up to which this disk has the log.
    """

    def __init__(self, opened: OpenLog, on_synced: Callable[[int], None]) -> None:
        self._opened = opened
        self._on_synced = on_synced
        self._syncing = opened.store, opened.cuts

    @property
    def written(self) -> int:
        """Position after the last frame."""
        return self._opened.store.written

    @property
    def durable(self) -> int:
        """Position up to which this disk has everything."""
        return self._opened.store.durable

    @property
    def committed(self) -> int:
        """Position up to which the group has everything, as far as this node knows."""
        return self._opened.store.committed

    def sync_point(self) -> int:
        """The point that the next sync covers."""
        self._syncing = self._opened.store, self._opened.cuts
        self._opened.sync_begins()
        return self._opened.store.sync_point()

    def sync(self) -> None:
        """Blocks. Does nothing where the log was cut since the point was taken. Raises ``StorageFailed``."""
        store, cuts = self._syncing
        with self._opened.still:
            if cuts == self._opened.cuts:
                store.sync()

    def mark_durable(self, point: int) -> None:
        """The sync has returned."""
        self._opened.sync_ends()
        if self._syncing == (self._opened.store, self._opened.cuts):
            self._opened.store.mark_durable(point)
            self._on_synced(point)

    def mark_committed(self, point: int) -> None:
        """Does nothing: ``NodeOffice.committed`` marks what the group has."""

    def tidy(self) -> None:
        """Does the work that appends have left."""
        self._opened.store.tidy()


class NodeOffice:
    """The broker of a node, as the replication sees it (``replica.Office``).

    Args:
        lead: the broker's face.
        refusal: gives the error for requests while another node leads.
        in_force: gives the members that the group has now.
        rng: for the id of a log that has none.
        on_role: called when this node has begun or ended to lead.
    """

    def __init__(
        self,
        opened: OpenLog,
        state: BrokerState,
        lead: Lead,
        clock: Clock,
        rng: Rng,
        refusal: Callable[[], NotLeader],
        in_force: Callable[[], Members],
        on_role: Callable[[], None],
    ) -> None:
        self._opened = opened
        self._state = state
        self._lead = lead
        self._clock = clock
        self._rng = rng
        self._refusal = refusal
        self._in_force = in_force
        self._on_role = on_role
        self._answered = opened.store.committed

    def lead(self, epoch: int) -> None:
        """Makes the broker's service, in this epoch. Gives the log its members and an id where it has none."""
        store, now_ms, began = self._opened.store, self._clock.wall_ms(), self._clock.monotonic()
        if size := self._in_force().segment_bytes:
            store.log.size_segments(size)
        self._lead.lead(epoch, store)
        with contextlib.suppress(StorageFull):  # the next leadership says it
            if self._state.members.now.members != self._in_force():
                store.append([fact_record(members.TOPIC, MembersFold.fact(self._in_force()))], now_ms)
            if not self._state.identity.log_id:
                fact = Identity.fact(f"{self._rng.getrandbits(128):032x}")
                store.append([fact_record(identity.TOPIC, fact)], now_ms)
        took_ms = round((self._clock.monotonic() - began) * 1000)
        _log.warning("this node leads the group, in epoch %d; its service was made in %d ms", epoch, took_ms)
        self._on_role()

    def committed(self, point: int) -> None:
        """Notes that everything before ``point`` may be read. ``answer`` answers requests that wait for it."""
        if point > self._opened.store.committed:
            self._opened.store.mark_committed(point)

    def answer(self) -> None:
        """Answers the requests that waited for positions which were committed since the last call."""
        store = self._opened.store
        if store.committed != self._answered:
            self._answered = store.committed
            self._lead.dispatch.reached(store.durable, store.committed)

    def step_down(self) -> FollowerLog:
        """Answers all that waits, drops the service, and opens the log again."""
        self._lead.step_down(self._refusal())
        self._opened.again()
        self._lead.follow(self._opened.store)
        self._on_role()
        return self._opened.follower()
