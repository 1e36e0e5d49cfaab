"""What all clients together may have a gateway hold."""

from __future__ import annotations

import logging

import pytest
from rig import Client, Gateway

from gateway.limits.memory_budget import LOOKS_PER_S, MemoryBudget
from gateway.limits.quotas import Quotas
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Disconnect, Puback, Publish
from gateway.mqtt.properties import Properties
from gateway.mqtt.reason_codes import Reason
from gateway.settings import OUTPUT_BYTES_LEAST, GatewaySettings

MOST = 1024 * 1024
WHY = Properties(reason_string="the limit held_bytes_max is reached")


def begin(client: Client, size: int) -> bytes:
    """So many bytes of a packet of 900,000, whose end is returned."""
    whole = encode(Publish("t", bytes(900_000), 1, packet_id=7), client.level)
    client.send_bytes(whole[:size])
    return whole[size:]


def closed(clients: list[Client]) -> list[int]:
    return [at for at, client in enumerate(clients) if client.is_closed]


def test_who_holds_the_most_of_incomplete_packets_goes_first_and_only_as_many_as_must() -> None:
    gateway = Gateway(held_bytes_max=MOST)
    bystander = gateway.connect("bystander", level=5)
    rest = begin(bystander, 100_000)
    clients = [gateway.connect(f"c{at}", level=5) for at in range(6)]
    for client, size in zip(clients, (150_000, 400_000, 300_000, 500_000, 200_000, 0), strict=True):
        begin(client, size or 1)
    gateway.pass_time(1)
    assert closed(clients) == [1, 3]
    assert clients[3].got() == [Disconnect(0x97, WHY)]
    assert gateway.quotas.refused["held_bytes_max"] == 2
    assert gateway.services.room.unfinished <= MOST
    bystander.send_bytes(rest)
    assert bystander.got_one(Puback).packet_id == 7


@pytest.mark.parametrize("level", [4, 5])
def test_what_fits_is_left_alone(level: int) -> None:
    gateway = Gateway(held_bytes_max=MOST)
    clients = [gateway.connect(f"c{at}", level=level) for at in range(5)]
    for client in clients:
        begin(client, MOST // 5)
    gateway.pass_time(1)
    assert closed(clients) == []
    begin(gateway.connect("one more", level=level), MOST // 5)
    gateway.pass_time(1)
    assert len(closed(clients)) <= 1
    assert gateway.quotas.refused["held_bytes_max"] == 1


def test_packets_that_are_finished_are_held_no_more() -> None:
    gateway = Gateway(held_bytes_max=MOST)
    clients = [gateway.connect(f"c{at}", level=5) for at in range(8)]
    for _ in range(3):
        for client in clients:
            client.send_bytes(begin(client, 800_000))
            client.got_one(Puback)
    gateway.pass_time(1)
    assert closed(clients) == []
    assert gateway.services.room.unfinished == 0


def test_while_much_is_unstored_each_client_has_its_share_and_loses_nothing() -> None:
    gateway = Gateway(held_bytes_max=MOST)
    clients = [gateway.connect(f"c{at}") for at in range(20)]
    for client in clients:
        client.publish("t", b"warm")
    gateway.broker.holds_replies = True
    sent = dict.fromkeys(clients, 0)
    for _ in range(60):
        for client in clients:
            if client.is_read:
                sent[client] += 1
                client.publish("t", bytes(2_000), 1, packet_id=sent[client])
        gateway.pass_time(1)
    room = gateway.services.room
    assert not any(client.is_read for client in clients)
    assert MOST < room.unstored < MOST + 20 * 3_000
    gateway.broker.holds_replies = False
    gateway.round()
    gateway.pass_time(1)
    assert {client: len(client.got()) for client in clients} == sent
    assert all(client.is_read and not client.is_closed for client in clients)
    assert gateway.services.room.unstored_bytes_max == gateway.settings.unstored_bytes_max


class Held:
    """A connection with so much."""

    def __init__(self, unfinished: int = 0, untaken: int = 0) -> None:
        self.unfinished, self.untaken, self.unstored, self.owed = unfinished, untaken, 0, 0
        self.reasons: list[Reason] = []

    def fail(self, reason: Reason) -> None:
        self.reasons.append(reason)


class Lines:
    """A shard."""

    output_bytes_max = 0

    def limit_output(self, bytes_max: int) -> None:
        self.output_bytes_max = bytes_max


def room(*shards: Lines) -> MemoryBudget:
    return MemoryBudget(GatewaySettings(held_bytes_max=MOST), Quotas(), shards)


def test_while_much_is_untaken_each_client_may_leave_its_share_but_never_too_little_to_go_on() -> None:
    lines, full = Lines(), GatewaySettings().output_bytes_max
    one = room(lines)
    one.tick([Held(untaken=MOST // 8) for _ in range(8)], 0.0)
    assert lines.output_bytes_max == full
    one.tick([Held(untaken=MOST // 16) for _ in range(20)] + [Held() for _ in range(100)], 1.0)
    assert lines.output_bytes_max == MOST // 20
    many = [Held(untaken=MOST // 100) for _ in range(200)]
    one.tick(many, 2.0)
    assert lines.output_bytes_max == OUTPUT_BYTES_LEAST
    assert [held.reasons for held in many] == [[]] * 200
    one.tick([], 3.0)
    assert lines.output_bytes_max == full


def test_many_connections_are_looked_at_less_often() -> None:
    one = room()
    one.tick([Held() for _ in range(LOOKS_PER_S)], 0.0)
    big = [Held(unfinished=2 * MOST)]
    one.tick(big, 0.9)
    assert big[0].reasons == []
    one.tick(big, 1.0)
    assert big[0].reasons != []


def test_the_log_says_it_once_and_again_after_there_was_room(caplog: pytest.LogCaptureFixture) -> None:
    one = room()
    with caplog.at_level(logging.WARNING):
        for second, untaken in enumerate((2, 2, 0, 0, 2)):
            one.tick([Held(untaken=untaken * MOST)], second)
    assert len(caplog.records) == 2
    assert "held_bytes_max" in caplog.text
