"""Makes runs of the messages that a program sends, and says which of its arguments is wrong. Pure.

What messages have in common is worked out and checked once for each kind of message and remembered; what is left for
each is its body and its place in a run. Ids are given when it is known to which broker messages go, which counts them,
and stay the same in every attempt to send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

from penstock.client.sending import BATCH_BYTES_MAX, BATCH_COUNT_MAX, Outgoing
from penstock.errors import InvalidMessage, InvalidProperty, InvalidRequest, TooLarge
from penstock.protocol.compression import COMPRESS_ABOVE, compress, system_flag_of
from penstock.protocol.message import (
    BODY_AT,
    BODY_BYTES_MAX,
    FLAG_RETAIN,
    FLAG_SEQUENCED,
    SHARDING_KEY,
    Message,
    encode_message,
)
from penstock.protocol.runs import DIGITS, Run, flagged
from penstock.protocol.topic_names import check_publishable, topic_of
from topicmap.queues import TopicMap

ID_BYTES: Final = 16 + 1 + DIGITS
"""Of a unique id: what stands for producer and broker, a hyphen, the number."""
KNOWN_MAX: Final = 4096
KNOWN_BYTES_MAX: Final = 1024
"""So many different kinds of messages are remembered, with tails of at most so many bytes."""


class Fields(TypedDict, total=False):
    """What ``send`` takes beside a topic and a body: fields of a ``Message``."""

    key: str | bytes
    tag: str
    properties: Mapping[str, str] | None
    mqtt_topic: str
    qos: int
    retain: bool
    shard: str


def as_message(
    message: Message | str,
    body: bytes,
    key: str | bytes = "",
    tag: str = "",
    properties: Mapping[str, str] | None = None,
    mqtt_topic: str = "",
    qos: int = 1,
    retain: bool = False,
    shard: str = "",
) -> Message:
    """The message that the arguments of a ``send`` stand for. Raises ``InvalidRequest`` where they say things twice and
    ``InvalidMessage`` where one is of a wrong type."""
    if isinstance(message, Message):
        if body or key or tag or properties or mqtt_topic or qos != 1 or retain or shard:
            hint = "give a Message alone, or a topic and a body and what else there is"
            raise InvalidRequest("a Message has its body, key, tag and properties in itself", hint=hint)
        return message
    if shard:
        properties = {**(properties or {}), SHARDING_KEY: shard}
    try:
        return Message(message, body, key, tag, properties or {}, mqtt_topic, qos, retain)
    except TypeError as error:  # where messages are compiled
        raise _misfit(error, message, body, key, tag, properties or {}, mqtt_topic) from None


def messages_of(message: Message | Sequence[Message] | str, body: bytes, fields: Fields) -> list[Message]:
    """One message, given as to ``as_message``, or a sequence of several. Raises as that, and ``InvalidRequest`` for an
    empty sequence."""
    if isinstance(message, str | Message):
        return [as_message(message, body, **fields)]
    if body or fields:
        raise InvalidRequest("messages have their bodies, keys, tags and properties in themselves")
    if not message:
        raise InvalidRequest("no message was given")
    return list(message)


class Common(NamedTuple):
    """What messages have in common: where they go, and the tail that their records have up to their ids, or, with an id
    of the program's own (``counts`` is false), whole. ``is_seen``: by devices, under a name of MQTT."""

    topic: str
    key: str | bytes
    tail: bytes
    flag: int
    counts: bool
    is_seen: bool


class _Count:
    """Ids for one broker: what is before their numbers, and the next number."""

    __slots__ = ("next", "prefix")

    def __init__(self, random_bits: int) -> None:
        self.prefix = b"%016x-" % (random_bits & (1 << 64) - 1)
        self.next = 1


