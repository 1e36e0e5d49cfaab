"""The attacks that need real sockets, numbered as in tests/conformance/test_attacks.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.mqtt import codec
from gateway.mqtt.packets import Connack, Connect, Pingreq, Pingresp, Publish, Suback, Subscribe, Subscription
from tests.endtoend.conftest import System
from tests.endtoend.lines import Device, line

pytestmark = pytest.mark.endtoend

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAA\r\n\r\n"
)
HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(160)
FRAME = b"\x82\x0e" + codec.encode(Connect("c"), 4)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    system = System(tmp_path_factory.mktemp("attacks") / "data")
    try:
        system.start()
        yield system.mqtt_host, system.mqtt_port
        assert system.stop() == 0
    finally:
        system.end()


@pytest.fixture
def bystander(address: tuple[str, int]) -> Iterator[Device]:
    device = Device(address, 4)
    device.send(Connect("bystander"))
    assert device.next() == Connack(False)
    yield device
    device.send(Pingreq())
    assert device.next() == Pingresp()
    device.socket.close()


def silently_closed(address: tuple[str, int], data: bytes) -> None:
    device = Device(address, 4)
    device.socket.sendall(data)
    assert device.rest() == b""
    device.socket.close()


def test_01_thousands_of_half_open_connections(address: tuple[str, int], bystander: Device) -> None:
    lines = [line(address) for _ in range(2000)]
    for one in lines:
        one.sendall(b"\x10\xff\xfe\x03\x00\x04MQTT")  # a CONNECT of almost 64 KiB, of which this is all
    bystander.send(Pingreq())
    assert bystander.next() == Pingresp()
    for one in lines:
        one.close()


def test_25_a_large_message_for_many_filters_of_one_client_does_not_cost_the_link_to_the_broker(
    system: Callable[..., System],
) -> None:
    started = system("--processes").start()
    address = started.mqtt_host, started.mqtt_port
    device, hostile = Device(address, 4), Device(address, 4)
    device.send(Connect("bystander"), Subscribe(1, (Subscription("bystander"),)))
    hostile.send(Connect("hostile"))
    assert [device.next(), hostile.next()] == [Connack(False)] * 2
    filters = ["/".join(["+" if at >> bit & 1 else "a" for bit in range(7)]) for at in range(100)]
    hostile.send(Subscribe(1, tuple([Subscription(filter) for filter in filters])))
    assert hostile.next() == Suback(1, (0,) * 100)
    message = Publish("/".join(["a"] * 7), bytes(1_000_000))
    device.next()
    device.send(message, Publish("bystander", b"here"))
    assert device.next() == Publish("bystander", b"here")
    assert hostile.next() == message
    for one in (device, hostile):
        one.socket.close()


def test_29_websocket_frames_where_none_are_spoken(address: tuple[str, int], bystander: Device) -> None:
    for data in (UPGRADE, FRAME, UPGRADE + FRAME, b"\x89\x00", b"\x88\x02\x03\xe8"):
        silently_closed(address, data)


def test_30_tls_where_none_is_spoken(address: tuple[str, int], bystander: Device) -> None:
    silently_closed(address, HELLO)
    silently_closed(address, b"\x16\x03\x01\xff\xff")


def test_31_a_proxy_header_is_believed_by_nobody(address: tuple[str, int], bystander: Device) -> None:
    greeting = codec.encode(Connect("c"), 4)
    silently_closed(address, b"PROXY TCP4 127.0.0.1 127.0.0.1 1 1883\r\n" + greeting)
    silently_closed(
        address, b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\x00\x01\x07\x5b" + greeting
    )
