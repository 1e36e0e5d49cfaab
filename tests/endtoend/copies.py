"""Nodes of one broker as processes, and what a test asks of them: who leads, whether all are level, what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from penstock import Producer
from penstock.client.credentials import service_credentials
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import PenstockError
from penstock.protocol.message import decode_batch
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.replicas import DescribeReplicas, MoveLeader, Replicas, SetRole
from penstock.protocol.requests.request import Done
from tests.endtoend.conftest import Service
from tests.patience import PATIENCE_S, poll_async

KEY = "k" * 64
QUEUES = 2


class Group:
    """A name server and nodes of one broker. ``starting``: what is set beside, for every node."""

    def __init__(self, data: Path, **starting: str) -> None:
        self.data = data
        self.starting = starting
        self.key = data / "key"
        self.key.write_text(KEY)
        self.key.chmod(0o600)
        self.places: dict[str, tuple[str, str]] = {}
        self.nodes: dict[str, Service] = {}
        self.frozen: set[str] = set()
        self.names = self.name_servers()

    def name_servers(self) -> list[Service]:
        """Starts them."""
        return [Service("namesrv", port="0", cluster_secret_file=str(self.key), **self.starting)]

    @property
    def servers(self) -> str:
        """The addresses of the name servers."""
        return ",".join(one.address for one in self.names)

    def inside(self, name: str) -> Sequence[str]:
        """The words that run a command where this node is."""
        return ()

    def own(self, name: str) -> dict[str, str]:
        """Settings of this node alone."""
        return {}

    def start(self, name: str, join: str = "") -> None:
        port, replicas = self.places.get(name, ("0", "0"))
        settings = {
            "name": "group",
            "node": name,
            "port": port,
            "replica_port": replicas,
            "join": join,
            "data": str(self.data / name),
            "namesrv": self.servers,
            "cluster_secret_file": str(self.key),
            "segment_bytes": str(1 << 15),
            "reserve_step_bytes": str(1 << 14),
            "default_queues": str(QUEUES),
        }
        self.nodes[name] = Service("broker", inside=self.inside(name), **settings | self.starting | self.own(name))

    def freeze(self, name: str) -> None:
        self.nodes[name].freeze()
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        self.nodes[name].thaw()
        self.frozen.discard(name)

    def kill(self, name: str) -> None:
        self.nodes.pop(name).kill()

    def end(self) -> None:
        for node in [*self.nodes.values(), *self.names]:
            node.thaw()
            node.kill()


class Asking:
    """What the test asks of the nodes."""

    def __init__(self, group: Group, links: WireLinks) -> None:
        self.group = group
        self.links = links

    async def said(self, name: str) -> Replicas | None:
        if name in self.group.frozen or name not in self.group.nodes:
            return None
        try:
            return await ask(self.links.link(self.group.nodes[name].address), DescribeReplicas(), Replicas, 5.0)
        except PenstockError:
            return None

    async def leader(self, *, besides: str = "") -> str:
        async def leaders() -> list[tuple[int, str]]:
            said = [(name, await self.said(name)) for name in self.group.nodes]
            return [(one.epoch, name) for name, one in said if one and one.role == "leader" and name != besides]

        return max(await poll_async(f"a leader besides {besides!r}", leaders))[1]

    async def promote(self, name: str) -> None:
        async def ask_leader() -> Done:
            link = self.links.link(self.group.nodes[await self.leader()].address)
            return await ask(link, SetRole(name, True, True), Done, 10.0)

        await poll_async(f"{name} as a voter", ask_leader, despite=PenstockError)

    async def move_lead(self, name: str) -> None:
        """This node leads, whoever has led before."""

        async def moved() -> bool:
            if (was := await self.leader()) == name:
                return True
            await ask(self.links.link(self.group.nodes[was].address), MoveLeader(name), Done, 10.0)
            return False

        await poll_async(f"{name} in the lead", moved, despite=PenstockError)

    async def level(self) -> None:
        def are_level(said: list[Replicas | None]) -> bool:
            ends = {end for one in said if one for end in (one.committed, one.end)}
            return None not in said and len(ends) == 1

        async def ask_all() -> list[Replicas | None]:
            return [await self.said(name) for name in self.group.nodes]

        await poll_async("level nodes", ask_all, are_level)

    async def caught_up(self) -> None:
        """Waits until all nodes have what is committed now, however much comes meanwhile."""
        committed = (await self.described(await self.leader())).committed
        for name in self.group.nodes:
            asks = partial(self.described, name)
            await poll_async(f"{committed} at {name}", asks, lambda said: said.committed >= committed)

    async def described(self, name: str) -> Replicas:
        said = await poll_async(f"an answer of {name}", partial(self.said, name))
        assert said is not None
        return said

    async def joined(self, name: str, count: int) -> Replicas:
        def are_there(said: Replicas) -> bool:
            return len(said.rows) == count and all([row.clients for row in said.rows])

        return await poll_async(f"{count} nodes", partial(self.described, name), are_there)

    async def address(self, name: str) -> str:
        """Where other nodes reach this one."""
        return next(row.address for row in (await self.described(name)).rows if row.node == name)

    async def stored(self, topic: str = "t") -> dict[tuple[str, int], bytes]:
        """All messages of a topic, by their places."""
        link = self.links.link(self.group.nodes[await self.leader()].address)
        found: dict[tuple[str, int], bytes] = {}
        for number in range(QUEUES):
            queue, offset, end = f"{topic}:{number}", 0, 1
            while offset < end:
                pulled = await ask(link, Pull(queue, offset), Pulled, 10.0)
                for at, message in decode_batch(pulled.count, pulled.body):
                    found[queue, at] = message.body
                offset, end = pulled.next, pulled.end
        return found

    async def grown(self) -> str:
        """Adds b and c to the group of a, as voters; returns the address at which other nodes reach a."""
        group = self.group
        [first] = (await self.described("a")).rows
        for name in "bc":
            group.start(name, join=first.address)
        for row in (await self.joined("a", 3)).rows:
            group.places[row.node] = (row.clients.rpartition(":")[2], row.address.rpartition(":")[2])
        for name in "bc":
            await self.promote(name)
        return first.address


@asynccontextmanager
async def asking(group: Group) -> AsyncIterator[Asking]:
    """Asks the nodes of a group."""
    async with trio.open_nursery() as nursery:
        authority = group.starting.get("peers_tls_ca", "")
        certificate = group.starting.get("tls_certificate", "")
        credentials = service_credentials(KEY.encode(), "test", authority, (certificate, ""))
        yield Asking(group, WireLinks(nursery, credentials=credentials))
        nursery.cancel_scope.cancel()


class Load:
    """A program that sends, and what it was told of where each body is. ``name``: what its bodies begin with."""

    def __init__(self, servers: str, name: str = "") -> None:
        self.servers = servers
        self.name = name
        self.receipts: dict[bytes, tuple[str, int]] = {}
        self._done = trio.Event()
        self._ended = trio.Event()

    async def run(self) -> None:
        """Sends until ``finish``."""
        async with Producer(servers=self.servers, timeout_s=60.0) as producer:
            number = 0
            while not self._done.is_set():
                body = f"{self.name}{number}".encode().ljust(1000, b".")
                number += 1
                try:
                    receipt = await producer.send("t", body, key=str(number % 7))
                except PenstockError:
                    continue
                self.receipts[body] = (str(receipt.queue).partition("@")[0], receipt.offset)
        self._ended.set()

    async def finish(self) -> None:
        """Nothing is under way any more."""
        self._done.set()
        with trio.fail_after(PATIENCE_S):
            await self._ended.wait()

    async def more(self, count: int = 20) -> None:
        """Waits until so many more are acknowledged."""
        until = len(self.receipts) + count
        await poll_async(f"{until} acknowledged", lambda: len(self.receipts) >= until)

    def check(self, stored: dict[tuple[str, int], bytes]) -> None:
        """Each acknowledged body is at its place, and at no other."""
        bodies = list(stored.values())
        for body, place in self.receipts.items():
            assert stored[place] == body
            assert bodies.count(body) == 1


def check_equal_bytes(*folders: Path) -> None:
    """The logs in these data folders have the same bytes. The last file counts up to where all of them have written."""
    logs = [{path.name: path.read_bytes() for path in (folder / "log").glob("*.log")} for folder in folders]
    names = sorted(set.intersection(*map(set, logs)))
    assert names, "they have no file in common"
    assert all(name in names for log in logs for name in log if name < names[-1]), "one lacks a file"
    for name in names:
        written = [log[name] if name != names[-1] else log[name].rstrip(b"\0") for log in logs]
        shortest = min(map(len, written)) if name == names[-1] else max(map(len, written))
        assert len({one[:shortest] for one in written}) == 1, f"{name} differs"
