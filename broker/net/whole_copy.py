"""Fetches a whole copy of the log from other nodes, stretch by stretch (``broker/replica/resync.py``)."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from typing import Final

import trio

from broker.net.peers import ASK_S, MEND_S, Asked, PeerLink, Peers, ask
from broker.replica.log_face import Stretch
from broker.replica.resync import Resync
from broker.settings import BrokerSettings
from broker.store import segment
from broker.store.disk import Disk
from penstock.errors import Damaged, PenstockError, ProtocolError, Unavailable
from penstock.protocol.requests.replicas import FetchLog, LogStretch
from penstock.world import World

COPY_BYTES: Final = 4 << 20
AHEAD: Final = 4
"""Number of stretches that are requested at once."""

_log = logging.getLogger(__name__)


async def copy_whole(settings: BrokerSettings, disk: Disk, peers: Peers, world: World) -> None:
    """Fetches the whole log from another node and replaces the local one, which is closed. Raises
    ``StorageFull``, ``StorageFailed``."""
    disk.lock(segment.FOLDER)
    began, resync = world.clock.monotonic(), None
    try:
        copy = _Copy(settings, disk, world)
        while (resync := copy.whole()) is None:
            await copy.go_on(peers)
        resync.finish()
        took, size = world.clock.monotonic() - began, resync.end - copy.start
        _log.warning(
            "a whole copy of the log is here, from position %d to %d: %d MB in %.3f s",
            *(copy.start, resync.end, size // 1_000_000, took),
        )
    finally:
        disk.unlock()


class _Copy:
    """A copy that is on its way.

    Attributes:
        start: first position of the log that is copied; -1 before one is known.
    """

    def __init__(self, settings: BrokerSettings, disk: Disk, world: World) -> None:
        self._settings = settings
        self._disk = disk
        self._world = world
        self._resync: Resync | None = None
        self._committed = -1
        self._is_syncing = False
        self._failed: PenstockError | None = None
        self.start = -1

    def whole(self) -> Resync | None:
        """The received copy, if it can be the log."""
        resync = self._resync
        return resync if resync is not None and resync.is_whole(self._committed) else None

    async def go_on(self, peers: Peers) -> None:
        """Takes one stretch from any node that has it, then many from the same node, up to the first failure. Raises
        ``StorageFull``, ``StorageFailed``."""
        resync, now = self._resync, self._world.clock.monotonic()
        if resync is not None and resync.wanted(self._committed, now) is None:
            await trio.sleep(MEND_S)
            if resync.end < self._committed:
                return
        link, found = await _some_of_the_log(peers, resync.end if resync else 0)
        if link is None or found is None:
            await trio.sleep(MEND_S)
            return
        self._committed = max(self._committed, found.committed)
        if found.start != self.start:
            self._begin(found.start)
        elif resync is not None and found.body and found.position == resync.end:
            resync.take(_stretch(found), self._world.clock.monotonic())
            async with trio.open_nursery() as syncs:
                with contextlib.suppress(ProtocolError, Unavailable, Damaged):
                    await self._stream(link, resync, syncs)
            resync.drop_rest()
            if self._failed is not None:
                raise self._failed

    def _begin(self, start: int) -> None:
        if self._resync is not None:
            self._resync.close()
        now = self._world.clock.monotonic()
        self._resync = Resync(self._disk, self._settings.store(), start, now, self._settings.resync_bytes_s)
        self.start = start

    async def _sync(self, resync: Resync) -> None:
        try:
            await resync.sync_aside(self._world.offload)
        except PenstockError as error:
            self._failed = error
        finally:
            self._is_syncing = False

    async def _stream(self, link: PeerLink, resync: Resync, syncs: trio.Nursery) -> None:
        """Asks one node for further stretches before the earlier ones have arrived, until all have. Raises
        ``PenstockError``."""
        asked: deque[Asked] = deque()
        at, clock = resync.end, self._world.clock
        while resync.coming < self._committed and self._failed is None:
            while len(asked) < AHEAD and at < self._committed and resync.may_ask(clock.monotonic()):
                size = min(COPY_BYTES, self._committed - at)
                asked.append(Asked(link, FetchLog(at, size, is_raw=True)))
                resync.count(size, clock.monotonic())
                at += size
            if not asked:
                await trio.sleep(MEND_S)
                continue
            found = await asked.popleft().reply(ASK_S)
            assert isinstance(found, LogStretch)
            if found.start != self.start or found.position != resync.coming or not found.body:
                return
            self._committed = max(self._committed, found.committed)
            if not found.is_raw:
                resync.take(_stretch(found), clock.monotonic())
                return
            resync.take_raw(found.body)
            if resync.is_sync_due and not self._is_syncing:
                self._is_syncing = True
                syncs.start_soon(self._sync, resync)


def _stretch(found: LogStretch) -> Stretch:
    return Stretch(found.position, found.before, bytes(found.body))


async def _some_of_the_log(peers: Peers, position: int) -> tuple[PeerLink | None, LogStretch | None]:
    best: LogStretch | None = None
    from_link: PeerLink | None = None
    for link in peers.there:
        try:
            found = await ask(link, FetchLog(position, COPY_BYTES), ASK_S)
        except PenstockError:
            continue
        assert isinstance(found, LogStretch)
        if found.body:
            return link, found
        if best is None or found.committed > best.committed:
            best, from_link = found, link
    return from_link, best
