"""Three brokers as processes, one log: leaders are killed and stand still, and nothing acknowledged is lost.

Each acknowledged body is found once, at its receipt's place, in the end; and the files of the log are equal, byte for
byte, on all three.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
import trio

from penstock import Producer
from penstock.blocking import Producer as BlockingProducer
from penstock.client.credentials import service_credentials
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import PenstockError
from penstock.protocol.message import decode_batch
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.replicas import DescribeReplicas, Replicas, SetRole
from penstock.protocol.requests.request import Done
from tests.endtoend.conftest import Service
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

KEY = "k" * 64
CYCLES = int(os.environ.get("PENSTOCK_FAILOVERS", "2"))
QUEUES = 2


class Group:
    """A name server and three nodes of one broker."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.key = data / "key"
        self.key.write_text(KEY)
        self.key.chmod(0o600)
        self.names = Service("namesrv", port="0", cluster_secret_file=str(self.key))
        self.places: dict[str, tuple[str, str]] = {}
        self.nodes: dict[str, Service] = {}
        self.frozen: set[str] = set()

    def start(self, name: str, join: str = "") -> None:
        port, replicas = self.places.get(name, ("0", "0"))
        self.nodes[name] = Service(
            "broker",
            name="group",
            node=name,
            port=port,
            replica_port=replicas,
            join=join,
            data=str(self.data / name),
            namesrv=self.names.address,
            cluster_secret_file=str(self.key),
            segment_bytes=str(1 << 15),
            reserve_step_bytes=str(1 << 14),
            default_queues=str(QUEUES),
        )

    def freeze(self, name: str) -> None:
        self.nodes[name].freeze()
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        self.nodes[name].thaw()
        self.frozen.discard(name)

    def end(self) -> None:
        for node in [*self.nodes.values(), self.names]:
            node.thaw()
            node.kill()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        yield made
    finally:
        made.end()


class Asking:
    """What the test asks of the nodes."""

    def __init__(self, group: Group, links: WireLinks) -> None:
        self.group = group
        self.links = links

    async def said(self, name: str) -> Replicas | None:
        if name in self.group.frozen:
            return None
        try:
            return await ask(self.links.link(self.group.nodes[name].address), DescribeReplicas(), Replicas, 5.0)
        except PenstockError:
            return None

    async def leader(self, *, besides: str = "") -> str:
        with trio.fail_after(PATIENCE_S):
            while True:
                said = [(name, await self.said(name)) for name in self.group.nodes]
                led = [(one.epoch, name) for name, one in said if one and one.role == "leader" and name != besides]
                if led:
                    return max(led)[1]
                await trio.sleep(0.1)

    async def promote(self, name: str) -> None:
        with trio.fail_after(PATIENCE_S):
            while True:
                try:
                    link = self.links.link(self.group.nodes[await self.leader()].address)
                    await ask(link, SetRole(name, True, True), Done, 10.0)
                    return
                except PenstockError:
                    await trio.sleep(0.1)

    async def level(self) -> None:
        with trio.fail_after(PATIENCE_S):
            while True:
                said = [await self.said(name) for name in self.group.nodes]
                ends = {(one.committed, one.end) for one in said if one}
                if None not in said and len(ends) == 1 and next(iter(ends))[0] == next(iter(ends))[1]:
                    return
                await trio.sleep(0.2)

    async def stored(self) -> dict[tuple[str, int], bytes]:
        """All messages, by their places."""
        link = self.links.link(self.group.nodes[await self.leader()].address)
        found: dict[tuple[str, int], bytes] = {}
        for number in range(QUEUES):
            queue, offset, end = f"t:{number}", 0, 1
            while offset < end:
                pulled = await ask(link, Pull(queue, offset), Pulled, 10.0)
                for at, message in decode_batch(pulled.count, pulled.body):
                    found[queue, at] = message.body
                offset, end = pulled.next, pulled.end
        return found


async def send_all(servers: str, receipts: dict[bytes, tuple[str, int]], done: trio.Event) -> None:
    async with Producer(servers=servers, timeout_s=60.0) as producer:
        number = 0
        while not done.is_set():
            body = f"{number}".encode().ljust(1000, b".")
            number += 1
            try:
                receipt = await producer.send("t", body, key=str(number % 7))
            except PenstockError:
                continue
            receipts[body] = (str(receipt.queue).partition("@")[0], receipt.offset)


async def until_more(receipts: dict[bytes, tuple[str, int]]) -> None:
    before = len(receipts)
    with trio.fail_after(PATIENCE_S):
        while len(receipts) < before + 20:  # noqa: ASYNC110 (nothing sets an event)
            await trio.sleep(0.02)


