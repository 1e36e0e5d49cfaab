"""The running front: what breaks one connection touches no other."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock.errors import ProtocolError
from remoting import codes, connection
from remoting.frames import BINARY, Command, FrameReader, encode
from remoting.handlers import handlers
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S
from tests.remoting.remoting_rig import RemotingClient, seen

FRAMES = int(os.environ.get("PENSTOCK_FUZZ_FRAMES", "1500"))
GROWTH_BYTES_MAX = 64 << 20
"""More than caches that fill and messages that are stored, less than a hundred bytes for each of a million frames."""
ADMINISTRATION = (codes.CREATE_TOPIC, codes.DELETE_TOPIC, codes.DELETE_GROUP, codes.RESET_OFFSETS)
CODES = [one for one in [*handlers(), 0, 5, 402, 32_000] if one not in ADMINISTRATION]
NAMES = ("consumerGroup", "producerGroup", "queueId", "queueOffset", "sysFlag", "maxMsgNums", "offset", "properties")
NAMES += (
    "commitOffset",
    "timestamp",
    "clientID",
    "clientId",
    "msgId",
    "delayLevel",
    "tranStateTableOffset",
    *"bceghimn",
)
VALUES = ("", "0", "1", "-1", "3", "9223372036854775807", "x", "\x00", "a\x01b\x02", "DELAY\x011", "\u00e9" * 300)
BODIES = (
    b"",
    b"{}",
    b"[" * 5000,
    bytes(40),
    b'{"clientID":"c","consumerDataSet":[{"groupName":"fuzz"}]}',
    b"\xff" * 100,
)


class Hostile:
    """A client that sends damaged frames: bytes that have changed, the end missing, and whole frames with the wrong
    fields. It waits for the end of its connection where a frame cannot be read, so that each frame is looked at."""

    def __init__(self, place: str, topic: str) -> None:
        self._place = place
        self._topic = topic
        self._rng = random.Random(7)
        self.client = RemotingClient(place)

    def send_one(self) -> None:
        frame = bytearray(encode(self._command()))
        if self._rng.random() < 0.1:
            for _ in range(self._rng.randrange(1, 6)):
                frame[self._rng.randrange(4, len(frame))] = self._rng.randrange(256)
        is_cut = self._rng.random() < 0.002
        self.client.socket.sendall(frame[: len(frame) // 2] if is_cut else frame)
        if is_cut or not is_readable(frame):
            self._end()
            self.client = RemotingClient(self._place)
        while select.select([self.client.socket], [], [], 0)[0]:
            assert self.client.socket.recv(1 << 20), frame

    def _command(self) -> Command:
        pick = self._rng.choice
        fields = {pick(NAMES): pick((*VALUES, self._topic)) for _ in range(self._rng.randrange(8))}
        if self._rng.random() < 0.8:
            fields["topic"] = self._topic
        return Command(pick(CODES), 1, fields, pick(BODIES), serialization=self._rng.randrange(2))

    def _end(self) -> None:
        """Reads until the front has closed the connection."""
        with contextlib.suppress(OSError):
            self.client.socket.shutdown(socket.SHUT_WR)
            while self.client.socket.recv(1 << 20):
                pass
        self.client.close()


def is_readable(frame: bytearray) -> bool:
    """Whether the front reads a frame on."""
    try:
        FrameReader().feed(frame)
    except ProtocolError:
        return False
    return True


def resident_bytes() -> int:
    """Of this process, in which the node runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def connections(node: RunningSystem) -> int:
    """How many the front has, as its metrics say."""
    with urlopen(f"http://{node.addresses.http}/metrics", timeout=PATIENCE_S) as page:
        (line,) = [one for one in page.read().decode().splitlines() if one.startswith("remoting_connections ")]
    return int(float(line.split()[1]))


def is_closed(client: RemotingClient) -> bool:
    client.socket.settimeout(PATIENCE_S)
    try:
        return client.socket.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("data", [bytes(8), b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64])
def test_what_is_no_frame_ends_its_own_connection_only(data: bytes, connect: Callable[..., RemotingClient]) -> None:
    bystander, hostile = connect(), connect()
    hostile.socket.sendall(data)
    assert is_closed(hostile)
    assert bystander.ask(codes.CHECK_CLIENT_CONFIG).code == codes.SUCCESS


def test_connections_that_are_reset_at_once_harm_no_other(connect: Callable[..., RemotingClient]) -> None:
    bystander = connect()
    at_once = struct.pack("ii", 1, 0)
    for _ in range(20):
        with socket.create_connection(bystander.socket.getpeername()) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    for client in (connect(), bystander):  # the new one is accepted behind those that were reset
        assert client.ask(codes.CHECK_CLIENT_CONFIG).code == codes.SUCCESS


