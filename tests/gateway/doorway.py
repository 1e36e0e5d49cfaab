"""One listener of a gateway on a real socket; rounds and time are the test's, the rest of the gateway is in memory."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from rig import Gateway
from wire_ends import Authority, TlsEnd, frame, proxy_header, request

from gateway.connections.listeners import Listener
from gateway.limits.counters import ListenerCounters
from gateway.login.auth import Anonymous, Credentials, OnIdentity, Peer
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Packet
from gateway.mqtt.reader import PacketReader
from gateway.net.poller import EpollPoller
from gateway.net.shard import Shard
from gateway.transports.listening import parse_listener
from tests.patience import PATIENCE_S

WAIT_S = PATIENCE_S
LINES = {
    "proxy": "tcp 127.0.0.1:0 name=x proxy=127.0.0.0/8",
    "tls": "tls 127.0.0.1:0 name=x certificate={server} client_ca={ca} clients=optional",
    "ws": "ws 127.0.0.1:0 name=x",
    "wss": "wss 127.0.0.1:0 name=x certificate={server} client_ca={ca} clients=optional",
    "proxy+tls": "tls 127.0.0.1:0 name=x certificate={server} client_ca={ca} clients=optional proxy=127.0.0.0/8",
    "proxy+wss": "wss 127.0.0.1:0 name=x certificate={server} client_ca={ca} clients=optional proxy=127.0.0.0/8",
}


class Notes(Anonymous):
    """Lets everybody in and remembers where from."""

    def __init__(self) -> None:
        super().__init__("everyone")
        self.peers: list[Peer] = []

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        self.peers.append(shown.peer)
        super().connect(shown, done)


class Doorway:
    """A listener, and a gateway behind it."""

    def __init__(self, kind: str, folder: Path, more: str = "", **settings: object) -> None:
        self.authority = Authority(folder)
        self.kind = kind
        self.notes = Notes()
        self.gateway = Gateway(self.notes, **settings)
        line = LINES.get(kind, kind).format(server=self.authority.server, ca=self.authority.ca)
        self.listener = Listener(parse_listener(f"{line} {more}"), self.gateway.settings, self.gateway.services)
        self.shard = Shard(EpollPoller(), self.gateway.rounds, self.gateway.settings.output_bytes_max)
        self.clients: list[socket.socket] = []

    @property
    def tally(self) -> ListenerCounters:
        return self.gateway.connections.counters.of("x")

    def knock(self, address: str = "127.0.0.1") -> socket.socket:
        """A socket that has been let in, or not."""
        client = socket.create_connection(("127.0.0.1", self.listener.port), WAIT_S)
        self.clients.append(client)
        self.listener.socket.setblocking(True)
        connected, _ = self.listener.socket.accept()
        self.listener.enter(connected, address, self.shard)
        client.setblocking(False)
        return client

    def turn(self) -> None:
        """Everything that is ready."""
        self.shard.round()
        self.gateway.round()
        self.shard.write_out()

    def pass_time(self, seconds: float) -> None:
        self.gateway.pass_time(seconds)
        self.listener.tick(self.gateway.clock.now_s)
        self.turn()

    def close(self) -> None:
        self.listener.socket.close()
        self.shard.close()
        for client in self.clients:
            client.close()

    def end(self, *, certificate: bool = False, origin: str | None = None) -> End:
        """A client that speaks this transport and has had its handshake. ``origin``: of the page that it comes from."""
        return End(self, self.authority.client("d-7.example") if certificate else None, origin=origin)


class End:
    """A client at a listener: MQTT at one side, the transport's bytes on its socket."""

    def __init__(
        self, doorway: Doorway, certificate: Path | None = None, step: int = 1 << 20, origin: str | None = None
    ) -> None:
        self._doorway = doorway
        self._step = step
        self.socket = doorway.knock()
        self.is_closed = False
        self._got = bytearray()
        self._reader = PacketReader(1 << 28)
        self._reader.level = 4
        self._packets: list[Packet] = []
        kinds = doorway.kind.split("+")
        if "proxy" in kinds:
            self.push(proxy_header())
        self._tls = TlsEnd(doorway.authority.client_context(certificate), self) if kinds[-1] in ("tls", "wss") else None
        self._is_web = kinds[-1] in ("ws", "wss")
        if self._tls is not None:
            self._tls.shake_hands()
        if self._is_web:
            self.say(request(origin=origin))
            assert b" 101 " in self.hear(b"\r\n\r\n")

    # ------------------------------------------------------------ what TLS sees of the other side

    over, address, certificate, page = "", None, None, ""

    def push(self, data: bytes) -> None:
        """Raw bytes, in steps."""
        for at in range(0, len(data), self._step):
            with contextlib.suppress(BlockingIOError):
                self.socket.send(data[at : at + self._step])
            self._doorway.turn()

    def decode(self, data: bytes) -> bytes:
        self.push(data)
        return b""

    def pull(self) -> bytes:
        """Raw bytes that have come."""
        self._doorway.turn()
        got = bytearray()
        try:
            while part := self.socket.recv(1 << 20):
                got += part
            self.is_closed = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.is_closed = True
        return bytes(got)

    def output(self) -> bytes:
        return self.pull()

    def encode(self, data: bytes) -> bytes:
        raise NotImplementedError

    def close(self) -> bytes:
        raise NotImplementedError

    # ------------------------------------------------------------ inside TLS

    def say(self, data: bytes) -> None:
        """Bytes inside TLS, if there is any."""
        if self._tls is None:
            self.push(data)
        else:
            self.push(self._tls.records(data))

    def hear(self, until: bytes) -> bytes:
        """What came inside TLS, up to and with these bytes; or to the end."""
        give_up = time.monotonic() + WAIT_S
        while until not in self._got and time.monotonic() < give_up:
            was_closed = self.is_closed
            raw = self.pull()
            if self._tls is None:
                self._got += raw
            else:
                while part := self._tls.receive(raw):
                    self._got += part
                    raw = b""
            if was_closed:
                break
        heard, self._got = bytes(self._got), bytearray()
        return heard

    # ------------------------------------------------------------ MQTT

    def send(self, *packets: Packet, level: int = 4) -> None:
        data = b"".join(encode(packet, level) for packet in packets)
        self._reader.level = level
        self.say(frame(data) if self._is_web else data)

    def next(self) -> Packet:
        """The next packet from the gateway."""
        give_up = time.monotonic() + WAIT_S
        while not self._packets:
            assert time.monotonic() < give_up, "no packet came"
            raw = self.hear(b"\0never\0") if self.is_closed else self._more()
            assert raw or not self.is_closed, "the end came"
            self._packets += self._reader.receive(self._unframed(raw))
        return self._packets.pop(0)

    def _more(self) -> bytes:
        raw = self.pull()
        if self._tls is None:
            return raw
        plain = bytearray()
        while part := self._tls.receive(raw):
            plain += part
            raw = b""
        return bytes(plain)

    def _unframed(self, data: bytes) -> bytes:
        if not self._is_web:
            return data
        self._got += data
        payload = bytearray()
        while len(self._got) >= 2 and self._got[0] == 0x82:
            size, at = self._got[1], 2
            if size == 126:
                size, at = int.from_bytes(self._got[2:4], "big"), 4
            elif size == 127:
                size, at = int.from_bytes(self._got[2:10], "big"), 10
            if len(self._got) < at + size:
                break
            payload += self._got[at : at + size]
            del self._got[: at + size]
        return bytes(payload)
