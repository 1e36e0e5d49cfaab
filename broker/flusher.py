"""Group commit: one sync answers everything that was appended before it began. The only caller of ``mark_durable``.

The point that a sync covers is taken before it starts; what arrives while it runs waits for the next one. A failed
sync is never tried again: the error ends the broker, because after it nobody knows what is on the disk.
"""

from __future__ import annotations

import trio

from broker.dispatch import Dispatch
from broker.service import BrokerService
from broker.store.message_store import MessageStore
from penstock.world import Offload


class Flusher:
    """Makes the log durable whenever there is something to sync."""

    def __init__(self, store: MessageStore, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self._needed = trio.Event()

    def need(self) -> None:
        """There may be something to sync. Never waits."""
        if self._store.written > self._store.durable:
            self._needed.set()

    async def run(self, dispatch: Dispatch, service: BrokerService) -> None:
        """Syncs until cancelled. Raises ``StorageFailed``."""
        while True:
            await self._needed.wait()
            self._needed = trio.Event()
            if self._store.written <= self._store.durable:
                continue  # asked for while the last sync ran, which covered it
            point = self._store.sync_point()
            await self._offload(self._store.sync)
            self._store.mark_durable(point)
            service.synced()
            dispatch.durable_at(point)
            self.need()