def test_binary_headers_are_answered_in_binary(connect: Callable[..., RemotingClient], name: str) -> None:
    client = connect(serialization=BINARY)
    answer = client.produce(name, b"x", e=0)
    assert (answer.code, answer.serialization) == (codes.SUCCESS, BINARY)


def test_a_one_way_request_has_no_answer(client: RemotingClient, name: str) -> None:
    client.produce(name, b"first", e=0)
    silent = client.send(codes.SEND_V2, b"second", one_way=True, a="p", b=name, e=0, f=0, g=1, h=0, i="", j=0)
    asked = client.ask(codes.MAX_OFFSET, topic=name, queueId=0)
    while asked.fields["offset"] != "2":
        asked = client.ask(codes.MAX_OFFSET, topic=name, queueId=0)
    assert silent not in client._answers


def test_mutated_frames_harm_no_other_connection(
    connect: Callable[..., RemotingClient], name: str, node: RunningSystem
) -> None:
    """The bystander is served all the time, and memory does not grow with the frames: a third of them warms it up."""
    bystander = connect()
    bystander.produce(name, b"kept", e=0)
    hostile, held = Hostile(node.addresses.rocketmq, name), []
    for number in range(FRAMES):
        hostile.send_one()
        if number % (FRAMES // 6) == 0:
            assert [one.body for one in seen(bystander.pull("g", name).body)][:1] == [b"kept"]
            held.append(resident_bytes())
    hostile.client.close()
    assert bystander.ask(codes.CHECK_CLIENT_CONFIG).code == codes.SUCCESS
    assert max(held[-2:]) < held[2] + GROWTH_BYTES_MAX, held


@pytest.mark.interpreted
def test_a_client_that_does_not_read_its_answers_is_disconnected(
    connect: Callable[..., RemotingClient], name: str, node: RunningSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "UNSENT_BYTES_MAX", 1 << 20)
    client, bystander = connect(), connect()
    client.produce(name, bytes(500_000), e=0)
    bystander.ask(codes.CHECK_CLIENT_CONFIG)
    there = connections(node)
    fields = {"consumerGroup": "g", "topic": name, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0}
    asked = 200  # of which the sockets between the two ends hold a tenth
    got = 0
    with contextlib.suppress(ConnectionError):  # a reset, where requests were still on their way
        for _ in range(asked):
            client.send(codes.PULL, **fields)
    while connections(node) >= there:  # its end cannot be seen before what is in the sockets is read
        time.sleep(0.05)
    with contextlib.suppress(ConnectionError):
        while data := client.socket.recv(1 << 20):
            got += len(data)
    assert got < asked * 500_000 // 2
    assert bystander.ask(codes.CHECK_CLIENT_CONFIG).code == codes.SUCCESS


@pytest.mark.parametrize("name", ["clientID", "groupName"])
def test_text_that_has_no_bytes_harms_its_own_request_only(name: str, connect: Callable[..., RemotingClient]) -> None:
    client = connect()
    row = {"clientID": "c", "consumerDataSet": [{"groupName": "g"}]}
    body = json.dumps(row).replace('"c"' if name == "clientID" else '"g"', '"\\ud800"').encode()
    assert client.ask(codes.HEARTBEAT, body).code == codes.SYSTEM_ERROR
    assert client.ask(codes.CHECK_CLIENT_CONFIG).code == codes.SUCCESS


def test_it_runs_beside_a_broker_of_its_own(node: RunningSystem, tmp_path: Path, name: str) -> None:
    file = tmp_path / "remoting.toml"
    at = node.addresses
    file.write_text(f'port = 0\nnamesrv_port = 0\nbroker = "{at.broker}"\nnamesrv = "{at.namesrv}"\n')
    command = [sys.executable, "-m", "remoting", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            ready = running.stdout.readline().split()
            assert ready[0] == "ready"
            client = RemotingClient(ready[1].removeprefix("remoting="))
            assert client.produce(name, b"x", e=0).code == codes.SUCCESS
            client.close()
        finally:
            running.terminate()
    assert running.returncode == 0


def test_a_port_that_is_taken_is_an_error_in_one_line(node: RunningSystem, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = tmp_path / "remoting.toml"
        file.write_text(f'port = {taken.getsockname()[1]}\nnamesrv_port = 0\nbroker = "{node.addresses.broker}"\n')
        command = [sys.executable, "-m", "remoting", "--config", str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: ")
