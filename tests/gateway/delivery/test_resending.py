"""What a client had not acknowledged goes again when it is back, in pieces, as it takes them.

Nothing lost: of all that was in flight, every message goes again under its id and in its order, once per connection,
unless its log does not have it any more or its client says that it has it.
"""

from __future__ import annotations

import pytest
from draining import drain, publishes
from linked_broker import LinkedBroker
from rig import Client, Gateway, HandClock

from gateway.delivery.resending import PIECE_BYTES
from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from gateway.sessions.session import Session
from penstock.errors import Unavailable
from penstock.protocol.requests.messages import Pull

LARGE = 100_000
TOPIC_QUEUE = "t:0"


class Slow(Client):
    """A client whose line is full as soon as it has more than so many bytes that it was not asked to take."""

    bytes_max = 50_000

    def write(self, data: bytes) -> None:
        super().write(data)
        self.unsent += len(data)
        self.is_full = self.is_full or self.unsent > self.bytes_max

    def take(self) -> None:
        """Takes all that was written."""
        self.unsent, self.is_full = 0, False
        self.gateway.rounds.begin()
        self.device.writable()
        self.gateway.round()


def in_flight(
    count: int, size: int = LARGE, qos: int = 1, broker: LinkedBroker | None = None, **settings: int
) -> tuple[Gateway, list[int]]:
    """A gateway to which a client may come back that has got so many messages and acknowledged none, and their ids."""
    one = Gateway(name="one", broker=broker, **settings)
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=qos)
    for at in range(count):
        one.produce("t", bytes([at]) * size, qos=qos)
    ids = [publish.packet_id for publish in publishes(client)]
    assert len(ids) == count
    one.pass_time(1)
    one.broker.leave_alone("one")
    return Gateway(beside=one, name="other", **settings), ids


def retaining() -> LinkedBroker:
    """A broker with a short log; each large message has a segment of its own."""
    return LinkedBroker(HandClock(), segment_bytes=1 << 17, retention_bytes=1 << 18)


def back(gateway: Gateway, level: int = 4, **properties: int) -> Slow:
    """The client is back, and takes 50,000 bytes at a time."""
    return admitted(Slow(gateway, level, "127.0.0.1"), **properties)


def stuck(gateway: Gateway, level: int = 4) -> Slow:
    """The client is back, and has not begun to take anything."""
    client = Slow(gateway, level, "127.0.0.1")
    client.is_full = True
    return admitted(client)


def admitted(client: Slow, **properties: int) -> Slow:
    expiry = Properties(session_expiry_interval=60, **properties) if client.level == 5 else NO_PROPERTIES
    client.send(Connect("c", clean_start=False, level=client.level, properties=expiry))
    connack = client._got.pop(0)
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0
    return client


def session(client: Client) -> Session:
    assert client.device.session is not None
    return client.device.session


def again(client: Client) -> list[tuple[int, int, bool]]:
    return [(one.payload[0], one.packet_id, one.dup) for one in publishes(client)]


def topic_pulls(gateway: Gateway) -> list[Pull]:
    return [one for one in gateway.broker.made(Pull) if one.queue == TOPIC_QUEUE]


def bytes_read(broker: LinkedBroker, since: int) -> int:
    """At most so many have been asked for by requests for this many messages of ``LARGE`` bytes."""
    return sum(min(one.count_max * LARGE, one.bytes_max) for one in broker.requests[since:] if isinstance(one, Pull))


@pytest.mark.mqtt("4.4.0-1", "4.6.0-1", "3.3.1-1", old=("4.4.0-1", "4.6.0-1"))
@pytest.mark.parametrize("at_once", [False, True])
def test_a_client_that_does_not_read_is_sent_one_piece_and_the_next_when_it_has_taken_it(at_once: bool) -> None:
    other, ids = in_flight(20)
    other.broker.answers_at_once = at_once
    client = back(other)
    other.produce("t", b"\xff new", qos=1)
    other.pass_time(5)
    got, pieces = [], 0
    while more := again(client):
        assert client.unsent <= PIECE_BYTES
        assert [made.is_whole for _, made in session(client).sent()[:20]].count(True) == 0
        got += more
        pieces += 1
        before = len(other.broker.requests)
        client.take()
        assert bytes_read(other.broker, before) <= PIECE_BYTES + LARGE
    assert pieces > 5
    assert got[:20] == [(at, packet_id, True) for at, packet_id in enumerate(ids)]
    assert [first for first, _, _ in got[20:]] == [0xFF], "what is new comes after all that goes again"


def test_nothing_is_read_for_a_client_whose_line_is_full_already() -> None:
    other, ids = in_flight(4)
    client = stuck(other)
    other.pass_time(5)
    assert topic_pulls(other) == []
    assert again(client) == []
    client.take()
    assert len(topic_pulls(other)) == 1
    assert again(client) == [(at, packet_id, True) for at, packet_id in enumerate(ids[:2])]


