"""Turns: how many filters are opened or closed in a round, who waits, and what waits with him."""

from __future__ import annotations

from typing import Any

import pytest
from rig import Client, Gateway

from gateway.connections.turns import PACKET_COST, PER_ROUND
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from gateway.sessions.session import Session

PACKETS_PER_ROUND = PER_ROUND // (1 + PACKET_COST)


def subscribe(packet_id: int, *filters: str) -> Subscribe:
    return Subscribe(packet_id, tuple([Subscription(one, 1) for one in filters]))


def names(count: int) -> list[str]:
    return [f"x/{at}" for at in range(count)]


def one_round(gateway: Gateway, *sent: tuple[Client, list[Packet]]) -> bool:
    """What these clients send comes in one round. Whether it calls for another."""
    gateway.rounds.begin()
    for client, packets in sent:
        client.device.receive(b"".join([encode(packet, client.level) for packet in packets]))
    gateway.calls = 0
    gateway.rounds.finish()
    gateway.broker.flush()
    return gateway.calls > 0


def standing(client: Client) -> int:
    assert client.device.session is not None
    return len(client.device.session.subscriptions)


def test_a_subscribe_with_many_filters_takes_several_rounds_and_has_one_answer() -> None:
    gateway = Gateway()
    client, filters = gateway.connect(level=5), [*names(600), "a#"]
    assert one_round(gateway, (client, [subscribe(1, *filters)]))
    assert standing(client) == PER_ROUND
    assert not client.is_read
    assert one_round(gateway)
    assert standing(client) == 2 * PER_ROUND
    assert client.got() == []
    gateway.round()
    assert client.got() == [Suback(1, (*[1] * 600, 0x8F))]
    assert client.is_read
    gateway.produce("x/599", b"late")
    assert client.payloads() == [b"late"]


def test_an_unsubscribe_too() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.subscribe(*names(600))
    assert one_round(gateway, (client, [Unsubscribe(2, (*names(600), "other"))]))
    assert standing(client) == 600 - PER_ROUND
    gateway.round()
    assert standing(client) == 0
    assert client.got() == [Unsuback(2, (*[0] * 600, 0x11))]


def test_what_a_client_sends_behind_a_subscribe_that_waits_waits_as_bytes_and_in_order() -> None:
    gateway = Gateway(topic_levels_max=2)
    client = gateway.connect(level=5)
    behind = [Publish("x/599", b"mine", 1, packet_id=7), Pingreq(), subscribe(2, "y"), Unsubscribe(3, ("y",))]
    assert one_round(gateway, (client, [subscribe(1, *names(600)), *behind]))
    held = client.device.unfinished
    assert held == sum([len(encode(packet, 5)) for packet in behind])
    assert one_round(gateway, (client, [Pingreq()]))  # on its way as the reading stopped
    assert client.device.unfinished == held + 2
    assert client.got() == []
    gateway.round()
    assert client.device.unfinished == 0
    got = client.got()
    assert [one for one in got if isinstance(one, Pingresp)] == [Pingresp()] * 2
    assert sorted([one.packet_id for one in got if isinstance(one, Suback | Unsuback)]) == [1, 2, 3]
    assert [one.payload for one in got if isinstance(one, Publish)] == [b"mine"]  # its own subscription stood


def test_damage_behind_a_subscribe_that_waits_is_told_after_its_answer() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    gateway.rounds.begin()
    client.device.receive(encode(subscribe(1, *names(600)), 5) + b"\x00\x00")
    gateway.rounds.finish()
    assert not client.is_closed
    gateway.round()
    assert client.is_closed
    [farewell] = [one for one in client.got() if isinstance(one, Disconnect)]
    assert farewell.reason_code == 0x81


def test_many_clients_that_subscribe_at_once_have_their_turns_in_the_order_in_which_they_came() -> None:
    gateway = Gateway()
    clients = [gateway.connect(f"c{at}") for at in range(3 * PACKETS_PER_ROUND)]
    bystander = gateway.connect("bystander")
    herd = [(client, [subscribe(1, "x")]) for client in clients]
    one_round(gateway, *herd, (bystander, [Publish("y", b"", 1, packet_id=1)]))
    for rounds in (1, 2, 3):
        served = rounds * PACKETS_PER_ROUND
        assert [standing(client) for client in clients] == [1] * served + [0] * (len(clients) - served)
        assert gateway.services.turns.waiting == len(clients) - served
        one_round(gateway)
    assert bystander.got() == [Puback(1)]
    assert [client.got() for client in clients] == [[Suback(1, (1,))]] * len(clients)


def test_who_comes_later_does_not_overtake_those_who_wait() -> None:
    gateway = Gateway()
    first, later = gateway.connect("first"), gateway.connect("later")
    assert one_round(gateway, (first, [subscribe(1, *names(2 * PER_ROUND + 1))]))
    assert one_round(gateway, (later, [subscribe(1, "y")]))
    assert (standing(first), standing(later)) == (2 * PER_ROUND, 0)
    one_round(gateway)
    assert (standing(first), standing(later)) == (2 * PER_ROUND + 1, 1)


def test_a_client_with_many_packets_comes_behind_the_others_with_each_of_them() -> None:
    gateway = Gateway()
    greedy, modest = gateway.connect("greedy"), gateway.connect("modest")
    many = [subscribe(at, *[f"{at}/{one}" for one in range(100)]) for at in range(1, 9)]
    assert one_round(gateway, (greedy, many), (modest, [subscribe(1, "y")]))
    assert (standing(greedy), standing(modest)) == (PER_ROUND - 2 * PACKET_COST, 0)
    assert one_round(gateway)
    assert standing(modest) == 1
    gateway.round()
    assert [one.packet_id for one in greedy.got() if isinstance(one, Suback)] == list(range(1, 9))


def test_who_goes_before_his_turn_keeps_nobody_waiting() -> None:
    gateway = Gateway()
    going, staying = gateway.connect("going"), gateway.connect("staying")
    one_round(gateway, (going, [subscribe(1, *names(900))]), (staying, [subscribe(1, "y")]))
    going.cut()
    assert staying.got() == [Suback(1, (1,))]
    assert going.got() == []
    assert gateway.services.turns.waiting == 0


def test_a_client_that_another_connection_takes_the_session_of_is_not_carried_on() -> None:
    gateway = Gateway()
    old = gateway.connect("c", clean_start=False)
    one_round(gateway, (old, [subscribe(1, *names(600)), Publish("x/0", b"never", 1, packet_id=1)]))
    new = gateway.open()
    new.send(Connect("c", clean_start=False))
    assert old.is_closed
    assert new.got() == [Connack(True)]
    assert standing(new) == PER_ROUND
    assert b"never" not in gateway.broker.bodies()


@pytest.mark.interpreted
def test_an_unforeseen_error_in_a_turn_ends_one_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway()
    bad, good = gateway.connect("bad"), gateway.connect("good")
    one_round(gateway, (bad, [subscribe(1, *names(600))]), (good, [subscribe(1, "y")]))

    subscribe_one = gateway.downstream.subscribe

    def broken(session: Session, *about: Any) -> None:
        if session.client_id == "bad":
            raise RuntimeError("nobody has foreseen it")
        subscribe_one(session, *about)

    monkeypatch.setattr(gateway.downstream, "subscribe", broken)
    gateway.round()
    assert (bad.is_closed, gateway.connections.failures) == (True, 1)
    assert good.got() == [Suback(1, (1,))]
    assert gateway.services.turns.waiting == 0
