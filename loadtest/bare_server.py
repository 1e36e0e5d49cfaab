"""The least that a server must do: ``python -m loadtest.bare_server PORT FILE LEVEL``.

It takes QoS 1 PUBLISH packets, writes them to a file as they came, has them synced once per round (``LEVEL`` "disk")
or not ("cache"), acknowledges them and passes them on, as they came, to whoever subscribed to their topic. There is no
session, no queue, no index, no reading back, no check and no error: only what the machine's sockets, its wake-ups and
its disk cost anybody. What it reaches is what can be asked of a server in Python on this machine.

Its clients are those of ``generator.py``: all packets of a connection have one size, and one topic each.
"""

from __future__ import annotations

import select
import socket
import sys
from pathlib import Path
from typing import Final

from broker.store.disk import RealDisk
from broker.store.segment import Segment
from loadtest.packets import CONNACK_OK, PUBLISH_QOS1, SUBACK_QOS1
from loadtest.wires import Inbox

FILE_BYTES: Final = 256 * 1024 * 1024
_CONNECT: Final = 0x10
_SUBSCRIBE: Final = 0x82
_TOPIC_AT: Final = 2


class File:
    """Where messages are written, with zeros ahead as in the log; begun again from its beginning when it is full."""

    def __init__(self, path: Path, *, syncs: bool) -> None:
        self._file = RealDisk(path.parent).open(path.name, create=True)
        self._segment = Segment(0, self._file, FILE_BYTES)
        self._segment.reserve(FILE_BYTES)
        self._syncs = syncs
        self._at = 0

    def write(self, pieces: list[bytes]) -> None:
        """Writes them, durably if this file is to."""
        data = b"".join(pieces)
        if self._at + len(data) > FILE_BYTES:
            self._at = 0
        self._segment.write(data, self._at)
        self._at += len(data)
        if self._syncs:
            self._file.sync()


class Server:
    """All connections, in one loop."""

    def __init__(self, port: int, file: File) -> None:
        self._file = file
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, socket.socket] = {}
        self._inbox = Inbox()
        self._rests: dict[int, bytes] = {}
        self._subscribers: dict[bytes, list[socket.socket]] = {}

    def run(self) -> None:
        """Serves until the process ends."""
        while True:
            written: list[bytes] = []
            output: list[tuple[socket.socket, bytes]] = []
            for descriptor, _ in self._poll.poll():
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._serve(descriptor, written, output)
            if written:
                self._file.write(written)
            for connection, data in output:
                connection.sendall(data)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[connection.fileno()] = connection
        self._poll.register(connection, select.EPOLLIN)

    def _serve(self, descriptor: int, written: list[bytes], output: list[tuple[socket.socket, bytes]]) -> None:
        connection = self._connections[descriptor]
        data = self._rests.pop(descriptor, b"") + self._inbox.read(connection)
        if not data:
            self._poll.unregister(descriptor)
            self._connections.pop(descriptor).close()
            for subscribers in self._subscribers.values():
                if connection in subscribers:
                    subscribers.remove(connection)
        elif data[0] == PUBLISH_QOS1:
            self._publish(connection, data, written, output)
        elif data[0] == _CONNECT:
            connection.sendall(CONNACK_OK)
        elif data[0] == _SUBSCRIBE:
            self._subscribers.setdefault(data[6:-1], []).append(connection)
            connection.sendall(SUBACK_QOS1)

    def _publish(
        self, connection: socket.socket, data: bytes, written: list[bytes], output: list[tuple[socket.socket, bytes]]
    ) -> None:
        """Whole packets are taken; their lengths are below 128."""
        size = _TOPIC_AT + data[1] if len(data) > 1 else len(data) + 1
        whole = len(data) // size * size
        if whole < len(data):
            self._rests[connection.fileno()] = data[whole:]
            data = data[:whole]
        if not data:
            return
        id_at = _TOPIC_AT + 2 + int.from_bytes(data[_TOPIC_AT : _TOPIC_AT + 2], "big")
        written.append(data)
        acks = [b"@\x02" + data[at : at + 2] for at in range(id_at, whole, size)]
        output.append((connection, b"".join(acks)))
        for subscriber in self._subscribers.get(data[_TOPIC_AT + 2 : id_at], ()):
            output.append((subscriber, data))


def main() -> None:
    """Serves until the process ends."""
    port, path, level = sys.argv[1:]
    Server(int(port), File(Path(path), syncs=level == "disk")).run()


if __name__ == "__main__":
    main()
