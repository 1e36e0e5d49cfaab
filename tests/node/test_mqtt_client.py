"""The small MQTT client against a real gateway."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.mqtt_client import MqttClient
from penstock.errors import InvalidConfig, InvalidRequest, TimedOut, Unavailable
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S


@pytest.fixture
def system(tmp_path: Path) -> Iterator[RunningSystem]:
    running = RunningSystem(tmp_path / "data")
    yield running
    running.stop()


@pytest.mark.endtoend
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_reaches_a_subscriber(system: RunningSystem, qos: int) -> None:
    with MqttClient(system.addresses.mqtt) as subscriber, MqttClient(system.addresses.mqtt) as publisher:
        subscriber.subscribe(["plant/+/temp"], qos=qos)
        for body in (b"1", b"2"):
            publisher.publish("plant/a/temp", body, qos=qos)
        stream = subscriber.messages()
        got = [next(stream) for _ in range(2)]
    assert [(message.topic, message.payload, message.qos) for message in got] == [
        ("plant/a/temp", b"1", qos),
        ("plant/a/temp", b"2", qos),
    ]


@pytest.mark.endtoend
def test_a_retained_message_comes_to_who_subscribes_later(system: RunningSystem) -> None:
    with MqttClient(system.addresses.mqtt) as client:
        client.publish("plant/state", b"on", retain=True)
        client.subscribe(["plant/#"])
        message = next(client.messages())
    assert (message.payload, message.retain) == (b"on", True)


@pytest.mark.endtoend
def test_a_gateway_that_goes_is_said(system: RunningSystem) -> None:
    with MqttClient(system.addresses.mqtt) as client:
        client.subscribe(["plant/#"])
        system.stop()
        with pytest.raises(Unavailable, match="was lost"):
            next(client.messages())


def test_nobody_there_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(Unavailable, match=f"no server at {address}"), MqttClient(address):
        pass


@pytest.mark.endtoend
def test_somebody_else_than_a_gateway_is_said(system: RunningSystem) -> None:
    for address in (system.addresses.namesrv, system.addresses.broker, system.addresses.http):
        with pytest.raises(InvalidConfig, match=f"{address} is no MQTT server"), MqttClient(address):
            pass


def test_a_gateway_that_does_not_answer_is_timed_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(TimedOut, match="CONNACK"), MqttClient(address, timeout_s=0.05):
            pass


@pytest.mark.parametrize(("properties", "why"), [(b"", ""), (b"\x1f\x00\x04slow", r" \(slow\)")])
def test_a_refusal_is_said_in_words(properties: bytes, why: str) -> None:
    def refuse() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(bytes([0x20, 3 + len(properties), 0, 0x87, len(properties)]) + properties)
            connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse)
        thread.start()
        with (
            pytest.raises(InvalidRequest, match=f"refuses the connection: not authorized{why}$"),
            MqttClient(f"127.0.0.1:{listener.getsockname()[1]}"),
        ):
            pass
        thread.join()


def read_messages(client: MqttClient) -> None:
    next(client.messages())


def wait_for_input(client: MqttClient) -> None:
    silent, other = os.pipe()
    try:
        client.wait_until_readable(silent)
    finally:
        os.close(silent)
        os.close(other)


@pytest.mark.parametrize("idle", [read_messages, wait_for_input])
@pytest.mark.parametrize(("last", "why"), [(b"", "the gateway closed it"), (b"\xe0\x01\x8b", "server shutting down")])
def test_a_gateway_that_wants_to_hear_more_often_does(
    idle: Callable[[MqttClient], None], last: bytes, why: str
) -> None:
    heard = []

    def listen() -> None:
        connection, _ = listener.accept()
        connection.settimeout(PATIENCE_S)
        with connection:
            connection.recv(1000)
            connection.sendall(bytes([0x20, 6, 0, 0, 3, 0x13, 0, 1]))  # Server Keep Alive: 1 s
            heard.append(connection.recv(1000))
            connection.sendall(bytes([0xD0, 0]) + last)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen)
        thread.start()
        with MqttClient(f"127.0.0.1:{listener.getsockname()[1]}") as client, pytest.raises(Unavailable, match=why):
            idle(client)
        thread.join()
    assert heard == [bytes([0xC0, 0])]


def test_what_can_be_read_ends_the_wait() -> None:
    def connect() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(bytes([0x20, 3, 0, 0, 0]))
            connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryFile() as empty:
        thread = threading.Thread(target=connect)
        thread.start()
        with MqttClient(f"127.0.0.1:{listener.getsockname()[1]}") as client:
            client.wait_until_readable(empty.fileno())
        thread.join()
