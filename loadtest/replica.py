"""What copies of a log cost: a group of three nodes beside one node, on the same cores.

Each node is a whole ``penstock up``; one node stores at level ``disk``, the group at level ``quorum``. The two are
measured in turn, round by round, and compared by the medians of their rounds.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO

import trio
from rich.console import Console

from loadtest.rows import Row, show
from loadtest.store_bench import follow_cost
from node.mqtt_client import MqttClient
from penstock import Admin, Message, Producer, blocking
from penstock.client.wire_link import WireLinks, call
from penstock.errors import PenstockError
from penstock.protocol.requests.filters import OpenedFilters, OpenFilters
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.sessions import OpenSession

BODY = bytes(200)
BATCH = 100
SENDERS = 8
SINGLES = 200
ROUNDS = 3
SECONDS = 4.0
RESYNC_BYTES = 256 << 20
FILTERS = 100_000
SESSIONS = 10_000
PART = 100
WAIT_S = 120.0
_COPIED = re.compile(r"a whole copy of the log is here, .*: (\d+) MB in ([\d.]+) s")
_LEADS = re.compile(r"this node leads the group, in epoch \d+; its service was made in (\d+) ms")
_READY = re.compile(r"^ready mqtt=(\S+) broker=(\S+) namesrv=(\S+) ")


class Node:
    """A running node and where it is reached."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = _READY.match(line)
        assert ready, line
        self.mqtt, self.broker, self.servers = ready.groups()


