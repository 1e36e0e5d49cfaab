"""Drives the client of amqtt, with MQTT 3.1.1."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from amqtt.client import MQTTClient
from driver import message, serve_async

SCHEMES = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}
logging.disable(logging.CRITICAL)


class Connection:
    """One amqtt client and the task that takes what it receives."""

    def __init__(self, name: str, client_id: str, will: Any) -> None:
        config: dict[str, Any] = {"auto_reconnect": False, "reconnect_retries": 0}
        if will:
            topic, payload, qos, retain = will
            config["will"] = {"topic": topic, "message": payload, "qos": qos, "retain": retain}
        self.client = MQTTClient(client_id, config)
        self.name = name
        self.taking: asyncio.Task[None] | None = None

    async def take(self) -> None:
        while True:
            received = await self.client.deliver_message()
            if received is not None:
                packet = received.publish_packet
                message(self.name, packet.topic_name, packet.data, packet.qos, packet.retain_flag)


class Commands:
    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    async def connect(
        self, name: str, host: str, port: int, client_id: str, clean: bool, will: Any, scheme: str, ca: str
    ) -> None:
        one = self._connections[name] = Connection(name, client_id, will)
        uri = f"{SCHEMES[scheme]}://{host}:{port}/mqtt"
        await one.client.connect(uri, cleansession=clean, cafile=ca or None)
        one.taking = asyncio.create_task(one.take())

    async def subscribe(self, name: str, topic_filter: str, qos: int) -> int:
        return (await self._connections[name].client.subscribe([(topic_filter, qos)]))[0]

    async def unsubscribe(self, name: str, topic_filter: str) -> None:
        await self._connections[name].client.unsubscribe([topic_filter])

    async def publish(self, name: str, topic: str, payload: str, qos: int, retain: bool) -> None:
        await self._connections[name].client.publish(topic, payload.encode(), qos, retain)

    async def disconnect(self, name: str) -> None:
        one = self._connections.pop(name)
        assert one.taking is not None
        one.taking.cancel()
        await one.client.disconnect()

    async def drop(self, name: str) -> None:
        one = self._connections.pop(name)
        assert one.taking is not None
        one.taking.cancel()
        one.client._handler.writer._writer.transport.abort()


serve_async(Commands)
