"""Connections of tests. All of them end with their test, also with one that fails: a socket that the collector finds
later would fail another test."""

from __future__ import annotations

import socket
from collections.abc import Callable

import paho.mqtt.client as paho

from gateway.mqtt import codec
from gateway.mqtt.packets import Packet
from gateway.mqtt.reader import PacketReader
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S

_ends: list[Callable[[], object]] = []


def end_all() -> None:
    """Closes what the test has left open; what is closed already stays closed."""
    while _ends:
        _ends.pop()()


def line(address: tuple[str, int]) -> socket.socket:
    """A connection of this test."""
    made = socket.create_connection(address, PATIENCE_S)
    _ends.append(made.close)
    return made


def kept(client: paho.Client) -> paho.Client:
    """A paho client of this test."""
    _ends.append(lambda: end(client))
    return client


class Device:
    """A plain socket with a codec."""

    def __init__(self, address: tuple[str, int], level: int) -> None:
        self.socket = line(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = PacketReader(1 << 20)
        self.level = self._reader.level = level
        self._packets: list[Packet] = []

    def send(self, *packets: Packet) -> None:
        self.socket.sendall(b"".join([codec.encode(packet, self.level) for packet in packets]))

    def next(self) -> Packet:
        while not self._packets:
            data = self.socket.recv(65_536)
            assert data, "the gateway closed"
            self._packets += self._reader.receive(data)
        return self._packets.pop(0)

    def rest(self) -> bytes:
        """Everything until the gateway closes."""
        received = b""
        try:
            while data := self.socket.recv(65_536):
                received += data
        except ConnectionError:
            pass
        return received
