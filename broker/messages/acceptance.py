"""Which records of an append are taken in, and where each goes: the broker's hottest code.

The tail of a record (topic and properties, as they stand behind the body) repeats from message to message of a device.
What it means (topic, queue, level, name) is worked out and checked once, and remembered under the tail's bytes; what
is left per record is its head, its lengths and its checksum. A record whose tail is one that was found good, whose
lengths add up and whose checksum agrees is exactly a record that ``message.check_record`` lets pass.

It stores nothing. Pure but for ``for_append``, which may create a topic.
"""

from __future__ import annotations

import struct
from itertools import count
from typing import Final, NamedTuple

from broker.messages.retained import Retained
from broker.sessions.exchanges import exchange_of
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.destinations import Destination
from broker.store.frames import crc32
from broker.store.level import Level
from broker.store.records import Incoming
from broker.topics.requests import TopicRequests
from penstock.errors import Busy, Fenced, InvalidMessage, InvalidRequest, InvalidTopic, PenstockError, TooLarge
from penstock.protocol.message import (
    ANY_QUEUE,
    BODY_AT,
    BODY_BYTES_MAX,
    BORN_AT,
    CLIENT_ID,
    FLAG_ONCE,
    FLAG_RETAIN,
    FLAG_WOKEN,
    FRAME_HEAD_BYTES,
    KEYS,
    KEYS_BASE64,
    MQTT_ID,
    MQTT_TOPIC,
    RECORD_BYTES_MIN,
    RECORD_MAGIC,
    UNIQUE_KEY,
    check_record,
    check_tail,
    decode_properties,
    lasts_from_ms,
    read_key,
)
from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.request import Bytes
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.runs import Run
from topicmap.names import InvalidName, check_name, is_reserved, quoted
from topicmap.queues import is_own_topic, queue_for_key

REMEMBERED_MAX: Final = 8192
REMEMBERED_BYTES_MAX: Final = 1024
"""Longer tails are not remembered: together with the number it bounds the memory to 8 MiB."""

# size, magic, body crc, queue id, flag, and behind what does not matter here the body's length
_LEAD: Final = struct.Struct(f">IIIII{BODY_AT - 24}xI")
_ROUND_ROBIN: Final = -1
_NOT_YOURS: Final = "only the broker says of a message that it was delayed"
_UNIQUE: Final = UNIQUE_KEY.encode() + b"\x01"
_EXCHANGE: Final = MQTT_ID.encode() + b"\x01"


Exchange = tuple[str, int, int, int]
"""Client, incarnation and epoch of its session, and packet id."""


class Tail(Destination):
    """What the bytes behind a record's body mean. ``key_queue``: the queue of the key, -1 without one. ``name``: as
    devices see it. ``queues``: how many the topic has."""

    __slots__ = ("exchange", "key_queue", "name", "queues")

    def __init__(
        self,
        topic: str,
        properties: bytes,
        name: str,
        queues: int,
        key_queue: int,
        level: Level,
        exchange: Exchange | None,
    ) -> None:
        super().__init__(topic, properties, level)
        self.name = name
        self.queues = queues
        self.key_queue = key_queue
        self.exchange = exchange


class Accepted(NamedTuple):
    """What is to be stored of an append, and what is not. ``repeated``: places of messages that are stored already.
    ``size``: bytes of all records."""

    batch: list[Incoming]
    refused: list[Refused]
    repeated: list[int]
    size: int


AcceptedRuns = tuple[list[Run], list[Destination], list[Refused], int, int, Level]
"""What is to be stored of a batch of runs, and where each goes; what is not stored; how many messages are stored and
the bytes of their records; the strongest level among them."""


