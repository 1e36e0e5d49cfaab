"""A handler that always fails, against real processes: attempts count through a kill, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from penstock import Consumer, Producer, ReceivedMessage
from penstock.blocking import Admin
from tests.endtoend.conftest import Service
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


class Cluster:
    """A name server, and a broker that is killed and comes back."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.names = Service("namesrv", port="0")
        self.broker = self._start("0")

    def _start(self, port: str) -> Service:
        return Service(
            "broker",
            port=port,
            name="broker-a",
            data=str(self._data),
            namesrv=self.names.address,
            retry_delays_s="0.01,0.02",
        )

    def restart(self) -> None:
        self.broker.kill()
        self.broker = self._start(str(self.broker.place[1]))

    def penstock(self, *words: str) -> list[Any]:
        """What a command prints with ``--json``."""
        command = [sys.executable, "-m", "node", "--server", self.names.address, *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def end(self) -> None:
        self.broker.kill()
        self.names.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.end()


def test_a_handler_that_always_raises_ends_in_the_dead_letters_after_16_attempts_and_redrive_delivers(
    cluster: Cluster,
) -> None:
    attempts: list[int] = []
    redriven: list[bytes] = []

    def consumer() -> Consumer:
        return Consumer("billing", "orders", servers=cluster.names.address, start="earliest", timeout_s=PATIENCE_S)

    async def fail_until(count: int) -> None:
        async with consumer() as c:

            async def work(message: ReceivedMessage) -> None:
                attempts.append(message.attempts)
                if len(set(attempts)) == count:
                    c.stop()
                raise RuntimeError(f"attempt {message.attempts}")

            with anyio.fail_after(PATIENCE_S):
                await c.handle(work, concurrency=4)

    async def take() -> None:
        async with consumer() as c:

            async def work(message: ReceivedMessage) -> None:
                redriven.append(message.body)
                c.stop()

            with anyio.fail_after(PATIENCE_S):
                await c.handle(work)

    async def send() -> None:
        async with Producer(servers=cluster.names.address, timeout_s=PATIENCE_S) as producer:
            await producer.send("orders", b"bad", key="customer-7")

    anyio.run(send)
    anyio.run(fail_until, 8)
    cluster.restart()
    anyio.run(fail_until, 16)
    assert sorted(set(attempts)) == list(range(16))
    listed = cluster.penstock("dlq", "list")
    assert [(one["group"], one["letters"], one["waiting"]) for one in listed] == [("billing", 1, 1)]
    with Admin(cluster.names.address) as admin:
        [letter] = admin.letters_of("billing", 9)
        told = letter.origin, letter.attempts, letter.reason, letter.message.key, letter.message.body
        assert told == ("orders", 16, "RuntimeError: attempt 15", "customer-7", b"bad")
        assert [one.error for one in admin.redrive("billing", "")] == [None]
    anyio.run(take)
    assert redriven == [b"bad"]