class Preparation:
    """Makes runs of messages. Its unique ids are made by no other producer: 64 random bits, then a number that counts.
    It counts for each broker by itself, so that a broker that misses a number misses a message.

    Args:
        random_bits: at least 64.
        topic_map: where messages go that have an MQTT name and no topic.
        is_idempotent: whether brokers are to store what is sent again once.
        compression: of large bodies that no device sees.
    """

    def __init__(
        self, random_bits: int, topic_map: TopicMap, *, is_idempotent: bool = True, compression: str = ""
    ) -> None:
        self._random_bits = random_bits
        self._counts: dict[str, _Count] = {}  # by broker
        self._topic_map = topic_map
        self._flag = FLAG_SEQUENCED if is_idempotent else 0
        self._system_flag = system_flag_of(compression)
        self._compressed = flagged(self._system_flag)
        self._known: dict[tuple[object, ...], Common] = {}

    def runs(self, messages: Sequence[Message], now_ms: int) -> list[Outgoing]:
        """These messages, neighbours that have all in common as one run. Raises ``InvalidTopic``, and as
        ``encode_message``."""
        made: list[Outgoing] = []
        bodies: list[bytes] = []
        common, born_ms, size, most, unusual = _NOTHING, -1, -1, 0, b""
        for at, message in enumerate(messages):
            body = message.body if type(message) is Message else _not_a_message(message)
            if type(body) is not bytes:
                body = _bytes_of(message)
            if len(body) > BODY_BYTES_MAX:
                raise TooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, not {len(body)}")
            its, its_born_ms = self.common(message), message.born_ms or now_ms
            plain = body
            if self._system_flag and len(body) > COMPRESS_ABOVE and not its.is_seen:
                body = min(body, compress(body, self._system_flag), key=len)
            its_unusual = b"" if body is plain else self._compressed
            is_alike = its is common and its.counts and len(body) == size and its_born_ms == born_ms
            if not is_alike or len(bodies) >= most or its_unusual != unusual:
                bodies = []
                common, born_ms, size, unusual = its, its_born_ms, len(body), its_unusual
                most = max(1, min(BATCH_COUNT_MAX, BATCH_BYTES_MAX // (BODY_AT + size + len(its.tail) + ID_BYTES)))
                made.append(Outgoing(at, Run(its.tail, its.flag, born_ms, [body], its.counts), its.topic, its.key))
                made[-1].run.bodies, made[-1].run.unusual = bodies, unusual
            bodies.append(body)
        for one in made:
            run = one.run
            run.size = len(run.bodies) * (
                BODY_AT + len(run.bodies[0]) + len(run.tail) + (ID_BYTES if run.counts else 0)
            )
        return made

    def number(self, one: Outgoing) -> None:
        """Gives messages that go to a broker their ids, unless they have them."""
        run = one.run
        if run.number >= 0 or not run.counts:
            return
        assert one.broker is not None
        known = self._counts.get(one.broker.broker)
        if known is None:
            known = self._counts[one.broker.broker] = _Count(self._random_bits + len(self._counts))
        run.number = number = known.next
        known.next = number + len(run.bodies)
        run.tail += known.prefix + b"%012x" % number

    def common(self, message: Message) -> Common:
        """What a message has in common with others: the same object for those that have the same."""
        try:
            if message.reply_to or message.correlation:
                return self._work_out(message)  # it never comes again
            properties = message.properties
            fields = (
                message.topic,
                message.key,
                message.tag,
                message.mqtt_topic,
                message.qos,
                message.retain,
                message.id,
                tuple(properties.items()) if properties else (),
            )
            known = self._known.get(fields)
            if known is None:
                known = self._work_out(message)
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                if known.counts and len(known.tail) <= KNOWN_BYTES_MAX:
                    self._known[fields] = known
            return known
        except (TypeError, AttributeError) as error:
            raise _misfit(
                error, message.topic, message.body, message.key, message.tag, message.properties, message.mqtt_topic
            ) from None

    def _work_out(self, message: Message) -> Common:
        key, mqtt_topic = message.key, message.mqtt_topic
        if mqtt_topic and not message.topic:
            topic, placed_key = self._topic_map.place(mqtt_topic)
            key = key or placed_key
        else:
            topic = message.topic and topic_of(message.topic)
            if topic != message.topic:
                mqtt_topic = mqtt_topic or message.topic
        check_publishable(topic, mqtt_topic)
        complete = Message(
            topic,
            b"",
            key,
            message.tag,
            message.properties,
            mqtt_topic,
            message.qos,
            message.retain,
            id=message.id or "0" * ID_BYTES,
            reply_to=message.reply_to,
            correlation=message.correlation,
        )
        tail = encode_message(complete)[BODY_AT:]
        flag = message.qos | (FLAG_RETAIN if message.retain else 0)
        key = message.properties.get(SHARDING_KEY) or key  # which broker, as it says which queue there
        is_seen = bool(mqtt_topic) or message.retain
        if message.id:
            return Common(topic, key, tail, flag, False, is_seen)
        return Common(topic, key, tail[:-ID_BYTES], flag | self._flag, True, is_seen)


_NOTHING: Final = Common("", "", b"", 0, False, True)


def _not_a_message(other: object) -> bytes:
    raise InvalidMessage(f"a message must be a Message, not {_kind(other)}")


def _bytes_of(message: Message) -> bytes:
    body: object = message.body
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidMessage(f"body must be bytes, not {_kind(body)}")


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
            error_of = InvalidProperty if "property" in name else InvalidMessage
            return error_of(f"{name} must be str, not {_kind(value)}")
    if not isinstance(key, str | bytes):
        return InvalidMessage(f"key must be str or bytes, not {_kind(key)}")
    if not isinstance(body, bytes | bytearray | memoryview):
        return InvalidMessage(f"body must be bytes, not {_kind(body)}")
    if not isinstance(properties, Mapping):
        return InvalidProperty(f"properties must be a mapping, not {_kind(properties)}")
    return InvalidMessage(f"a field is of a wrong type: {error}")


def _kind(value: object) -> str:
    return type(value).__name__
