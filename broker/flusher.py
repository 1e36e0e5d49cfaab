"""Group commit: one sync answers everything that was appended before it began. The only caller of ``mark_durable``.

What nobody waits for (topics of level ``cache``) is synced a little later. The point that a sync covers is taken
before it starts; what arrives while it runs waits for the next one. A failed sync is never tried again: the error ends
the broker, because after it nobody knows what is on the disk.
"""

from __future__ import annotations

import trio

from broker.dispatch import Dispatch
from broker.service import BrokerService
from broker.store.message_store import MessageStore
from penstock.world import Offload


class Flusher:
    """Makes the log durable: at once what a request waits for, the rest a little later, so that many share a sync."""

    def __init__(self, store: MessageStore, later_s: float = 0.0, later_bytes: int = 0) -> None:
        """``later_s``: so long what nobody waits for may stay unsynced, ``later_bytes``: at most so much of it."""
        self._store = store
        self._later_s = later_s
        self._later_bytes = later_bytes
        self._needed = trio.Event()
        self._urgent = trio.Event()

    def need(self, is_waited_for: bool) -> None:
        """There may be something to sync; ``is_waited_for``: some request is answered after it. Never waits."""
        behind = self._store.written - self._store.durable
        if behind > 0:
            self._needed.set()
            if is_waited_for or behind > self._later_bytes:
                self._urgent.set()

    async def run(self, dispatch: Dispatch, service: BrokerService, offload: Offload) -> None:
        """Syncs until cancelled, by way of ``offload``. Raises ``StorageFailed``."""
        while True:
            await self._needed.wait()
            if self._later_s and not self._urgent.is_set():
                with trio.move_on_after(self._later_s):
                    await self._urgent.wait()
            self._needed = trio.Event()
            self._urgent = trio.Event()
            if self._store.written <= self._store.durable:
                continue  # asked for while the last sync ran, which covered it
            point = self._store.sync_point()
            await offload(self._store.sync)
            self._store.mark_durable(point)
            service.synced()
            dispatch.durable_at(point)
            self.need(dispatch.waits_for_disk)
