"""A producer sends while its broker is killed again and again: each body is stored once, and each receipt is true.

``PENSTOCK_SENDS=100000`` is the long run of ``make soak``.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import trio

import penstock
from penstock import Message, Producer, Receipt
from tests.endtoend.conftest import Service
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

SENDS = int(os.environ.get("PENSTOCK_SENDS", "1200"))
KILLS = 2 if SENDS <= 10_000 else 30
SENDERS = 50
"""Half of them send one message after the other, half many at once."""


class Cluster:
    """A name server and a broker that comes back at its address."""

    def __init__(self, folder: Path) -> None:
        self._settings = {"data": str(folder / "data"), "name": "b"}
        self.names = Service("namesrv", port="0")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._settings |= {"port": str(free.getsockname()[1]), "namesrv": self.names.address}
        self.start()

    def start(self) -> None:
        self.broker = Service("broker", **self._settings)

    def restart(self) -> None:
        """After a kill -9 of the broker."""
        self.broker.kill()
        self.start()

    def end(self) -> None:
        for service in (self.broker, self.names):
            with suppress(ProcessLookupError):
                service.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.end()


class Sending:
    """What is acknowledged, and the moments at which so many messages are."""

    def __init__(self, kills: int) -> None:
        self.receipts: dict[bytes, Receipt] = {}
        self._moments = [(SENDS * kill // (kills + 1), anyio.Event()) for kill in range(1, kills + 1)]

    async def wait_for(self, kill: int) -> None:
        await self._moments[kill][1].wait()

    def acknowledged(self, messages: Sequence[Message], receipts: Sequence[Receipt]) -> None:
        self.receipts.update((message.body, receipt) for message, receipt in zip(messages, receipts, strict=True))
        for count, moment in self._moments:
            if len(self.receipts) >= count:
                moment.set()

    async def send(self, producer: Producer, number: int, count: int) -> None:
        """Sends so many messages, one after the other or twenty at once."""
        for first in range(0, count, 20):
            some = [
                Message("t", b"%d-%d" % (number, at), key=str(number)) for at in range(first, min(first + 20, count))
            ]
            if number % 2:
                self.acknowledged(some, await producer.send_many(some))
            else:
                for message in some:
                    self.acknowledged([message], [await producer.send(message)])


async def run(cluster: Cluster) -> tuple[dict[bytes, Receipt], Counter[bytes], dict[bytes, tuple[int, int]]]:
    """Receipts of all that was sent, how often each body is stored, and where."""
    sending = Sending(KILLS)
    producing = Producer(servers=cluster.names.address, timeout_s=2 * PATIENCE_S)
    async with producing as producer, anyio.create_task_group() as tasks:
        for number in range(SENDERS):
            tasks.start_soon(sending.send, producer, number, SENDS // SENDERS)
        for kill in range(KILLS):
            await sending.wait_for(kill)
            await anyio.to_thread.run_sync(cluster.restart)
    stored: Counter[bytes] = Counter()
    places: dict[bytes, tuple[int, int]] = {}
    async with penstock.Reader("t", servers=cluster.names.address, until_end=True) as reader:
        async for messages in reader:
            for message in messages:
                stored[message.body] += 1
                places[message.body] = message.queue.number, message.offset
    return sending.receipts, stored, places


def test_each_body_is_stored_once_through_kills_of_the_broker(cluster: Cluster) -> None:
    receipts, stored, places = trio.run(partial(run, cluster))
    assert len(receipts) == SENDS // SENDERS * SENDERS
    assert {body: count for body, count in stored.items() if count != 1} == {}, "each once"
    assert stored.keys() == receipts.keys(), "none is lost"
    told = {body: (receipt.queue.number, receipt.offset) for body, receipt in receipts.items() if receipt.offset >= 0}
    assert told == {body: places[body] for body in told}, "each receipt says where"
    assert len(told) > 0.9 * len(receipts)
