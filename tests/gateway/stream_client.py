"""An MQTT client on a real socket, through our codec from the client's side."""

from __future__ import annotations

import trio

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Packet
from gateway.mqtt.reader import PacketReader
from tests.patience import PATIENCE_S


class Client:
    """A client on a real socket."""

    def __init__(self, stream: trio.SocketStream, level: int) -> None:
        self.stream = stream
        self.level = level
        self.reader = PacketReader(1 << 28)
        self.reader.level = level
        self.got: list[Packet] = []

    async def send(self, *packets: Packet) -> None:
        await self.stream.send_all(b"".join(encode(packet, self.level) for packet in packets))

    async def next(self) -> Packet | None:
        """The next packet, or ``None`` at the end."""
        with trio.fail_after(PATIENCE_S):
            while not self.got:
                data = await self.stream.receive_some()
                if not data:
                    return None
                self.got += self.reader.receive(bytes(data))
        return self.got.pop(0)
