"""What becomes of messages that are sent: where they go, how they are batched, which receipt or error each one gets.

Pure; the producers (penstock/client/producer.py and penstock/blocking/producer.py) do the waiting. An ``Outgoing`` is
one message on its way. Its record, and with it its unique id, is made once and is the same in every attempt. It ends
with a receipt or an error; the error says ``unknown`` if *any* attempt may have stored the message.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from penstock import errors
from penstock.errors import (
    InternalError,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    PenstockError,
    SendManyError,
)
from penstock.protocol.message import Message, encode_message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Append, Appended
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.topic_names import topic_of
from topicmap.names import InvalidName
from topicmap.queues import TopicMap, check_topic

BATCH_BYTES_MAX: Final = 1024 * 1024
BATCH_COUNT_MAX: Final = 4096
ROUTE_FRESH_S: Final = 30.0
"""How long a client goes by what a name server said about a topic."""
AVOID_S: Final = 5.0
"""How long messages without a key go round a broker that failed."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message is stored.

    Attributes:
        id: its unique id, made by the producer.
        queue, offset: its place; ``penstock consume`` shows the same.
        level: what it has reached, ``cache`` or ``disk``; never less than its topic's level.
        status: always ``"ok"``: a message that was not stored, or may not have been, is an error.
    """

    id: str
    queue: MessageQueue
    offset: int
    level: str
    status: Literal["ok"] = "ok"

    @property
    def topic(self) -> str:
        """The topic that it is stored in."""
        return self.queue.topic


@dataclass(slots=True)
class Outgoing:
    """One message on its way."""

    id: str
    topic: str
    key: str | bytes
    record: bytes
    receipt: Receipt | None = None
    error: PenstockError | None = None
    unknown: bool = False
    broker: BrokerRoute | None = None
    on_way: bool = False  # it was handed over in the latest attempt and has no result yet

    def fail(self, error: PenstockError) -> None:
        self.error = error
        self.on_way = False
        self.unknown = self.unknown or error.unknown


def as_message(
    message: Message | str,
    body: bytes,
    key: str | bytes,
    tag: str,
    properties: Mapping[str, str] | None,
    mqtt_topic: str,
    qos: int = 1,
    retain: bool = False,
) -> Message:
    """The message that the arguments of a ``send`` stand for. Raises ``InvalidRequest`` where they say things twice and
    ``InvalidMessage`` where one is of a wrong type."""
    if isinstance(message, Message):
        if body or key or tag or properties or mqtt_topic or qos != 1 or retain:
            hint = "give a Message alone, or a topic and a body and what else there is"
            raise InvalidRequest("a Message has its body, key, tag and properties in itself", hint=hint)
        return message
    try:
        return Message(message, body, key, tag, properties or {}, mqtt_topic, qos, retain)
    except TypeError as error:  # where messages are compiled
        raise _misfit(error, message, body, key, tag, properties or {}, mqtt_topic) from None


def prepare(message: Message, unique_id: str, topic_map: TopicMap, born_ms: int) -> Outgoing:
    """Makes a message's record. Without a topic the topic map places its MQTT name. Raises ``InvalidTopic``,
    and as ``encode_message``."""
    try:
        key, mqtt_topic = message.key, message.mqtt_topic
        if mqtt_topic and not message.topic:
            topic, placed_key = topic_map.place(mqtt_topic)
            key = key or placed_key
        else:
            topic = message.topic and topic_of(message.topic)
            if topic != message.topic:
                mqtt_topic = mqtt_topic or message.topic
        complete = Message(
            topic,
            message.body,
            key,
            message.tag,
            message.properties,
            mqtt_topic,
            message.qos,
            message.retain,
            id=message.id or unique_id,
        )
        return Outgoing(complete.id, topic, key, encode_message(complete, born_ms=message.born_ms or born_ms))
    except (TypeError, AttributeError) as error:
        if not isinstance(message, Message):
            raise InvalidMessage(f"a message must be a Message, not {_kind(message)}") from None
        raise _misfit(
            error, message.topic, message.body, message.key, message.tag, message.properties, message.mqtt_topic
        ) from None


def _misfit(
    error: Exception, topic: object, body: object, key: object, tag: object, properties: object, mqtt_topic: object
) -> InvalidMessage:
    """Which field of a message is of a wrong type, after nothing could be made of it."""
    texts = [("topic", topic), ("tag", tag), ("mqtt_topic", mqtt_topic)]
    if isinstance(properties, Mapping):
        texts += [("a property's name", name) for name in properties]
        texts += [(f"property {name!r}", value) for name, value in properties.items()]
    for name, value in texts:
        if not isinstance(value, str):
            return InvalidMessage(f"{name} must be str, not {_kind(value)}")
    if not isinstance(key, str | bytes):
        return InvalidMessage(f"key must be str or bytes, not {_kind(key)}")
    if not isinstance(body, bytes | bytearray | memoryview):
        return InvalidMessage(f"body must be bytes, not {_kind(body)}")
    if not isinstance(properties, Mapping):
        return InvalidMessage(f"properties must be a mapping, not {_kind(properties)}")
    return InvalidMessage(f"a field is of a wrong type: {error}")


def _kind(value: object) -> str:
    return type(value).__name__


def check_makeable(topic: str) -> None:
    """Raises ``InvalidTopic`` for a topic that no producer may have made: what it sends there is refused."""
    if topic in GATEWAYS_TOPICS:
        raise InvalidTopic(f"only gateways publish under {topic!r}")
    _check_topic(topic)


def nobody_has(topic: str) -> NoRoute:
    """The error for a topic that no live broker has. Raises ``InvalidTopic`` for what is none."""
    _check_topic(topic)
    return NoRoute(f"no live broker has topic {topic!r}", hint=f"`penstock topic create {topic}` creates it")


def _check_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except InvalidName as error:
        hint = "what has the MQTT name a/b is in the topic a, its first level" if "/" in topic else ""
        raise InvalidTopic(str(error), hint=hint) from None


def maker_of(topic: str, live: Sequence[BrokerRoute]) -> BrokerRoute:
    """The broker, of all that live, that makes a topic which nobody has. Clients and gateways choose the same one, so
    that it is made once."""
    return sorted(live, key=lambda one: one.broker)[zlib.crc32(topic.encode()) % len(live)]


def choose(key: str | bytes, brokers: Sequence[BrokerRoute], turn: int, avoid: Collection[str] = ()) -> BrokerRoute:
    """The broker to send to. One key stays with one broker, whatever happens to it, for its order; messages without a
    key take turns and go round the brokers at the addresses to ``avoid``. Raises ``NoRoute``."""
    writable = sorted((one for one in brokers if one.writable), key=lambda one: one.broker)
    if not writable:
        raise NoRoute("no broker takes messages for this topic just now")
    if key:
        # The broker chooses the queue by the same hash: other bits, or each broker would use a part of its queues only.
        return writable[(zlib.crc32(key.encode() if isinstance(key, str) else key) >> 16) % len(writable)]
    good = [one for one in writable if one.address not in avoid] or writable
    return good[turn % len(good)]


def batches(outgoing: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Cuts messages into pieces that fit one Append, in order."""
    start = size = 0
    for at, one in enumerate(outgoing):
        if at > start and (size + len(one.record) > BATCH_BYTES_MAX or at - start >= BATCH_COUNT_MAX):
            yield outgoing[start:at]
            start, size = at, 0
        size += len(one.record)
    if start < len(outgoing):
        yield outgoing[start:]


