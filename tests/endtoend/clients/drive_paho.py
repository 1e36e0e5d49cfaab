"""Drives paho-mqtt; the argument is the protocol level."""

from __future__ import annotations

import sys
import threading
from typing import Any

import paho.mqtt.client as paho
from driver import STEP_S, message, serve
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

LEVEL = int(sys.argv[1])
PROTOCOLS = {3: paho.MQTTv31, 4: paho.MQTTv311, 5: paho.MQTTv5}


class Connection:
    """One paho client and what the test waits for."""

    def __init__(self, name: str, client_id: str, clean: bool, scheme: str, ca: str) -> None:
        options: dict[str, Any] = {} if LEVEL == 5 else {"clean_session": clean}
        options["transport"] = "websockets" if scheme in ("ws", "wss") else "tcp"
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=PROTOCOLS[LEVEL], **options)
        if scheme in ("tls", "wss"):
            self.client.tls_set(ca)
        self.name = name
        self._heard = threading.Event()
        self._said: Any = None
        self.client.on_connect = lambda client, data, flags, reason, properties: self._hear((flags, reason))
        self.client.on_subscribe = lambda client, data, mid, reasons, properties: self._hear(reasons)
        self.client.on_unsubscribe = lambda client, data, mid, reasons, properties: self._hear(reasons)
        self.client.on_message = self._on_message

    def _on_message(self, client: Any, data: Any, received: Any) -> None:
        message(self.name, received.topic, received.payload, received.qos, received.retain)

    def _hear(self, what: Any) -> None:
        self._said = what
        self._heard.set()

    def wait(self) -> Any:
        assert self._heard.wait(STEP_S), "no answer"
        self._heard.clear()
        return self._said


class Commands:
    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def connect(
        self, name: str, host: str, port: int, client_id: str, clean: bool, will: Any, scheme: str, ca: str
    ) -> bool | None:
        one = self._connections[name] = Connection(name, client_id, clean, scheme, ca)
        options: dict[str, Any] = {}
        if LEVEL == 5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 0 if clean else 600
            options = {"clean_start": clean, "properties": properties}
        if will:
            one.client.will_set(*will)
        one.client.connect(host, port, **options)
        one.client.loop_start()
        flags, reason = one.wait()
        assert not reason.is_failure, reason
        return bool(flags.session_present) if LEVEL > 3 else None  # MQTT 3.1 does not say

    def subscribe(self, name: str, topic_filter: str, qos: int) -> int:
        self._connections[name].client.subscribe(topic_filter, qos)
        return int(self._connections[name].wait()[0].value)

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        self._connections[name].client.unsubscribe(topic_filter)
        self._connections[name].wait()

    def publish(self, name: str, topic: str, payload: str, qos: int, retain: bool) -> None:
        sent = self._connections[name].client.publish(topic, payload, qos, retain)
        sent.wait_for_publish(STEP_S)
        assert sent.is_published()

    def disconnect(self, name: str) -> None:
        client = self._connections.pop(name).client
        client.disconnect()
        client.loop_stop()

    def drop(self, name: str) -> None:
        client = self._connections.pop(name).client
        client.loop_stop()
        client.socket().close()


serve(Commands)
