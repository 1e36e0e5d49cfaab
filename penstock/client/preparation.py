"""Makes runs of the messages that a program sends, and says which of its arguments is wrong. Pure.

The common parts of messages are checked and made once for each kind of message and remembered; a key is a piece
of that. The rest of a message is its body and its place in a run. Ids are given when it is known to which
broker messages go, which counts them, and stay the same in every attempt to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict

from penstock.client.sending import BATCH_BYTES_MAX, BATCH_COUNT_MAX, Outgoing
from penstock.errors import InvalidMessage, InvalidProperty, InvalidRequest, TooLarge
from penstock.protocol.compression import COMPRESS_ABOVE, compress, system_flag_of
from penstock.protocol.message import (
    ANY_TAG,
    BODY_AT,
    BODY_BYTES_MAX,
    FLAG_RETAIN,
    FLAG_SEQUENCED,
    LENGTH_IS_REST,
    PROPERTIES_BYTES_MAX,
    RESERVED_PROPERTIES,
    SHARDING_KEY,
    Message,
    encode_message,
    encode_properties,
    record_properties,
    stored_key,
)
from penstock.protocol.runs import DIGITS, Run, flagged
from penstock.protocol.topic_names import check_publishable, topic_of
from topicmap.queues import TopicMap

ID_BYTES: Final = 16 + 1 + DIGITS
"""The parts of a unique id: producer and broker, a hyphen, the number."""
KNOWN_MAX: Final = 4096
KNOWN_BYTES_MAX: Final = 1024
"""Kinds of messages that are remembered, keys of each kind, and the maximum bytes of their tails."""
_UNUSUAL: Final = RESERVED_PROPERTIES | {"", SHARDING_KEY}
"""Properties that say more than their value, or that are refused."""


class Fields(TypedDict, total=False):
    """The fields of a ``Message`` that ``send`` takes beside a topic and a body."""

    key: str | bytes
    tag: str
    properties: Mapping[str, str] | None
    mqtt_topic: str
    qos: int
    retain: bool
    shard: str


def as_message(
    message: Any,
    body: Any,
    key: Any = "",
    tag: Any = "",
    properties: Any = None,
    mqtt_topic: Any = "",
    qos: Any = 1,
    retain: Any = False,
    shard: Any = "",
) -> Message:
    """The message that the arguments of a ``send`` stand for; of any type, because a program may say anything. Raises
    ``InvalidRequest`` where they say things twice and ``InvalidMessage`` where one is of a wrong type."""
    if isinstance(message, Message):
        if body or key or tag or properties or mqtt_topic or qos != 1 or retain or shard:
            hint = "give a Message alone, or a topic, a body and further fields"
            raise InvalidRequest("a Message has its body, key, tag and properties in itself", hint=hint)
        return message
    if shard != "":
        if not isinstance(shard, str):
            raise InvalidMessage(f"shard must be str, not {_kind(shard)}")
        if isinstance(properties or {}, Mapping):
            properties = {**(properties or {}), SHARDING_KEY: shard}
    try:
        return Message(message, body, key, tag, properties or {}, mqtt_topic, qos, retain)
    except TypeError as error:  # where messages are compiled
        raise _misfit(error, message, body, key, tag, properties or {}, mqtt_topic, retain) from None


def messages_of(message: Any, body: Any, fields: Fields) -> list[Message]:
    """One message, given as to ``as_message``, or a sequence of several. Raises as that, and ``InvalidRequest`` for an
    empty sequence."""
    if isinstance(message, str | Message):
        return [as_message(message, body, **fields)]
    if body or fields:
        raise InvalidRequest("messages have their bodies, keys, tags and properties in themselves")
    if not isinstance(message, Iterable):
        raise InvalidRequest(f"expected a topic, a Message or several, not {message!r:.100}")
    messages = list(message)
    if not messages:
        raise InvalidRequest("no message was given")
    return messages


class Common:
    """The common fields of messages.

    Attributes:
        topic, key: where they go.
        tail: the bytes behind each body, up to their ids; or, with an id of the program's own (``counts`` is false),
            whole.
        flag: the application flag of each.
        is_seen: by devices, under a name of MQTT.
    """

    __slots__ = ("counts", "flag", "is_seen", "key", "tail", "topic")

    def __init__(self, topic: str, key: str | bytes, tail: bytes, flag: int, counts: bool, is_seen: bool) -> None:
        self.topic = topic
        self.key = key
        self.tail = tail
        self.flag = flag
        self.counts = counts
        self.is_seen = is_seen


class _Kind:
    """The common parts of messages except their keys. Checked once; for each key ``common`` only puts pieces together.

    ``head``: topic, with its length. ``before``, ``after``: the properties on both sides of the key; ``after`` is not
    empty, because the id is last. ``placed_key``: that of messages without one. ``shard``: chooses the broker in place
    of the key, as it says which queue there. ``commons``: of keys that were met.
    """

    __slots__ = (
        "_after",
        "_before",
        "_counts",
        "_flag",
        "_head",
        "_is_seen",
        "_placed_key",
        "_shard",
        "_topic",
        "commons",
    )

    def __init__(
        self,
        topic: str,
        placed_key: str | bytes,
        before: bytes,
        after: bytes,
        flag: int,
        counts: bool,
        shard: str,
        is_seen: bool,
    ) -> None:
        self._topic = topic
        self._placed_key = placed_key
        name = topic.encode()
        self._head = len(name).to_bytes(2, "big") + name
        self._before = before
        self._after = after
        self._flag = flag
        self._counts = counts
        self._shard = shard
        self._is_seen = is_seen
        self.commons: dict[str | bytes, Common] = {}

    def common(self, own_key: str | bytes, properties: bytes = b"") -> Common:
        """The common parts of messages with this key. ``properties``: more of them, packed. Raises ``TooLarge`` and
        ``InvalidMessage``."""
        key = own_key or self._placed_key
        pieces = [self._before] if self._before else []
        if key:
            name, value = stored_key(key)
            try:
                pieces.append(f"{name}\x01{value}".encode())
            except UnicodeEncodeError as error:
                raise InvalidMessage(f"the key is not valid Unicode: {error}") from None
        if properties:
            pieces.append(properties)
        pieces.append(self._after)
        properties = b"\x02".join(pieces)
        size = len(properties) + (ID_BYTES if self._counts else 0)
        if size > PROPERTIES_BYTES_MAX:
            raise TooLarge(f"properties have at most {PROPERTIES_BYTES_MAX} bytes, not {size}")
        tail = b"".join((self._head, min(size, LENGTH_IS_REST).to_bytes(2, "big"), properties))
        return Common(self._topic, self._shard or key, tail, self._flag, self._counts, self._is_seen)


class _Count:
    """Ids for one broker: the text before their numbers, and the next number."""

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
        is_idempotent: whether brokers store a repeated message once.
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
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._bare: dict[tuple[object, ...], _Kind] = {}  # without properties
        self._met: set[int] = set()  # hashes of kinds that came once
        self._known = 0  # keys of all kinds
        self._last = Message()  # the last one whose properties are empty
        self._last_common = _NOTHING

    def runs(self, messages: Sequence[Message], now_ms: int) -> list[Outgoing]:
        """The runs of these messages; neighbours with the same common parts are one run. Raises ``InvalidTopic``, and
        as ``encode_message``."""
        made: list[Outgoing] = []
        bodies: list[bytes] = []
        common, born_ms, size, most, unusual = _NOTHING, -1, -1, 0, b""
        for at, message in enumerate(messages):
            body = message.body if type(message) is Message else _not_a_message(message)
            if type(body) is not bytes:
                body = _bytes_of(message)
            its, its_born_ms, its_unusual = self.common(message), message.born_ms or now_ms, b""
            if self._system_flag and COMPRESS_ABOVE < len(body) <= BODY_BYTES_MAX and not its.is_seen:
                smaller = compress(body, self._system_flag)
                if len(smaller) < len(body):
                    body, its_unusual = smaller, self._compressed
            is_alike = its is common and len(body) == size and its_born_ms == born_ms and its_unusual == unusual
            if is_alike and its.counts and len(bodies) < most:
                bodies.append(body)
                continue
            if len(body) > BODY_BYTES_MAX:
                raise TooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, not {len(body)}")
            bodies = [body]
            common, born_ms, size, unusual = its, its_born_ms, len(body), its_unusual
            most = max(1, min(BATCH_COUNT_MAX, BATCH_BYTES_MAX // (BODY_AT + size + len(its.tail) + ID_BYTES)))
            run = Run(its.tail, its.flag, born_ms, bodies, its.counts)
            run.unusual = unusual
            made.append(Outgoing(at, run, its.topic, its.key, its if its.counts else None))
        for one in made:
            run = one.run
            run.size = len(run.bodies) * (run.size + ID_BYTES if run.counts else run.size)
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
        """The common parts of a message: the same object for neighbours that share them."""
        try:
            properties, key, last = message.properties, message.key, self._last
            if (
                message.topic is last.topic
                and key is last.key
                and message.mqtt_topic is last.mqtt_topic
                and message.tag is last.tag
                and message.qos == last.qos
                and message.retain == last.retain
                and message.reply_to is last.reply_to
                and message.correlation is last.correlation
                and message.content_type is last.content_type
                and not message.id
                and not properties
                and self._last_common is not _NOTHING
            ):
                return self._last_common
            common = self._common(message, key)
        except (TypeError, AttributeError) as error:
            raise _misfit(
                error,
                message.topic,
                message.body,
                message.key,
                message.tag,
                message.properties,
                message.mqtt_topic,
                message.retain,
            ) from None
        if not properties and not message.id:  # a mapping may have changed when it comes again
            self._last, self._last_common = message, common
        return common

    def _common(self, message: Message, key: str | bytes) -> Common:
        if message.reply_to or message.correlation or message.content_type:
            return self._work_out(message).common(key)  # it never comes again
        properties = message.properties
        fields = (
            message.topic,
            message.tag,
            message.mqtt_topic,
            message.qos,
            message.retain,
            message.id,
            tuple(properties.items()) if properties else (),
        )
        kind = self._kinds.get(fields)
        if kind is None:
            is_plain = properties and not (message.mqtt_topic or message.id) and _UNUSUAL.isdisjoint(properties)
            if is_plain and self._is_new(hash(fields)):
                return self._without_properties(message).common(key, encode_properties(properties))
            kind = self._work_out(message)
            if not message.id and len(kind.common("").tail) <= KNOWN_BYTES_MAX:
                self._make_room()
                self._kinds[fields] = kind
        known = kind.commons.get(key)
        if known is None:
            known = kind.common(key)
            if known.counts and len(known.tail) <= KNOWN_BYTES_MAX:
                if self._make_room():
                    self._kinds[fields] = kind
                kind.commons[key] = known
        return known

    def _is_new(self, kind: int) -> bool:
        """Whether a kind comes for the first time: many come only once, as those of events."""
        if kind in self._met:
            return False
        if len(self._met) >= KNOWN_MAX:
            self._met.clear()
        self._met.add(kind)
        return True

    def _without_properties(self, message: Message) -> _Kind:
        """The kind that a message would be of without its properties."""
        fields = (message.topic, message.tag, message.qos, message.retain)
        kind = self._bare.get(fields)
        if kind is None:
            if len(self._bare) >= KNOWN_MAX:
                self._bare.clear()
            topic, tag, qos, retain = fields
            kind = self._bare[fields] = self._work_out(Message(topic, b"", "", tag, qos=qos, retain=retain))
        return kind

    def _make_room(self) -> bool:
        """Counts one more that is remembered; returns whether all others were forgotten for it."""
        self._known += 1
        if self._known <= KNOWN_MAX:
            return False
        for kind in self._kinds.values():
            kind.commons.clear()
        self._kinds.clear()
        self._known = 1
        return True

    def _work_out(self, message: Message) -> _Kind:
        _check_fields(message)
        mqtt_topic, placed_key = message.mqtt_topic, ""
        if mqtt_topic and not message.topic:
            topic, placed_key = self._topic_map.place(mqtt_topic)
        else:
            topic = message.topic and topic_of(message.topic)
            if topic != message.topic:
                mqtt_topic = mqtt_topic or message.topic
        check_publishable(topic, mqtt_topic)
        complete = Message(
            topic,
            b"",
            "",
            message.tag,
            message.properties,
            mqtt_topic,
            message.qos,
            message.retain,
            id=message.id or "0" * ID_BYTES,
            reply_to=message.reply_to,
            correlation=message.correlation,
            content_type=message.content_type,
        )
        properties = record_properties(encode_message(complete))
        before = b""
        if mqtt_topic:  # always first
            before, _, properties = properties.partition(b"\x02")
        flag = message.qos | (FLAG_RETAIN if message.retain else 0)
        shard = message.properties.get(SHARDING_KEY) or ""
        is_seen = bool(mqtt_topic) or message.retain
        if message.id:
            return _Kind(topic, placed_key, before, properties, flag, False, shard, is_seen)
        return _Kind(topic, placed_key, before, properties[:-ID_BYTES], flag | self._flag, True, shard, is_seen)


_NOTHING: Final = Common("", "", b"", 0, False, True)


def _check_fields(message: Message) -> None:
    """Refuses what a record could hold and no reader understands. Raises ``InvalidMessage`` and ``InvalidProperty``."""
    retain: object = message.retain
    if not isinstance(retain, bool):
        raise InvalidMessage(f"retain must be bool, not {_kind(retain)}")
    if message.tag == ANY_TAG:
        raise InvalidMessage("a tag is a word, not *", hint="* stands for all tags where readers choose them")
    if "" in message.properties:
        raise InvalidProperty("a property's name is empty")


def _not_a_message(other: object) -> bytes:
    raise InvalidMessage(f"a message must be a Message, not {_kind(other)}")


def _bytes_of(message: Message) -> bytes:
    body: object = message.body
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidMessage(f"body must be bytes, not {_kind(body)}")


def _misfit(
    error: Exception,
    topic: object,
    body: object,
    key: object,
    tag: object,
    properties: object,
    mqtt_topic: object,
    retain: object,
) -> InvalidMessage:
    """Names the field of a wrong type, after a message could not be encoded."""
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
    if not isinstance(retain, bool):
        return InvalidMessage(f"retain must be bool, not {_kind(retain)}")
    return InvalidMessage(f"a field is of a wrong type: {error}")


def _kind(value: object) -> str:
    return type(value).__name__
