"""Three brokers as processes, one log: nodes are killed and stand still, and nothing acknowledged is lost.

A program sends, devices publish and are subscribed with QoS 1 and 2, a reader follows, and in the soak a Spark stream
too (``PENSTOCK_SPARK_FOLLOWS``). Each acknowledged body is found once, at its receipt's place, by all of them; each
payload of QoS 2 comes once; and the files of the log are equal, byte for byte, on all three.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from penstock import Reader
from penstock.client.wire_link import ask
from penstock.errors import PenstockError
from penstock.protocol.requests.topics import CreateTopic, TopicDetail
from tests.endtoend.conftest import Service
from tests.endtoend.copies import Asking, Group, Load, asking, check_equal_bytes
from tests.endtoend.test_sessions import Client, new_world, turn
from tests.patience import PATIENCE_S, poll_async
from tests.simulation.gateways import check_deliveries

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]

ROOT = Path(__file__).parents[2]
CYCLES = int(os.environ.get("PENSTOCK_FAILOVERS", "4"))
SPARK_FOLLOWS = "PENSTOCK_SPARK_FOLLOWS" in os.environ
PUBLISHED = 30
"""Of each device, per cycle."""


class Devices:
    """Devices at a gateway, each with a session that stays; they publish with QoS 1 and 2. A thread moves them."""

    def __init__(self, address: tuple[str, int]) -> None:
        world = new_world()
        world.topics = ("d/0", "d/1", "d/2")
        world.has_begun = True
        filters: tuple[dict[str, int], ...] = ({"d/#": 2}, {"+/0": 1, "d/+": 2}, {"d/1": 1})
        self.publishers = [Client(world, f"p{number}", {}, 0) for number in range(2)]
        self.subscribers = [Client(world, f"s{number}", one, 0) for number, one in enumerate(filters)]
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._move)
        self._thread.start()

    def _move(self) -> None:
        while not self._over.is_set():
            turn(self.publishers + self.subscribers, lambda _: self._address)

    def publish(self) -> None:
        """Each publisher has more to say."""
        for client in self.publishers:
            client.to_publish += PUBLISHED

    async def subscribed(self) -> None:
        """Waits until all subscriptions stand."""
        await poll_async("subscriptions", lambda: not any(client.unsubscribed for client in self.subscribers))

    async def finish(self) -> None:
        """Waits until all is acknowledged, and all has come where it has to."""
        await poll_async(
            "all acknowledgements", lambda: not any(client.to_publish or client.open for client in self.publishers)
        )
        await poll_async("all messages at all devices", self._have_all)

    def _have_all(self) -> bool:
        sent = self.sent()
        wanted = [len([one for one in sent.values() if one.topic == "d/1"])]
        counts = [len(client.delivered) for client in self.subscribers]
        return counts == [len(sent), len(sent), *wanted]

    def sent(self) -> dict[bytes, Any]:
        """All that was published, by its payload."""
        return {payload: message for client in self.publishers for payload, message in client.sent.items()}

    def end(self) -> None:
        """The thread has ended, and all connections."""
        self._over.set()
        self._thread.join()
        for client in self.publishers + self.subscribers:
            if client.line is not None:
                client.line.close()

    def check(self, stored: dict[tuple[str, int], bytes]) -> None:
        """Nothing is lost, and what was published with QoS 2 is stored once and comes once."""
        counts = Counter(stored.values())
        for payload, message in self.sent().items():
            assert counts[payload] == 1 or (message.qos == 1 and counts[payload] > 1), f"{payload!r}: {counts[payload]}"
        for client in self.subscribers:
            assert not client.problems, client.problems
            check_deliveries(client, self.sent(), counts)


class Following:
    """A reader that follows the topic, whatever becomes of its nodes."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.read: list[tuple[tuple[str, int], bytes]] = []

    async def run(self) -> None:
        async with Reader("t", servers=self._servers) as reader:
            async for batch in reader:
                for one in batch:
                    self.read.append(((str(one.queue).partition("@")[0], one.offset), one.body))

    async def check(self, stored: dict[tuple[str, int], bytes]) -> None:
        """It reads all that is stored, each once."""
        await poll_async("all that is stored", lambda: len(self.read) >= len(stored))
        assert sorted(self.read) == sorted(stored.items())