class Acceptance:
    """Checks and places the records of appends."""

    def __init__(self, topics: TopicRequests, state: BrokerState, settings: BrokerSettings) -> None:
        self._topics = topics
        self._retained = state.retained
        self._state = state
        self._settings = settings
        self._tails: dict[bytes, Tail] = {}
        self._round_robin = count()

    def forget(self) -> None:
        """Topics have changed: what was remembered may not hold any more."""
        self._tails.clear()

    def take(self, body: Bytes, records: int, now_ms: int) -> Accepted:
        """The records of a batch, each accepted or refused on its own.

        Raises ``InvalidRequest`` where ``body`` cannot be cut into that many records.
        """
        data = body if type(body) is bytes else bytes(body)
        batch: list[Incoming] = []
        refused: list[Refused] = []
        room: RetainedRoom | None = None
        begun: set[Exchange] = set()
        repeated: list[int] = []
        tails, lead, end, at = self._tails, _LEAD.unpack_from, len(data), 0
        for number in range(records):
            if at + RECORD_BYTES_MIN > end:
                raise InvalidRequest(f"{end} bytes are not {records} records; nothing was stored")
            size, magic, crc, queue_id, flag, body_bytes = lead(data, at)
            record = data[at : at + size]
            if len(record) != size or size < RECORD_BYTES_MIN:
                raise InvalidRequest(f"a record of {size} bytes at byte {at} of {end}; nothing was stored")
            at += size
            topic_at = BODY_AT + body_bytes
            try:
                if magic != RECORD_MAGIC or crc32(record[BODY_AT:topic_at]) & 0x7FFFFFFF != crc:
                    check_record(record)  # says what is wrong with it
                if body_bytes > BODY_BYTES_MAX:
                    raise TooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, not {body_bytes}")
                tail = tails.get(record[topic_at:]) or self._learn_from(record, topic_at, now_ms)
                if queue_id == ANY_QUEUE:
                    queue_id = tail.key_queue if tail.key_queue >= 0 else next(self._round_robin) % tail.queues
                elif queue_id >= tail.queues:
                    raise InvalidRequest(f"topic {tail.topic} has {tail.queues} queues, no queue {queue_id}")
                if flag & FLAG_WOKEN:
                    raise InvalidMessage(_NOT_YOURS)
                if flag & FLAG_ONCE and self._is_repeated(tail, begun):
                    repeated.append(number)
                    continue
                if flag & FLAG_RETAIN:
                    if room is None:
                        born_ms = int.from_bytes(record[BORN_AT : BORN_AT + 8], "big")
                        room = RetainedRoom(self._retained, self._settings, lasts_from_ms(born_ms, now_ms))
                    room.take(tail.name, FRAME_HEAD_BYTES + size if body_bytes else 0)
            except PenstockError as error:
                refused.append(Refused(number, error.code, error.message))
                continue
            batch.append(Incoming(record, tail.topic, queue_id, flag, tail.properties, tail.level))
        if at != end:
            raise InvalidRequest(f"{end - at} bytes behind the last of {records} records; nothing was stored")
        return Accepted(batch, refused, repeated, end)

    def take_runs(self, runs: list[Run], now_ms: int) -> AcceptedRuns:
        """The messages of a batch of runs, each accepted or refused on its own."""
        taken: list[Run] = []
        destinations: list[Destination] = []
        refused: list[Refused] = []
        room: RetainedRoom | None = None
        begun: set[Exchange] | None = None
        repeated, first, size, level = 0, 0, 0, Level.CACHE
        for run in runs:
            raw, flag, bodies = run.tail, run.flag, run.bodies
            count = len(bodies)
            body_bytes = len(bodies[0])
            try:
                if body_bytes > BODY_BYTES_MAX:
                    raise TooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, not {body_bytes}")
                tail = self._tails.get(raw) or self._learn(raw, now_ms)
                if flag & FLAG_WOKEN:
                    raise InvalidMessage(_NOT_YOURS)
                if flag & FLAG_ONCE:  # such a message is of one exchange: the others of its run are the same
                    begun = begun or set()
                    again = count if self._is_repeated(tail, begun) else count - 1
                    repeated += again
                    bodies = bodies[: count - again]
                    if bodies and again:
                        run = run.of(bodies)
                if flag & FLAG_RETAIN and bodies:
                    if room is None:
                        room = RetainedRoom(self._retained, self._settings, lasts_from_ms(run.born_ms, now_ms))
                    size_of_one = FRAME_HEAD_BYTES + BODY_AT + body_bytes + len(raw)
                    room.take(tail.name, size_of_one if body_bytes else 0)
                if bodies:
                    run.queue_id = tail.key_queue if tail.key_queue >= 0 else next(self._round_robin) % tail.queues
                    taken.append(run)
                    destinations.append(tail)
                    size += run.size
                    if tail.level is not level and tail.level > level:
                        level = tail.level
            except PenstockError as error:
                refused += [Refused(at, error.code, error.message) for at in range(first, first + count)]
            first += count
        if repeated:  # what is stored already may still be on its way to the disk
            level = max(level, Level.DISK)
        return taken, destinations, refused, first - len(refused) - repeated, size, level

    def _is_repeated(self, tail: Tail, begun: set[Exchange]) -> bool:
        """Whether the message of an exchange is stored, or in this batch, already."""
        exchange = tail.exchange
        if exchange is None:
            raise InvalidMessage(f"a message that is stored once says of which exchange it is, in {MQTT_ID}")
        client, incarnation, epoch, packet_id = exchange
        if self._state.is_fenced(client, incarnation, epoch):
            raise Fenced("another gateway has this session by now")
        if exchange in begun or self._state.exchanges.holds(client, incarnation, packet_id):
            return True
        begun.add(exchange)
        return False

    def _learn_from(self, record: bytes, topic_at: int, now_ms: int) -> Tail:
        """Checks a record and works out what its tail means."""
        check_record(record)
        return self._learn(record[topic_at:], now_ms)

    def _learn(self, raw: bytes, now_ms: int) -> Tail:
        """Checks a tail and works out what it means."""
        properties_at = check_tail(raw)
        properties = raw[properties_at:]
        try:
            topic = raw[2 : properties_at - 2].decode()
        except UnicodeDecodeError:
            raise InvalidMessage("the topic is not UTF-8") from None
        given = decode_properties(properties)
        name = _name_of(topic, given)
        if (topic in GATEWAYS_TOPICS or is_reserved(name)) and not given.get(CLIENT_ID):
            raise InvalidTopic(f"only gateways publish under {quoted(name)}")  # no native producer can say a CLIENT_ID
        if is_own_topic(topic):
            raise InvalidTopic(f"only the broker stores messages in {topic!r}")
        config = self._topics.for_append(topic, now_ms)
        key = given.get(KEYS) or (read_key(given[KEYS_BASE64]) if KEYS_BASE64 in given else "")
        queue_id = queue_for_key(key, config.queues) if key else _ROUND_ROBIN
        exchange = exchange_of(given.get(MQTT_ID, ""))
        whose = None if exchange is None else (given.get(CLIENT_ID, ""), *exchange)
        tail = Tail(topic, properties, name, config.queues, queue_id, Level.of(config.level), whose)
        is_unique = _UNIQUE in properties or _EXCHANGE in properties  # it never comes again
        if len(raw) <= REMEMBERED_BYTES_MAX and not is_unique:
            if len(self._tails) >= REMEMBERED_MAX:
                self._tails.clear()
            self._tails[raw] = tail
        return tail


