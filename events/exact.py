"""Sends events to topics so that each is stored once, known by the place where it was first stored.

To the broker a rule is an idempotent producer for each queue that it reads, and an event's number is its offset there
(docs/decisions/0042, 0088). A reset of the rule's group means to deliver again, so it makes another producer; so does a
rule that is deleted and created again. The brokers of the target are part of the producer's name: if they change, an
event may be stored twice, but none is taken for another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import trio

from events.delivery import Failed
from penstock import Message
from penstock.client.discovery import Discovery
from penstock.client.preparation import ID_BYTES
from penstock.client.sending import choose
from penstock.client.wire_link import ask
from penstock.errors import NoRoute, NumberTaken, PenstockError, from_wire
from penstock.protocol.link import Links
from penstock.protocol.message import (
    ANY_QUEUE,
    FLAG_SEQUENCED,
    UNIQUE_KEY,
    encode_message,
    encode_properties,
    encode_record,
    record_properties,
)
from penstock.protocol.requests.groups import HeldOffsets, HoldOffsets, Progress
from penstock.protocol.requests.messages import Append, Appended
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.runs import DIGITS
from penstock.service.topic_rate import TopicRate
from penstock.world import Clock

SEND_S: Final = 15.0
_ASKER: Final = "events"
_UNMOVED: Final = -1


class Origin(NamedTuple):
    """The place where an event was stored first."""

    broker: str
    queue: str
    offset: int


class RuleSender(NamedTuple):
    """A rule as a producer. ``created_ms``: when the rule was created."""

    group: str
    created_ms: int


class ExactSends:
    """Sends events to topics.

    Args:
        servers, links: the cluster, at whose ports the bridge has its key.
        rate: of the topics that events make, by rule.
    """

    def __init__(self, servers: str, links: Links, clock: Clock, rate: TopicRate) -> None:
        self._rate = rate
        self._discovery = Discovery(servers, links, clock=clock)
        self._clock = clock

    async def send(self, sender: RuleSender, rows: Sequence[tuple[Origin, Message]]) -> None:
        """Stores messages of one topic, those that are not stored yet. Raises ``Failed`` where one of them is not
        stored."""
        try:
            with trio.fail_after(SEND_S):
                await self._send(sender, rows)
        except trio.TooSlowError:
            raise Failed(f"the topic's brokers did not answer within {SEND_S:g} s") from None
        except PenstockError as error:
            self._discovery.forget(rows[0][1].topic)
            raise Failed(f"{type(error).__name__}: {error.message}", is_final=not error.retryable) from None

    async def _send(self, sender: RuleSender, rows: Sequence[tuple[Origin, Message]]) -> None:
        topic = rows[0][1].topic
        await self.find_or_make(topic, sender)
        found = await self._discovery.holders(topic)
        layout = sorted([*[one.broker for one in found.brokers], *found.away])
        whole = [BrokerRoute(name, "", 1) for name in layout]
        set_backs = await self._set_backs(sender.group, [origin for origin, _ in rows])
        parts: dict[str, list[bytes]] = {}
        for origin, message in rows:
            route = route_of(origin, message, found.brokers, whole)
            told = (*sender, set_backs[origin.broker, origin.queue], origin.broker, origin.queue, topic, route.broker)
            parts.setdefault(route.address, []).append(
                record_of(message, producer_of(*told, *layout), origin.offset, self._clock.wall_ms())
            )
        for address, records in parts.items():
            request = Append(len(records), False, b"".join(records))
            answer = await ask(self._discovery.link(address), request, Appended, SEND_S)
            for one in answer.refused:
                if one.code != NumberTaken.code:  # delivered before, as an earlier version of the rule made it
                    raise from_wire(one.code, one.message)

    async def find_or_make(self, topic: str, sender: RuleSender) -> None:
        """Has a topic made that is not there. The events of a rule may name topics, and so each rule makes a limited
        number: the brokers know only the bridge. Raises ``Busy``, and what the cluster says."""
        try:
            await self._discovery.brokers(topic)
        except NoRoute:
            self._rate.take(f"the rule {sender.group}", self._clock.monotonic())
            await self._discovery.brokers(topic, create=True)

    async def _set_backs(self, group: str, origins: Sequence[Origin]) -> dict[tuple[str, str], int]:
        """The number of set-backs of a group's position, by broker and queue. The request that asks holds the
        position for no time and does not move it."""
        addresses = {one.broker: one.address for one in await self._discovery.all_brokers()}
        found: dict[tuple[str, str], int] = {}
        for broker in sorted({one.broker for one in origins}):
            queues = sorted({one.queue for one in origins if one.broker == broker})
            progress = tuple([Progress(queue, _UNMOVED, 0) for queue in queues])
            link = self._discovery.link(addresses.get(broker, broker))
            held = await ask(link, HoldOffsets(group, _ASKER, 0.0, progress), HeldOffsets, SEND_S)
            found |= {(broker, row.queue): row.set_backs for row in held.progress}
        return found


def route_of(
    origin: Origin, message: Message, live: Sequence[BrokerRoute], whole: Sequence[BrokerRoute]
) -> BrokerRoute:
    """The broker of a message: that of its key, as all producers choose it, or of the queue that it came from. Raises
    ``PenstockError`` where that broker does not take messages now. ``whole``: all brokers, also those that are away."""
    key = message.key or f"{origin.broker}/{origin.queue}"
    if live and live[0].places:
        return choose(key, live, 0)  # an ordered topic: its configuration says which broker has a key
    wanted = choose(key, whole, 0).broker
    return choose(key, [one for one in live if one.broker == wanted], 0)


def producer_of(*told: str | int) -> str:
    """The name of a producer: the text before the numbers of its messages."""
    return blake2b(repr(told).encode(), digest_size=(ID_BYTES - DIGITS - 1) // 2).hexdigest() + "-"


def record_of(message: Message, producer: str, number: int, born_ms: int) -> bytes:
    """The record of a message that a broker stores once."""
    properties = record_properties(encode_message(message))
    own = encode_properties({UNIQUE_KEY: f"{producer}{number:0{DIGITS}x}"})
    packed = properties + b"\x02" + own if properties else own
    topic = message.topic.encode()
    return encode_record(topic, message.body, packed, queue_id=ANY_QUEUE, flag=FLAG_SEQUENCED, born_ms=born_ms)
