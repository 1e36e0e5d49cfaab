"""A running node with a front for RocketMQ's clients, and a client of the remoting protocol for tests."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.service.topic_rate import TopicRate
from penstock.world import real_world
from remoting import codes
from remoting.calls import Front
from remoting.frames import ONE_WAY, Command, FrameReader, encode
from remoting.groups import Groups
from remoting.members import Members
from remoting.signatures import ACCESS_KEY, SIGNATURE, signature
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S

VERSION = 464
DELAY_1 = 1


class RemotingClient:
    """One connection, as a client has it. What the front pushes is kept in ``pushed``."""

    def __init__(
        self,
        place: str,
        client_id: str = "test@1",
        *,
        serialization: int = 0,
        version: int = VERSION,
        user: str = "",
        secret: str = "",
        source: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``user``, ``secret``: by which commands are signed; ``source``: the address that it comes from."""
        host, _, port = place.rpartition(":")
        connected = socket.create_connection((host, int(port)), PATIENCE_S, source_address=(source, 0))
        self.socket = tls.wrap_socket(connected, server_hostname="localhost") if tls is not None else connected
        self._user = user
        self._secret = secret.encode()
        self.id = client_id
        self.pushed: list[Command] = []
        self._reader = FrameReader()
        self._answers: dict[int, Command] = {}
        self._numbers = itertools.count(1)
        self._serialization = serialization
        self._version = version

    def send(self, code: int, body: bytes = b"", *, one_way: bool = False, **fields: object) -> int:
        """Sends a request and returns its number."""
        command = self.made(code, body, one_way=one_way, **fields)
        self.socket.sendall(encode(command))
        return command.opaque

    def made(self, code: int, body: bytes = b"", *, one_way: bool = False, **fields: object) -> Command:
        """A request, signed if the client has a user."""
        number = next(self._numbers)
        texts = {name: str(value) for name, value in fields.items()}
        flag = ONE_WAY if one_way else 0
        command = Command(code, number, texts, body, flag, version=self._version, serialization=self._serialization)
        if self._user:
            command.fields[ACCESS_KEY] = self._user
            command.fields[SIGNATURE] = signature(command, self._secret)
        return command

    def show(self, command: Command) -> Command:
        """Sends a request that was made before, and waits for its answer."""
        self.socket.sendall(encode(command))
        return self.answer(command.opaque)

    def answer(self, number: int) -> Command:
        """The answer to a request."""
        while number not in self._answers:
            self._take()
        return self._answers.pop(number)

    def ask(self, code: int, body: bytes = b"", **fields: object) -> Command:
        """Sends a request and waits for its answer."""
        return self.answer(self.send(code, body, **fields))

    def next_push(self, code: int) -> Command:
        """The next command of this kind that the front sends by itself."""
        while True:
            for command in self.pushed:
                if command.code == code:
                    self.pushed.remove(command)
                    return command
            self._take()

    def _take(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the front has closed the connection")
        for command in self._reader.feed(data):
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.pushed.append(command)

    # ------------------------------------------------------------ what clients do

    def produce(self, topic: str, body: bytes, properties: str = "", **more: object) -> Command:
        """A single message, in the short form."""
        now_ms = time.time_ns() // 1_000_000
        fields = {"a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": -1, "f": 0, "g": now_ms, "h": 0}
        return self.ask(codes.SEND_V2, body, **(fields | {"i": properties, "j": 0, "k": "false", "m": "false"} | more))

    def beat(self, *groups: str, topics: tuple[str, ...] = (), producers: tuple[str, ...] = (), **more: Any) -> Command:
        """A heartbeat with consumers of these groups, which want these topics."""
        wanted = [{"topic": topic, "subString": "*", "expressionType": "TAG"} for topic in topics]
        consumer = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        consumer |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": wanted}
        row = {
            "clientID": self.id,
            "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [{"groupName": name} | consumer | more for name in groups],
        }
        return self.ask(codes.HEARTBEAT, json.dumps(row).encode())

    def pull(
        self, group: str, topic: str, queue: int = 0, offset: int = 0, wait_ms: int = 0, **more: object
    ) -> Command:
        """A pull; it waits if ``wait_ms`` says so."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32}
        fields |= {"sysFlag": 2 if wait_ms else 0, "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subVersion": 0}
        return self.ask(codes.PULL, **(fields | more))

    def close(self) -> None:
        self.socket.close()


@contextmanager
def running_front(data: Path, file: Path | None = None) -> Iterator[RunningSystem]:
    """A node whose front is there. ``file``: its settings."""
    system = RunningSystem(data, file, rocketmq_port=0, rocketmq_namesrv_port=0)
    try:
        yield system
    finally:
        system.stop()


def idle_front() -> Front:
    """The front of the broker ``own``, without a network, for flows that a test drives."""
    world = real_world()
    at = "own", "10.0.0.9:1", "10.0.0.9", 2, bytes(8)
    groups = Groups("m", lambda flow: None)
    return Front(
        *at, world.clock, world.rng, Members(), groups, lambda flow: None, lambda *_: None, TopicRate(1), {"t"}
    )


class Seen:
    """A message as a client decodes it: written from RocketMQ's layout, not from our encoder."""

    def __init__(self, record: bytes) -> None:
        self.magic = record[4:8]
        self.flag = int.from_bytes(record[16:20], "big")
        self.offset = int.from_bytes(record[20:28], "big")
        self.position = int.from_bytes(record[28:36], "big")
        self.born_host = record[48:56]
        self.attempts = int.from_bytes(record[72:76], "big")
        size = int.from_bytes(record[84:88], "big")
        self.body = record[88 : 88 + size]
        at = 88 + size
        wide = 2 if self.magic.hex() == "daa320ab" else 1
        length = int.from_bytes(record[at : at + wide], "big")
        self.topic = record[at + wide : at + wide + length].decode()
        text = record[at + wide + length + 2 :].decode()
        pairs = [pair.partition("\x01") for pair in text.split("\x02") if pair]
        self.properties = {name: value for name, _, value in pairs}


def seen(body: bytes) -> list[Seen]:
    """The messages in the body of an answer."""
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found.append(Seen(body[at : at + size]))
        at += size
    return found
