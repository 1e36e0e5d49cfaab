"""Batches to the brokers, and what their replies mean for each device."""

from __future__ import annotations

import pytest
from making import batch_of
from memory_broker import MemoryBroker
from rig import Gateway

from gateway.envelope import NEVER, arrivals
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Puback, Publish
from gateway.session_state import Will
from penstock.errors import Busy, InvalidMessage
from penstock.message import PROPERTIES_BYTES_MAX, decode_message
from penstock.requests.messages import AppendRuns
from penstock.requests.routes import BrokerRoute, Route


def test_a_round_of_many_devices_is_one_append() -> None:
    gateway = Gateway()
    clients = [gateway.connect(str(at)) for at in range(5)]
    for client in clients:
        client.publish("a", b"warm")
    before = len(gateway.broker.made(AppendRuns))
    gateway.rounds.begin()
    for at, client in enumerate(clients):
        client.device.receive(b"\x32\x06\x00\x01a\x00\x01" + bytes([at]))
    gateway.round()
    assert [request.count for request in gateway.broker.made(AppendRuns)[before:]] == [5]
    assert [client.got() for client in clients] == [[Puback(1)]] * 5


def test_a_batch_that_grows_too_large_leaves_within_the_round() -> None:
    gateway = Gateway(append_bytes_max=10_000)
    client = gateway.connect()
    client.publish("a", b"warm")
    before = len(gateway.broker.made(AppendRuns))
    gateway.rounds.begin()
    for _ in range(10):
        client.device.receive(encode(Publish("a", bytes(3000)), 4))
    gateway.round()
    assert [request.count for request in gateway.broker.made(AppendRuns)[before:]] == [4, 4, 2]
    assert len(gateway.broker.log) == 11


def test_one_refused_record_concerns_only_its_device() -> None:
    gateway = Gateway()
    clients = [gateway.connect(str(at), level=5) for at in range(3)]
    for client in clients:
        client.publish("a", b"warm")
    gateway.broker.refused_records = {1: Busy("no room")}
    gateway.rounds.begin()
    for client in clients:
        client.device.receive(b"\x32\x06\x00\x01a\x00\x01\x00")
    gateway.round()
    assert [client.got() for client in clients] == [[Puback(1)], [Puback(1, 0x97)], [Puback(1)]]


def test_a_client_keeps_its_messages_in_one_queue_by_its_key() -> None:
    gateway = Gateway()
    client = gateway.connect("dev-1")
    client.publish("a/1")
    client.publish("a/2")
    assert {decode_message(record).key for record in gateway.broker.log} == {"dev-1"}


class TwoBrokers(MemoryBroker):
    def _QueryRoute(self, request: object) -> Route:
        return Route((BrokerRoute("a", "a:1", 4), BrokerRoute("b", "b:1", 4)))


def test_a_topic_with_several_brokers_is_spread_by_key_and_each_key_stays() -> None:
    gateway = Gateway()
    gateway.broker.__class__ = TwoBrokers
    lanes: dict[str, set[str]] = {}
    for at in range(20):
        client = gateway.connect(f"dev-{at}")
        client.publish("fresh/x")
        for name in ("fresh/x", "fresh/y"):
            lane = gateway.upstream.route(name, f"dev-{at}").lane()
            assert lane is not None
            lanes.setdefault(f"dev-{at}", set()).add(lane.broker.address)
    assert all(len(addresses) == 1 for addresses in lanes.values())
    assert set.union(*lanes.values()) == {"a:1", "b:1"}


def test_a_will_is_published_with_its_flags_and_properties() -> None:
    gateway = Gateway()
    gateway.upstream.publish_will("c", Will("w", b"gone", 2, True, 0, 60, b"\x01\x01"))
    gateway.round()
    [record] = gateway.broker.log
    [arrival] = arrivals(1, batch_of(record))
    assert (arrival.name, arrival.payload, arrival.qos, arrival.retain) == ("w", b"gone", 2, True)
    assert (arrival.application, arrival.sender) == (b"\x01\x01", b"c")
    assert arrival.expires_ms != NEVER


def test_a_refused_will_is_counted_and_nobody_is_told() -> None:
    gateway = Gateway()
    gateway.upstream.publish_will("c", Will("w", b"", 1, False, 0, NEVER, b""))
    gateway.broker.refused_records = {0: InvalidMessage("x")}
    gateway.round()
    assert gateway.upstream.dropped == 1


def test_properties_have_a_limit_once_stored() -> None:
    gateway = Gateway()
    route = gateway.upstream.route("a", "c")
    assert gateway.upstream.properties(route, "c", NEVER, b"") == b""  # the route's own
    assert len(gateway.upstream.properties(route, "c", NEVER, bytes(20_000))) <= PROPERTIES_BYTES_MAX
    with pytest.raises(InvalidMessage, match="32767"):
        gateway.upstream.properties(route, "c", NEVER, bytes(25_000))


def test_nothing_is_left_unanswered() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a", b"x", 1, packet_id=1)
    assert gateway.upstream.unanswered == 0
    gateway.broker.holds_replies = True
    client.publish("a", b"x", 1, packet_id=2)
    assert gateway.upstream.unanswered == 1
