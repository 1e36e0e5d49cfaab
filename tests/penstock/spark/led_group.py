"""A real name server and a real group of three nodes in one thread: a test moves the lead, and stops its leader."""

from __future__ import annotations

import queue
import threading
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from socket import socket

import trio

import broker.net.server
import namesrv.server
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock.blocking import Admin
from penstock.errors import PenstockError
from penstock.world import real_world
from tests.patience import PATIENCE_S, poll

KEY = b"k" * 32
NODES = "abc"


def free_port() -> int:
    with closing(socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class LedGroup:
    """Three voters of one group.

    Attributes:
        servers: the name server.
        admin: of the whole.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._world = real_world()
        self._ports = {node: free_port() for node in NODES}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ended: dict[str, threading.Event] = {}
        self._ready: queue.Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        self._open = ExitStack()
        self.servers, self._token, self._whole = self._ready.get(timeout=PATIENCE_S)
        self.admin = self._open.enter_context(Admin(servers=self.servers))
        for node in NODES[1:]:
            self._until_done(partial(self.admin.promote_replica, node, yes_no_failover=True))

    async def _run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            given = NamesrvSettings(port=0)
            names = await self._nursery.start(partial(namesrv.server.run, given, self._world, secret=KEY))
            self.servers = f"{names.host}:{names.port}"
            for node in NODES:
                await self._nursery.start(self._serve, node)
            self._ready.put((self.servers, trio.lowlevel.current_trio_token(), self._nursery.cancel_scope))

    async def _serve(self, node: str, *, task_status: trio.TaskStatus[object]) -> None:
        join = () if node == NODES[0] else (f"127.0.0.1:{self._ports[NODES[0]]}",)
        settings = BrokerSettings(
            port=0,
            namesrv=(self.servers,),
            name="group",
            node=node,
            replica_port=self._ports[node],
            join=join,
            data=self._data / node,
            segment_bytes=1 << 20,
            election_s=0.3,
        )
        ended = self._ended[node] = threading.Event()
        with trio.CancelScope() as self._scopes[node]:
            await broker.net.server.run(settings, self._world, secret=KEY, task_status=task_status)
        ended.set()

    def _until_done(self, order: partial[object]) -> None:
        poll(f"{order}", lambda: order() or True, despite=PenstockError)

    def leader(self) -> str:
        """The node that leads, once one does."""
        return poll("a leader", lambda: self.admin.replicas()[0].leader, despite=PenstockError)

    def move_lead(self) -> None:
        """Gives the lead to another node, which has it when this returns."""
        first = self.leader()
        other = NODES[(NODES.index(first) + 1) % len(NODES)]
        self._until_done(partial(self.admin.move_leader, other))
        poll("another leader", self.leader, lambda leader: leader != first)

    def stop_leader(self) -> None:
        """Stops the node that leads, and starts it again over its data once another one leads."""
        first = self.leader()
        trio.from_thread.run_sync(self._scopes[first].cancel, trio_token=self._token)
        assert self._ended[first].wait(PATIENCE_S)
        poll("another leader", self.leader, lambda leader: leader != first)
        trio.from_thread.run(self._nursery.start, self._serve, first, trio_token=self._token)

    def stop(self) -> None:
        """Ends all."""
        self._open.close()
        trio.from_thread.run_sync(self._whole.cancel, trio_token=self._token)
        self._thread.join(PATIENCE_S)