async def through_failovers(group: Group) -> tuple[dict[bytes, tuple[str, int]], dict[tuple[str, int], bytes]]:
    receipts: dict[bytes, tuple[str, int]] = {}
    done = trio.Event()
    async with trio.open_nursery() as nursery:
        asking = Asking(group, WireLinks(nursery, credentials=service_credentials(KEY.encode(), "test")))
        first = await grown(asking)
        nursery.start_soon(send_all, group.names.address, receipts, done)
        for cycle in range(CYCLES):
            await until_more(receipts)
            leader = await asking.leader()
            if cycle % 2:
                group.freeze(leader)
                await asking.leader(besides=leader)
                await until_more(receipts)
                group.thaw(leader)
            else:
                group.nodes[leader].kill()
                del group.nodes[leader]
                await asking.leader()
                await until_more(receipts)
                group.start(leader, join=first)
            await until_more(receipts)
        done.set()
        await trio.lowlevel.checkpoint()
        await asking.level()
        stored = await asking.stored()
        nursery.cancel_scope.cancel()
    return receipts, stored


async def described(asking: Asking, name: str) -> Replicas:
    with trio.fail_after(PATIENCE_S):
        while (said := await asking.said(name)) is None:  # noqa: ASYNC110 (nothing sets an event)
            await trio.sleep(0.1)
    return said


async def joined(asking: Asking, name: str, count: int) -> Replicas:
    with trio.fail_after(PATIENCE_S):
        while True:
            said = await described(asking, name)
            if len(said.rows) == count and all([row.clients for row in said.rows]):
                return said
            await trio.sleep(0.1)


async def grown(asking: Asking) -> str:
    """Adds b and c to the group of a, as voters; returns the address at which other nodes reach a."""
    group = asking.group
    [first] = (await described(asking, "a")).rows
    for name in "bc":
        group.start(name, join=first.address)
    for row in (await joined(asking, "a", 3)).rows:
        group.places[row.node] = (row.clients.rpartition(":")[2], row.address.rpartition(":")[2])
    for name in "bc":
        await asking.promote(name)
    return first.address


def sealed(folder: Path) -> dict[str, str]:
    """The checksums of a node's segments but for the last one."""
    paths = sorted((folder / "log").glob("*.log"))[:-1]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_nothing_acknowledged_is_lost_when_leaders_are_killed_and_stand_still(group: Group) -> None:
    group.start("a")
    began = time.monotonic()
    receipts, stored = trio.run(through_failovers, group)
    assert len(receipts) > 50, f"in {time.monotonic() - began:.0f} s"
    bodies = list(stored.values())
    for body, place in receipts.items():
        assert stored[place] == body
        assert bodies.count(body) == 1
    sums = [sealed(group.data / name) for name in "abc"]
    shared = set(sums[0]) & set(sums[1]) & set(sums[2])
    assert shared
    for name in shared:
        assert sums[0][name] == sums[1][name] == sums[2][name]


class Device:
    """A subscriber with a session that stays. It publishes nothing: paho, when it has to connect twice, sends a message
    of QoS 2 again that it has a PUBREC for, and that is another message then."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.got: list[bytes] = []
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            name,
            protocol=paho.MQTTv311,
            clean_session=False,
            reconnect_on_failure=True,
        )
        self.client.reconnect_delay_set(1, 1)
        self.client.on_message = self._on_message
        self.heard = threading.Event()
        self.subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.connect(*address)
        self.client.loop_start()

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.got.append(bytes(message.payload))
        self.heard.set()


def kill_the_leader(group: Group) -> None:
    """A leader is killed; returns when another one leads and the node is back."""

    async def whole() -> None:
        async with trio.open_nursery() as nursery:
            asking = Asking(group, WireLinks(nursery, credentials=service_credentials(KEY.encode(), "test")))
            leader = await asking.leader()
            group.nodes[leader].kill()
            del group.nodes[leader]
            other = await asking.leader()
            [row] = [one for one in (await described(asking, other)).rows if one.node == other]
            group.start(leader, join=row.address)
            await asking.level()
            nursery.cancel_scope.cancel()

    trio.run(whole)


async def formed(group: Group) -> None:
    async with trio.open_nursery() as nursery:
        asking = Asking(group, WireLinks(nursery, credentials=service_credentials(KEY.encode(), "test")))
        await grown(asking)
        nursery.cancel_scope.cancel()


def test_each_payload_of_qos_2_comes_once_over_three_leaders_that_are_killed(group: Group) -> None:
    group.start("a")
    trio.run(formed, group)
    gateway = Service(
        "gateway",
        port="0",
        namesrv=group.names.address,
        name="gw",
        anonymous="everyone",
        cluster_secret_file=str(group.key),
    )
    devices: list[Device] = []
    try:
        subscriber = Device(gateway.place, "subscriber")
        devices.append(subscriber)
        subscriber.client.subscribe("d/#", 2)
        assert subscriber.subscribed.wait(PATIENCE_S)
        sent: list[bytes] = []
        with BlockingProducer(servers=group.names.address, timeout_s=60.0) as producer:
            for number in range(3):
                for _ in range(50):
                    sent.append(b"%d" % len(sent))
                    producer.send("d", sent[-1], mqtt_topic=f"d/{number}", qos=2)
                kill_the_leader(group)
        ends = time.monotonic() + PATIENCE_S
        while len(set(subscriber.got)) < len(sent) and time.monotonic() < ends:
            subscriber.heard.wait(1.0)
            subscriber.heard.clear()
        assert sorted(subscriber.got, key=int) == sent
    finally:
        for device in devices:
            end(device.client)
        gateway.kill()
