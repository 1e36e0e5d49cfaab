"""Servers in a thread of their own, for tests of clients that block or that run under asyncio; and what else tests
share."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

import broker.net.server
import namesrv.server
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock.service.frame_server import FrameLimits, Peer, Session, listening_address, open_listeners, serve_frames
from penstock.world import real_world
from tests.patience import PATIENCE_S


class ServerThread:
    """One frame server in a thread; ``stop`` ends it and frees its port."""

    def __init__(self, open_session: Callable[[Peer], Session], port: int = 0) -> None:
        self._open_session = open_session
        self._port = port
        self._started: queue.Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        self.address, self._token, self._scope = self._started.get(timeout=PATIENCE_S)

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
            self._thread.join(PATIENCE_S)


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
    return partial(anyio.run, backend=request.param)


class RealCluster:
    """A name server and brokers, the real ones, in a thread of their own: broker-a, broker-b and so on."""

    def __init__(self, data: Path, segment_bytes: int = 1 << 24, brokers: str = "a", **settings: Any) -> None:
        self._brokers = brokers
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ended: dict[str, threading.Event] = {}
        self._settings = {"data": data, "segment_bytes": segment_bytes} | settings
        self._ready: queue.Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        self.servers, self._token, self._scope = self._ready.get(timeout=PATIENCE_S)

    async def _run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            names = await self._nursery.start(partial(namesrv.server.run, NamesrvSettings(port=0), real_world()))
            servers = f"{names.host}:{names.port}"
            for letter in self._brokers:
                await self._nursery.start(self._broker, servers, letter)
            self._ready.put((servers, trio.lowlevel.current_trio_token(), self._nursery.cancel_scope))

    async def _broker(self, servers: str, letter: str, *, task_status: trio.TaskStatus[Any]) -> None:
        own = self._settings | {"name": f"broker-{letter}", "data": self._settings["data"] / letter}
        settings, ended = BrokerSettings(port=0, namesrv=(servers,), **own), threading.Event()
        self._ended[letter] = ended
        with trio.CancelScope() as self._scopes[letter]:
            await broker.net.server.run(settings, real_world(), task_status=task_status)
        ended.set()

    def stop_broker(self, letter: str) -> None:
        """Ends one broker, which takes its word back at the name server."""
        trio.from_thread.run_sync(self._scopes[letter].cancel, trio_token=self._token)
        assert self._ended[letter].wait(PATIENCE_S)

    def start_broker(self, letter: str) -> None:
        """Starts one that has ended, at another port."""
        trio.from_thread.run(self._nursery.start, self._broker, self.servers, letter, trio_token=self._token)

    def stop(self) -> None:
        if self._thread.is_alive():
            trio.from_thread.run_sync(self._scope.cancel, trio_token=self._token)
            self._thread.join(PATIENCE_S)


@pytest.fixture
def real_cluster(tmp_path: Path) -> Iterator[RealCluster]:
    """The real name server and broker, on free ports, with an empty data folder."""
    cluster = RealCluster(tmp_path / "data")
    yield cluster
    cluster.stop()


@pytest.fixture
def two_brokers(tmp_path: Path) -> Iterator[RealCluster]:
    """The same with two brokers."""
    cluster = RealCluster(tmp_path / "data", brokers="ab")
    yield cluster
    cluster.stop()


@pytest.fixture
def small_segments(tmp_path: Path) -> Iterator[RealCluster]:
    """The same with segments of 64 KiB, which hold fewer messages than a producer sends in a batch."""
    cluster = RealCluster(tmp_path / "data", 1 << 16)
    yield cluster
    cluster.stop()


@pytest.fixture
def thawed() -> Iterator[None]:
    """Nothing is set aside yet, also not what stands for all tests, nor for the other tests afterwards."""
    before, told = gc.get_threshold(), list(gc.callbacks)
    gc.unfreeze()
    yield
    gc.callbacks[:] = told
    gc.unfreeze()
    gc.set_threshold(*before)
