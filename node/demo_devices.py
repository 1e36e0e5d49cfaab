"""Simulated devices for the demo: each is an MQTT client on a TCP connection of its own, as a real one would be.

A device publishes its temperature and humidity with QoS 1, waits until both are acknowledged, and rests: the longer
that took, the longer, so that a busy machine has time left for Spark. A watching device subscribes to all
temperatures. Values follow a slow wave with noise, so that the aggregates have something to show.
"""

from __future__ import annotations

import json
import math
from typing import Final

import trio

from gateway.mqtt import codec
from gateway.mqtt.packets import Connect, Packet, Pingreq, Puback, Publish, Subscribe, Subscription
from gateway.mqtt.reader import PacketReader
from node.demo_view import Stage
from penstock.protocol.addresses import split_address
from penstock.world import Clock, Rng

LEVEL: Final = 4
KEEP_ALIVE_S: Final = 30
PUBLISH_EVERY_S: Final = 0.2
DEVICES: Final = 20
REST: Final = 2 * DEVICES
"""Minimum rest of a device, as a multiple of the time that its acknowledgements took: of all devices together, messages
are under way at most half of the time."""
REST_S_MAX: Final = 20.0
"""A device that rests for longer than its keep-alive time is disconnected."""
RECONNECT_S: Final = 1.0
PACKET_BYTES_MAX: Final = 256 * 1024


def reading(device: int, metric: str, now_s: float, rng: Rng) -> float:
    """The reading of a device's sensor: a wave of its own, with noise."""
    base, swing = (21.0, 6.0) if metric == "temperature" else (55.0, 15.0)
    return round(base + swing * math.sin(now_s / 40 + device) + rng.gauss(0, 0.4), 2)


def rest_s(acknowledged_s: float) -> float:
    """How long a device rests whose acknowledgements took this time."""
    return min(max(PUBLISH_EVERY_S, REST * acknowledged_s), REST_S_MAX)


class DemoDevice:
    """One publishing device; reconnects for ever."""

    def __init__(self, number: int, address: str, clock: Clock, rng: Rng, published: Stage) -> None:
        self.name = f"dev-{number:02d}"
        self._number, self._clock, self._rng, self._published = number, clock, rng, published
        self._host, self._port = split_address(address)
        self._in_flight = 0
        self._acknowledged = trio.Event()
        self._packet_id = 0

    async def run(self) -> None:
        """Connects, publishes, and connects again whenever the connection is lost."""
        while True:
            try:
                async with await trio.open_tcp_stream(self._host, self._port) as stream:
                    await stream.send_all(codec.encode(Connect(client_id=self.name, keep_alive_s=KEEP_ALIVE_S), LEVEL))
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._receive, stream, nursery.cancel_scope)
                        await self._publish(stream)
            except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                await trio.sleep(RECONNECT_S)

    async def _receive(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        reader = PacketReader(PACKET_BYTES_MAX)
        reader.level = LEVEL
        async for data in stream:
            acknowledged = sum(isinstance(packet, Puback) for packet in reader.receive(bytes(data)))
            self._in_flight -= acknowledged
            self._published.total += acknowledged
            if not self._in_flight:
                self._acknowledged.set()
        scope.cancel()  # the gateway closed

    async def _publish(self, stream: trio.SocketStream) -> None:
        acknowledged_s = 0.0
        while True:
            await trio.sleep(rest_s(acknowledged_s) * self._rng.uniform(0.8, 1.2))
            packets = [self._next("temperature"), self._next("humidity")]
            sent_s, self._acknowledged = self._clock.monotonic(), trio.Event()
            self._in_flight = len(packets)
            await stream.send_all(b"".join(codec.encode(packet, LEVEL) for packet in packets))
            await self._acknowledged.wait()
            acknowledged_s = self._clock.monotonic() - sent_s

    def _next(self, metric: str) -> Publish:
        self._packet_id = self._packet_id % 0xFFFF + 1
        now_ms = self._clock.wall_ms()
        value = reading(self._number, metric, now_ms / 1000, self._rng)
        payload = json.dumps({"value": value, "time": now_ms}).encode()
        topic = f"telemetry/{self.name}/{metric}"
        return Publish(topic=topic, payload=payload, qos=1, packet_id=self._packet_id)


async def watch(address: str, name_filter: str, delivered: Stage) -> None:
    """A device that subscribes and counts received messages; ends when the connection does."""
    host, port = split_address(address)
    async with await trio.open_tcp_stream(host, port) as stream, trio.open_nursery() as nursery:
        await stream.send_all(codec.encode(Connect(client_id="demo-watcher", keep_alive_s=KEEP_ALIVE_S), LEVEL))
        subscribe = Subscribe(packet_id=1, subscriptions=(Subscription(name_filter, qos=0),))
        await stream.send_all(codec.encode(subscribe, LEVEL))
        nursery.start_soon(_ping, stream)
        reader = PacketReader(PACKET_BYTES_MAX)
        reader.level = LEVEL
        async for data in stream:
            packets: list[Packet] = reader.receive(bytes(data))
            delivered.total += sum(isinstance(packet, Publish) for packet in packets)
        nursery.cancel_scope.cancel()


async def _ping(stream: trio.SocketStream) -> None:
    while True:
        await trio.sleep(KEEP_ALIVE_S / 2)
        await stream.send_all(codec.encode(Pingreq(), LEVEL))