class SparkFollowing:
    """A Spark stream that does."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._rows = folder / "rows"
        folder.mkdir()
        command = [sys.executable, "-m", "tests.endtoend.spark_follower", servers, "t", str(folder)]
        self._process = subprocess.Popen(command, cwd=ROOT)

    async def check(self, stored: dict[tuple[str, int], bytes]) -> None:
        wanted = sorted((queue, offset, body.decode()) for (queue, offset), body in stored.items())
        await poll_async("all that is stored", lambda: len(self._read()) >= len(wanted))
        assert self._read() == wanted

    def _read(self) -> list[tuple[str, int, str]]:
        assert self._process.poll() is None, "Spark has ended"
        lines = self._rows.read_text().splitlines() if self._rows.exists() else []
        rows = [line.split(" ", 2) for line in lines]
        return sorted((f"t:{queue}", int(offset), body) for queue, offset, body in rows)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        yield made
    finally:
        made.end()


async def stand_still(asks: Asking, node: str, load: Load, nursery: trio.Nursery) -> None:
    """A node stands still, and wakes; if it led, nothing that it is asked from then on succeeds."""
    group = asks.group
    was_leader = await asks.leader() == node
    link = asks.links.link(group.nodes[node].address)
    late: list[object] = []

    async def too_late() -> None:
        try:
            late.append(await ask(link, CreateTopic(f"late-{len(load.receipts)}"), TopicDetail, PATIENCE_S))
        except PenstockError as error:
            late.append(error)

    if was_leader:  # the connection stands before
        await ask(link, CreateTopic("awake"), TopicDetail, PATIENCE_S)
    group.freeze(node)
    if was_leader:
        nursery.start_soon(too_late)
        await asks.leader(besides=node)
    await load.more()
    group.thaw(node)
    if was_leader:
        await poll_async("an answer that is too late", lambda: late)
        assert isinstance(late[0], PenstockError), "acknowledged after another one led"


async def through_failovers(group: Group, load: Load, devices: Devices, rng: random.Random) -> None:
    async with asking(group) as asks, trio.open_nursery() as nursery:
        following = Following(group.servers)
        spark = SparkFollowing(group.servers, group.data / "spark") if SPARK_FOLLOWS else None
        nursery.start_soon(load.run)
        await load.more()
        nursery.start_soon(following.run)
        await devices.subscribed()
        try:
            for cycle in range(CYCLES):
                devices.publish()
                await load.more()
                leader = await asks.leader()
                node = leader if cycle % 4 < 2 else rng.choice("abc")
                if cycle % 2:
                    await stand_still(asks, node, load, nursery)
                else:
                    group.kill(node)
                    leader = await asks.leader()
                    await load.more()
                    group.start(node, join=await asks.address(leader))
                await asks.caught_up()
            await load.finish()
            await devices.finish()
            await asks.level()
            stored = await asks.stored()
            load.check(stored)
            await following.check(stored)
            if spark is not None:
                await spark.check(stored)
            devices.check(await asks.stored("d"))
        finally:
            if spark is not None:
                spark.end()
        nursery.cancel_scope.cancel()


async def test_nothing_acknowledged_is_lost_when_nodes_are_killed_and_stand_still(group: Group) -> None:
    group.start("a")
    async with asking(group) as asks:
        await asks.grown()
    gateway = Service(
        "gateway",
        port="0",
        namesrv=group.servers,
        name="gw",
        anonymous="everyone",
        cluster_secret_file=str(group.key),
    )
    devices, load = Devices(gateway.place), Load(group.servers)
    try:
        await through_failovers(group, load, devices, random.Random(46))
    finally:
        devices.end()
        gateway.kill()
    assert len(load.receipts) >= 20 * CYCLES
    check_equal_bytes(*[group.data / name for name in "abc"])
