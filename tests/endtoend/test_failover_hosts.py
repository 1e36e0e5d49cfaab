"""Three nodes of one broker on three hosts whose network fails: nothing acknowledged is lost, and in the end all three
have the same bytes. Each host has a name server, as in the guide to failover.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.endtoend.conftest import Service
from tests.endtoend.copies import Asking, Group, Load, asking, check_equal_bytes
from tests.endtoend.wires import Wires
from tests.patience import poll_async

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]

ROOT = Path(__file__).parents[2]


class Hosts(Group):
    """A group whose nodes are on hosts of their own."""

    def __init__(self, data: Path) -> None:
        self.wires = Wires(*"abc")
        super().__init__(data, insecure="true", election_s="2")

    def name_servers(self) -> list[Service]:
        more = {"cluster_secret_file": str(self.key), "insecure": "true", "port": "0"}
        return [Service("namesrv", inside=self.inside(one), host=self.wires.address(one), **more) for one in "abc"]

    def inside(self, name: str) -> tuple[str, ...]:
        return tuple(self.wires.inside(name))

    def own(self, name: str) -> dict[str, str]:
        return {"host": self.wires.address(name)}

    def end(self) -> None:
        try:
            super().end()
        finally:
            self.wires.end()


class Client:
    """Sends at a host, where there is a gateway too; what it was told."""

    def __init__(self, group: Hosts, host: str) -> None:
        servers = group.names["abc".index(host)].address
        self._gateway = Service(
            "gateway",
            inside=group.inside(host),
            host=group.wires.address(host),
            port="0",
            namesrv=servers,
            name=f"gw-{host}",
            anonymous="everyone",
            insecure="true",
            cluster_secret_file=str(group.key),
        )
        mqtt = [str(word) for word in self._gateway.place]
        command = [*group.inside(host), sys.executable, "-m", "tests.endtoend.sender", host, servers, *mqtt]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.receipts: dict[str, list[list[str]]] = {"native": [], "mqtt": []}
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # the last one may be cut off by the kill
                kind, *words = line.split()
                self.receipts[kind].append(words)

    @property
    def counts(self) -> tuple[int, int]:
        """How many are acknowledged, natively and by PUBACK."""
        return len(self.receipts["native"]), len(self.receipts["mqtt"])

    def check(self, stored: dict[tuple[str, int], bytes]) -> None:
        """Each acknowledged body is there."""
        bodies = list(stored.values())
        for body, queue, offset in self.receipts["native"]:
            assert stored[queue, int(offset)] == body.encode()
            assert bodies.count(body.encode()) == 1
        for [body] in self.receipts["mqtt"]:
            assert body.encode() in bodies

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._reading.join()
        self._gateway.kill()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path_factory.mktemp("hosts"))

    async def formed() -> None:
        async with asking(made) as asks:
            await asks.grown()
            await asks.level()

    try:
        made.start("a")
        trio.run(formed)
        yield made
    finally:
        made.end()


async def until(fact: Callable[[], bool]) -> None:
    await poll_async("as many acknowledgements as wanted", fact)


async def at_rest(asks: Asking) -> dict[tuple[str, int], bytes]:
    """All messages, when all nodes are level and have the same bytes."""
    await asks.level()
    check_equal_bytes(*[asks.group.data / name for name in "abc"])
    return await asks.stored()


async def test_a_leader_that_is_cut_off_with_its_clients_acknowledges_nothing(group: Hosts) -> None:
    async with asking(group) as asks:
        was = await asks.leader()
        others = "abc".replace(was, "")
        clients = [Client(group, was), Client(group, others[0])]
        inner, outer = clients
        try:
            await until(lambda: min(inner.counts + outer.counts) >= 10)
            group.wires.cut_off(was)
            await asks.leader(besides=was)
            began = outer.counts
            await until(lambda: min(outer.counts[0] - began[0], outer.counts[1] - began[1]) >= 10)
            counts, began = inner.counts, outer.counts
            await until(lambda: min(outer.counts[0] - began[0], outer.counts[1] - began[1]) >= 25)
            assert inner.counts == counts
            await poll_async("its end as leader", partial(asks.described, was), lambda said: said.role != "leader")
            group.wires.mend()
            await until(lambda: min(inner.counts[0] - counts[0], inner.counts[1] - counts[1]) >= 10)
        finally:
            for client in clients:
                client.end()
        stored = await at_rest(asks)
    for client in clients:
        client.check(stored)


async def test_a_cut_in_one_direction_moves_the_lead_only_if_the_leader_is_not_heard(group: Hosts) -> None:
    async with asking(group) as asks, trio.open_nursery() as nursery:
        load = Load(group.servers, "one way ")
        nursery.start_soon(load.run)
        is_deaf = False
        while not is_deaf:  # where the lead has moved meanwhile, the cut moves with it
            was = await asks.leader()
            epoch = (await asks.described(was)).epoch
            deaf, other = "abc".replace(was, "")
            group.wires.cuts = {(was, deaf)}  # it would have another leader, and says so to both
            said = await asks.described(deaf)
            is_deaf = (said.leader, said.epoch) == ("", epoch)
            await trio.sleep(0.05)
        await load.more()
        group.wires.mend()
        await asks.caught_up()
        assert (await asks.described(was)).epoch == epoch
        group.wires.cuts = {(was, deaf), (was, other)}  # it hears all, and no node hears it
        await asks.leader(besides=was)
        await load.more()
        group.wires.mend()
        await asks.caught_up()
        await load.finish()
        stored = await at_rest(asks)
        nursery.cancel_scope.cancel()
    load.check(stored)


async def test_nothing_is_lost_where_packets_are_late_and_lost(group: Hosts) -> None:
    async with asking(group) as asks, trio.open_nursery() as nursery:
        load = Load(group.servers, "late ")
        group.wires.lost, group.wires.delay_s = 0.03, 0.01
        nursery.start_soon(load.run)
        await load.more()
        was = await asks.leader()
        group.kill(was)
        first = await asks.address(await asks.leader())
        await load.more()
        group.start(was, join=first)
        await asks.caught_up()
        await load.more()
        await load.finish()
        group.wires.mend()
        stored = await at_rest(asks)
        nursery.cancel_scope.cancel()
    load.check(stored)