def append_of(batch: Sequence[Outgoing]) -> Append:
    """The request that stores a batch and tells where each record went."""
    return Append(len(batch), True, b"".join([one.record for one in batch]))


def settle(batch: Sequence[Outgoing], broker: str, result: Result) -> None:
    """Gives every message of a batch its receipt or error."""
    if not isinstance(result, PenstockError) and (not isinstance(result, Appended) or len(result.placed) != len(batch)):
        result = InternalError("the broker's answer does not fit the batch")
        result.unknown = True
    if isinstance(result, PenstockError):
        for one in batch:
            one.fail(result)
        return
    assert isinstance(result, Appended)
    queues: dict[tuple[str, int], MessageQueue] = {}  # one value for all receipts of a queue
    refused = {one.at: errors.from_wire(one.code, one.message) for one in result.refused}
    for at, (one, placed) in enumerate(zip(batch, result.placed, strict=True)):
        error = refused.get(at)
        if error is not None:
            one.fail(error)
        else:
            at_queue = (one.topic, placed.queue_id)
            queue = queues.get(at_queue) or queues.setdefault(at_queue, MessageQueue(broker, *at_queue))
            one.receipt = Receipt(one.id, queue, placed.offset, result.level)
            one.error, one.on_way = None, False


def once_more(outgoing: Sequence[Outgoing]) -> list[Outgoing]:
    """Those that failed in a way that another attempt may mend."""
    return [one for one in outgoing if one.error is not None and one.error.retryable]


def receipts(outgoing: Sequence[Outgoing]) -> list[Receipt]:
    """The receipts, in order. Raises ``SendManyError`` if a message has none."""
    failures: dict[int, PenstockError] = {}
    for at, one in enumerate(outgoing):
        if one.receipt is None:
            failures[at] = final_error(one)
    if failures:
        unknown = sum(error.unknown for error in failures.values())
        first = next(iter(failures.values()))
        raise SendManyError(
            f"{len(failures)} of {len(outgoing)} messages have no receipt ({unknown} may be stored); first: {first}",
            tuple(one.receipt for one in outgoing),
            failures,
        )
    return [one.receipt for one in outgoing if one.receipt is not None]


def final_error(one: Outgoing) -> PenstockError:
    """The error of a message without a receipt; ``unknown`` if any attempt may have stored it."""
    assert one.error is not None
    if one.unknown and not one.error.unknown:
        error = type(one.error)(one.error.message, hint=one.error.hint)
        error.unknown = True
        return error
    return one.error


class UniqueIds:
    """Ids that no other producer makes: 64 random bits once, then a counter."""

    def __init__(self, random_bits: int) -> None:
        self._prefix = f"{random_bits & (1 << 64) - 1:016x}"
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count:x}"
