"""Subscriptions that begin in the past, and gateways on brokers that have one."""

from __future__ import annotations

import random

from linked_broker import LinkedBroker
from rig import Client, Gateway

from gateway.login.auth import Authenticator
from gateway.mqtt.properties import Properties
from penstock.protocol.message import Message
from penstock.protocol.requests.topics import CreateTopic


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
    broker: LinkedBroker | None = None,
    **settings: int,
) -> tuple[Gateway, Client]:
    """A gateway whose topic ``plant`` holds so many messages under two names, each stored a second later; they go to
    the queues in turn, or as chance has it."""
    gateway = Gateway(authenticator, broker=broker, **settings)
    gateway.broker.ask(CreateTopic("plant", queues))
    for number in range(count):
        queue_id = number % queues if rng is None else rng.randrange(queues)
        gateway.produce("plant", b"%d" % number, queue_id, mqtt_topic=f"plant/{number % 2}", qos=1)
        gateway.clock.now_s += 1
    return gateway, gateway.connect("publisher")


def numbers(client: Client) -> list[int]:
    return [int(one) for one in client.payloads()]


def another(gateway: Gateway) -> LinkedBroker:
    """One more broker, of which the gateway has not heard yet."""
    return LinkedBroker(gateway.clock, "c", "broker:2")


def stored_at(broker: LinkedBroker, *numbers: int) -> None:
    for number in numbers:
        broker.produce(Message(topic="plant", body=b"%d" % number, mqtt_topic="plant/0", qos=1))
