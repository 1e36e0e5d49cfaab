"""One message, three worlds: devices publish, devices, services and Spark read the same stored queues, and kill -9
loses nothing.

``PENSTOCK_MESSAGES=10000`` is the long run of ``make soak``.

"Nothing lost" here means: every payload whose PUBACK the publisher saw is read by a native consumer group.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
import trio

from penstock import Consumer
from tests.endtoend.lines import kept
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S, poll_async

MESSAGES = int(os.environ.get("PENSTOCK_MESSAGES", "2000"))
NAMES = [f"plant{i % 2}/dev{i:02d}/value" for i in range(20)]
TOPICS = ["plant0", "plant1"]

pytestmark = pytest.mark.endtoend


class Device:
    """A paho client in its own thread that remembers what was acknowledged and what it received."""

    def __init__(self, system: Any, client_id: str, *filters: str) -> None:
        self.acknowledged: set[int] = set()
        self.received: Counter[str] = Counter()
        self.subscribed = threading.Event()
        self._changed = threading.Condition()
        self._filters = filters
        self._client = kept(paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, clean_session=not filters))
        self._client.max_inflight_messages_set(100)
        self._client.max_queued_messages_set(0)
        self._client.reconnect_delay_set(0.1, 0.5)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self.subscribed.set()
        self._client.on_publish = self._on_publish
        self._client.on_message = self._on_message
        self._client.connect(system.mqtt_host, system.mqtt_port)
        self._client.loop_start()
        if filters:
            assert self.subscribed.wait(PATIENCE_S), "no SUBACK"

    def _on_connect(self, *_: object) -> None:
        for one in self._filters:
            self._client.subscribe(one, qos=1)

    def _on_publish(self, _client: object, _data: object, mid: int, *_: object) -> None:
        with self._changed:
            self.acknowledged.add(mid)
            self._changed.notify_all()

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        with self._changed:
            self.received[message.payload.decode()] += 1
            self._changed.notify_all()

    def publish(self, name: str, payload: str) -> int:
        return self._client.publish(name, payload, qos=1).mid

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(done, PATIENCE_S), what

    def close(self) -> None:
        end(self._client)


async def drain(system: Any, group: str, members: int, enough: Callable[[Counter[str]], bool]) -> Counter[str]:
    """Reads the topics with a group of several members until ``enough``, committing as it goes.

    The members begin to read when each has its share: a member that comes later takes queues from the others, and what
    those have not committed is delivered again (docs/guide/backend.md).
    """
    seen: Counter[str] = Counter()
    done = trio.Event()
    consumers = [Consumer(group, TOPICS, servers=system.namesrv, start="earliest") for _ in range(members)]

    async def read(consumer: Consumer) -> None:
        async for batch in consumer:
            seen.update(message.body.decode() for message in batch)
            await consumer.commit()
            if enough(seen):
                done.set()

    with trio.fail_after(PATIENCE_S):
        async with AsyncExitStack() as stack:
            for consumer in consumers:
                await stack.enter_async_context(consumer)
            await poll_async(
                "equal shares", lambda: {len(one.assignment) for one in consumers}, lambda of: len(of) == 1
            )
            async with trio.open_nursery() as nursery:
                for consumer in consumers:
                    nursery.start_soon(read, consumer)
                await done.wait()
                await trio.sleep(0.5)  # what comes twice would come now
                nursery.cancel_scope.cancel()
    return seen


ANALYST = """
import sys
from penstock.spark import session
spark = session(light=True)
for line in sys.stdin:
    servers, topics = line.split()
    source = spark.read.format("penstock").option("bootstrap.servers", servers).option("subscribe", topics)
    for row in source.load().select("value").collect():
        print(bytes(row.value).decode())
    print("end", flush=True)
spark.stop()
"""


class Analyst:
    """Spark batch jobs in a process of their own, as an analyst's would be; it starts while the others work."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-c", ANALYST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
            )

    def read(self, system: Any) -> Counter[str]:
        """All values of the topics."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(system.namesrv, ",".join(TOPICS), file=self._process.stdin, flush=True)
        lines: list[str] = []
        for line in self._process.stdout:
            if line == "end\n":
                return Counter(line for line in lines if line.startswith("message "))
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the Spark job ended: {self._log.read_text()[-2000:]}")

    def close(self) -> int:
        """Its exit status."""
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def analyst(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Analyst]:
    started = Analyst(tmp_path_factory.mktemp("analyst") / "log")
    try:
        yield started
        assert started.close() == 0
    finally:
        started.kill()


@pytest.mark.spark
@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="one process"), pytest.param(("--processes",), id="processes", marks=pytest.mark.long)],
)
def test_every_message_reaches_all_three_worlds_exactly_once_and_is_there_after_a_second_start(
    system: Any, analyst: Analyst, options: tuple[str, ...]
) -> None:
    running = system(*options).start()
    everything = Device(running, "watch-all", "+/+/value")
    half = Device(running, "watch-half", "plant0/#")
    publisher = Device(running, "publisher")
    mids = {publisher.publish(NAMES[i % 20], f"message {i}") for i in range(MESSAGES)}
    expected = Counter(f"message {i}" for i in range(MESSAGES))

    publisher.wait_until(lambda: len(publisher.acknowledged) == len(mids), "not every PUBACK came")
    everything.wait_until(lambda: everything.received.total() >= MESSAGES, "the wildcard subscriber misses messages")
    half.wait_until(lambda: half.received.total() >= MESSAGES // 2, "the other subscriber misses messages")
    consumed = trio.run(drain, running, "three-worlds", 2, lambda seen: seen.total() >= MESSAGES)
    analysed = analyst.read(running)
    for device in (publisher, everything, half):
        device.close()

    assert everything.received == expected
    assert half.received == Counter(f"message {i}" for i in range(MESSAGES) if i % 2 == 0)
    assert consumed == expected
    assert analysed == expected
    assert running.stop() == 0

    running.start()
    assert trio.run(drain, running, "second-start", 1, lambda seen: seen.total() >= MESSAGES) == expected
    assert running.stop() == 0


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="one process", marks=pytest.mark.long), pytest.param(("--processes",), id="processes")],
)
def test_every_acknowledged_message_survives_kill_9_of_the_broker(system: Any, options: tuple[str, ...]) -> None:
    running = system(*options).start()
    publisher = Device(running, "publisher")
    payload_of = {publisher.publish(NAMES[i % 20], f"before {i}"): f"before {i}" for i in range(MESSAGES)}
    publisher.wait_until(lambda: len(publisher.acknowledged) > MESSAGES // 8, "no PUBACK came before the kill")

    running.kill("broker")
    if not options:
        running.start()
    publisher.wait_until(lambda: len(publisher.acknowledged) == MESSAGES, "PUBACKs did not go on after the restart")
    acknowledged = {payload_of[mid] for mid in publisher.acknowledged}
    consumed = trio.run(drain, running, "after-the-kill", 2, lambda seen: acknowledged <= seen.keys())
    publisher.close()

    assert acknowledged <= consumed.keys()
    assert consumed.keys() <= set(payload_of.values())
    assert running.stop() == 0
