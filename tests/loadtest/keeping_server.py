"""An MQTT server with durable sessions, one subscription each, with faults to order; it runs in a thread."""

from __future__ import annotations

import socket
from collections.abc import Callable

from loadtest.packets import CONNACK_OK, CONNACK_PRESENT
from tests.loadtest.small_server import SmallServer, whole

Kept = Callable[[int, bytes], list[bytes]]
"""From the number of a message that has to wait and its packet to the packets that wait instead."""


class KeepingServer(SmallServer):
    """``present``: what a client is told whose session is there. ``kept``: what becomes of a message that waits."""

    def __init__(self, kept: Kept = lambda number, packet: [packet], present: bytes = CONNACK_PRESENT) -> None:
        super().__init__()
        self._kept = kept
        self._present = present
        self._client_of: dict[socket.socket, str] = {}
        self._names: dict[str, bytes] = {}
        self._waiting: dict[str, list[bytes]] = {}
        self._count = 0
        self.came_back = 0

    def _receive(self, sock: socket.socket) -> bool:
        data = sock.recv(65536)
        packets, self._rests[sock] = whole(self._rests[sock] + data)
        for packet in packets:
            kind = packet[0] >> 4
            if kind == 1:
                self._connect(sock, packet[14:].decode())
            elif kind == 8:
                size = int.from_bytes(packet[4:6], "big")
                self._names[self._client_of[sock]] = packet[6 : 6 + size]
                sock.sendall(b"\x90\x03\x00\x01\x01")
            elif kind == 3:
                self._keep(sock, packet)
            elif kind == 14:
                sock.shutdown(socket.SHUT_RDWR)
        return bool(data)

    def _connect(self, sock: socket.socket, client: str) -> None:
        self._client_of[sock] = client
        if client in self._names:
            self.came_back += 1
            sock.sendall(self._present + b"".join(self._waiting.pop(client, [])))
        else:
            sock.sendall(CONNACK_OK)

    def _keep(self, sock: socket.socket, packet: bytes) -> None:
        id_at = 4 + int.from_bytes(packet[2:4], "big")
        sock.sendall(b"\x40\x02" + packet[id_at : id_at + 2])
        for client, name in self._names.items():
            if packet[4:id_at] == name:
                self._waiting.setdefault(client, []).extend(self._kept(self._count, packet))
                self._count += 1
