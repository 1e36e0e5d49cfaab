"""Two members of an ordered group, processes of their own, of which one is stopped in the middle of a message."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock import Message
from penstock.blocking import Producer
from tests.endtoend.conftest import System
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend

MEMBER = """
import asyncio, sys, time
from penstock import Consumer, ReceivedMessage

async def main():
    async with Consumer(
        "line", "steps", servers=sys.argv[2], start="earliest", ordered=True, session_s=1.5
    ) as consumer:
        async def work(message: ReceivedMessage) -> None:
            (member,) = consumer._members.values()
            said = message.queue.number, message.key, int(message.body), member._holdings.generation, time.monotonic()
            print(sys.argv[1], *said, flush=True)
            await asyncio.sleep(0.03)

        await consumer.handle(work, concurrency=4)

asyncio.run(main())
"""


KEYS = [f"k{number}" for number in range(8)]


class Begun(NamedTuple):
    """A message that a member began with, by the clock of the machine, and the generation that it knew."""

    at: float
    member: str
    queue: int
    key: str
    number: int
    generation: int


class Members:
    """The processes, and the messages that they begin with. ``until`` sends more while it waits, so that members always
    have some."""

    def __init__(self, servers: str, producer: Producer) -> None:
        self._producer = producer
        self._sent = 0
        self.places: dict[str, int] = {}
        self._servers = servers
        self._arrived: queue.SimpleQueue[Begun] = queue.SimpleQueue()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.begun: list[Begun] = []

    def start(self, name: str) -> None:
        process = self._processes[name] = subprocess.Popen(
            [sys.executable, "-c", MEMBER, name, self._servers], stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            member, number, key, body, generation, at = line.split()
            self._arrived.put(Begun(float(at), member, int(number), key, int(body), int(generation)))

    def until(self, member: str, queues: set[int]) -> Begun:
        """Waits until a member, or any, begins in one of these queues."""
        for _ in range(PATIENCE_S * 100):
            try:
                one = self._arrived.get(timeout=1)
            except queue.Empty:
                self.feed(5)
                continue
            self.begun.append(one)
            if member in ("", one.member) and one.queue in queues:
                return one
        raise AssertionError(f"{member or 'no member'} begins in {queues}")

    def feed(self, count: int) -> None:
        """Sends ``count`` more messages of each key."""
        numbers = range(self._sent, self._sent + count)
        sent = [Message("steps", b"%d" % at, key=key) for at in numbers for key in KEYS]
        receipts = self._producer.send_many(sent)
        self.places |= {one.key: receipt.queue.number for one, receipt in zip(sent, receipts, strict=True)}
        self._sent += count

    def until_all_is_begun(self) -> None:
        open_ = {(key, self._sent - 1) for key in KEYS} - {(one.key, one.number) for one in self.begun}
        while open_:
            one = self._arrived.get(timeout=PATIENCE_S)
            self.begun.append(one)
            open_.discard((one.key, one.number))

    def signal(self, name: str, what: signal.Signals) -> None:
        self._processes[name].send_signal(what)

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    system = System(tmp_path / "data")
    try:
        system.start()
        with Producer(servers=system.namesrv) as producer:
            made = Members(system.namesrv, producer)
            try:
                yield made
            finally:
                made.end()
    finally:
        system.end()


def test_a_member_that_is_stopped_mid_message_does_not_mix_its_work_with_that_of_the_next(members: Members) -> None:
    members.feed(40)
    places, everywhere = members.places, set(members.places.values())
    members.start("a")
    members.until("a", everywhere)
    members.start("b")
    b_has = {members.until("b", everywhere).queue}
    mine = members.until("a", everywhere - b_has)
    members.signal("a", signal.SIGSTOP)
    members.until("b", {mine.queue})  # once the session of the other has ended
    members.signal("a", signal.SIGCONT)
    members.until_all_is_begun()
    for number in everywhere:
        begun = sorted(one for one in members.begun if one.queue == number)
        for one, other in pairwise(begun):
            is_later = one.generation < other.generation
            assert is_later or (one.member == other.member and one.generation == other.generation), (one, other)
        for key in [key for key, place in places.items() if place == number]:
            for one, other in pairwise([one for one in begun if one.key == key]):
                assert other.number <= one.number + 1, f"something was skipped between {one} and {other}"
    assert {one.member for one in members.begun if one.queue == mine.queue} == {"a", "b"}
