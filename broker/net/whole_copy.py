"""A whole copy of the log comes from other nodes, stretch by stretch (``broker/replica/resync.py``)."""

from __future__ import annotations

import logging
from typing import Final

import trio

from broker.net.peers import ASK_S, MEND_S, Peers, ask
from broker.replica.log_face import Stretch
from broker.replica.resync import Resync
from broker.settings import BrokerSettings
from broker.store import segment
from broker.store.disk import Disk
from penstock.errors import PenstockError
from penstock.protocol.requests.replicas import FetchLog, LogStretch
from penstock.world import World

COPY_BYTES: Final = 4 << 20

_log = logging.getLogger(__name__)


async def copy_whole(settings: BrokerSettings, disk: Disk, peers: Peers, world: World) -> None:
    """All of the log comes from another node, and takes the place of what is here, which is closed. Raises
    ``StorageFull``, ``StorageFailed``."""
    disk.lock(segment.FOLDER)
    try:
        resync: Resync | None = None
        start = committed = -1
        while resync is None or not resync.is_whole(committed):
            now = world.clock.monotonic()
            wanted = resync.wanted(committed, now) if resync else None
            if resync is not None and wanted is None:
                await trio.sleep(MEND_S)
                if resync.end < committed:
                    continue
            position = wanted.position if wanted else resync.end if resync else 0
            found = await _some_of_the_log(peers, position)
            if found is None:
                await trio.sleep(MEND_S)
                continue
            committed = max(committed, found.committed)
            if found.start != start:
                if resync is not None:
                    resync.close()
                start = found.start
                resync = Resync(disk, settings.store(), start, now, settings.resync_bytes_s)
            elif resync is not None and found.body and found.position == resync.end:
                resync.take(Stretch(found.position, found.before, bytes(found.body)), now)
        resync.finish()
        _log.warning("a whole copy of the log is here, from position %d to %d", start, resync.end)
    finally:
        disk.unlock()


async def _some_of_the_log(peers: Peers, position: int) -> LogStretch | None:
    best: LogStretch | None = None
    for link in peers.there:
        try:
            found = await ask(link, FetchLog(position, COPY_BYTES), ASK_S)
        except PenstockError:
            continue
        assert isinstance(found, LogStretch)
        if found.body:
            return found
        if best is None or found.committed > best.committed:
            best = found
    return best
