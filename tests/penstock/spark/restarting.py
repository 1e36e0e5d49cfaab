"""A real name server and a real broker that a test restarts."""

from __future__ import annotations

import queue
import threading
from functools import partial
from pathlib import Path

import trio

import broker.net.server
import namesrv.server
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock.world import real_world
from tests.patience import PATIENCE_S


class RestartingCluster:
    """Both in a thread. The broker comes back at another port."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._world = real_world()
        self._ready: queue.Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        self.servers, self._token, self._whole = self._ready.get(timeout=PATIENCE_S)

    async def _run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            names = await self._nursery.start(partial(namesrv.server.run, NamesrvSettings(port=0), self._world))
            self._names = f"{names.host}:{names.port}"
            await self._nursery.start(self._serve)
            self._ready.put((self._names, trio.lowlevel.current_trio_token(), self._nursery.cancel_scope))

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        settings = BrokerSettings(
            port=0, namesrv=(self._names,), name="broker-a", data=self._data, segment_bytes=1 << 20
        )
        self._ended = trio.Event()
        with trio.CancelScope() as self._scope:
            await broker.net.server.run(settings, self._world, task_status=task_status)
        self._ended.set()

    async def _again(self) -> None:
        self._scope.cancel()
        await self._ended.wait()
        await self._nursery.start(self._serve)

    def restart(self) -> None:
        """Ends the broker and starts it anew over the same data."""
        trio.from_thread.run(self._again, trio_token=self._token)

    def stop(self) -> None:
        """Ends both."""
        trio.from_thread.run_sync(self._whole.cancel, trio_token=self._token)
        self._thread.join(PATIENCE_S)
