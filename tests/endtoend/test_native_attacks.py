"""Attacks on a broker's native port: connections that together would have it hold gigabytes.

The broker is a process of its own, so that the memory it had at most can be read.
"""

from __future__ import annotations

import os
import re
import select
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from node.child_status import read_page
from penstock.protocol import wire
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.messages import Append, Appended, Pull, Pulled
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.topics import CreateTopic, TopicDetail
from tests.endtoend.conftest import Service
from tests.endtoend.lines import line
from tests.patience import PATIENCE_S, poll

pytestmark = pytest.mark.endtoend

MIB = 1 << 20
HELD = 32 * MIB
LEEWAY = 48 * MIB
"""A frame beyond the bound, its copy, the reserves, and what the allocator keeps."""
WAIT_S = PATIENCE_S
CONNECTIONS = int(os.environ.get("PENSTOCK_CONNECTIONS", "40"))
"""Eight times what there is room for; ``make soak`` takes ten times more."""


class Peer:
    """A connection, which sends and reads when it is told to."""

    def __init__(self, place: tuple[str, int]) -> None:
        self.socket = line(place)
        self._reader = wire.FrameReader()

    def send(self, *requests: Request) -> None:
        for at, request in enumerate(requests, 1):
            self.socket.sendall(wire.join(wire.encode_request(at, request)))

    def results(self, *requests: Request) -> list[Result]:
        """The results of requests that were sent, in the order of the requests."""
        got: dict[int, Result] = {}
        while len(got) < len(requests):
            data = self.socket.recv(MIB)
            assert data, "the broker has closed the connection"
            for frame in self._reader.receive(data):
                got[frame.request_id] = wire.decode_result(frame, type(requests[frame.request_id - 1]))
        return [got[at] for at in range(1, len(requests) + 1)]

    def ask(self, request: Request) -> Result:
        self.send(request)
        return self.results(request)[0]


def figure(broker: Service, name: str) -> float:
    """A figure of its status page."""
    with urllib.request.urlopen(f"http://{broker.status}/metrics", timeout=WAIT_S) as page:
        return read_page(page.read().decode())[name]


def peak(broker: Service) -> int:
    """The most memory that the process ever had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Service]:
    service = Service(
        "broker", port="0", data=str(tmp_path / "b"), namesrv="", status_port="0", held_bytes_max=str(HELD)
    )
    try:
        yield service
    finally:
        service.kill()


def check_serves(neighbour: Peer) -> None:
    """What asks little is served: a ping, an append and a pull of it."""
    record = encode_message(Message("small", b"x"))
    for _ in range(10):
        assert isinstance(neighbour.ask(Ping()), ServerInfo)
        assert isinstance(neighbour.ask(Append(1, False, record)), Appended)
        pulled = neighbour.ask(Pull("small:0", 0))
        assert isinstance(pulled, Pulled)
        assert pulled.count


def test_connections_with_four_pulls_of_4_mib_that_are_never_read(broker: Service) -> None:
    with ExitStack() as stack:
        neighbour = Peer(broker.place)
        for topic in ("small", "large"):
            assert isinstance(neighbour.ask(CreateTopic(topic, 1)), TopicDetail)
        record = encode_message(Message("large", bytes(MIB)))
        for _ in range(4):
            assert isinstance(neighbour.ask(Append(1, False, record)), Appended)
        before = peak(broker)
        pulls = [Pull("large:0", 0, 4 * MIB)] * 4
        attackers = [Peer(broker.place) for _ in range(CONNECTIONS)]
        for one in attackers:
            stack.callback(one.socket.close)
            one.send(*pulls)
        poll("many that wait", lambda: figure(broker, "penstock_waiting_connections") >= CONNECTIONS * 3 / 4)
        check_serves(neighbour)
        assert peak(broker) < before + HELD + LEEWAY
        for one in attackers[20:]:
            one.socket.close()
        with ThreadPoolExecutor(20) as readers:  # nothing that they asked for is lost
            for got in readers.map(lambda one: one.results(*pulls), attackers[:20]):
                assert [isinstance(each, Pulled) and len(each.body) > 2 * MIB for each in got] == [True] * 4
        poll("all answers taken", lambda: figure(broker, "penstock_untaken_bytes"), lambda found: not found)


def test_60_half_frames_of_16_mib(broker: Service) -> None:
    with ExitStack() as stack:
        neighbour = Peer(broker.place)
        stack.callback(neighbour.socket.close)
        assert isinstance(neighbour.ask(CreateTopic("small", 1)), TopicDetail)
        before = peak(broker)
        frame = memoryview((16 * MIB).to_bytes(4, "big") + bytes(16 * MIB - 1))
        sent: dict[socket.socket, int] = {}
        for _ in range(60):
            one = socket.create_connection(broker.place, WAIT_S)
            one.setblocking(False)
            stack.callback(one.close)
            sent[one] = 0
        open_ = list(sent)
        while open_ and (writable := select.select([], open_, [], 2.0)[1]):  # until it reads no more
            for one in writable:
                sent[one] += one.send(frame[sent[one] : sent[one] + MIB])
            open_ = [one for one in open_ if sent[one] < len(frame)]
        assert open_, "it has read all of them"
        check_serves(neighbour)
        assert figure(broker, "penstock_waiting_connections") > 0
        assert peak(broker) < before + HELD + LEEWAY
