"""Subscriptions that begin in the past, and gateways on brokers that have one."""

from __future__ import annotations

import random

from memory_broker import MemoryBroker
from rig import Client, Gateway

from gateway.login.auth import Authenticator
from gateway.mqtt.properties import Properties
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.routes import BrokerRoute, Route


def asking(*starts: str, place: str = "", identifier: int = 0) -> Properties:
    pairs = [("penstock-start", one) for one in starts]
    if place:
        pairs.append(("penstock-place", place))
    return Properties(user_properties=tuple(pairs), subscription_identifiers=(identifier,) if identifier else ())


def gateway_with(
    count: int,
    queues: int = 3,
    rng: random.Random | None = None,
    authenticator: Authenticator | None = None,
    **settings: int,
) -> tuple[Gateway, Client]:
    """A gateway whose topic ``plant`` holds so many messages under two names, each stored a second later; they go to
    the queues in turn, or as chance has it."""
    gateway = Gateway(authenticator, **settings)
    gateway.broker.queues_per_topic = queues
    if rng is not None:
        gateway.broker.chosen_queue = lambda number: rng.randrange(queues)
    publisher = gateway.connect("publisher")
    for number in range(count):
        publisher.publish(f"plant/{number % 2}", b"%d" % number, 1, packet_id=number + 1)
        gateway.clock.now_s += 1
    publisher.got()
    return gateway, publisher


def numbers(client: Client) -> list[int]:
    return [int(one) for one in client.payloads()]


def joins(gateway: Gateway, second: MemoryBroker) -> None:
    """Another broker, beside the one that there is."""
    first = gateway.broker
    second.name, second.address = "c", "broker:2"
    second.state, second.sessions = first.state, first.sessions  # the home of sessions is not what is tested here
    first.link = lambda address: second if address == second.address else first  # type: ignore[method-assign]
    routes = Route((BrokerRoute("b", first.address, 1), BrokerRoute("c", second.address, 1)))
    first._QueryRoute = lambda request: routes  # type: ignore[method-assign]
    gateway.brokers.refresh()
    gateway.round()


def stored_at(broker: MemoryBroker, *numbers: int) -> None:
    for number in numbers:
        broker.append(encode_message(Message(topic="plant", body=b"%d" % number, mqtt_topic="plant/0", qos=1)))
    broker.release()
