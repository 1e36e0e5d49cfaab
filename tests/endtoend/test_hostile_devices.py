"""Hostile bytes at the real gateway: each connection ends by itself, and nobody else notices.

The attacks are those that need no more than one connection's bytes; what is sent is the same in every run.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import Connack, Connect, Pingreq, Publish, Subscribe, Subscription, Will
from tests.endtoend.conftest import System
from tests.endtoend.lines import Device, line
from tests.gateway.mqtt.mutation import corpus, mutated

pytestmark = pytest.mark.endtoend

CONNECTIONS = int(os.environ.get("PENSTOCK_HOSTILE_CONNECTIONS", "200"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    system = System(tmp_path_factory.mktemp("hostile") / "data")
    try:
        system.start()
        yield system.mqtt_host, system.mqtt_port
        assert system.stop() == 0
    finally:
        system.end()


@pytest.fixture
def bystander(address: tuple[str, int]) -> Iterator[Device]:
    device = Device(address, 4)
    device.send(Connect("bystander"), Subscribe(1, (Subscription("bystander/#"),)))
    assert device.next() == Connack(False)
    device.next()
    yield device
    device.socket.close()


def still_served(bystander: Device, number: int) -> None:
    bystander.send(Publish(f"bystander/{number}", b"here"))
    assert bystander.next() == Publish(f"bystander/{number}", b"here")


@pytest.mark.mqtt("4.13.1-1", "4.13.2-1", old=("4.8.0-1", "4.8.0-2"))
def test_mutated_packets_end_their_own_connection_at_most(address: tuple[str, int], bystander: Device) -> None:
    rng = random.Random(7)
    legal = {level: corpus(level) for level in (3, 4, 5)}
    for number in range(CONNECTIONS):
        level = rng.choice((3, 4, 5))
        with line(address) as broken:
            damage = b"".join(mutated(rng, legal[level]) for _ in range(rng.randrange(1, 6)))
            connect = codec.encode(Connect(f"hostile{number}", will=Will("hostile", b"")), level)
            try:
                broken.sendall((connect if rng.randrange(4) else b"") + damage)
                broken.shutdown(socket.SHUT_WR)
                while broken.recv(65_536):
                    pass
            except ConnectionError:
                pass  # closed with our bytes unread
        if number % 20 == 0:
            still_served(bystander, number)
    still_served(bystander, CONNECTIONS)


@pytest.mark.mqtt("4.13.2-1", "3.14.4-1", "3.14.4-2")
@pytest.mark.parametrize(
    ("damage", "reason_code"),
    [
        pytest.param(b"\x36\x06\x00\x01a\x00\x01\x00", 0x81, id="QoS 3"),
        pytest.param(b"\xc1\x00", 0x81, id="reserved flags"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", 0x81, id="length of five bytes"),
        pytest.param(b"\x30\xff\xff\xff\x7f", 0x95, id="announced packet of 256 MiB"),
        pytest.param(b"\x30\x05\x00\x03a/+", 0x82, id="wildcard in a topic name"),
        pytest.param(b"\x82\x03\x00\x01\x00", 0x82, id="SUBSCRIBE without a filter"),
        pytest.param(b"\x20\x03\x00\x00\x00", 0x82, id="server's packet"),
        pytest.param(b"\x30\x07\x00\x00\x03\x23\x00\x00x", 0x94, id="topic alias 0"),
        pytest.param(codec.encode(Connect("again"), 5), 0x82, id="second CONNECT"),
    ],
)
def test_an_mqtt_5_client_is_told_the_reason_before_the_close(
    address: tuple[str, int], damage: bytes, reason_code: int
) -> None:
    device = Device(address, 5)
    device.send(Connect("told"))
    device.next()
    device.socket.sendall(damage + codec.encode(Pingreq(), 5))
    told = device.rest()
    assert (told[0], told[2]) == (0xE0, reason_code)
    assert len(told) == 2 + told[1], "nothing comes behind the DISCONNECT"
    device.socket.close()


@pytest.mark.mqtt("4.13.1-1", old=("4.8.0-1", "3.1.0-1"))
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(bytes.fromhex("16030100a5010000a10303"), id="TLS"),
        pytest.param(b"\x40\x02\x00\x01", id="PUBACK first"),
        pytest.param(b"\x10\xff\xff\xff\x7f", id="CONNECT of 256 MiB"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"\xff" * 1000, id="ones"),
    ],
)
def test_what_is_no_connect_is_closed_without_a_word(address: tuple[str, int], data: bytes) -> None:
    device = Device(address, 4)
    device.socket.sendall(data)
    assert device.rest() == b""
    device.socket.close()


def test_hundreds_of_half_packets_cost_the_others_nothing(address: tuple[str, int], bystander: Device) -> None:
    lines = [line(address) for _ in range(300)]
    for number, one in enumerate(lines):
        one.sendall(codec.encode(Connect(f"half{number}"), 4) + b"\x30\xff\xff\x3f\x00\x01a")
    still_served(bystander, 1)
    for one in lines:
        one.close()
    still_served(bystander, 2)
