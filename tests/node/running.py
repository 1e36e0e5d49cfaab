"""The whole system in a thread of its own, for tests of clients that block."""

from __future__ import annotations

import queue
import threading
from functools import partial
from pathlib import Path

import trio

from node import embedded, settings
from node.addresses import Addresses
from penstock.world import real_world
from tests.patience import PATIENCE_S

PORTS = ("mqtt_port", "broker_port", "namesrv_port", "http_port")


class RunningSystem:
    """Name server, broker and gateway on free ports, with an empty data folder."""

    def __init__(self, data: Path, file: Path | None = None, **options: str | int) -> None:
        """``file``: settings."""
        self._configuration = settings.load(file, {}, {"data": data, **options, **dict.fromkeys(PORTS, 0)})
        self._ready: queue.Queue[tuple[Addresses, trio.lowlevel.TrioToken, trio.Event]] = queue.Queue()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        self.addresses, self._token, self._stop = self._ready.get(timeout=PATIENCE_S)

    async def _run(self) -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(partial(embedded.run, self._configuration, real_world(), stop))
            self._ready.put((addresses, trio.lowlevel.current_trio_token(), stop))

    def stop(self) -> None:
        """Ends it; doing it again is fine."""
        if self._thread.is_alive():
            trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
            self._thread.join(PATIENCE_S)
