"""Servers in a thread of their own, for tests of clients that block or that run under asyncio."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
import trio

from penstock.frame_server import FrameLimits, Peer, Session, listening_address, open_listeners, serve_frames


class ServerThread:
    """One frame server in a thread; ``stop`` ends it and frees its port."""

    def __init__(self, open_session: Callable[[Peer], Session], port: int = 0) -> None:
        self._open_session = open_session
        self._port = port
        self._started: queue.Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        self.address, self._token, self._scope = self._started.get(timeout=10)

    async def _run(self) -> None:
        listeners = await open_listeners("127.0.0.1", self._port)
        host, port = listening_address(listeners)
        with trio.CancelScope() as scope:
            self._started.put((f"{host}:{port}", trio.lowlevel.current_trio_token(), scope))
            await serve_frames(listeners, self._open_session, FrameLimits())

    def do(self, work: Callable[[], object]) -> None:
        """Runs something in the server's thread."""
        trio.from_thread.run_sync(work, trio_token=self._token)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.do(self._scope.cancel)
            self._thread.join(10)


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerThread]]:
    """Starts frame servers: ``serve(open_session, port=0) -> ServerThread``."""
    started: list[ServerThread] = []

    def start(open_session: Callable[[Peer], Session], port: int = 0) -> ServerThread:
        started.append(ServerThread(open_session, port))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs an async function in real time, once under asyncio and once under trio."""
    return functools.partial(anyio.run, backend=request.param)
