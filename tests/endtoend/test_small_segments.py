"""A broker whose segments hold every message, but neither a burst of them nor a long SUBSCRIBE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import Properties
from tests.endtoend.conftest import System
from tests.endtoend.lines import Device

pytestmark = pytest.mark.endtoend


@pytest.fixture
def started(system: Callable[..., System], tmp_path: Path) -> System:
    config = tmp_path / "penstock.toml"
    config.write_text("[broker]\nsegment_bytes = 65536\nreserve_step_bytes = 16384\n")
    return system("--config", str(config)).start()


def connected(system: System, client_id: str) -> Device:
    device = Device((system.mqtt_host, system.mqtt_port), 5)
    device.send(Connect(client_id, level=5))
    assert isinstance(device.next(), Connack)
    return device


def test_a_burst_is_stored_and_delivered_whole_and_in_order_and_what_no_segment_holds_is_refused_alone(
    started: System,
) -> None:
    reader, sender = connected(started, "reader"), connected(started, "sender")
    reader.send(Subscribe(1, (Subscription("burst/#", 1),)))
    assert isinstance(reader.next(), Suback)
    sizes = [2_000 if number != 300 else 70_000 for number in range(1, 601)]
    sender.send(*[Publish("burst/x", b"%d " % at + bytes(size), 1, packet_id=at) for at, size in enumerate(sizes, 1)])
    answers = [sender.next() for _ in sizes]
    assert [answer.packet_id for answer in answers if isinstance(answer, Puback)] == list(range(1, 601))
    assert [at for at, answer in enumerate(answers, 1) if isinstance(answer, Puback) and answer.reason_code] == [300]
    got = []
    while len(got) < 599:
        message = reader.next()
        assert isinstance(message, Publish)
        reader.send(Puback(message.packet_id))
        got.append(int(message.payload.split()[0]))
    assert got == [number for number in range(1, 601) if number != 300]
    for device in (reader, sender):
        device.socket.close()
    assert started.stop() == 0


def test_a_subscribe_that_no_segment_holds_subscribes_to_all_and_a_kill_leaves_it_so(started: System) -> None:
    filters = [f"{number:04d}/" + "x" * 195 for number in range(1_000)]
    device = connected(started, "many")
    device.send(Subscribe(1, tuple([Subscription(filter, 1) for filter in filters])))
    answer = device.next()
    assert isinstance(answer, Suback)
    assert answer.reason_codes == (1,) * 1_000
    sender = connected(started, "sender")
    sender.send(Publish(filters[-1], b"last", 1, packet_id=1), Publish(filters[0], b"first", 1, packet_id=2))
    assert [type(sender.next()) for _ in range(2)] == [Puback, Puback]
    got = [device.next(), device.next()]
    assert sorted(message.payload for message in got if isinstance(message, Publish)) == [b"first", b"last"]
    for one in (device, sender):
        one.socket.close()
    started.kill()
    started.start()
    assert started.stop() == 0


def test_a_session_that_no_segment_holds_is_told_so(started: System) -> None:
    device = Device((started.mqtt_host, started.mqtt_port), 5)
    device.send(Connect("lasting", level=5, properties=Properties(session_expiry_interval=600)))
    assert isinstance(device.next(), Connack)
    device.send(Subscribe(1, tuple([Subscription(f"{number:04d}/" + "x" * 195) for number in range(1_000)])))
    told = device.next()
    assert isinstance(told, Disconnect)
    assert told.reason_code == 0x97
    assert "more than a segment of this broker holds" in told.properties.reason_string
    device.socket.close()
    assert started.stop() == 0
