"""An MQTT server for one publisher and its subscribers, with faults to order; it runs in a thread until its end."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable

from loadtest.packets import CONNACK_OK, SUBACK_QOS1
from tests.patience import PATIENCE_S

Fault = Callable[[int, bytes], list[bytes]]
"""From the number of a packet and the packet as it would be delivered to the packets that are delivered instead."""


def whole(data: bytes) -> tuple[list[bytes], bytes]:
    """Complete packets (of less than 128 bytes) and the rest."""
    found = []
    while len(data) >= 2 and len(data) >= 2 + data[1]:
        found.append(data[: 2 + data[1]])
        data = data[2 + data[1] :]
    return found, data


class SmallServer:
    """Give it to ``with``; ``port`` is where it listens."""

    def __init__(self, fault: Fault = lambda number, packet: [packet], ack: Fault = lambda number, ack: [ack]) -> None:
        self._fault = fault
        self._ack = ack
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._rests: dict[socket.socket, bytes] = {}
        self._subscribers: list[socket.socket] = []
        self._published = 0
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> SmallServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join(PATIENCE_S)
        for sock in (self._listening, self._stopped, *self._rests):
            sock.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listening, selectors.EVENT_READ)
            ready.register(self._stopped, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock is self._stopped:
                        return
                    if sock is self._listening:
                        accepted, address = sock.accept()
                        self._rests[accepted] = b""
                        self._greet(address[0])
                        ready.register(accepted, selectors.EVENT_READ)
                    elif not self._lives(sock):
                        ready.unregister(sock)

    def _greet(self, host: str) -> None:
        """Somebody has connected from there."""

    def _lives(self, sock: socket.socket) -> bool:
        try:
            return self._receive(sock)
        except OSError:  # the generator has seen enough and closed
            return False

    def _receive(self, sock: socket.socket) -> bool:
        data = sock.recv(65536)
        packets, self._rests[sock] = whole(self._rests[sock] + data)
        for packet in packets:
            kind = packet[0] >> 4
            if kind == 1:
                sock.sendall(CONNACK_OK)
            elif kind == 8:
                self._subscribers.append(sock)
                sock.sendall(SUBACK_QOS1)
            elif kind == 3:
                self._publish(sock, packet)
        return bool(data)

    def _publish(self, sock: socket.socket, packet: bytes) -> None:
        number, self._published = self._published, self._published + 1
        id_at = 4 + int.from_bytes(packet[2:4], "big")
        for ack in self._ack(number, b"\x40\x02" + packet[id_at : id_at + 2]):
            sock.sendall(ack)
        own_id = (number * 7 % 60_000 + 1).to_bytes(2, "big")
        for delivered in self._fault(number, packet[:id_at] + own_id + packet[id_at + 2 :]):
            for subscriber in self._subscribers:
                subscriber.sendall(delivered)
