"""The running front: what breaks one connection touches no other."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from remoting import codes, connection
from remoting.frames import BINARY, Command, encode
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S
from tests.remoting.remoting_rig import RemotingClient, seen

FRAMES = int(os.environ.get("PENSTOCK_FUZZ_FRAMES", "1500"))


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


def test_mutated_frames_harm_no_other_connection(connect: Callable[..., RemotingClient], name: str) -> None:
    rng = random.Random(7)
    bystander = connect()
    bystander.produce(name, b"kept", e=0)
    whole = [
        encode(Command(code, 1, {"topic": name, "consumerGroup": name, "queueId": "0", "queueOffset": "0"}, b"{}"))
        for code in (codes.PULL, codes.SEND_V2, codes.HEARTBEAT, codes.ROUTE, codes.LOCK_QUEUES, codes.SEND_BACK)
    ]
    hostile = connect()
    for _ in range(FRAMES):
        frame = bytearray(rng.choice(whole))
        for _ in range(rng.randrange(1, 6)):
            frame[rng.randrange(4, len(frame))] = rng.randrange(256)
        try:
            hostile.socket.sendall(frame)
        except ConnectionError:
            hostile = connect()
    assert [one.body for one in seen(bystander.pull("g", name).body)][:1] == [b"kept"]


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