def _name_of(topic: str, given: dict[str, str]) -> str:
    """The MQTT name of a message with these properties."""
    name = given.get(MQTT_TOPIC)
    if name is None:
        return topic
    if next(iter(given)) != MQTT_TOPIC:
        raise InvalidMessage(f"the property {MQTT_TOPIC} must be the first one")  # all who route look for it there
    try:
        check_name(name)
    except InvalidName as error:
        raise InvalidTopic(f"{quoted(name)}: {error}") from None
    return name


class RetainedRoom:
    """What is left of the limits of retained messages, while a batch is looked at: nothing of it is stored yet. Those
    that have expired go with the first one that is."""

    def __init__(self, retained: Retained, settings: BrokerSettings, now_ms: int) -> None:
        self._retained = retained
        self._settings = settings
        self._sizes: dict[str, int] = {}  # names that the batch decides
        self._expired = retained.expired_by(now_ms)
        self._count = len(retained) - len(self._expired)
        self._bytes = retained.bytes - sum(self._expired.values())

    def take(self, name: str, size: int) -> None:
        """A message of ``size`` bytes is retained under a name; 0 removes it. Raises ``Busy`` over a limit."""
        before = self._sizes.get(name)
        if before is None:
            before = 0 if name in self._expired else self._retained.size_of(name)
        messages = self._count + (size > 0) - (before > 0)
        total = self._bytes + size - before
        settings = self._settings
        more = messages > self._count or total > self._bytes
        if more and (messages > settings.retained_max or total > settings.retained_bytes_max):
            raise Busy(
                f"{self._count} retained messages with {self._bytes} bytes: the limit is reached",
                hint="remove some by publishing empty ones, or raise retained_max and retained_bytes_max",
            )
        self._sizes[name] = size
        self._count, self._bytes = messages, total