def test_small_messages_go_from_memory_and_all_at_once_to_a_client_that_takes_them() -> None:
    other, ids = in_flight(50, size=100)
    client = back(other)
    assert again(client) == [(at, packet_id, True) for at, packet_id in enumerate(ids)]
    assert topic_pulls(other) == []


@pytest.mark.mqtt("4.4.0-1", old=("4.4.0-1",))
def test_a_window_that_is_smaller_by_now_lets_large_messages_go_again_as_they_are_acknowledged() -> None:
    other, ids = in_flight(5)
    client = back(other, level=5, receive_maximum=2)
    client.bytes_max = 1 << 20
    client.take()
    assert again(client) == [(0, ids[0], True), (1, ids[1], True)]
    client.send(Puback(ids[0]))
    assert again(client) == [(2, ids[2], True)]
    client.send(Puback(ids[1]), Puback(ids[2]))
    assert again(client) == [(3, ids[3], True), (4, ids[4], True)]


def test_qos_2_messages_go_again_in_pieces_and_exactly_once_over_both_connections() -> None:
    other, _ = in_flight(8, qos=2)
    client = back(other)
    payloads: list[int] = []
    for _ in range(40):
        for packet in client.got():
            if isinstance(packet, Publish):
                payloads.append(packet.payload[0])
                client.send(Pubrec(packet.packet_id))
            elif isinstance(packet, Pubrel):
                client.send(Pubcomp(packet.packet_id))
        client.take()
    assert payloads == list(range(8))
    one = session(client)
    assert (one.in_flight, one.releasing, one.room()) == ({}, {}, one.window)


def test_what_the_client_acknowledges_while_it_is_read_does_not_go_again() -> None:
    other, ids = in_flight(3, size=60_000)
    client = stuck(other)
    other.broker.holds = (Pull,)
    client.take()
    client.send(Puback(ids[1]))  # it has it from the connection before
    assert again(client) == []
    other.broker.let_go()
    other.round()
    assert again(client) == [(0, ids[0], True), (2, ids[2], True)]
    assert list(session(client).in_flight) == [ids[0], ids[2]]


@pytest.mark.parametrize("lost", [1, 3])
def test_what_retention_takes_before_it_goes_again_is_given_up_and_what_comes_after_goes(lost: int) -> None:
    other, ids = in_flight(3, broker=retaining())
    client = stuck(other)
    places = [message.position for message in other.broker.messages()]
    other.broker.lose_before(places[lost] if lost < 3 else other.broker.border())
    client.take()
    client.bytes_max = 1 << 20
    client.take()
    assert again(client) == [(at, ids[at], True) for at in range(lost, 3)]
    assert list(session(client).in_flight) == ids[lost:]
    other.produce("t", b"\xff", qos=1)
    other.round()
    assert [first for first, _, _ in again(client)] == [0xFF]


def test_a_retained_message_that_retention_has_passed_goes_again_as_long_as_it_is_retained() -> None:
    one = Gateway(name="one", broker=retaining())
    one.connect("p").publish("t", bytes([7]) * LARGE, qos=1, packet_id=1, retain=True)
    client = one.connect("c", clean_start=False)
    client.subscribe("t", qos=1)
    [first] = publishes(client)
    one.pass_time(1)
    one.broker.leave_alone("one")
    other = Gateway(beside=one, name="other")
    client = stuck(other)
    one.broker.lose_before(one.broker.border())
    assert one.broker.bodies() == []
    client.take()
    assert again(client) == [(7, first.packet_id, True)]


@pytest.mark.mqtt("4.13.2-1", versions=(5,))
def test_a_client_whose_messages_cannot_be_read_by_now_is_told_so_and_has_them_when_it_comes_again() -> None:
    other, ids = in_flight(3, size=60_000)
    client = stuck(other, level=5)
    other.broker.refuses = {Pull: Unavailable("away")}
    client.take()
    assert client.got_one(Disconnect).reason_code == 0x89
    assert client.is_closed
    other.broker.refuses = {}
    later = back(other)
    later.bytes_max = 1 << 20
    later.take()
    assert again(later) == [(at, packet_id, True) for at, packet_id in enumerate(ids)]


def test_a_connection_that_ends_while_its_messages_are_read_leaves_nothing_and_the_next_begins_anew() -> None:
    other, ids = in_flight(3, size=60_000)
    client = stuck(other)
    other.broker.holds = (Pull,)
    client.take()
    client.cut()
    assert other.downstream.resending.in_pieces == 0
    other.broker.let_go()
    other.round()
    assert other.downstream.resending.in_pieces == 0
    later = back(other)
    assert drain(later)
    later.bytes_max = 1 << 20
    later.take()
    drain(later)
    assert session(later).in_flight == {}
    assert len(ids) == 3
