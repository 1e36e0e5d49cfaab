"""The order of one connection, on the real system: its answers come in the order of its PUBLISHes, and what it has
published before its SUBSCRIBE is in the log before the subscription is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.mqtt.packets import Connack, Connect, Packet, Puback, Publish, Pubrec, Suback, Subscribe, Subscription
from tests.endtoend.conftest import System
from tests.endtoend.lines import Device

pytestmark = pytest.mark.endtoend


WAYS = [
    pytest.param((), id="one process", marks=pytest.mark.long),
    pytest.param(("--processes",), id="processes"),
]


@pytest.fixture(scope="module", params=WAYS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    system = System(tmp_path_factory.mktemp("order") / "data", *request.param)
    try:
        system.start()
        yield system.mqtt_host, system.mqtt_port
        assert system.stop() == 0
    finally:
        system.end()


def connected(address: tuple[str, int], client_id: str, level: int) -> Device:
    device = Device(address, level)
    device.send(Connect(client_id, level=level))
    assert isinstance(device.next(), Connack)
    return device


@pytest.mark.mqtt("4.6.0-2", "4.6.0-3", old=("4.6.0-2", "4.6.0-3"))
@pytest.mark.parametrize("level", [3, 4, 5])
def test_answers_come_in_the_order_of_the_publications_whatever_is_among_them(
    address: tuple[str, int], level: int
) -> None:
    device = connected(address, f"ordered-{level}", level)
    for of in ("new", "known"):
        packets: list[Packet] = []
        for number in range(1, 51):
            name = "$SYS/x" if number % 7 == 0 else f"v{level}t{number % 5}/x"
            qos, size = 1 + number % 2, 40_000 if number % 13 == 0 else number
            packets.append(
                Publish(name, bytes(size), qos, number % 11 == 0, packet_id=number + (100 if of == "new" else 0))
            )
        device.send(*packets)
        answers = [device.next() for _ in packets]
        assert [type(one) for one in answers] == [Pubrec if number % 2 else Puback for number in range(1, 51)]
        assert [one.packet_id for one in answers if isinstance(one, Puback | Pubrec)] == [
            one.packet_id for one in packets if isinstance(one, Publish)
        ]
    device.socket.close()


@pytest.mark.mqtt("3.3.1-9", old=("3.3.1-8",))
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("last", ["t", "u"])
def test_what_is_published_before_a_subscribe_does_not_come_live(
    address: tuple[str, int], last: str, retain: bool, qos: int
) -> None:
    name = f"new{qos}{retain}/{last}"
    device = connected(address, "subscribes", 4)
    device.send(
        Publish(name, b"before", qos, retain, packet_id=7 if qos else 0),
        Subscribe(1, (Subscription(name, 0),)),
        Publish(name, b"after"),
    )
    got: list[Packet | None] = []
    while not got or not (isinstance(got[-1], Publish) and got[-1].payload == b"after"):
        got.append(device.next())
        assert got[-1] is not None
    assert [(one.payload, one.retain) for one in got if isinstance(one, Publish)] == [
        *([(b"before", True)] if retain else []),
        (b"after", False),
    ]
    assert [type(one) for one in got if not isinstance(one, Publish)] == [*([Puback] if qos else []), Suback]
    device.socket.close()
