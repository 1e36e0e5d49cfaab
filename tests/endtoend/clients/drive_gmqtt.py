"""Drives gmqtt; the argument is the protocol level."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from typing import Any

from driver import message, serve_async
from gmqtt import Client, Message


class Connection:
    """One gmqtt client and what the test waits for."""

    def __init__(self, name: str, client_id: str, clean: bool, will: Any) -> None:
        options: dict[str, Any] = {} if clean else {"session_expiry_interval": 600}
        if will:
            topic, payload, qos, retain = will
            options["will_message"] = Message(topic, payload, qos=qos, retain=retain)
        self.client = Client(client_id, clean_session=clean, **options)
        self.client.set_config({"reconnect_retries": 0})
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.client.on_connect = lambda client, flags, reason, properties: self.heard.put_nowait((flags, reason))
        self.client.on_subscribe = lambda client, mid, reasons, properties: self.heard.put_nowait(reasons)
        self.client.on_unsubscribe = lambda *said: self.heard.put_nowait(said)

        def on_message(client: Any, topic: str, payload: bytes, qos: int, properties: Any) -> int:
            message(name, topic, payload, qos, properties["retain"])
            return 0

        self.client.on_message = on_message


class Commands:
    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    async def connect(
        self, name: str, host: str, port: int, client_id: str, clean: bool, will: Any, scheme: str, ca: str
    ) -> bool:
        one = self._connections[name] = Connection(name, client_id, clean, will)
        context = ssl.create_default_context(cafile=ca) if scheme == "tls" else False
        await one.client.connect(host, port, ssl=context, version=int(sys.argv[1]))
        flags, reason = await one.heard.get()
        assert reason == 0, reason
        return bool(flags & 1)

    async def subscribe(self, name: str, topic_filter: str, qos: int) -> int:
        self._connections[name].client.subscribe(topic_filter, qos=qos)
        return int((await self._connections[name].heard.get())[0])

    async def unsubscribe(self, name: str, topic_filter: str) -> None:
        self._connections[name].client.unsubscribe(topic_filter)
        await self._connections[name].heard.get()

    async def publish(self, name: str, topic: str, payload: str, qos: int, retain: bool) -> None:
        client = self._connections[name].client
        client.publish(topic, payload, qos=qos, retain=retain)
        while not client._persistent_storage.is_empty:  # noqa: ASYNC110 - PUBACK or PUBCOMP empties it without a word
            await asyncio.sleep(0.001)

    async def disconnect(self, name: str) -> None:
        with contextlib.suppress(ssl.SSLError):  # a PUBREL that crosses our farewell is an error to asyncio
            await self._connections.pop(name).client.disconnect()

    async def drop(self, name: str) -> None:
        self._connections.pop(name).client._connection._transport.abort()


serve_async(Commands)
