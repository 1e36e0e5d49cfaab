"""Requests and replies between services and devices that speak MQTT 5, over a real gateway: each answers the other."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anyio
import paho.mqtt.client as paho
import pytest
import trio
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock import Consumer, Message, Producer, blocking
from penstock.errors import TimedOut
from tests.endtoend.lines import kept
from tests.endtoend.paho_ends import end
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


def said(**values: Any) -> Properties:
    made = Properties(PacketTypes.PUBLISH)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Device:
    """A paho client of MQTT 5. It answers what comes under ``dev/cmd`` with the same in capitals; what comes under
    ``dev/answers`` is in ``answers``."""

    def __init__(self, host: str, port: int) -> None:
        self.answers: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._subscribed: queue.Queue[list[Any]] = queue.Queue()
        self.client = kept(paho.Client(paho.CallbackAPIVersion.VERSION2, "dev", protocol=paho.MQTTv5))
        self.client.on_message = self._on_message
        self.client.on_connect = lambda client, *_: client.subscribe([("dev/#", _options()), ("$reply/#", _options())])
        self.client.on_subscribe = lambda _client, _data, _mid, codes, _properties: self._subscribed.put(codes)
        self.client.connect(host, port)
        self.client.loop_start()
        self.codes = self._subscribed.get(timeout=PATIENCE_S)

    def _on_message(self, client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        if message.topic == "dev/answers":
            self.answers.put(message)
            return
        properties: Any = message.properties
        back = said(CorrelationData=properties.CorrelationData, UserProperty=("by", "dev"))
        client.publish(properties.ResponseTopic, message.payload.upper(), 1, properties=back)

    def ask(self, name: str, payload: bytes, correlation: bytes) -> None:
        asked = said(
            ResponseTopic="dev/answers", CorrelationData=correlation, ContentType="text", UserProperty=("a", "b")
        )
        self.client.publish(name, payload, 1, properties=asked)


def _options() -> paho.SubscribeOptions:
    return paho.SubscribeOptions(1)


@pytest.fixture
def running(system: Callable[..., Any]) -> Iterator[tuple[Any, Device]]:
    one = system().start()
    device = Device(one.mqtt_host, one.mqtt_port)
    yield one, device
    end(device.client)


async def service_asks(servers: str) -> None:
    async with Producer(servers=servers, timeout_s=PATIENCE_S) as producer:
        reply = await producer.request(Message(body=b"open", mqtt_topic="dev/cmd"))
        assert (reply.body, reply.name.startswith("$reply/")) == (b"OPEN", True)
        replies: list[bytes] = []

        async def ask(number: int) -> None:
            found = await producer.request(Message(body=b"r%d" % number, mqtt_topic="dev/cmd"))
            assert found.body == b"R%d" % number
            replies.append(found.body)

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(ask, number)
        assert len(replies) == 30
        with pytest.raises(TimedOut, match="no reply within"):
            await producer.request("nobody", b"hears", timeout_s=0.2)


async def service_answers(servers: str, ask: Callable[[], None]) -> None:
    async with (
        Producer(servers=servers, timeout_s=PATIENCE_S) as producer,
        Consumer("adders", "sums", servers=servers) as consumer,
    ):
        ask()
        async for message in consumer.messages():
            await producer.reply(message, b"%d" % sum(map(int, message.body.split(b"+"))))
            return


def test_a_device_answers_a_service_and_a_service_a_device(running: tuple[Any, Device]) -> None:
    system, device = running
    assert [code.is_failure for code in device.codes] == [False, True], "nobody reads other's replies"
    trio.run(service_asks, system.namesrv)
    with blocking.Producer(servers=system.namesrv, timeout_s=PATIENCE_S) as producer:
        for word in (b"blocking", b"again"):
            assert producer.request(Message(body=word, mqtt_topic="dev/cmd")).body == word.upper()
        with pytest.raises(TimedOut, match="no reply"):
            producer.request("nobody", b"hears", timeout_s=0.2)

    trio.run(service_answers, system.namesrv, partial(device.ask, "sums/now", b"2+3", b"\x00\x01\xff"))
    answer = device.answers.get(timeout=PATIENCE_S)
    properties: Any = answer.properties
    assert (answer.payload, properties.CorrelationData) == (b"5", b"\x00\x01\xff")
