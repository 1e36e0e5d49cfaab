"""How fast clients may come and speak."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.limits.rates import Door, Takeovers
from gateway.login.auth import Peer
from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish
from gateway.mqtt.properties import Properties
from gateway.settings import GatewaySettings


def test_a_client_without_limits_has_no_pace() -> None:
    assert Gateway().connect().device.pace is None


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("settings", [{"messages_per_s_max": 10}, {"bytes_per_s_max": 200}])
def test_a_client_that_sends_too_fast_is_not_read_until_it_is_level_again(level: int, settings: dict[str, int]) -> None:
    gateway = Gateway(**settings)
    client = gateway.connect(level=level)
    gateway.pass_time(1)
    client.publish("a/b", b"first", qos=1, packet_id=1)
    assert client.is_read
    client.send(*[Publish("a/b", b"x" * 20, 1, packet_id=one) for one in range(2, 22)])
    assert not client.is_read
    assert [packet.packet_id for packet in client.got() if isinstance(packet, Puback)] == list(range(1, 22))
    gateway.pass_time(0.5)
    assert not client.is_read
    gateway.pass_time(4)
    assert client.is_read
    assert sum(gateway.quotas.refused.values()) == 1


def test_publications_count_the_same_whether_they_come_the_straight_way_or_not() -> None:
    gateway = Gateway(messages_per_s_max=10)
    straight, other = gateway.connect("one"), gateway.connect("two")
    for client in (straight, other):
        client.publish("a/b")  # from now on the name is known
    gateway.pass_time(2)
    straight.send(*[Publish("a/b", b"x", 1, packet_id=one) for one in range(1, 12)])
    other.send(*[Publish("a/b", b"x", 2, packet_id=one) for one in range(1, 12)])
    assert (straight.is_read, other.is_read) == (False, False)


@pytest.mark.mqtt("4.13.2-1")
def test_where_closing_is_chosen_a_client_that_is_too_fast_is_told_so_and_closed() -> None:
    gateway = Gateway(messages_per_s_max=1, over_rate="close")
    client = gateway.connect(level=5)
    client.send(*[Publish("a", b"x", 0) for _ in range(5)])
    assert client.got() == [Disconnect(0x96, Properties(reason_string="the limit messages_per_s_max is reached"))]
    assert client.is_closed
    assert gateway.quotas.refused["messages_per_s_max"] == 1


def test_a_client_that_leaves_while_it_waits_is_forgotten_at_once() -> None:
    gateway = Gateway(messages_per_s_max=1)
    client = gateway.connect()
    client.send(*[Publish("a", b"x", 0) for _ in range(5)])
    assert not client.is_read
    client.cut()
    gateway.pass_time(0.5)
    assert gateway.services.pacing.waiting == 0
    gateway.pass_time(10)
    assert not client.is_read


@pytest.mark.mqtt("3.2.2-7", old=("3.2.2-5",))
@pytest.mark.parametrize(("level", "code"), [(3, 0x03), (4, 0x03), (5, 0x9F)])
def test_one_connect_too_many_in_a_second_is_refused(level: int, code: int) -> None:
    gateway = Gateway(connects_per_s_max=2)
    gateway.connect("a")
    gateway.connect("b")
    third = gateway.open(level)
    third.send(Connect("c", level=level))
    why = Properties(reason_string="the limit connects_per_s_max is reached") if level == 5 else Properties()
    assert third.got() == [Connack(False, code, why)]
    assert third.is_closed
    assert gateway.quotas.refused["connects_per_s_max"] == 1
    gateway.pass_time(1)
    gateway.connect("c")


def test_each_listener_has_a_rate_of_its_own() -> None:
    door = Door(GatewaySettings(connects_per_s_max=1))
    assert door.over(Peer("10.0.0.1", None, "tcp"), 0.0) == ""
    assert door.over(Peer("10.0.0.1", None, "ws"), 0.0) == ""
    assert door.over(Peer("10.0.0.2", None, "ws"), 0.0) == "connects_per_s_max"


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("a socket", "a socket", True),
        ("odd:one", "odd:two", False),
    ],
)
def test_clients_of_one_address_share_its_rate(first: str, second: str, is_same: bool) -> None:
    door = Door(GatewaySettings(address_connects_per_s_max=1))
    assert door.over(Peer(first), 0.0) == ""
    assert door.over(Peer(second), 0.0) == ("address_connects_per_s_max" if is_same else "")


def test_taking_over_is_limited_by_client_id_and_minute() -> None:
    takeovers = Takeovers(3)
    for _ in range(3):
        assert not takeovers.are_over("c", 0.0)
        takeovers.note("c", 0.0)
    assert takeovers.are_over("c", 0.0)
    assert not takeovers.are_over("d", 0.0)
    assert takeovers.are_over("c", 19.0)
    assert not takeovers.are_over("c", 20.0), "a third of a minute brings one"
    unlimited = Takeovers(0)
    for _ in range(1000):
        unlimited.note("c", 0.0)
    assert not unlimited.are_over("c", 0.0)
    assert unlimited.count == 1000


@pytest.mark.parametrize(("level", "code"), [(4, 0x03), (5, 0x9F)])
def test_clients_that_take_turns_with_one_id_come_to_rest_with_one_of_them(level: int, code: int) -> None:
    """Attack 23: each throws the other out and comes back at once."""
    gateway = Gateway(takeovers_per_min_max=5)
    holder, refused = gateway.connect("c", level=level), 0
    for _ in range(30):
        other = gateway.open(level)
        other.send(Connect("c", level=level))
        connack = other.got_one(Connack)
        if connack.reason_code:
            assert connack.reason_code == code
            assert other.is_closed
            refused += 1
        else:
            assert holder.is_closed
            holder = other
    assert refused == 25
    assert not holder.is_closed
    assert gateway.takeovers.count == 5
    assert gateway.quotas.refused["takeovers_per_min_max"] == 25
    gateway.pass_time(12)
    assert gateway.connect("c", level=level).device.session is not None
    assert holder.is_closed
    gateway.connect("another", level=level)


def test_taking_turns_between_gateways_is_limited_at_each() -> None:
    first = Gateway(takeovers_per_min_max=3)
    second = Gateway(beside=first, name="gw2", takeovers_per_min_max=3)
    accepted = 0
    for _ in range(30):
        for gateway in (first, second):
            client = gateway.open(5)
            client.send(Connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=60)))
            for other in (first, second, first):
                other.round()
            codes = [packet.reason_code for packet in client.got() if isinstance(packet, Connack)]
            accepted += codes == [0]
    assert 3 < accepted <= 8
    assert first.quotas.refused["takeovers_per_min_max"] + second.quotas.refused["takeovers_per_min_max"] > 40
