"""Positions that the server keeps for a subscription with a name."""

from __future__ import annotations

import pytest
from rig import Client, Gateway
from test_replay import asking, gateway_with, numbers

from gateway.mqtt.packets import Puback, Publish, Pubrec
from penstock.errors import Fenced, Unavailable
from penstock.requests.groups import CommitOffsets


def take(client: Client, *, answers: bool = True, refuses: bool = False) -> list[int]:
    """What came, acknowledged."""
    packets = [one for one in client.got() if isinstance(one, Publish)]
    for one in packets if answers else ():
        if one.qos:
            kind = Puback if one.qos == 1 else Pubrec
            client.send(kind(one.packet_id, 0x80 if refuses else 0))
    return [int(one.payload) for one in packets]


def kept(gateway: Gateway, name: str = "billing") -> dict[str, int]:
    gateway.pass_time(0.5)
    return gateway.broker.groups.get(name, {})


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_position_moves_as_the_client_acknowledges_and_the_next_one_begins_there(qos: int, refuses: bool) -> None:
    gateway, publisher = gateway_with(6)
    for number in range(6, 9):
        publisher.publish("plant/0", b"%d" % number, 2, packet_id=100 + number)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=qos, properties=asking("named=billing", "beginning"))
    assert take(client, refuses=refuses) == list(range(9))
    publisher.publish("plant/0", b"9", 2, packet_id=200)
    assert take(client, refuses=refuses) == [9]
    assert kept(gateway) == {"plant:0": 4, "plant:1": 3, "plant:2": 3}
    client.cut()
    for number in (10, 11):
        publisher.publish("plant/0", b"%d" % number)
    again = gateway.connect("t", level=5)
    again.subscribe("plant/#", qos=qos, properties=asking("named=billing", "beginning"))
    assert take(again) == [10, 11]


def test_what_is_not_acknowledged_stays_before_the_position() -> None:
    gateway, _ = gateway_with(5, queues=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("named=billing", "beginning"))
    packets = [one for one in client.got() if isinstance(one, Publish)]
    assert kept(gateway) == {}
    client.send(*[Puback(packets[at].packet_id) for at in (0, 1, 3)])
    assert kept(gateway) == {"plant:0": 2}
    client.send(Puback(packets[2].packet_id))
    assert kept(gateway) == {"plant:0": 4}


def test_a_name_that_nobody_has_used_begins_now() -> None:
    gateway, publisher = gateway_with(3)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("named=billing"))
    publisher.publish("plant/0", b"3")
    assert take(client) == [3]


def test_a_name_begins_where_a_native_consumer_has_committed() -> None:
    gateway, _ = gateway_with(6)
    gateway.broker.groups["billing"] = {"plant:0": 1, "plant:1": 2}
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", properties=asking("named=billing", "beginning"))
    assert take(client) == [2, 3, 5]


def test_messages_of_overlapping_subscriptions_count_for_the_one_with_a_name() -> None:
    gateway, publisher = gateway_with(0, queues=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1)
    client.subscribe("plant/+", qos=1, properties=asking("named=billing"))
    publisher.publish("plant/0", b"1", 1, packet_id=1)
    assert take(client) == [1]
    assert kept(gateway) == {"plant:0": 1}


def test_commits_of_a_tick_are_one_request() -> None:
    gateway, _ = gateway_with(9)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=1, properties=asking("named=billing", "beginning"))
    take(client)
    kept(gateway)
    assert len(gateway.broker.made(CommitOffsets)) == 1


def test_a_commit_that_got_lost_is_made_again_and_one_that_is_refused_is_not() -> None:
    gateway, publisher = gateway_with(1, queues=1)
    client = gateway.connect("s", level=5)
    client.subscribe("plant/#", qos=0, properties=asking("named=billing", "beginning"))
    assert numbers(client) == [0]
    gateway.broker.refuses[CommitOffsets] = Unavailable("away")
    assert kept(gateway) == {}
    gateway.broker.refuses.clear()
    assert kept(gateway) == {"plant:0": 1}
    gateway.broker.refuses[CommitOffsets] = Fenced("a native consumer holds it")
    publisher.publish("plant/0", b"1")
    assert kept(gateway) == {"plant:0": 1}
    gateway.broker.refuses.clear()
    assert kept(gateway) == {"plant:0": 1}
    assert gateway.downstream.positions.refused == 1