@contextmanager
def _node(folder: Path, name: str, *options: str, log: IO[str] | None = None) -> Iterator[Node]:
    """A node with free ports, until the block ends. ``log``: where its log lines go."""
    ports = [f"--{port}-port=0" for port in ("mqtt", "broker", "namesrv", "http")]
    command = [sys.executable, "-m", "node", "up", f"--data={folder / name}", "--console-port=-1", *ports, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            yield Node(process)
        finally:
            process.send_signal(signal.SIGKILL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _until(condition: Callable[[], object]) -> float:
    """Waits for a condition; returns the seconds that it took."""
    began = time.perf_counter()
    while True:
        try:
            if condition():
                return time.perf_counter() - began
        except PenstockError:
            pass
        assert time.perf_counter() - began < WAIT_S, "a node did not come so far"
        time.sleep(0.02)


def _is_level(servers: str, node: str) -> bool:
    with blocking.Admin(servers) as admin:
        [group] = admin.replicas()
        return any(one.node == node and one.is_level for one in group.nodes)


@contextmanager
def group_of_three(
    folder: Path, logs: Mapping[str, IO[str]] = MappingProxyType({})
) -> Iterator[tuple[dict[str, Node], list[str]]]:
    """Three voters, ``a`` leads; and the options with which a further node joins."""
    key, port = folder / "key", _free_port()
    key.write_text("k" * 64)
    key.chmod(0o600)
    join = [f"--key={key}", f"--join=127.0.0.1:{port}", "--replica-port=0"]
    with ExitStack() as stack:
        nodes = {
            "a": stack.enter_context(
                _node(folder, "a", "--node=a", f"--key={key}", f"--replica-port={port}", log=logs.get("a"))
            )
        }
        for name in "bc":
            nodes[name] = stack.enter_context(_node(folder, name, f"--node={name}", *join, log=logs.get(name)))
        servers = nodes["a"].servers
        for name in "bc":
            _until(lambda name=name: _is_level(servers, name))  # type: ignore[misc]
        with blocking.Admin(servers) as admin:
            admin.promote_replica(["b", "c"])
        yield nodes, join


# ---------------------------------------------------------------- many at once, and one at a time


async def _send_for(servers: str, topic: str, seconds: float) -> float:
    """Messages a second that several senders of batches have receipts for."""
    count = 0
    async with Producer(servers=servers, timeout_s=WAIT_S) as producer:
        await producer.send(topic, b"the topic is made")
        began = trio.current_time()

        async def send() -> None:
            nonlocal count
            while trio.current_time() < began + seconds:
                count += len(await producer.send_many([Message(topic, BODY)] * BATCH))

        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(send)
        return count / (trio.current_time() - began)


def _single_ms(servers: str, topic: str) -> float:
    """Median of milliseconds from a send to its receipt, one at a time."""
    took = []
    with blocking.Producer(servers=servers) as producer:
        for _ in range(SINGLES):
            began = time.perf_counter()
            producer.send(topic, BODY)
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def _fsync_ms(folder: Path) -> float:
    """Median of milliseconds that the disk takes for a small write and its fsync."""
    took = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(SINGLES):
            began = time.perf_counter()
            file.write(BODY)
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def beside_one_node(folder: Path, one: Node, leader: Node, rounds: int, seconds: float) -> Iterator[Row]:
    """The group beside a node alone: messages a second, and the time of one message."""
    rates: tuple[list[float], list[float]] = ([], [])
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for number in range(rounds):
        for at, node in enumerate((one, leader)):
            rates[at].append(trio.run(_send_for, node.servers, f"many-{number}", seconds))
            times[at].append(_single_ms(node.servers, f"many-{number}"))
        times[2].append(_fsync_ms(folder))
    alone, together = (statistics.median(found) for found in rates)
    yield Row("one node, level disk", alone, "messages/s", "", True)
    yield Row("three nodes, level quorum", together, "messages/s", "", True)
    yield Row("the group beside the node", together / alone, "times", ">= 0.40", together >= 0.4 * alone)
    single, replicated, fsync = (statistics.median(found) for found in times)
    goal = f"<= {fsync + 0.5:.2f} (an fsync + 0.5)"
    yield Row("a single message, one node", single, "ms", "", True)
    more = replicated - single
    yield Row("a single message takes longer in the group by", more, "ms", goal, more <= fsync + 0.5)


# ---------------------------------------------------------------- a leader that dies, and a new node


def failover(nodes: dict[str, Node], beside: str = "") -> Iterator[Row]:
    """From the death of the leader to the next PUBACK of a gateway at another node. What was out to the leader has an
    unknown fate: the device connects again then, and repeats it."""

    def publish(body: bytes) -> bool:
        with MqttClient(nodes["b"].mqtt, timeout_s=WAIT_S) as device:
            device.publish("site/state", body, qos=1)
        return True

    publish(b"before")
    nodes["a"].process.send_signal(signal.SIGKILL)
    took = _until(lambda: publish(b"after"))
    yield Row(f"from the leader's death to the next PUBACK{beside}", took, "s", "<= 3", took <= 3)


async def fill(servers: str, filters: int, sessions: int) -> None:
    """Opens filters, and sessions that last, at the leader: a batch of requests at a time."""
    async with Admin(servers) as admin, trio.open_nursery() as nursery:
        [address] = {broker.address for broker in await admin.brokers()}
        link = WireLinks(nursery).link(address)
        opened: list[Request] = []
        for at in range(0, filters, PART):
            names = tuple(f"site/{at}/{number}/+/state" for number in range(min(PART, filters - at)))
            opened.append(OpenFilters(f"s:{at}", names))
        opened += [OpenSession("gateway", f"device-{number}", False, 3600, b"") for number in range(sessions)]

        async def carry_out(request: Request) -> None:
            reply = await call(link, request, WAIT_S)
            assert not isinstance(reply, OpenedFilters) or not reply.refused, reply

        for first in range(0, len(opened), PART):
            async with trio.open_nursery() as batch:
                for request in opened[first : first + PART]:
                    batch.start_soon(carry_out, request)
        nursery.cancel_scope.cancel()


def promotion(folder: Path, filters: int, sessions: int) -> Iterator[Row]:
    """The leader dies whose broker knows many filters and sessions."""
    with ExitStack() as stack:
        logs = {name: stack.enter_context((folder / f"{name}.log").open("w")) for name in "abc"}
        nodes, _ = stack.enter_context(group_of_three(folder, logs))
        trio.run(fill, nodes["a"].servers, filters, sessions)
        yield from failover(nodes, f", {filters:,} filters, {sessions:,} sessions")
        made = [_LEADS.findall((folder / f"{name}.log").read_text()) for name in "bc"]
    took = max(int(one) for found in made for one in found) / 1000
    yield Row("of that, the new leader made its service in", took, "s", "<= 2", took <= 2)


def resync(folder: Path, nodes: dict[str, Node], join: list[str], size: int) -> Iterator[Row]:
    """A new node is sent a log from its beginning on, as followers are, and takes it in."""
    servers = nodes["a"].servers
    with blocking.Producer(servers=servers) as producer:
        for _ in range(size // (1 << 20)):
            producer.send_many([Message("large", bytes(1 << 15))] * 32)
    with _node(folder, "d", "--node=d", *join):
        took = _until(lambda: _is_level(servers, "d"))
    per_s = size / took / 1e6
    yield Row(f"a new node starts and is sent {size >> 20} MiB", per_s, "MB/s", "", True)


def whole_copy(folder: Path, size: int) -> Iterator[Row]:
    """A new node gets a log that begins late: stretch by stretch, as the disk has it, without the node's start."""
    key, port, settings = folder / "key of two", _free_port(), folder / "late.toml"
    key.write_text("k" * 64)
    key.chmod(0o600)
    segment = max(1 << 20, size // 8)
    settings.write_text(f"[broker]\nsegment_bytes = {segment}\nretention_bytes = {size}\n")
    common = [f"--config={settings}", f"--key={key}"]
    with _node(folder, "full", "--node=full", *common, f"--replica-port={port}") as leader:
        with blocking.Producer(servers=leader.servers) as producer:
            for _ in range((size + 3 * segment) // (1 << 20)):
                producer.send_many([Message("large", bytes(1 << 15))] * 32)
        _until(lambda: not (folder / "full/log" / f"{0:020d}.log").exists())
        log = folder / "new.log"
        with (
            log.open("w") as lines,
            _node(folder, "new", "--node=new", *common, f"--join=127.0.0.1:{port}", "--replica-port=0", log=lines),
        ):
            _until(lambda: _COPIED.search(log.read_text()))
    found = _COPIED.search(log.read_text())
    assert found
    per_s = float(found[1]) / float(found[2])
    yield Row(f"a whole copy of {found[1]} MB, without the node's start", per_s, "MB/s", ">= 200", per_s >= 200)


def following(folder: Path) -> Iterator[Row]:
    """What runs of devices cost a follower, beside their append at the leader."""
    appended, followed = follow_cost(folder)
    ratio = followed / appended
    yield Row("a follower's processor time beside the leader's, runs", ratio, "times", "<= 1.3", ratio <= 1.3)


def run(
    console: Console,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    size: int = RESYNC_BYTES,
    filters: int = FILTERS,
    sessions: int = SESSIONS,
) -> int:
    """Measures and shows all rows; returns 0."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _node(folder, "one") as one, group_of_three(folder) as (nodes, join):
            rows = list(beside_one_node(folder, one, nodes["a"], rounds, seconds))
            rows += resync(folder, nodes, join, size)
            rows += failover(nodes)
        rows += whole_copy(folder, size)
        rows += following(folder / "follow")
        (folder / "many").mkdir()
        rows += promotion(folder / "many", filters, sessions)
    show(console, "copies", rows)
    return 0
